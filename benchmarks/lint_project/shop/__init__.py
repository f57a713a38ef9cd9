"""Programs, one file for each kind of model."""

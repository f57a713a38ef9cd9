"""The sick programs, one file per family of causes."""

"""Other forms of a function whose source is recorded, of which edits are made."""

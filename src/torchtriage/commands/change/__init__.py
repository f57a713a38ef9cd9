"""The commands about a change of the program: make it, prove it."""

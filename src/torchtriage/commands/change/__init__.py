"""The commands that run a program again: to make a change, to prove it, to find the origin of a NaN."""

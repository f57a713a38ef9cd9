"""Helpers that several programs of the project use."""

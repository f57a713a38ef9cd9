"""Tests of src/torchtriage/review."""

"""Imports torch and ends: the cost for a process that never compiles."""

import torch  # noqa: F401 - that is all it does

"""Imports torch and ends: what a process that never compiles pays."""

import torch  # noqa: F401 - that is all it does

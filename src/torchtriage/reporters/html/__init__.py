"""Findings as one self-contained HTML page."""

from torchtriage.reporters.html.page import render

__all__ = ["render"]

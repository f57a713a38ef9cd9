"""Findings as one self-contained HTML page, and as a short form for notebooks."""

from torchtriage.reporters.html.page import render
from torchtriage.reporters.html.short import render_short

__all__ = ["render", "render_short"]

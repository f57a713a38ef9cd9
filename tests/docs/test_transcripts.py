"""The transcripts in the docs are what the commands print."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/guides/learning-health.md",
    "docs/guides/lint.md",
    "docs/guides/lint-training-code.md",
    "docs/guides/shapes.md",
    "docs/guides/review.md",
    "docs/guides/tickets.md",
    "docs/reference/formats.md",
)


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_shows(page: str) -> None:
    done = subprocess.run(
        [sys.executable, "docs/transcripts.py", "--check", page], cwd=ROOT, capture_output=True, text=True, timeout=600,
    )
    advice = f"rewrite it with: {sys.executable} docs/transcripts.py {page}"
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{advice}"

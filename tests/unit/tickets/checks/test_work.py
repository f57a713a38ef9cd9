"""The work of `ticket check` grows with the length of the texts, not with its square."""

import datetime
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.unit.tickets.samples import seed_text
from torchtriage.tickets.batches.parse import parse_batch_file
from torchtriage.tickets.checks.check import check
from torchtriage.tickets.files.read import parse

HEAD = "# Finding Ticket: x\n\n## Metadata\n\n| F | V |\n|---|---|\n| Ticket ID | B1-X-01 |\n| Severity | P1 |\n"


def num_lines_run(function: Callable[[], object]) -> int:
    """How many lines of Python run in the function and below it, each pass of a loop included."""
    number = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal number
        number += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return number


def ticket_with(part: str, number: int) -> Callable[[], object]:
    text = HEAD + "".join(part.format(each) for each in range(number))
    return lambda: check([parse(text, Path("a.md"))], [], Path("nowhere"), datetime.date(2026, 1, 1))


def report_with(number: int) -> Callable[[], object]:
    items = "".join(f"### High (P1) {each}\n\n1. fix `name_{each}`\n" for each in range(number))
    rows = "".join(f"| B1-X-{each} | a.py | {each} | P2 | `name_{each}` is bad |\n" for each in range(number))
    table = f"| ID | File | Lines | Severity | Issue |\n|---|---|---|---|---|\n{rows}"
    text = f"# Report\n\n## Recommendations\n\n{items}\n## Detailed Findings\n\n{table}"
    return lambda: check([], [parse_batch_file(text, Path("r.md"))], Path("nowhere"), datetime.date(2026, 1, 1))


def copies_of_a_ticket(number: int) -> Callable[[], object]:
    text = seed_text("B7-PT-07")
    files = [parse(text.replace("B7-PT-07", f"B7-PT-{each}"), Path(f"{each}.md")) for each in range(number)]
    return lambda: check(files, [], Path("nowhere"), datetime.date(2026, 1, 1))


@pytest.mark.parametrize("work", [
    pytest.param(copies_of_a_ticket, id="copies of a ticket"),
    pytest.param(lambda number: ticket_with("## Part {}\n\ntext\n", number), id="other headings"),
    pytest.param(lambda number: ticket_with("## Cross-Review ({})\n\n**Verdict:** maybe\n", number), id="reviews"),
    pytest.param(lambda number: ticket_with("## Metadata\n\n| Ticket ID | B1-X-{} |\n", number), id="tables"),
    pytest.param(report_with, id="recommendations"),
])
def test_twice_as_many_headings_are_twice_the_work(work: Callable[[int], Callable[[], object]]) -> None:
    work(10)()      # fills the caches of regular expressions
    assert num_lines_run(work(200)) < 2.3 * num_lines_run(work(100))

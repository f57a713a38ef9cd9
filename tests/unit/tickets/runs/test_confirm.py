"""A finding confirms the ticket of the same file, function and cause; what is doubtful is never sure."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.samples import a_finding
from tests.unit.tickets.samples import TICKETS, seed
from torchtriage.findings.model import Category, Finding, Location
from torchtriage.tickets.files.read import parse
from torchtriage.tickets.files.render import render
from torchtriage.tickets.model import Ticket
from torchtriage.tickets.runs.confirm import match_in
from torchtriage.tickets.runs.seen_section import read_sighting
from torchtriage.tickets.runs.update import confirmed_by, tickets_by_fingerprint

ROOTS = ("/p",)
FILE = "/p/src/esper/simic/control/normalization.py"


def moved(path: str = FILE, function: str = "RunningMeanStd.update", line: int = 15, **fields: Any) -> Finding:
    return a_finding(
        **{"code": "TT738", "slug": "silent-device-migration", **fields},
        location=Location(path=path, line=line, function=function),
    )


def matched(finding: Finding, *tickets: Ticket) -> tuple[str, bool] | None:
    files = [parse(render(each), Path(each.id)) for each in tickets] or [seed(name) for name in TICKETS]
    match = match_in(files, finding, ROOTS)
    return match and (match.file.ticket.id, match.is_sure)


@pytest.mark.parametrize(("finding", "expected"), [
    (moved(), ("B5-PT-06", True)),
    (moved(function="RunningMeanStd.normalize"), ("B5-PT-06", True)),
    (moved(function="update"), ("B5-PT-06", True)),
    (moved(path="/p/other/normalization.py"), ("B5-PT-06", False)),
    (moved(function="RunningMeanStd.other", line=72), ("B5-PT-06", False)),
    (moved(function="RunningMeanStd.other"), None),
    (moved(function="Other.update"), None),
    (moved(path="/p/src/esper/simic/control/other.py"), None),
    (moved(code="TT104", slug="tensor-to-python-scalar"), ("B5-PT-06", False)),
    (moved(code="TT204", slug="changing-int-argument"), None),
    (moved(code="TT104", slug="tensor-to-python-scalar", path="/p/other/normalization.py"), None),
    (moved(category=Category.NUMERICS), None),
])
def test_the_seed_tickets(finding: Finding, expected: tuple[str, bool] | None) -> None:
    assert matched(finding) == expected


def a_ticket(ticket_id: str = "B1-CR-01", **fields: Any) -> Ticket:
    defaults = {"title": "Stats follow", "files": ("src/esper/simic/control/normalization.py",), "function": "update"}
    return Ticket(id=ticket_id, **{**defaults, **fields})


@pytest.mark.parametrize(("fields", "expected"), [
    ({"wrong": "This is TT738."}, True),
    ({"wrong": "This is TT104, a device migration."}, None),
    ({"summary": "a silent device migration"}, True),
    ({"wrong": "```python\n# device migration\n```"}, None),
    ({"summary": "a silent device migration", "function": ""}, False),
    ({"summary": "a silent device migration", "fingerprint": "ffffffffffffffff"}, None),
])
def test_the_cause_is_named_by_code_or_in_words(fields: dict[str, str], expected: bool | None) -> None:
    match = matched(moved(), a_ticket(**fields))
    assert (match and match[1]) == expected


@pytest.mark.parametrize(("wrong", "expected"), [
    ("`surrogate()` computes a sum that can overflow.", True),
    ("The sum can overflow.", False),
    ("`surrogate()` is slow.", None),
])
def test_a_function_that_the_text_of_an_imported_ticket_calls(wrong: str, expected: bool | None) -> None:
    finding = moved(code="TT704", slug="overflowing-squared-sum", category=Category.NUMERICS, function="surrogate")
    ticket = a_ticket(function="", categories=(Category.NUMERICS,), title="Gradient norm", wrong=wrong)
    found = matched(finding, ticket)
    assert (found and found[1]) is expected


def test_two_tickets_that_match_make_it_doubtful() -> None:
    tickets = [a_ticket(ticket_id, summary="device migration") for ticket_id in ("B1-CR-01", "B1-CR-02")]
    assert matched(moved(), *tickets) == ("B1-CR-01", False)


def test_the_evidence_is_in_the_machine_written_section_only() -> None:
    file = seed("B5-PT-06")
    confirmed = confirmed_by(file, moved(), "a.triage", ROOTS)
    assert confirmed.text.startswith(file.text.rstrip("\n"))
    assert confirmed.ticket == file.ticket
    assert read_sighting(confirmed).confirmed == ["0123456789abcdef"]
    assert tickets_by_fingerprint([confirmed]) == {"0123456789abcdef": "B5-PT-06"}
    assert "TT738 at src/esper/simic/control/normalization.py:15" in confirmed.text

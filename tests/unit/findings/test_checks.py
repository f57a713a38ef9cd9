"""A check becomes a sentence, and the sentence in a ticket is read back as the same check."""

from pathlib import Path

import pytest

from torchtriage.findings.checks import check_in, sentence
from torchtriage.findings.model import Check, CheckKind, Location
from torchtriage.tickets.files.read import parse

FIRST_VERSION = Path(__file__).parent.parent / "tickets" / "kept" / "B1-TT-01-first-wordings.md"
PLACE = Location(path="policy.py", line=12)
RESUME = "torch_dynamo_resume_in_forward_at_12"


@pytest.mark.parametrize("kind", CheckKind)
@pytest.mark.parametrize(
    "name", ["forward", "Policy.forward", "<lambda>", "the compiled module", "the module called at a.py:3"]
)
def test_a_sentence_reads_back_as_its_check(kind: CheckKind, name: str) -> None:
    fields = sentence(Check(kind, "{subject}", Location(path="{place}"), "{code}"))
    check = Check(
        kind,
        RESUME if kind is CheckKind.NO_RESUME_FUNCTION else name if "{subject}" in fields else "",
        PLACE if "{place}" in fields else None,
        "TT204" if "{code}" in fields else "",
    )
    assert check_in(sentence(check)) == check
    assert check_in(f"  {sentence(check)}.") in (check, Check(CheckKind.BY_HAND, f"  {name}."))


def test_a_break_at_an_unknown_place_has_no_place() -> None:
    check = Check(CheckKind.NO_GRAPH_BREAK)
    assert sentence(check) == "0 graph breaks at unknown in the next recording"
    assert check_in(sentence(check)) == check


def test_only_the_file_name_of_a_place_is_shown() -> None:
    check = Check(CheckKind.NO_GRAPH_BREAK, place=Location(path="/home/ada/policy.py", line=12))
    assert sentence(check) == "0 graph breaks at policy.py:12 in the next recording"


@pytest.mark.parametrize(("text", "check"), [
    ("No graph break at policy.py:12", Check(CheckKind.NO_GRAPH_BREAK, place=PLACE)),
    ("no tt204 of forward", Check(CheckKind.NO_FINDING, "forward", code="TT204")),
    ("Verify debug code is not in compiled paths", Check(CheckKind.NOT_IN_COMPILED_CODE)),
    ("no graph breaks at all", Check(CheckKind.BY_HAND, "no graph breaks at all")),
    ("Add a test", Check(CheckKind.BY_HAND, "Add a test")),
])
def test_a_line_written_by_a_person_is_understood(text: str, check: Check) -> None:
    assert check_in(text) == check


def test_a_ticket_file_of_the_first_version_keeps_its_checks() -> None:
    boxes = parse(FIRST_VERSION.read_text(), FIRST_VERSION).ticket.verification
    assert [check_in(box.text) for box in boxes] == [
        Check(CheckKind.NO_GRAPH_BREAK, place=PLACE),
        Check(CheckKind.NO_GRAPH_BREAK),
        Check(CheckKind.NOT_EAGER, "forward"),
        Check(CheckKind.REST_NOT_EAGER, "forward"),
        Check(CheckKind.NOT_EAGER, "the compiled function"),
        Check(CheckKind.NO_RESUME_FUNCTION, RESUME),
        Check(CheckKind.FEW_RECOMPILES, "forward"),
        Check(CheckKind.FEW_RECOMPILES, "the compiled module"),
        Check(CheckKind.NO_FINDING, "forward", code="TT101"),
        Check(CheckKind.NO_FINDING_IN_TRAINING, code="TT404"),
        Check(CheckKind.BELOW_RECOMPILE_LIMIT, "forward"),
        Check(CheckKind.BELOW_RECOMPILE_LIMIT, "forward"),
        Check(CheckKind.IS_COMPILED, "forward"),
        Check(CheckKind.NO_FAILED_COMPILE, "forward"),
        Check(CheckKind.ERRORS_NOT_SUPPRESSED),
        Check(CheckKind.LESS_COMPILE_TIME),
        Check(CheckKind.FEWER_CACHE_MISSES),
    ]

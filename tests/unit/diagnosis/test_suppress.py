"""Findings that the source accepts are taken out and counted; comments that accept nothing are named."""

import pytest

from torchtriage.diagnosis.report import build_report
from torchtriage.findings.selection import suppression_in
from torchtriage.recording.events import GraphBreak
from torchtriage.recording.recording import Process, Recording, Source

PATH = "/home/me/train.py"


def report_with(comment: str, path: str = PATH):
    line = f"    print(x)  # torchtriage: ignore[{comment}] it is a demo"
    event = GraphBreak(
        path=path, line=7, function="f", type="Failed to trace builtin operator", gb_id="GB0059", explanation="`print`",
    )
    process = Process(
        events=(event,), sources={(path, 7): Source(first_line=6, lines=("def f(x):", line, "    return x"))},
    )
    return build_report(Recording(processes=(process,), origin="trace"))


def test_a_comment_with_the_code_suppresses_the_finding() -> None:
    report = report_with("TT101")
    assert [f.code for f in report.findings] == []
    assert report.num_suppressed == 1
    assert report.unused_suppressions == []


def test_a_comment_with_another_code_is_unused_and_named() -> None:
    report = report_with("TT104")
    assert [f.code for f in report.findings] == ["TT101"]
    assert report.num_suppressed == 0
    assert report.unused_suppressions == [f"{PATH}:7: ignore[TT104]"]


def test_comments_in_a_library_are_ignored() -> None:
    report = report_with("TT101", path="/env/lib/python3.11/site-packages/lib/a.py")
    assert [f.code for f in report.findings] == ["TT101"]
    assert report.unused_suppressions == []


@pytest.mark.parametrize(("line", "codes", "reason"), [
    ("print(x)  # torchtriage: ignore[TT101] wanted here", ("TT101",), "wanted here"),
    ("x = y.item()  #torchtriage:ignore[TT104, TT222]", ("TT104", "TT222"), ""),
])
def test_a_comment_names_codes_and_a_reason(line: str, codes: tuple[str, ...], reason: str) -> None:
    suppression = suppression_in(line)
    assert suppression is not None
    assert (suppression.codes, suppression.reason) == (codes, reason)


@pytest.mark.parametrize("line", ["print(x)", "# torchtriage: ignore everything", "# torchtriage: ignore[]", ""])
def test_other_lines_suppress_nothing(line: str) -> None:
    suppression = suppression_in(line)
    assert suppression is None or not suppression.codes

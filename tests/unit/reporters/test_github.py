"""GitHub annotations: one line each, escaped for the runner, the worst first, no more than GitHub shows."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.samples import a_finding, taps
from torchtriage.findings.model import Cost, CostKind, Finding, Location, Severity
from torchtriage.findings.report import Report
from torchtriage.reporters.github import render

COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")


def text_of(*findings: Finding, **fields: Any) -> str:
    return render(Report(findings=findings, run={"cwd": "/app"}, **fields))


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """The command as GitHub's runner reads it: split first, then unescaped."""
    match = COMMAND.fullmatch(line)
    assert match, line
    properties = dict(part.split("=", 1) for part in match[2].split(","))
    return match[1], {name: unescaped(value) for name, value in properties.items()}, unescaped(match[3])


def unescaped(text: str) -> str:
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


def annotations(*findings: Finding, **fields: Any) -> list[tuple[str, dict[str, str], str]]:
    """All but the closing notice."""
    *lines, _ = text_of(*findings, **fields).splitlines()
    return [parsed(line) for line in lines]


def test_a_finding_is_an_annotation_at_its_line() -> None:
    text = text_of(
        a_finding(severity=Severity.P1, title="a: b, c", cost=Cost(seconds=2.0, kind=CostKind.OBSERVED)),
        totals={"compiles": 1},
    )
    assert text == (
        "::error file=model.py,line=14,title=TT101 P1 a%3A b%2C c::"
        "builtin print%0Acost: 2.00 s (observed)%0Afix: move it out"
        "%0Amore: torchtriage explain TT101\n"
        "::notice title=torchtriage::1 finding, 1 compile, 0 recompiles, 0 graph breaks\n"
    )


@pytest.mark.parametrize(
    ("severity", "kind"),
    [
        (Severity.P0, "error"),
        (Severity.P1, "error"),
        (Severity.P2, "warning"),
        (Severity.P3, "notice"),
        (Severity.P4, "notice"),
    ],
)
def test_the_level_follows_from_the_severity(severity: Severity, kind: str) -> None:
    assert annotations(a_finding(severity=severity))[0][0] == kind


def test_a_known_column_is_included() -> None:
    assert annotations(a_finding(location=Location(path="/app/a.py", line=3, column=7)))[0][1]["col"] == "7"


@pytest.mark.parametrize("path", ["/v/lib/python3.11/site-packages/timm/x.py", "/elsewhere/x.py", "<string>"])
def test_a_line_outside_the_repository_is_named_in_the_text(path: str) -> None:
    _, properties, message = annotations(a_finding(location=Location(path=path, line=9)))[0]
    assert set(properties) == {"title"}
    assert message.startswith(f"at {path.rsplit('site-packages/')[-1]}:9\n")


def test_a_finding_without_a_place_names_no_file() -> None:
    _, properties, message = annotations(a_finding(location=Location(path="unknown")))[0]
    assert set(properties) == {"title"}
    assert message.startswith("builtin print\n")


def test_at_most_ten_per_level_are_shown_and_the_rest_counted() -> None:
    findings = [a_finding(severity=Severity(n // 12), title=f"number {n}.") for n in range(60)]
    lines = text_of(*findings).splitlines()
    kinds = [parsed(line)[0] for line in lines]
    assert {kind: kinds.count(kind) for kind in kinds} == {"error": 10, "warning": 10, "notice": 10}
    assert "number 0." in lines[0]
    assert "31 findings more than GitHub shows (2 P0, 12 P1, 2 P2, 3 P3, 12 P4)" in parsed(lines[-1])[2]


def test_no_findings_is_a_notice_that_names_the_watched_taps() -> None:
    text = text_of(watched=taps("trace"), not_seen=taps("caches"))
    assert parsed(text.rstrip("\n")) == (
        "notice", {"title": "torchtriage"},
        "0 findings, 0 compiles, 0 recompiles, 0 graph breaks\nwatched: trace\nnot seen: caches",
    )


@pytest.mark.parametrize(
    "text", ["a\nb", "a\r\nb", "100%", "%0A", "::error::forged", "a,b=c:d", "\x85", "\u2028", "\x1b[31m"]
)
def test_text_of_the_program_cannot_forge_a_command(text: str) -> None:
    finding = a_finding(title=text, cause=text, location=Location(path=f"/app/{text}.py", line=3))
    assert len(text_of(finding).splitlines()) == 2
    _, properties, message = annotations(finding)[0]
    assert set(properties) == {"file", "line", "title"}
    if text.isprintable():
        assert properties["file"] == f"{text}.py"
        assert message.startswith(f"{text}\n")


@given(st.text(st.characters()), st.text(st.characters()), st.text(st.characters()))
def test_every_line_of_any_text_is_a_command(title: str, cause: str, path: str) -> None:
    lines = text_of(a_finding(title=title, cause=cause, location=Location(path=path, line=3))).splitlines()
    assert len(lines) == 2
    for line in lines:
        parsed(line)
        line.encode()

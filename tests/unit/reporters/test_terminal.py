"""The text report: short, literal, and safe to print with any names and messages of the program."""

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.samples import a_finding, source_lines, taps
from torchtriage.findings.model import Cost, CostKind, Evidence, Finding, Fix, Location, Owner, OwnerKind, Severity
from torchtriage.findings.report import Report
from torchtriage.findings.tap_state import TapState, TapStatus
from torchtriage.reporters import terminal
from torchtriage.reporters.terminal import MAX_LINES, render

# What a terminal acts on: C0 and C1 controls, and the marks that turn the direction of text.
UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def text_of(*findings: Finding, **kwargs: Any) -> str:
    """The report of these findings; the arguments are the report's or the renderer's."""
    fields = {field.name: kwargs.pop(field.name) for field in dataclasses.fields(Report) if field.name in kwargs}
    return render(Report(findings=findings, **fields), **kwargs)


def test_a_finding_has_title_place_cause_and_fix() -> None:
    text = text_of(
        a_finding(
            title="print() breaks forward",
            upstream="GB0059",
            owner=Owner(kind=OwnerKind.LIBRARY, name="timm", version="1.0"),
            ranks=(0, 1),
            raised_at=Location(path="/v/site-packages/timm/x.py", line=9),
            cost=Cost(seconds=61.2, kind=CostKind.OBSERVED),
            evidence=Evidence(source=source_lines("y = 1", "print(y)", first=13, at=14)),
        ),
        run={"cwd": "/app"},
    )
    assert text.split("\n\n")[0].splitlines() == [
        "TT101 P3  print() breaks forward   61.2 s (observed)",
        "  --> model.py:14  in forward   (owner: timm 1.0; raised at timm/x.py:9; ranks 0, 1)", "      14 | print(y)",
        "  why   builtin print [GB0059]", "  fix   move it out", "  more  torchtriage explain TT101",
    ]


def test_a_finding_without_a_place_shows_none() -> None:
    assert "-->" not in text_of(a_finding(location=Location(path="unknown")))


def test_findings_keep_their_given_order() -> None:
    text = text_of(a_finding(title="one"), a_finding(title="two"), a_finding(title="three"))
    assert text.index("one") < text.index("two") < text.index("three")


def test_verbose_adds_notes_and_the_fingerprint() -> None:
    finding = a_finding(evidence=Evidence(notes=("a note",)))
    assert "a note" not in text_of(finding)
    text = text_of(finding, verbose=True)
    assert "  note  a note" in text
    assert "  id    0123456789abcdef" in text


def test_many_folded_frames_are_counted() -> None:
    finding = a_finding(evidence=Evidence(folded=tuple(f"frame {n}" for n in range(9))))
    assert "frame 2" in text_of(finding)
    assert "frame 3" not in text_of(finding)
    assert "6 more (-v)" in text_of(finding)
    assert "frame 8" in text_of(finding, verbose=True)


def test_recompiles_explained_by_a_limit_above_are_short() -> None:
    limit = a_finding("TT301", title="f hit its limit", related=("cause",), fingerprint="limit")
    cause = a_finding("TT204", title="f recompiled", cause="a long story", fingerprint="cause")
    text = text_of(limit, cause)
    assert "a long story" not in text
    assert "see TT301 above, which it led to" in text
    assert "a long story" in text_of(limit, cause, verbose=True)
    assert "a long story" in text_of(cause, limit)


@pytest.mark.parametrize("number", [1, 20, 40, 400])
def test_at_most_three_screens_are_shown_and_the_rest_counted(number: int) -> None:
    findings = [
        a_finding(severity=Severity(min(4, n // 10)), fingerprint=str(n), title=f"finding {n}.") for n in range(number)
    ]
    text = text_of(*findings, next_command="torchtriage report x")
    shown = len(re.findall(r"finding \d+\.", text))
    assert len(text.splitlines()) <= MAX_LINES + 3
    left = number - shown
    assert (f"{left} more (" in text) is (left > 0)
    assert f"{number} finding" in text
    assert len(re.findall(r"finding \d+\.", text_of(*findings, verbose=True))) == number


def test_remaining_findings_are_counted_by_severity() -> None:
    findings = [a_finding(severity=Severity.P1 if n < 30 else Severity.P4, fingerprint=str(n)) for n in range(40)]
    [line] = [line for line in text_of(*findings).splitlines() if "more (" in line]
    counts = {name: int(number) for number, name in re.findall(r"(\d+) (P\d)", line)}
    assert counts["P4"] == 10
    assert sum(counts.values()) == int(line.split()[0])


def test_a_single_very_long_finding_is_shown() -> None:
    assert "the end" in text_of(a_finding(cause="word " * 5000 + "the end"))


def test_no_findings_lists_watched_and_missing_taps() -> None:
    lines = text_of(
        watched=taps("steps", "trace"), not_seen=taps("skipped frames: gone", "caches"), totals={"compiles": 1}
    ).splitlines()
    assert lines == [
        "0 findings, 1 compile, 0 recompiles, 0 graph breaks", "no findings", "watched: steps, trace",
        "not seen: skipped frames: gone; caches",
    ]


def test_parts_that_only_a_monitor_reports_share_one_phrase() -> None:
    unreported = [TapState(name=name, status=TapStatus.NOT_REPORTED) for name in ("recurrent state", "PPO updates")]
    [line] = [line for line in text_of(not_seen=[*unreported, *taps("caches")]).splitlines() if "not seen" in line]
    assert line.startswith("not seen: caches; recurrent state and PPO updates (report them with")


def test_no_findings_and_nothing_watched_says_so() -> None:
    assert "watched: nothing: torch was not imported, or no process joined" in text_of()


def test_the_totals_are_one_line() -> None:
    totals = {
        "compiles": 9,
        "graph_breaks": 3,
        "distinct_graph_breaks": 1,
        "recompiles": 1,
        "frames_at_limit": 2,
        "eager_calls": 412,
        "compile_seconds": 61.2,
        "steps": 100,
    }
    assert text_of(a_finding(), totals=totals, width=160).splitlines()[-1] == (
        "1 finding, 9 compiles, 1 recompile, 3 graph breaks at 1 place, 2 frames at their limit, "
        "412 eager calls, 61.2 s compiling, 100 steps"
    )


def test_hidden_findings_are_counted_and_the_next_command_is_last() -> None:
    lines = text_of(num_known=1, num_hidden=2, num_suppressed=3, next_command="torchtriage report x -v").splitlines()
    assert lines[-4:] == [
        "1 known finding accepted by the baseline",
        "2 hidden by --select or --ignore",
        "3 suppressed by a comment in the source",
        "next: torchtriage report x -v",
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_long_texts_are_wrapped_to_the_width(width: int) -> None:
    text = text_of(a_finding(cause="some words " * 60, fix=Fix(text="other words " * 60)), width=width).split("\n\n")[0]
    assert width - 20 < max(len(line) for line in text.splitlines()) <= width


LONG = a_finding(
    title="torch.compile at train.py:5 was not reached in this run " * 2, severity=Severity.P1,
    location=Location(path="/app/models/transformer/attention.py", line=1234, function="MultiHeadAttention.forward"),
    raised_at=Location(path="/v/site-packages/transformers/integrations/flex_attention.py", line=99), ranks=(0, 1),
    owner=Owner(kind=OwnerKind.LIBRARY, name="transformers", version="5.1.0"),
    cost=Cost(seconds=61.2, share=0.4, kind=CostKind.OBSERVED, note="compile time of these recompiles"),
    evidence=Evidence(source=source_lines("scores = scores + " * 9 + "mask", first=1234, at=1234)),
)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_but_a_command_is_wider_than_the_terminal(width: int) -> None:
    totals = {"compiles": 1200, "graph_breaks": 3, "recompiles": 1100, "frames_at_limit": 2, "eager_calls": 412,
              "compile_seconds": 61.2, "steps": 100}
    command = "torchtriage report " + "folder/" * 20 + " -v"
    lines = text_of(LONG, totals=totals, run={"cwd": "/app"}, width=width, next_command=command).splitlines()
    assert lines[-1] == f"next: {command}"
    assert max(map(len, lines[:-1])) <= width
    words = {word for line in lines for word in line.split()}
    # Nothing is cut within a word.
    assert {"models/transformer/attention.py:1234", "MultiHeadAttention.forward", "transformers/integrations/"
            "flex_attention.py:99;", "reached", "recompiles)", "compiling,"} <= words
    assert [line for line in lines if line.endswith("...")] == [line for line in lines if " | " in line]


@pytest.mark.parametrize("width", [-5, 0, 10])
def test_a_terminal_without_a_width_gets_a_readable_one(width: int) -> None:
    assert "  why   some words" in text_of(a_finding(cause="some words " * 60), width=width)


def test_a_long_path_is_not_cut() -> None:
    path = "/" + "a" * 300 + "/model.py"
    assert path in text_of(a_finding(location=Location(path=path, line=3)), width=60)


def test_there_is_no_colour_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in text_of(a_finding())


@pytest.mark.parametrize("environment", [{"TERM": "xterm"}, {"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_colour_can_be_requested(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Whether to colour is decided by the command; --color always holds on any terminal."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    text = text_of(a_finding(severity=Severity.P1), colour=True)
    assert "\x1b[" in text
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == text_of(a_finding(severity=Severity.P1))


MARKUP = [
    "[bold]x[/bold]", "[/]", "[link=http://x]y[/link]", "x[:end:2]", ":warning:", "d[:fire:]", "[red", "\\[", "{0}",
    "%s",
]


@pytest.mark.parametrize("text", MARKUP)
def test_text_that_looks_like_markup_is_printed_unchanged(text: str) -> None:
    finding = a_finding(
        title=f"title {text}", cause=f"cause {text}", fix=Fix(text=f"fix {text}"),
        location=Location(path=f"/{text}/a.py", function=f"f{text}"),
        evidence=Evidence(source=source_lines(text, first=3, at=3), folded=(f"folded {text}",)),
    )
    for colour in (True, False):
        shown = text_of(finding, colour=colour, watched=taps(text), next_command=f"next {text}")
        for expected in ("title ", "cause ", "fix ", "folded ", "next ", "3 | ", "in f"):
            assert f"{expected}{text}" in shown


ATTACKS = [
    "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "a\rb", "a\x08b", "\x00", "\x07", "\u202e", "\u2066", "\x85", "\u2028",
    "\x7f",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_control_characters_of_the_program_never_reach_the_terminal(attack: str) -> None:
    finding = a_finding(
        title=f"title {attack}",
        cause=f"cause {attack}",
        fix=Fix(text=f"fix {attack}"),
        upstream=attack,
        location=Location(path=f"/{attack}/a.py", line=3, function=f"f{attack}"),
        raised_at=Location(path=f"{attack}.py"),
        owner=Owner(kind=OwnerKind.LIBRARY, name=attack),
        cost=Cost(seconds=1.0, kind=CostKind.OBSERVED, note=attack),
        fingerprint=attack,
        evidence=Evidence(source=source_lines(attack, first=3, at=3), folded=(attack,), notes=(attack,)),
    )
    text = render(
        Report(findings=[finding], unused_suppressions=[attack], run={"cwd": attack}),
        next_command=f"x {attack}",
        verbose=True,
    )
    assert not UNPRINTABLE.search(text)
    empty = render(Report(findings=[], watched=taps(attack), not_seen=taps(attack)))
    assert not UNPRINTABLE.search(empty)


def test_a_newline_in_a_title_does_not_forge_a_line() -> None:
    text = text_of(a_finding(title="harmless\nTT999 P0  forged"))
    assert not any(line.startswith("TT999") for line in text.splitlines())


@given(st.text(st.characters()))
def test_any_text_can_be_printed(text: str) -> None:
    shown = text_of(a_finding(title=text, cause=text, location=Location(path=text, function=text)), next_command=text)
    assert not UNPRINTABLE.search(shown)
    shown.encode()


def test_harmless_text_is_unchanged() -> None:
    assert "größer → 日本 🙂" in text_of(a_finding(title="größer → 日本 🙂"))


def test_in_a_notebook_the_text_is_returned_and_nothing_is_displayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert "print() breaks forward" in text_of(a_finding())


def test_the_limit_is_three_screens() -> None:
    assert terminal.MAX_LINES == 3 * 40

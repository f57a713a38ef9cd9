"""A program that resets torch.compile in a loop, by events and recorded source."""

from dataclasses import replace

import pytest

from tests.unit.diagnosis.coverage.samples import APP, FACTS
from torchtriage.diagnosis.coverage.resets import compiled_after_resets
from torchtriage.findings.model import EditLabel, Finding
from torchtriage.recording.events import CompileCall, CompileEnd, CompileStart, Event
from torchtriage.recording.recording import Process, Source

CALL = CompileCall(path=APP, line=1, function="<module>", target="step", target_path=APP, target_line=30, time=0.5)
START = CompileStart(path=APP, line=30, function="step", compile_id="0/0", time=1.0)
END = CompileEnd(path=APP, line=30, function="step", compile_id="0/0", seconds=0.5, time=1.5)
LINES = ("fast = torch.compile(step)", "for epoch in range(9):", "    torch.compiler.reset()", "    fast(x)")


def findings(*events: Event, lines: tuple[str, ...] = LINES) -> list[Finding]:
    sources = {(APP, 1): Source(first_line=1, lines=lines)}
    return list(compiled_after_resets(Process(events=events, facts=FACTS, sources=sources)))     # type: ignore[arg-type]


def compiled(number: int) -> list[Event]:
    return [event for n in range(number) for event in (replace(START, time=1.0 + n), replace(END, time=1.5 + n))]


def test_the_reset_is_reported_at_its_own_line_with_the_seconds_of_the_repeats() -> None:
    [finding] = findings(CALL, *compiled(5))
    assert (finding.code, finding.location.line, finding.cost.seconds) == ("TT309", 3, 2.0)
    assert "remove `torch.compiler.reset()` at train.py:3" in finding.fix.text
    [edit] = finding.fix.edits
    assert (edit.label, edit.changes[0].line) == (EditLabel.SAFE, 3)


def test_a_reset_that_is_not_a_statement_of_a_loop_is_not_removed() -> None:
    [finding] = findings(CALL, *compiled(5), lines=(LINES[0], "def begin():", "    torch.compiler.reset()"))
    assert finding.fix.edits == ()


@pytest.mark.parametrize("number", [1, 3])
def test_a_few_resets_are_not_reported(number: int) -> None:
    assert not findings(CALL, *compiled(number))


def test_a_reset_that_the_source_does_not_show_is_not_reported() -> None:
    assert not findings(CALL, *compiled(5), lines=LINES[:1])


def test_a_new_compile_call_after_each_reset_is_deliberate() -> None:
    calls = [replace(CALL, time=0.5 + n) for n in range(5)]
    events = [event for n in range(5) for event in (calls[n], *compiled(1))]
    assert not findings(*events)

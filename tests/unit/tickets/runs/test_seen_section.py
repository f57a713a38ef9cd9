"""The machine-written section of a ticket names the compiled functions in which its finding occurred."""

from pathlib import Path
from typing import Any

from tests.unit.samples import a_finding, a_process, a_recording
from torchtriage.findings.model import AgreeingNumbers, EditLabel, Evidence, Location, RemedyProof
from torchtriage.recording.events import CompileStart, Event, GraphBreak, StackEntry
from torchtriage.tickets.files.read import parse
from torchtriage.tickets.files.render import render
from torchtriage.tickets.model import Ticket
from torchtriage.tickets.runs.seen_section import Run, read_sighting, sighting_of, with_sighting

APP = "/app/train.py"


def compile_with_break(function: str, first_line: int, broken: StackEntry) -> list[Event]:
    place: dict[str, Any] = {"path": APP, "line": first_line, "function": function}
    stack = (StackEntry(path=APP, line=first_line + 1, function=function), broken)
    graph_break = GraphBreak(
        path=broken.path, line=broken.line, function=broken.function, stack=stack, compile_id="0/0", type="print",
    )
    return [CompileStart(**place, compile_id="0/0"), graph_break]


def frames(line: int, *events: Event) -> tuple[str, ...]:
    """The frames of a finding at this line whose evidence names compile ID 0/0."""
    finding = a_finding(location=Location(path=APP, line=line), evidence=Evidence(num_events=1, compile_ids=("0/0",)))
    return sighting_of(finding, a_recording(a_process(*events)), Run(name="a.triage"), ["/app"]).frames


def test_a_compile_id_means_another_function_after_a_reset() -> None:
    helper, other = StackEntry(path=APP, line=30, function="helper"), StackEntry(path=APP, line=35, function="other")
    events = (*compile_with_break("f", 3, helper), *compile_with_break("g", 10, other))
    assert frames(30, *events) == ("train.py::f",)
    assert frames(35, *events) == ("train.py::g",)


def test_a_break_without_a_recorded_compile_has_no_function() -> None:
    """Compile 0/0 of the second generation has no start: the one of the first generation is another function."""
    broken = StackEntry(path=APP, line=30, function="helper")
    first = CompileStart(path=APP, line=3, function="f", compile_id="0/0")
    reset = CompileStart(path=APP, line=3, function="f", compile_id="1/0")
    again = CompileStart(path=APP, line=10, function="g", compile_id="1/0")
    lost = GraphBreak(path=APP, line=30, function="helper", stack=(broken,), compile_id="0/0", type="print")
    assert frames(30, first, reset, again, lost) == ()


def test_an_edit_that_was_verified_is_one_of_the_proofs() -> None:
    proof = RemedyProof(label=EditLabel.SAFE, text="`x.detach()`", numbers=AgreeingNumbers.EQUAL, num_steps=8)
    finding = a_finding(location=Location(path=APP, line=3), proof=proof)
    sighting = sighting_of(finding, a_recording(), Run(name="a.triage"), ["/app"])
    words = "verified edit: [safe] `x.detach()` cures it: numbers equal bit for bit over 8 steps"
    assert sighting.proofs == (words,)
    ticket = Ticket(id="B1-TT-01", title="t", severity="P3", batch="1", agent="TT", created="2026-01-01")
    file = with_sighting(parse(render(ticket), Path("B1-TT-01.md")), sighting)
    assert read_sighting(file).proofs == (words,)

"""Applying a run to tickets: a box is ticked only if the recording proves it, a ticket closed only if it is covered."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.samples import a_process, a_recording
from tests.unit.tickets.samples import seed
from torchtriage.findings.checks import check_in
from torchtriage.recording.events import (
    CompileEnd,
    CompileStart,
    Event,
    GraphBreak,
    LimitHit,
    Recompile,
    StackEntry,
    Tap,
)
from torchtriage.recording.recording import Recording
from torchtriage.tickets.checks.matching import same_file
from torchtriage.tickets.files.read import TicketFile, parse
from torchtriage.tickets.files.render import render
from torchtriage.tickets.model import Box, Status, Ticket
from torchtriage.tickets.runs.call_graph import Project
from torchtriage.tickets.runs.observations import Observations, names_in
from torchtriage.tickets.runs.seen_section import Run, Sighting, read_sighting, run_of, with_sighting
from torchtriage.tickets.runs.update import NewRun, apply_proposal
from torchtriage.tickets.runs.verify import Case, CheckProof, State, judge

APP = "/app/policy.py"


def compiled(function: str = "forward", number: int = 0, line: int = 10, path: str = APP, **end: Any) -> list[Event]:
    """A compile of a function that produced code."""
    place: dict[str, Any] = {"path": path, "line": line, "function": function, "compile_id": f"0/{number}"}
    stack = (StackEntry(path=path, line=line, function=function),)
    facts = {"produced_code": True, "seconds": 1.0, "suppress_errors": False, **end}
    return [CompileStart(**place, stack=stack), CompileEnd(**place, **facts)]


def a_break(line: int = 12, path: str = APP, function: str = "forward", code: str = "print(x)") -> GraphBreak:
    stack = (StackEntry(path=path, line=line, function=function, code=code),)
    return GraphBreak(
        path=path, line=line, function=function, stack=stack, compile_id="0/0", gb_id="GB0059", type="Failed to trace",
    )


def a_run(
    *events: Event, start: float = 1000.0, steps: int = 10, origin: str = "recording", end: float | None = 2000.0,
) -> Recording:
    process = a_process(*events, start=start, num_steps=steps, end=end, your_roots=["/app"])
    return a_recording(process, origin=origin, start=start, end=2000.0, cwd="/app")


SICK = (*compiled()[:1], a_break(), *compiled()[1:])


def a_case(
    recording: Recording, ticket: Ticket | None = None, sighting: Sighting | None = None, root: Path = Path("/nowhere"),
) -> Case:
    ticket = ticket or Ticket(id="B1-PT-01", title="t", files=("policy.py",), function="forward")
    return Case(
        ticket=ticket, observations=Observations(recording), sighting=sighting or Sighting(), project=Project(root),
    )


def a_recompile(number: int) -> Recompile:
    return Recompile(path=APP, line=10, function="forward", compile_id=f"0/{number}", reasons=("x == 1",))


@pytest.mark.parametrize(("text", "events", "state"), [
    ("0 graph breaks at policy.py:12 in the next recording", compiled(), State.PROVEN),
    ("0 graph breaks at policy.py:12 in the next recording", SICK, State.REFUTED),
    ("0 graph breaks at policy.py:12 in the next recording", compiled("other"), State.OPEN),
    ("0 graph breaks at policy.py:12 in the next recording", compiled(path="/app/other.py"), State.OPEN),
    ("0 graph breaks at policy.py:12 in the next recording", (), State.OPEN),
    ("0 graph breaks at policy.py:12 in the next recording", compiled(produced_code=False), State.OPEN),
    ("at most 1 recompile of forward in the next recording", compiled(produced_code=False), State.OPEN),
    ("0 graph breaks at policy.py:12 in the next recording",
     (*compiled()[:1], a_break(14), *compiled()[1:]), State.OPEN),
    ("all of forward no longer runs eager", compiled(), State.PROVEN),
    ("all of forward no longer runs eager", compiled(produced_code=False), State.OPEN),
    ("all of forward no longer runs eager", compiled("other"), State.OPEN),
    ("0 compiles of torch_dynamo_resume_in_forward_at_12", compiled(), State.PROVEN),
    ("0 compiles of torch_dynamo_resume_in_forward_at_12",
     (*SICK, *compiled("torch_dynamo_resume_in_forward_at_12")), State.REFUTED),
    ("0 compiles of torch_dynamo_resume_in_forward_at_12",
     (*SICK, *compiled("torch_dynamo_resume_in_forward_at_14")), State.OPEN),
    ("at most 1 recompile of forward in the next recording", compiled(), State.PROVEN),
    ("at most 1 recompile of forward in the next recording", compiled("other"), State.OPEN),
    ("at most 1 recompile of forward in the next recording",
     (*compiled(), a_recompile(1), a_recompile(2)), State.REFUTED),
    ("no TT101 of forward in the next recording", compiled(), State.PROVEN),
    ("no TT101 of forward in the next recording", SICK, State.REFUTED),
    ("no TT101 of forward in the next recording", (), State.OPEN),
    ("forward does not reach its recompile limit in the next recording", compiled(), State.PROVEN),
    ("no frame at its recompile limit in the next recording: forward",
     (*compiled(), LimitHit(path=APP, line=10, function="forward", compile_id="0/8", limit=8)), State.REFUTED),
    ("forward is among the compiled frames of the next recording", compiled(), State.PROVEN),
    ("forward is among the compiled frames of the next recording", compiled(produced_code=False), State.OPEN),
    ("forward is among the compiled frames of the next recording", compiled("other"), State.OPEN),
    ("no failed compile of forward in the next recording", compiled(), State.PROVEN),
    ("no failed compile of forward in the next recording", compiled(fail_type="KeyError"), State.REFUTED),
    ("suppress_errors is off in the next recording", compiled(), State.PROVEN),
    ("suppress_errors is off in the next recording", compiled(suppress_errors=True), State.REFUTED),
    ("suppress_errors is off in the next recording", compiled(suppress_errors=None), State.OPEN),
    ("less compile time before steady state in the next recording", compiled(), State.OPEN),
    ("Add a test", compiled(), State.OPEN),
])
def test_a_check_is_proven_only_by_the_recording(text: str, events: tuple[Event, ...], state: State) -> None:
    assert judge(check_in(text), a_case(a_run(*events))).state is state


NO_BREAK = "0 graph breaks at policy.py:12 in the next recording"


@pytest.mark.parametrize("recording", [
    a_run(*compiled(), Tap(name="trace", state="lost", detail="handler removed")),
    a_run(*compiled(), end=None),
    a_run(*compiled(), origin="log"),
])
def test_an_incomplete_recording_proves_no_absence(recording: Recording) -> None:
    assert judge(check_in(NO_BREAK), a_case(recording)).state is State.OPEN


def test_a_shorter_run_proves_no_absence() -> None:
    before = Sighting(run=Run(name="a.triage", num_steps=50))
    assert judge(check_in(NO_BREAK), a_case(a_run(*compiled()), sighting=before)) == CheckProof(
        state=State.OPEN, reason="this run has 10 steps, the one that showed the finding had 50",
    )
    assert judge(check_in(NO_BREAK), a_case(a_run(*compiled(), steps=50), sighting=before)).state is State.PROVEN


def test_an_inlined_place_is_covered_by_the_function_that_inlined_it() -> None:
    ticket = Ticket(id="B1-TT-01", title="t", files=("helpers.py",), function="norm")
    text = "0 graph breaks at helpers.py:3 in the next recording"
    assert judge(check_in(text), a_case(a_run(*compiled()), ticket)).state is State.OPEN
    inlined = Sighting(frames=("policy.py::forward",))
    assert judge(check_in(text), a_case(a_run(*compiled()), ticket, inlined)).state is State.PROVEN


class TestNotInCompiledPaths:
    """A box of the seed B7-PT-07: `Verify debug code is not in compiled paths`."""

    TEXT = "Verify debug code is not in compiled paths"

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        (tmp_path / "debug_telemetry.py").write_text("def collect_per_layer_gradients(model):\n    return []\n")
        return tmp_path

    def proof(self, project: Path, source: str, *more: Event) -> CheckProof:
        train = project / "train.py"
        train.write_text(source)
        process = a_process(*compiled("step", path=str(train), line=1), *more, end=2.0, your_roots=[str(project)])
        return judge(check_in(self.TEXT), a_case(a_recording(process, end=2.0), seed("B7-PT-07").ticket, root=project))

    def test_it_is_proven_if_no_compiled_function_reaches_it(self, project: Path) -> None:
        source = "def step(x):\n    return x + 1\n\ndef main():\n    collect_per_layer_gradients(1)\n"
        proof = self.proof(project, source)
        assert proof == CheckProof(
            state=State.PROVEN,
            reason="no compiled function is collect_per_layer_gradients or reaches it by name: step",
        )

    @pytest.mark.parametrize("source", [
        "def step(x):\n    return collect_per_layer_gradients(x)\n",
        "def step(x):\n    return helper(x)\n\ndef helper(x):\n    return telemetry.collect_per_layer_gradients(x)\n",
        "from debug_telemetry import collect_per_layer_gradients as collect\n\ndef step(x):\n    return collect(x)\n",
        "HOOK = collect_per_layer_gradients\n\ndef step(x):\n    return HOOK(x)\n",
        "class P:\n    def __init__(self):\n        self.log = collect_per_layer_gradients\n\n"
        "def step(x):\n    return p.log(x)\n",
    ])
    def test_it_is_open_if_compiled_code_may_inline_it(self, project: Path, source: str) -> None:
        proof = self.proof(project, source)
        assert proof.state is State.OPEN
        assert proof.reason.startswith("compiled code may inline it: step -> ")

    def test_it_is_proven_if_the_function_is_disabled(self, project: Path) -> None:
        for head in (
            "import torch\n@torch.compiler.disable", "from torch.compiler import disable as eager\n@eager",
            "from torch import _dynamo\n@_dynamo.disable(recursive=False)",
            "import torch\noff = torch.compiler.disable\n@off",
        ):
            source = f"{head}\ndef collect_per_layer_gradients(model):\n    return []\n"
            (project / "debug_telemetry.py").write_text(source)
            proof = self.proof(project, "def step(x):\n    return collect_per_layer_gradients(x)\n")
            assert proof.state is State.PROVEN, head

    @pytest.mark.parametrize("head", ["from flags import disable\n@disable", "import app\n@app.disable()", "@disable"])
    def test_another_decorator_that_is_named_disable_proves_nothing(self, project: Path, head: str) -> None:
        source = f"{head}\ndef collect_per_layer_gradients(model):\n    return []\n"
        (project / "debug_telemetry.py").write_text(source)
        proof = self.proof(project, "def step(x):\n    return collect_per_layer_gradients(x)\n")
        assert proof.state is State.OPEN

    def test_it_is_refuted_if_it_was_compiled(self, project: Path) -> None:
        event = compiled("collect_per_layer_gradients", path="/elsewhere/debug_telemetry.py")
        assert self.proof(project, "def step(x):\n    return x\n", *event).state is State.REFUTED

    def test_it_is_open_if_it_is_in_the_stack_of_a_break(self, project: Path) -> None:
        event = a_break(path=str(project / "debug_telemetry.py"), function="collect_per_layer_gradients")
        assert self.proof(project, "def step(x):\n    return x\n", event).state is State.OPEN

    def test_it_is_open_if_the_project_has_no_such_function(self, project: Path) -> None:
        (project / "debug_telemetry.py").write_text("")
        assert self.proof(project, "def step(x):\n    return x\n").state is State.OPEN

    def test_it_is_open_if_the_source_is_missing(self, project: Path) -> None:
        assert self.proof(project, "def other(x):\n    return x\n").state is State.OPEN

    def test_it_is_open_if_a_library_was_compiled(self, project: Path) -> None:
        event = compiled("forward", path="/usr/lib/site-packages/timm/layers.py")
        assert self.proof(project, "def step(x):\n    return x\n", *event).state is State.OPEN

    def test_it_is_open_if_nothing_was_compiled(self, project: Path) -> None:
        assert judge(check_in(self.TEXT), a_case(a_run(), seed("B7-PT-07").ticket, root=project)).state is State.OPEN


def new_run(recording: Recording, name: str = "b.triage") -> NewRun:
    return NewRun(recording, name=name, root=Path("/app"), today="2025-02-02")


def a_ticket(**fields: Any) -> TicketFile:
    """The ticket of the only finding of SICK, as an earlier run left it."""
    run = NewRun(a_run(*SICK, start=500.0), name="a.triage", root=Path("/app"), today="2025-01-01")
    [file] = run.tickets(run.findings, 1, (), {})
    return with_sighting(parse(render(file.ticket.with_(**fields)), Path("x.md")), read_sighting(file))


def test_a_finding_becomes_a_ticket_that_reads_back() -> None:
    file = a_ticket()
    ticket = file.ticket
    assert (ticket.id, ticket.severity, ticket.files, ticket.lines) == ("B1-TT-01", "P3", ("policy.py",), "12")
    assert ticket.verification[0] == Box(text=NO_BREAK)
    assert (ticket.report_file, ticket.report_section[:5]) == ("a.triage", "TT101")
    assert "not measured" in ticket.impact
    assert file.problems == ()
    sighting = read_sighting(file)
    assert (sighting.run, sighting.frames, sighting.num_events) == (
        Run(name="a.triage", start="1970-01-01 00:08:20 UTC", num_steps=10), ("policy.py::forward",), 1,
    )
    assert with_sighting(file, sighting).text == file.text


def test_a_finding_that_recurs_updates_only_the_machine_written_section() -> None:
    file = a_ticket()
    _, update = new_run(a_run(*SICK, a_break())).update(file, frozenset({file.ticket.fingerprint}))
    assert (update.ticked, update.proposed) == ((), None)
    assert update.file.ticket == file.ticket
    assert update.file.text.partition("## Seen by")[0] == file.text.partition("## Seen by")[0]
    assert (read_sighting(update.file).num_events, read_sighting(update.file).run) == (2, Run(
        name="b.triage", start="1970-01-01 00:16:40 UTC", num_steps=10,
    ))


def test_the_same_recording_again_changes_nothing() -> None:
    file = a_ticket(verification=(Box(text="suppress_errors is off in the next recording"),))
    run = NewRun(a_run(*SICK, start=500.0), name="a.triage", root=Path("/app"), today="2025-02-02")
    assert run.update(file, frozenset({file.ticket.fingerprint}))[1].file.text == file.text


def test_a_finding_that_is_gone_is_ticked_and_proposed_for_closing() -> None:
    file = a_ticket()
    case, update = new_run(a_run(*compiled())).update(file, frozenset({file.ticket.fingerprint}))
    assert [text for text, _ in update.ticked] == [NO_BREAK]
    assert (update.proposed, update.reason) == (Status.CLOSED, "not in b.triage, where forward was compiled")
    assert (update.file.ticket.status, update.file.ticket.updated) == ("open", "2025-02-02")
    assert read_sighting(update.file).proofs == (
        f'b.triage ticked "{NO_BREAK}": forward was compiled once, without a graph break there',
    )
    closed = apply_proposal(update, case, "2025-02-02")
    assert closed.ticket.status == "closed"
    assert read_sighting(closed).gone == Run(name="b.triage", start="1970-01-01 00:16:40 UTC")


@pytest.mark.parametrize(("recording", "reason"), [
    (a_run(*compiled("other")), "not seen, but forward was not compiled in b.triage"),
    (a_run(), "not seen, but forward was not compiled in b.triage"),
    (a_run(*compiled(produced_code=False)), "not seen, but forward was not compiled in b.triage"),
    (a_run(a_recompile(1), origin="log"),
     "not seen, but the log contains no graph breaks at all, so they may not have been logged"),
    (a_run(*compiled(), steps=3), "not seen, but this run has 3 steps, the one that showed the finding had 10"),
    (a_run(*compiled()[:1], a_break(14, code="print(y)"), *compiled()[1:]),
     "not seen, but TT101 is new at line 14 of the same function and may be this finding after an edit"),
    (a_run(*compiled(), start=100.0), "b.triage is older than a.triage, which was already applied to this ticket"),
])
def test_a_finding_that_the_recording_does_not_cover_stays_open(recording: Recording, reason: str) -> None:
    file = a_ticket()
    _, update = new_run(recording).update(file, frozenset({file.ticket.fingerprint}))
    assert (update.proposed, update.reason, update.ticked) == (None, reason, ())
    assert update.file.text == file.text


@pytest.mark.parametrize(("status", "proposed"), [
    ("closed", Status.OPEN), ("fixed", Status.OPEN), ("already-fixed", Status.OPEN),
    ("wont-fix", None), ("not-a-bug", None), ("invalid", None),
])
def test_a_fixed_finding_that_recurs_is_proposed_for_reopening(status: str, proposed: Status | None) -> None:
    file = a_ticket(status=status)
    assert new_run(a_run(*SICK)).update(file, frozenset({file.ticket.fingerprint}))[1].proposed is proposed


def test_reopening_clears_the_boxes_that_the_run_refutes() -> None:
    boxes = (Box(text=NO_BREAK, is_ticked=True), Box(text="Talk to Ada", is_ticked=True))
    file = a_ticket(status="closed", verification=boxes)
    case, update = new_run(a_run(*SICK)).update(file, frozenset({file.ticket.fingerprint}))
    reopened = apply_proposal(update, case, "2025-02-02").ticket
    assert (reopened.status, [box.is_ticked for box in reopened.verification]) == ("open", [False, True])


def test_tickets_without_a_fingerprint_are_never_closed() -> None:
    file = a_ticket(fingerprint="")
    assert new_run(a_run(*compiled())).update(file, frozenset())[1].proposed is None


def test_related_findings_become_related_tickets() -> None:
    run = new_run(a_run(*SICK, a_break(14, code="print(z)")))
    first, second = run.findings
    linked = [first.with_(related=(second.fingerprint, "without a ticket")), second]
    files = run.tickets(linked, 4, ("B4-TT-07",), {})
    assert [file.ticket.id for file in files] == ["B4-TT-08", "B4-TT-09"]
    assert [relation.ticket_id for relation in files[0].ticket.related] == ["B4-TT-09"]


def test_a_run_without_a_start_time_starts_with_its_first_event() -> None:
    recording = a_recording(a_process(CompileStart(time=90.0), CompileStart(time=61.0), CompileStart()), origin="trace")
    assert run_of(recording, "x.log") == Run(name="x.log", start="1970-01-01 00:01:01 UTC")


def test_a_path_and_its_suffix_are_the_same_file() -> None:
    assert same_file("/home/a/src/x/y.py", "x/y.py")
    assert same_file("y.py", "/b/y.py")
    assert not same_file("/a/x/y.py", "/b/x/y.py")
    assert not same_file("", "/b/x/y.py")
    assert names_in("A.update(), normalize(x, y=1)") == ["A.update", "normalize"]

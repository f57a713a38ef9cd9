"""Builds the report of a recording, which every reporter renders."""

from collections.abc import Sequence
from typing import Any

from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.diagnosis.remedy_proofs import stored_proofs, with_proofs
from torchtriage.diagnosis.shape_study import linked_to_study, study_of
from torchtriage.diagnosis.suppress import comments_in
from torchtriage.diagnosis.totals import totals
from torchtriage.findings.history import History
from torchtriage.findings.model import Finding
from torchtriage.findings.report import Report
from torchtriage.findings.selection import suppressed
from torchtriage.findings.tap_state import (
    BREAK_COSTS,
    CACHES,
    CALL_SITES,
    COMPILE_TIMES,
    COMPILER,
    COMPILES,
    EAGER_CALLS,
    LEARNING,
    OTHER_SCALARS,
    PPO_UPDATES,
    RECURRENT_STATE,
    SCALARS,
    SKIPPED_FRAMES,
    STEPS,
    STRUCTURED_TRACE,
    TEXT_LOG,
    TapState,
    TapStatus,
)
from torchtriage.recording.events import CompileEnd, GapTime, GraphBreak, Placed, Recompile, Tap
from torchtriage.recording.recording import Process, Recording
from torchtriage.recording.series import LSTM_PREFIX, PPO_PREFIX, parts_of
from torchtriage.text import row

_NOT_IN_SOURCE = {
    "trace": (STEPS, SKIPPED_FRAMES, EAGER_CALLS, CALL_SITES),
    "log": (COMPILE_TIMES, STEPS, SKIPPED_FRAMES, EAGER_CALLS, CALL_SITES, CACHES),
    SCALARS: (COMPILER, OTHER_SCALARS),
}


def build_report(recording: Recording, with_events: bool = False, with_history: bool = False) -> Report:
    """Diagnose a recording, and add the facts of the run to the findings."""
    shapes, unread = study_of(recording)
    proofs, unread_proofs = stored_proofs(recording)
    diagnosed = with_proofs(linked_to_study(diagnose(recording), shapes), proofs)
    findings, num_suppressed, unused = suppressed(diagnosed, comments_in(recording))
    return Report(
        findings=findings,
        shapes=shapes,
        num_suppressed=num_suppressed,
        unused_suppressions=unused,
        run=run_facts(recording),
        watched=watched(recording),
        not_seen=[*not_seen(recording), *unread, *unread_proofs],
        totals=totals(recording),
        events=event_rows(recording) if with_events else {},
        history=_history(recording, findings) if with_history else History(),
    )


def _history(recording: Recording, findings: Sequence[Finding]) -> History:
    from torchtriage.diagnosis.history.build import history  # only reports with charts need it

    return history(recording, findings)


def run_facts(recording: Recording) -> dict[str, Any]:
    """The program that ran, its environment and how it ended."""
    launcher = recording.launcher
    first = recording.processes[0] if recording.processes else Process()
    program = first.program
    starts = [process.program.start for process in recording.processes if process.program.start]
    argv = launcher.argv if launcher.argv is not None else program.argv
    return {
        "argv": None if argv is None else list(argv),
        "cwd": launcher.cwd or program.cwd,
        "executable": program.executable,
        "host": program.host,
        "python": program.python,
        "torch": launcher.torch or program.torch,
        "platform": program.platform,
        "cpu_count": program.cpu_count,
        "environment": program.environment,
        "torchtriage": launcher.torchtriage or program.torchtriage,
        "start": launcher.start or program.start or min(starts, default=None),
        "end": launcher.end or first.recorder.end,
        "origin": recording.origin,
        "path": recording.path,
        "exit_status": launcher.exit_status,
        "num_processes": len(recording.processes),
        "ranks": sorted(p.rank for p in recording.processes if p.rank is not None),
    }


def watched(recording: Recording) -> list[TapState]:
    """The taps that were armed, or the trace or log that was read."""
    if recording.origin == "trace":
        return [TapState(name=STRUCTURED_TRACE)]
    if recording.origin == "log":
        return [TapState(name=TEXT_LOG)]
    if recording.origin == SCALARS:
        return [TapState(name=SCALARS, detail=row(_names_of_series(recording)))]
    armed = {tap.name for tap in recording.of(Tap) if tap.state == "armed"}
    return [TapState(name=name) for name in sorted(armed)]


def _names_of_series(recording: Recording) -> list[str]:
    """The quantities of all processes; those of single tensors once."""
    names = {parts_of(name).quantity for process in recording.processes for name in process.series}
    return sorted(names)


def not_seen(recording: Recording) -> list[TapState]:
    """Missing parts: those that the source lacks, taps that were absent or lost, and values that telemetry dropped."""
    missing = [TapState(name=name, status=TapStatus.NOT_IN_SOURCE) for name in _NOT_IN_SOURCE.get(recording.origin, ())]
    for tap in recording.of(Tap):
        if tap.state != "armed":
            status = TapStatus.LOST if tap.state == "lost" else TapStatus.ABSENT
            missing.append(TapState(name=tap.name, status=status, detail=tap.detail))
    if recording.origin in ("recording", "watch") and not any(True for _ in recording.of(GapTime)):
        missing.append(TapState(name=BREAK_COSTS, status=TapStatus.NOT_MEASURED))
    missing += _not_reported(recording)
    num_unexplained = sum(map(_num_unexplained, recording.processes)) if recording.origin == "trace" else 0
    if num_unexplained:
        missing.append(TapState(name=COMPILES, status=TapStatus.NOT_EXPLAINED, number=num_unexplained))
    return [*dict.fromkeys(missing), *_dropped_telemetry(recording)]


def _not_reported(recording: Recording) -> list[TapState]:
    """What no tap can see in a training whose gradients were watched, unless the program reports it itself."""
    if not any(tap.name == "gradients" and tap.state == "armed" for tap in recording.of(Tap)):
        return []
    names = {name for process in recording.processes for name in process.series}
    logged: dict[str, str] = {}
    for process in recording.processes:
        logged.update(process.learning.logged_scalars)
    missing = []
    for part, prefix in ((RECURRENT_STATE, LSTM_PREFIX), (PPO_UPDATES, PPO_PREFIX)):
        known = sorted(name for name in names if name.startswith(prefix))
        if not known:
            missing.append(TapState(name=part, status=TapStatus.NOT_REPORTED))
        elif logged.keys() >= set(known):
            quantities = row(name.removeprefix(prefix).replace("_", " ") for name in known)
            detail = f"{quantities} ({row(sorted({logged[name] for name in known}))})"
            missing.append(TapState(name=part, status=TapStatus.ONLY_LOGGED, detail=detail))
    return missing


def _dropped_telemetry(recording: Recording) -> list[TapState]:
    num_dropped = sum(process.telemetry.num_dropped for process in recording.processes)
    num_left_out = sum(process.telemetry.num_left_out for process in recording.processes)
    dropped = []
    if num_dropped:
        dropped.append(TapState(name=LEARNING, status=TapStatus.TOO_FAST, number=num_dropped))
    if num_left_out:
        dropped.append(TapState(name=LEARNING, status=TapStatus.NO_ROOM, number=num_left_out))
    return dropped


def _num_unexplained(process: Process) -> int:
    """The compiles that failed at a graph break without a reason in the trace.

    torch traces some breaks only while its log is on; torch 2.9 does so with every break that skips its frame.
    """
    explained = {e.compile_id for e in process.of(GraphBreak)}
    return sum(e.fail_type == "Unsupported" and e.compile_id not in explained for e in process.of(CompileEnd))


def event_rows(recording: Recording) -> dict[str, list[dict[str, Any]]]:
    """Every graph break and recompile, at the place that torch reports."""
    graph_breaks, recompiles = [], []
    for process in recording.processes:
        for graph_break in process.of(GraphBreak):
            graph_breaks.append({
                **_placed_row(process, graph_break),
                "gb_id": graph_break.gb_id, "type": graph_break.type, "reason": graph_break.reason,
            })
        for recompile in process.of(Recompile):
            recompiles.append({
                **_placed_row(process, recompile),
                "reasons": list(recompile.reasons), "num_reasons_omitted": recompile.num_omitted,
            })
    return {"graph_breaks": graph_breaks, "recompiles": recompiles}


def _placed_row(process: Process, event: Placed) -> dict[str, Any]:
    return {
        "path": event.path,
        "line": event.line,
        "function": event.function,
        "compile_id": event.compile_id,
        "step": event.step,
        "rank": event.rank if event.rank is not None else process.rank,
        "time": event.time,
    }

"""From a recording to the report that every reporter renders."""

from collections.abc import Iterable, Sequence
from typing import Any

from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.diagnosis.shape_links import linked_to_study, study_of
from torchtriage.diagnosis.suppress import comments_in, suppressed
from torchtriage.diagnosis.totals import totals
from torchtriage.findings.history import History
from torchtriage.findings.model import Finding
from torchtriage.findings.report import Report
from torchtriage.recording.events import CompileEnd, GapTime, GraphBreak, Placed, Recompile, Tap
from torchtriage.recording.recording import Process, Recording

_NOT_IN = {
    "trace": ("the step of each event", "skipped frames", "calls that ran eager past the recompile limit", "torch.compile call sites"),
    "log": ("compile times", "the step of each event", "skipped frames", "calls that ran eager past the recompile limit",
            "torch.compile call sites", "caches"),
}


def build_report(recording: Recording, with_events: bool = False, with_history: bool = False) -> Report:
    """Diagnose a recording and put the facts of the run beside the findings."""
    shapes, unread = study_of(recording)
    findings, num_suppressed, unused = suppressed(linked_to_study(diagnose(recording), shapes), comments_in(recording))
    return Report(
        findings=findings, shapes=shapes, num_suppressed=num_suppressed, unused_suppressions=unused,
        run=run_facts(recording), watched=watched(recording), not_seen=[*not_seen(recording), *unread],
        totals=totals(recording), events=listed_events(recording) if with_events else {},
        history=_history(recording, findings) if with_history else History(),
    )


def _history(recording: Recording, findings: Sequence[Finding]) -> History:
    from torchtriage.diagnosis.history import history  # only drawn reports need it

    return history(recording, findings)


def run_facts(recording: Recording) -> dict[str, Any]:
    """What ran, where and how it ended."""
    first = recording.processes[0].facts if recording.processes else {}
    names = ("argv", "cwd", "executable", "host", "python", "torch", "platform", "cpu_count", "environment", "torchtriage", "start", "end")
    facts = {name: recording.facts.get(name, first.get(name)) for name in names}
    starts = [p.facts["start"] for p in recording.processes if p.facts.get("start")]
    return {
        **facts, "origin": recording.origin, "path": recording.path, "exit_status": recording.facts.get("exit_status"),
        "start": facts["start"] or (min(starts) if starts else None), "num_processes": len(recording.processes),
        "ranks": sorted(p.rank for p in recording.processes if p.rank is not None),
    }


def watched(recording: Recording) -> list[str]:
    if recording.origin == "trace":
        return ["graph breaks, recompiles, limits, compile times and caches of the structured trace"]
    if recording.origin == "log":
        return ["graph breaks, recompiles and limits that the log holds"]
    armed = {tap.name for tap in recording.of(Tap) if tap.state == "armed"}
    return sorted(armed)


def not_seen(recording: Recording) -> list[str]:
    """What this source cannot show, and which taps were absent or lost."""
    missing = list(_NOT_IN.get(recording.origin, ()))
    for tap in recording.of(Tap):
        if tap.state != "armed":
            missing.append(f"{tap.name}: {tap.detail}")
    if recording.origin in ("recording", "watch") and not any(True for _ in recording.of(GapTime)):
        missing.append("run-time cost of graph breaks (torchtriage run --measure)")
    if recording.origin == "trace" and (number := sum(map(_num_untold, recording.processes))):
        missing.append(f"why {number} compile{'s' * (number > 1)} gave up (add TORCH_LOGS=graph_breaks to TORCH_TRACE, or torchtriage run)")
    return [*dict.fromkeys(missing), *_unkept(recording)]


def _unkept(recording: Recording) -> list[str]:
    """What telemetry had no room for."""
    facts = [telemetry for process in recording.processes if isinstance(telemetry := process.facts.get("telemetry"), dict)]
    num_dropped, num_left_out = (sum(of.get(name, 0) for of in facts) for name in ("num_dropped", "num_left_out"))
    looks = [f"learning: {num_dropped} looks came faster than they could be read"] if num_dropped else []
    names = "only the first names of a process have curves; name metrics by what they are, not by the step"
    return looks + ([f"learning: {num_left_out} values of further metrics ({names})"] if num_left_out else [])


def _num_untold(process: Process) -> int:
    """Compiles that met a break which torch traces only while its log is on; 2.9 does so with all that skip their frame."""
    told = {e.compile_id for e in process.of(GraphBreak)}
    return sum(e.fail_type == "Unsupported" and e.compile_id not in told for e in process.of(CompileEnd))


def listed_events(recording: Recording) -> dict[str, list[dict[str, Any]]]:
    """The graph breaks and recompiles one by one, at torch's own places."""
    def rows(kind: type[GraphBreak] | type[Recompile]) -> Iterable[tuple[Process, Placed]]:
        return ((p, e) for p in recording.processes for e in p.of(kind))

    def common(process: Process, event: Placed) -> dict[str, Any]:
        return {"path": event.path, "line": event.line, "function": event.function, "compile_id": event.compile_id,
                "step": event.step, "rank": event.rank if event.rank is not None else process.rank, "time": event.time}

    return {
        "graph_breaks": [
            {**common(p, e), "gb_id": e.gb_id, "type": e.type, "reason": e.reason} for p, e in rows(GraphBreak) if isinstance(e, GraphBreak)
        ],
        "recompiles": [{**common(p, e), "reasons": list(e.reasons)} for p, e in rows(Recompile) if isinstance(e, Recompile)],
    }

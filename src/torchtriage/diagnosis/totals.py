"""How much happened in a run, or in one of its processes: the numbers at the head of every report."""

from torchtriage.diagnosis.frames import break_key, frame_key
from torchtriage.recording.events import CompileEnd, CompileStart, GraphBreak, LimitHit, Recompile
from torchtriage.recording.recording import Recording

NOT_METERED = ("trace", "log")      # nobody counted the calls that ran eager


def totals(recording: Recording) -> dict[str, float | int | None]:
    """By the names of findings.report.TOTALS; of several processes counts add up, while time and steps run side by side."""
    breaks = list(recording.of(GraphBreak))
    ends = [[e for e in p.of(CompileEnd) if e.seconds is not None] for p in recording.processes]
    eager = [p.facts["eager_calls"]["eager"] for p in recording.processes if p.facts.get("eager_calls")]
    steps = [p.num_steps for p in recording.processes if p.num_steps is not None]
    limits = [{frame_key(e) for e in p.of(LimitHit)} for p in recording.processes]
    return {
        "compiles": sum(1 for _ in recording.of(CompileStart)), "graph_breaks": len(breaks),
        "distinct_graph_breaks": len({break_key(b) for b in breaks}), "recompiles": sum(1 for _ in recording.of(Recompile)),
        "frames_at_limit": sum(len(frames) for frames in limits),
        "eager_calls": sum(eager) if eager else (None if any(limits) or recording.origin in NOT_METERED else 0),
        "compile_seconds": round(max(busy_seconds(e) for e in ends), 3) if any(ends) else None,
        "steps": max(steps) if steps else None,
    }


def busy_seconds(ends: list[CompileEnd]) -> float:
    """The time covered by these compiles; overlapping ones (threads, nested) count once."""
    spans = sorted((e.time - (e.seconds or 0.0), e.time) for e in ends)
    total, reach = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total

"""TT306, TT307: compile time before steady state, compile caches that do not save it."""

from collections import Counter
from collections.abc import Iterator

from torchtriage.diagnosis.compiles.frames import CompileHistory
from torchtriage.diagnosis.compiles.targets import target_name
from torchtriage.diagnosis.places import frame_name, locate
from torchtriage.diagnosis.rules import finding, fingerprint_of, first_line, placed_fields, rule
from torchtriage.diagnosis.totals import busy_seconds, steady_state
from torchtriage.findings.model import Check, CheckKind, Cost, CostKind, Evidence, Finding, Fix
from torchtriage.recording.events import CacheUse, CompileEnd, Placed
from torchtriage.recording.recording import Process
from torchtriage.text import counted, duration, row

COLD_START_SECONDS = 30.0   # a small model takes that long on a busy machine; less is not worth a report


@rule
def slow_cold_start(process: Process) -> Iterator[Finding]:
    """The program spends its start-up compiling."""
    steady = steady_state(process)
    ends = [e for e in process.of(CompileEnd) if e.time <= steady.start and e.seconds is not None]
    seconds = busy_seconds(ends)
    if seconds < COLD_START_SECONDS:
        return
    slowest = sorted(ends, key=lambda e: -(e.seconds or 0.0))[:5]
    history = CompileHistory.of(process)
    place = locate(process, history.start_of(slowest[0]))
    listing = row(_timed(process, end, history.start_of(end)) for end in slowest)
    num_compiles = len({id(history.compile_of(end)) for end in ends})
    has_cache = any(e.inductor_seconds for e in ends) and not _cache_was_emptied(process)
    yield finding(
        "TT306", title=f"{duration(seconds)} of compiling before steady state",
        cause=f"slowest: {listing}",
        fix=Fix(text=(
            f"{'keep TORCHINDUCTOR_CACHE_DIR between runs, ' if has_cache else ''}"
            "compile the repeated block instead of the entire model, "
            "and fix the graph breaks and recompiles listed here: each adds compiles"
        )),
        cost=Cost(seconds=seconds, kind=CostKind.OBSERVED),
        evidence=Evidence(num_events=len(ends), notes=(counted(num_compiles, "compile"),)),
        verification=(Check(CheckKind.LESS_COMPILE_TIME),),
        **placed_fields(place, "TT306", "", process, slowest[0]),
    )


@rule
def compile_cache_misses(process: Process) -> Iterator[Finding]:
    """Compile caches were bypassed, or their misses cost noticeable time at start-up."""
    uses = list(process.of(CacheUse))
    count = Counter((use.cache, use.outcome) for use in uses)
    bypasses = [use for use in uses if use.outcome == "bypass"]
    inductor = sum(e.inductor_seconds or 0.0 for e in process.of(CompileEnd))
    misses = 0 if _cache_was_emptied(process) else count["fx_graph", "miss"]
    if not bypasses and (not misses or inductor < COLD_START_SECONDS):
        return
    reason = first_line(bypasses[0].reason) if bypasses else "first run with this code, version and cache folder"
    title = f"{counted(misses, 'graph was', 'graphs were')} not in the compile cache"
    if bypasses:
        title = counted(len(bypasses), "compile-cache bypass", "compile-cache bypasses")
    counts = row(f"{cache} {outcome}: {number:,}" for (cache, outcome), number in sorted(count.items()))
    cost = Cost()
    if inductor:
        cost = Cost(seconds=inductor, kind=CostKind.OBSERVED, note="inductor time, hits and misses together")
    reasons = tuple(dict.fromkeys(first_line(use.reason) for use in bypasses))
    yield finding(
        "TT307", title=title, cause=f"{counts}; {reason}", cost=cost,
        fix=Fix(text="keep TORCHINDUCTOR_CACHE_DIR between runs; a bypass names the construct that cannot be cached"),
        evidence=Evidence(num_events=len(uses), reasons=reasons[:10]),
        verification=(Check(CheckKind.FEWER_CACHE_MISSES),), fingerprint=fingerprint_of("TT307", None, reason, process),
    )


def _cache_was_emptied(process: Process) -> bool:
    """Whether `torchtriage shapes` made this run, which gives every run an empty cache."""
    return process.policy.policy is not None


def _timed(process: Process, end: CompileEnd, start: Placed) -> str:
    name = target_name(process, start) or frame_name(locate(process, start), start)
    return f"{name}{' (backward)' if end.is_backward else ''} {duration(end.seconds or 0.0)}"



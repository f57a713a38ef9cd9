"""TT3xx: what torch.compile did not cover, and what compiling cost."""

import re
from collections import Counter
from collections.abc import Iterator

from torchtriage.diagnosis.frames import Frame, frames
from torchtriage.diagnosis.own_frames import target_name
from torchtriage.diagnosis.places import Place, frame_name, is_wrapped, locate
from torchtriage.diagnosis.rules import finding, fingerprint_of, rule
from torchtriage.diagnosis.steady import steady_state
from torchtriage.diagnosis.totals import busy_seconds
from torchtriage.findings.model import Cost, CostKind, Evidence, Finding, Fix, OwnerKind
from torchtriage.recording.events import CacheUse, CompileCall, CompileEnd, CompileStart, FrameSkipped, GraphBreak, LimitHit, Placed
from torchtriage.recording.recording import Process

COLD_START_SECONDS = 10.0   # below this nobody waits; an inductor compile of one small model takes about as long here
LIMIT_SKIP = "custom frame execution strategy"     # how Dynamo words the skip that follows a limit


@rule
def recompile_limit_hit(process: Process) -> Iterator[Finding]:
    """A frame hit its recompile limit, so calls that no old entry serves run eager without a word."""
    at_limit = [frame for frame in frames(process).values() if frame.limits]
    for frame in at_limit:
        hit = frame.limits[0]
        place = locate(process, hit)
        name = target_name(process, hit) or frame_name(place, hit)
        eager = _eager_calls(process, len(at_limit))
        since = "" if hit.step is None else f" since step {hit.step}"
        limit = "its recompile limit" if hit.limit is None else f"its recompile limit ({hit.limit})"
        if hit.limit_name.startswith("accumulated"):
            limit = f"the accumulated recompile limit ({hit.limit})"
        yield finding(
            "TT301", title=f"{name} hit {limit}: {eager}{since}",
            cause=_limit_cause(hit), fix=Fix(text=(
                f"cure the recompiles of {name} (see the TT2xx finding of this frame); raising torch._dynamo.config.{hit.limit_name} "
                "only helps if the number of variants is small and known"
            )),
            cost=_seconds_cost(frame), evidence=Evidence(
                num_events=len(frame.limits), reasons=tuple(_first_line(r) for r in hit.reasons[:10]),
                compile_ids=tuple(e.compile_id or "" for e in frame.limits[:20]), notes=_eager_notes(process, len(at_limit)),
            ),
            verification=(f"no frame at its recompile limit in the next recording: {name}",),
            **fields_of(place, "TT301", hit.limit_name, process, hit),
        )


def _limit_cause(hit: LimitHit) -> str:
    reason = f"; the last guard that failed: {_first_line(hit.reasons[0])}" if hit.reasons else ""
    return f"Dynamo stops compiling a frame after {hit.limit or 'so many'} recompiles (torch._dynamo.config.{hit.limit_name}){reason}"


def _eager_calls(process: Process, num_frames: int) -> str:
    counted = process.facts.get("eager_calls")
    if not counted:
        return "later calls may run eager (not counted)"
    if num_frames > 1:
        return f"{counted['eager']} frame executions ran eager in this process"
    return f"{counted['eager']} calls ran eager"


def _eager_notes(process: Process, num_frames: int) -> tuple[str, ...]:
    counted = process.facts.get("eager_calls")
    if not counted:
        return ("the silent-eager meter was not armed; record with: torchtriage run",)
    counts = f"{counted['misses']} guard misses, {counted['recompiles']} of them recompiled, {counted['hits']} hits"
    notes = [f"since the meter was armed: {counts}"]
    if num_frames > 1:
        notes.append(f"{num_frames} frames are at their limit; the meter counts the process, not each frame")
    return tuple(notes)


@rule
def frame_skipped(process: Process) -> Iterator[Finding]:
    """Dynamo ran a whole frame of the program eager, for a reason other than a break or the limit."""
    explained = {(e.path, e.function) for kind in (LimitHit, GraphBreak) for e in process.of(kind)}
    explained |= {(entry.path, entry.function) for e in process.of(GraphBreak) for entry in e.stack}
    failed = {(e.path, e.function) for e in process.of(CompileEnd) if e.fail_type}
    targets = {(c.target_path, c.target_line) for c in process.of(CompileCall)}
    for skip in process.of(FrameSkipped):
        key = (skip.path, skip.function)
        place = locate(process, skip)
        if key in explained or key in failed or "torch_dynamo_resume" in skip.function or LIMIT_SKIP in skip.reason:
            continue
        if (skip.path, skip.line) not in targets:
            continue  # a helper that Dynamo passes over costs nothing; a compile target that it passes over does
        name = frame_name(place, skip)
        yield finding(
            "TT302", title=f"{name} is compiled and yet runs eager: Dynamo skips its frame",
            cause=f"Dynamo gave up on the whole frame: {skip.reason}",
            fix=Fix(text=_skip_remedy(name, skip.reason)),
            evidence=Evidence(num_events=1, reasons=(skip.reason,)),
            verification=(f"{name} is among the compiled frames of the next recording",),
            **fields_of(place, "TT302", skip.reason, process, skip),
        )


def _skip_remedy(name: str, reason: str) -> str:
    if "No ops traced" in reason or "no tensor" in reason:
        return (
            f"a call of {name} had no tensor operation in it, and Dynamo does not try the frame again: make the first calls do real work, "
            f"or compile what {name} calls"
        )
    return f"compile what {name} calls instead of {name} itself; a generator function cannot be compiled directly"


@rule
def compile_did_nothing(process: Process) -> Iterator[Finding]:
    """torch.compile was called and none of its target's code was ever compiled."""
    if not process.facts.get("end"):
        return  # the run is still going, or was cut off before it could call the target
    starts = list(process.of(CompileStart))
    touched = {(e.path, e.line) for kind in (CompileStart, FrameSkipped, LimitHit) for e in process.of(kind)}
    inlined = {(entry.path, entry.function) for e in (*starts, *process.of(GraphBreak)) for entry in e.stack}
    # A module with hooks, or with torch's own forward, is compiled through a wrapper of torch's.
    through_wrapper = any(is_wrapped(e) for e in starts)
    for call in process.of(CompileCall):
        place = locate(process, call)
        name = call.target.rsplit(".", 1)[-1]
        used = (call.target_path, call.target_line) in touched or (call.target_path, name) in inlined
        if used or not call.target_path or place.owner.kind is not OwnerKind.YOU or (through_wrapper and name == "forward"):
            continue
        why = "disable=True" if call.disabled else "the compiled object was not called, or the original was called in its place"
        yield finding(
            "TT303", title=f"torch.compile({call.target}) compiled nothing",
            cause=f"no frame of {call.target} was compiled: {why}",
            fix=Fix(text=(
                f"call what torch.compile returned at line {place.location.line}, not the original; for a module, model.compile() "
                "compiles it in place, so that every way of calling it is covered; check TORCHDYNAMO_DISABLE and torch.compiler.set_stance"
            )),
            evidence=Evidence(num_events=1),
            verification=(f"{call.target} is among the compiled frames of the next recording",),
            **fields_of(place, "TT303", call.target, process, call),
        )


@rule
def compile_failed(process: Process) -> Iterator[Finding]:
    """A compile failed, the error was suppressed, and the function runs eager."""
    seen: set[tuple[str, str, str]] = set()
    starts = started(process)
    for end in process.of(CompileEnd):
        key = (end.path, end.function, str(end.fail_type))
        if not end.fail_type or end.fail_type == "Unsupported" or not end.suppress_errors or key in seen:
            continue
        seen.add(key)
        start = starts.get(end.compile_id, end)
        place = locate(process, start)
        name = frame_name(place, start)
        yield finding(
            "TT304", title=f"compiling {name} failed with {end.fail_type} and it runs eager",
            cause=_first_line(end.fail_reason or end.fail_type),
            fix=Fix(text="unset torch._dynamo.config.suppress_errors to see the error, then fix or exclude the code that raises it"),
            evidence=Evidence(num_events=1, compile_ids=(end.compile_id or "",), reasons=((end.fail_reason or "")[:500],)),
            verification=(f"no failed compile of {name} in the next recording",),
            **fields_of(place, "TT304", end.fail_type, process, end),
        )


@rule
def errors_suppressed(process: Process) -> Iterator[Finding]:
    """suppress_errors is set: every compile error turns into silent eager execution."""
    first = next((e for e in process.of(CompileEnd) if e.suppress_errors), None)
    if first is None:
        return
    place = locate(process, started(process).get(first.compile_id, first))
    yield finding(
        "TT305", title="torch._dynamo.config.suppress_errors is set: a failed compile runs eager without a word",
        cause="suppress_errors turns every compile error into eager execution; it cures no graph break and hides real bugs",
        fix=Fix(text="remove torch._dynamo.config.suppress_errors = True (or TORCHDYNAMO_SUPPRESS_ERRORS=1) and fix what then raises"),
        evidence=Evidence(num_events=1), verification=("suppress_errors is off in the next recording",),
        **fields_of(place, "TT305", "", process, first),
    )


@rule
def slow_cold_start(process: Process) -> Iterator[Finding]:
    """Start-up is spent compiling."""
    steady = steady_state(process)
    ends = [e for e in process.of(CompileEnd) if e.time <= steady.start and e.seconds is not None]
    seconds = busy_seconds(ends)
    if seconds < COLD_START_SECONDS:
        return
    slowest = sorted(ends, key=lambda e: -(e.seconds or 0.0))[:5]
    starts = started(process)
    place = locate(process, starts.get(slowest[0].compile_id, slowest[0]))
    listing = ", ".join(_timed(process, e, starts.get(e.compile_id, e)) for e in slowest)
    has_cache = any(e.inductor_seconds for e in ends) and not _cache_was_emptied(process)
    yield finding(
        "TT306", title=f"{seconds:.0f} s of compiling before steady state",
        cause=f"slowest: {listing}",
        fix=Fix(text=(
            f"{'keep TORCHINDUCTOR_CACHE_DIR between runs, ' if has_cache else ''}"
            "compile the repeated block instead of the whole model, "
            "and cure the graph breaks and recompiles listed here: each adds compiles"
        )),
        cost=Cost(seconds=seconds, kind=CostKind.OBSERVED),
        evidence=Evidence(num_events=len(ends), notes=(f"{len({e.compile_id for e in ends})} compiles",)),
        verification=("less compile time before steady state in the next recording",),
        **fields_of(place, "TT306", "", process, slowest[0]),
    )


@rule
def compile_cache_misses(process: Process) -> Iterator[Finding]:
    """Compile caches were bypassed, or missed for so long that it shows at start-up."""
    uses = list(process.of(CacheUse))
    count = Counter((use.cache, use.outcome) for use in uses)
    bypasses = [use for use in uses if use.outcome == "bypass"]
    inductor = sum(e.inductor_seconds or 0.0 for e in process.of(CompileEnd))
    misses = 0 if _cache_was_emptied(process) else count["fx_graph", "miss"]
    if not bypasses and (not misses or inductor < COLD_START_SECONDS):
        return
    reason = _first_line(bypasses[0].reason) if bypasses else "first run with this code, version and cache folder"
    missed = "1 graph was" if misses == 1 else f"{misses} graphs were"
    title = f"{len(bypasses)} compile-cache bypass{'es' * (len(bypasses) > 1)}" if bypasses else f"{missed} not in the compile cache"
    yield finding(
        "TT307", title=title, cause=f"{', '.join(f'{c} {o}: {n}' for (c, o), n in sorted(count.items()))}; {reason}",
        fix=Fix(text="keep TORCHINDUCTOR_CACHE_DIR between runs; a bypass names the construct that cannot be cached"),
        cost=Cost(seconds=inductor, kind=CostKind.OBSERVED, note="inductor time, hits and misses together") if inductor else Cost(),
        evidence=Evidence(num_events=len(uses), reasons=tuple(dict.fromkeys(_first_line(b.reason) for b in bypasses))[:10]),
        verification=("fewer cache misses in the next recording",), fingerprint=fingerprint_of("TT307", None, reason, process),
    )


def _cache_was_emptied(process: Process) -> bool:
    """Whether `torchtriage shapes` made this run, which gives every run an empty cache."""
    return "policy" in process.facts


def started(process: Process) -> dict[str | None, Placed]:
    """The start of each compile by its id: it has the stack that the end lacks."""
    return {e.compile_id: e for e in process.of(CompileStart)}


def _timed(process: Process, end: CompileEnd, start: Placed) -> str:
    name = target_name(process, start) or frame_name(locate(process, start), start)
    return f"{name}{' (backward)' if end.is_backward else ''} {end.seconds:.1f} s"


def _seconds_cost(frame: Frame) -> Cost:
    seconds = frame.seconds()
    return Cost() if seconds is None else Cost(seconds=seconds, kind=CostKind.OBSERVED, note="compile time of this frame")


def _first_line(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text.split("\n", 1)[0].split("  # ")[0].strip())


def fields_of(place: Place, code: str, reason: str, process: Process, event: Placed) -> dict[str, object]:
    """The fields that every placed finding shares."""
    return {
        "location": place.location, "raised_at": place.raised_at, "owner": place.owner,
        "steps": () if event.step is None else (event.step,), "ranks": () if process.rank is None else (process.rank,),
        "fingerprint": fingerprint_of(code, place, reason, process),
    }

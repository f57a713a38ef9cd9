"""TT301, TT302: compiled functions that run eager because Dynamo refused or skipped their frame."""

import ast
from collections.abc import Iterator

from torchtriage.diagnosis.compiles.frames import CompileHistory, Frame, frame_key
from torchtriage.diagnosis.compiles.targets import call_behind, target_name
from torchtriage.diagnosis.places import frame_name, is_same_code, locate, owner_of
from torchtriage.diagnosis.rules import finding, first_line, placed_fields, rule
from torchtriage.diagnosis.statement import statement_at
from torchtriage.findings.model import (
    YOU,
    Change,
    ChangeKind,
    Check,
    CheckKind,
    Cost,
    CostKind,
    Edit,
    EditLabel,
    Evidence,
    Finding,
    Fix,
)
from torchtriage.recording.events import CompileCall, CompileEnd, FrameSkipped, GraphBreak, LimitHit, Placed, StackEntry
from torchtriage.recording.recording import Process
from torchtriage.text import counted

MAX_LIMIT = 64      # of variants, each with its compile; torch's default of all frames of a function together is 256
LIMIT_SKIP = "custom frame execution strategy"     # how Dynamo words the skip that follows a limit


@rule
def recompile_limit_hit(process: Process) -> Iterator[Finding]:
    """A frame hit its recompile limit, so calls that no cache entry serves run eager silently."""
    at_limit = [frame for frame in CompileHistory.of(process).frames.values() if frame.limits]
    for frame in at_limit:
        hit = frame.limits[0]
        place = locate(process, hit)
        call = call_behind(process, frame.compiles[0]) if frame.compiles else None
        name = target_name(process, hit) or frame_name(place, hit, call.target if call else "")
        eager = _eager_calls(process, len(at_limit))
        is_last = process.eager_calls is not None and not process.eager_calls.eager
        since = "" if hit.step is None else f" {'at' if is_last else 'since'} step {hit.step}"
        limit = "its recompile limit" if hit.limit is None else f"its recompile limit ({hit.limit})"
        if hit.limit_name.startswith("accumulated"):
            limit = f"the accumulated recompile limit ({hit.limit})"
        raised = _raised_limit(process, hit)
        edits = () if raised is None or owner_of(hit.path, process.program) != YOU else (_limit_edit(hit, raised),)
        yield finding(
            "TT301", title=f"{name} hit {limit}: {eager}{since}",
            cause=_limit_cause(hit), fix=Fix(text=(
                f"stop the recompiles of {name} (see the TT2xx finding of this frame); raising "
                f"torch._dynamo.config.{hit.limit_name} only helps if the number of variants is small and known"
            ), edits=edits),
            cost=_seconds_cost(frame), evidence=Evidence(
                num_events=len(frame.limits), reasons=tuple(first_line(r) for r in hit.reasons[:10]),
                compile_ids=tuple(e.compile_id or "" for e in frame.limits[:20]),
                notes=_eager_notes(process, len(at_limit)),
            ),
            verification=(Check(CheckKind.BELOW_RECOMPILE_LIMIT, name),),
            **placed_fields(place, "TT301", hit.limit_name, process, hit),
        )


def _raised_limit(process: Process, hit: LimitHit) -> int | None:
    """A limit above all variants of this run, if they are seen to be few and used again; None if that is not shown."""
    calls = process.eager_calls
    is_alone = len(CompileHistory.of(process).frames) == 1     # else the hits may be those of another frame
    if calls is None or hit.limit is None or not is_alone or hit.limit_name != "recompile_limit":
        return None
    largest = hit.limit + 1 + calls.eager   # the call that hit the limit, and each eager one, may be another variant
    return largest if calls.hits >= hit.limit and largest <= MAX_LIMIT else None


def _limit_edit(hit: LimitHit, limit: int) -> Edit:
    setting = f"torch._dynamo.config.{hit.limit_name} = {limit}"
    return Edit(
        label=EditLabel.SETTING, text=setting,
        changes=(Change(kind=ChangeKind.SET, path=hit.path, line=hit.line or 1, new=setting),),
    )


def _limit_cause(hit: LimitHit) -> str:
    reason = f"; the last guard that failed: {first_line(hit.reasons[0])}" if hit.reasons else ""
    recompiles = "a number of recompiles" if hit.limit is None else counted(hit.limit, "recompile")
    return f"Dynamo stops compiling a frame after {recompiles} (torch._dynamo.config.{hit.limit_name}){reason}"


def _eager_calls(process: Process, num_frames: int) -> str:
    calls = process.eager_calls
    if calls is None:
        return "later calls may run eager (not counted)"
    if not calls.eager:
        return "only the call that hit it ran eager"    # the meter counts from then on
    if num_frames > 1:
        return f"{counted(calls.eager, 'frame execution')} ran eager in this process"
    return f"{counted(calls.eager, 'call')} ran eager"


def _eager_notes(process: Process, num_frames: int) -> tuple[str, ...]:
    calls = process.eager_calls
    if calls is None:
        return ("the silent-eager meter was not armed; record with: torchtriage run",)
    misses = counted(calls.misses, "guard miss", "guard misses")
    hits = counted(calls.hits, "hit")
    notes = [f"since the meter was armed: {misses}, {calls.recompiles:,} of them recompiled, {hits}"]
    if num_frames > 1:
        notes.append(f"{num_frames} frames are at their limit; the meter counts per process, not per frame")
    return tuple(notes)


@rule
def frame_skipped(process: Process) -> Iterator[Finding]:
    """Dynamo ran an entire frame of the program eager, for a reason other than a break or the limit."""
    explained = {frame_key(e) for e in process.of(LimitHit)}
    explained |= {frame_key(e) for e in process.of(CompileEnd) if e.fail_type}
    broken: list[StackEntry | Placed] = []
    for event in process.of(GraphBreak):
        broken += (*event.stack, event)
    targets = {(c.target_path, c.target_line) for c in process.of(CompileCall)}
    for skip in process.of(FrameSkipped):
        if (skip.path, skip.line) not in targets:
            continue  # a helper that Dynamo skips costs nothing; a compile target that it skips does
        if frame_key(skip) in explained or "torch_dynamo_resume" in skip.function or LIMIT_SKIP in skip.reason:
            continue
        if any(is_same_code(process, skip, entry) for entry in broken):
            continue
        place = locate(process, skip)
        name = frame_name(place, skip)
        yield finding(
            "TT302", title=f"{name} is compiled but runs eager: Dynamo skips its frame",
            cause=f"Dynamo gave up on the entire frame: {skip.reason}",
            fix=Fix(text=_skip_remedy(name, skip.reason, _is_generator(process, skip))),
            evidence=Evidence(num_events=1, reasons=(skip.reason,)),
            verification=(Check(CheckKind.IS_COMPILED, name),),
            **placed_fields(place, "TT302", skip.reason, process, skip),
        )


def _is_generator(process: Process, skip: FrameSkipped) -> bool:
    """Whether the recorded source of the function yields."""
    statement = statement_at(process, skip.path, skip.line or 0)
    node = statement.node if statement is not None else None
    return isinstance(node, ast.FunctionDef) and any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(node))


def _skip_remedy(name: str, reason: str, is_generator: bool) -> str:
    if is_generator:
        return (
            f"return a list from {name} in place of yielding, or compile the function that loops over it: a generator "
            "function cannot be compiled itself"
        )
    if "No ops traced" in reason or "no tensor" in reason:
        return (
            f"a call of {name} had no tensor operation in it, and Dynamo does not try the frame again: "
            f"make the first calls do real work, or compile the functions that {name} calls"
        )
    if "tracing is disabled" in reason:
        return (
            "unset TORCH_COMPILE_DISABLE, and leave torch._dynamo.config.disable at False: the compiler is turned off; "
            f"while it is, from torch 2.14 on a call of {name} raises if it was compiled with fullgraph=True"
        )
    inner = f"compile the functions that {name} calls instead of {name} itself"
    return f"{inner}; a generator function cannot be compiled directly"


def _seconds_cost(frame: Frame) -> Cost:
    seconds = frame.seconds
    if seconds is None:
        return Cost()
    return Cost(seconds=seconds, kind=CostKind.OBSERVED, note="compile time of this frame")

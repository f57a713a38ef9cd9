"""TT2xx: why frames were compiled again, a finding a cause: who changed, what it was over time, when, and what to do."""

import re
from collections.abc import Iterator, Sequence

from torchtriage.diagnosis.places import Place, locate, owner_of
from torchtriage.diagnosis.reasons import Kind, Reason
from torchtriage.diagnosis.recompile_patterns import code_of, is_broken_off
from torchtriage.diagnosis.recompile_remedies import Scene, remedy
from torchtriage.diagnosis.rules import finding, fingerprint_of, rule
from torchtriage.diagnosis.stories import Story, stories
from torchtriage.findings.catalogue import rule as catalogue_rule
from torchtriage.findings.fingerprint import portable_path
from torchtriage.findings.model import YOU, Cost, CostKind, Evidence, Finding
from torchtriage.findings.severity import severity_for
from torchtriage.recording.events import Placed
from torchtriage.recording.recording import Process

MAX_SHOWN = 8           # values and steps in a sentence; the finding holds more
MAX_REASONS = 10
MAX_KEPT = 50           # values, steps and compile ids kept in a finding

_TITLES = {
    "TT201": "{subject} changed, then it settled",
    "TT202": "{subject} keeps changing",
    "TT203": "{subject} is smaller in the last batch",
    "TT204": "the int {subject} changes",
    "TT205": "the float {subject} changes",
    "TT206": "{subject} counts calls",
    "TT207": "{subject} differs from layer to layer",
    "TT208": "train and eval mode take turns",
    "TT209": "{subject} is switched on and off",
    "TT218": "{subject} is there or not",
    "TT219": "{subject} is a new object",
    "TT220": "the global {subject} changes",
    "TT221": "{subject} is 0 or 1 at times",
    "TT222": "a value taken from a tensor changes",
    "TT225": "the code is compiled for one side of a condition on {subject}",
    "TT298": "torch gives no reason",
    "TT299": "a guard failed that torchtriage does not know",
}
_WHY = {
    "TT202": "automatic dynamic shapes did not take hold",
    "TT206": "a number on an object is a constant to the compiler",
    "TT207": "modules of one class share one code object, so each value counts against the same limit",
    "TT208": "each mode is compiled once",
    "TT219": "the compiler knows an object by its identity",
    "TT220": "a global is a constant to the compiler",
    "TT221": "torch always compiles sizes 0 and 1 apart",
}


@rule
def recompiles(process: Process) -> Iterator[Finding]:
    """A frame was compiled again; one finding a cause."""
    for story in stories(process):
        yield _told(story, process)


def _told(story: Story, process: Process) -> Finding:
    code = code_of(story, process)
    place = locate(process, story.recompiles[0])
    name = place_name(place, story)
    scene = Scene(
        story=story, name=name, subject=subject(story), before_call=_before_call(story, process),
        compiled_at=_short(story.call, process) if story.call else "",
    )
    tail = _TITLES.get(code, "{subject} changes").format(subject=scene.subject)
    limit = f", until its limit{_limit_value(story)} stopped it" if story.limit else ""
    return finding(
        code, title=f"{name} recompiled {_times(len(story.recompiles))}{limit}: {tail}", cause=_cause(code, scene, process),
        fix=remedy(code, scene), severity=severity_for(catalogue_rule(code).severity, grows=story.keeps_on),
        location=place.location, raised_at=place.raised_at, owner=place.owner, cost=_cost(story), evidence=_evidence(scene),
        verification=_verification(code, scene), steps=_steps(story)[:MAX_KEPT], ranks=() if process.rank is None else (process.rank,),
        fingerprint=fingerprint_of(code, place, " ".join(story.key), process),
    )


def place_name(place: Place, story: Story) -> str:
    """The function that was compiled again, by its qualified name if it is at the place that is shown."""
    own = place.raised_at or place.location
    return own.function or story.frame.function or "a frame"


def subject(story: Story) -> str:
    """What changed, as the user writes it."""
    source = "a value kept over a graph break" if is_broken_off(story.reasons[0]) else story.source
    if story.kind in (Kind.SIZE, Kind.ZERO_ONE, Kind.SYMBOLIC, Kind.STRIDE) and story.dims:
        call = "stride" if story.kind is Kind.STRIDE else "size"
        return " and ".join(f"{source}.{call}({dim})" for dim in story.dims)
    forms = {
        Kind.RANK: "{}.dim()", Kind.DTYPE: "{}.dtype", Kind.DEVICE: "{}.device", Kind.REQUIRES_GRAD: "{}.requires_grad",
        Kind.LENGTH: "len({})", Kind.KEYS: "the keys of {}", Kind.TYPE: "type({})",
    }
    if story.kind is Kind.LENGTH and source.endswith("._modules"):
        return f"the number of modules in {source.removesuffix('._modules')}"
    return forms.get(story.kind, "{}").format(source or "a guarded value")


def _cause(code: str, scene: Scene, process: Process) -> str:
    story = scene.story
    parts = [f"{_took(story, scene.subject)}{_listed(' at step', [str(s) for s in _steps(story)])}", _guard(story.reasons[0], process)]
    if story.call and (code == "TT202" or scene.is_static):
        parts.append(f"compiled at {scene.compiled_at} with dynamic={story.call.dynamic}")
    if code in _WHY and not (code == "TT202" and scene.is_static):
        parts.append(_WHY[code])
    if story.limit:
        parts.append(f"then it was refused: torch._dynamo.config.{story.limit.limit_name}{_limit_value(story)}, new values run eager")
    return "; ".join(part for part in parts if part)


def _took(story: Story, what: str) -> str:
    dims = list(dict.fromkeys(dim for dim, _ in story.values))
    if len(dims) > 1:
        source, call = story.source, "stride" if story.kind is Kind.STRIDE else "size"
        return ", ".join(f"{source}.{call}({dim}) took {_row([v for d, v in story.values if d == dim])}" for dim in dims)
    if not story.values:
        return f"{what} changed" if story.kind not in (Kind.EMPTY, Kind.UNPARSED) else "the frame was compiled again"
    values = [value for _, value in story.values]
    return f"{what} was {values[0]}" if len(values) == 1 else f"{what} took {_row(values)}"


def _row(values: Sequence[str]) -> str:
    shown = ", ".join(values[:MAX_SHOWN])
    return shown if len(values) <= MAX_SHOWN else f"{shown} ... ({len(values)} values)"


def _listed(label: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    rest = "" if len(items) <= MAX_SHOWN else " ..."
    return f"{label}{'s' if len(items) > 1 else ''} {', '.join(items[:MAX_SHOWN])}{rest}"


def _guard(reason: Reason, process: Process) -> str:
    """The guard without what the values already tell, and the line that made torch set it."""
    if reason.kind is Kind.EMPTY:
        return "torch gave an empty reason"
    if reason.kind in (Kind.UNPARSED, Kind.MARKING):
        return f"torch says: {reason.guard[:300]}"
    text = re.sub(r", \d{6,}\)", ")", reason.guard.split(". expected")[0])
    path, _, line = reason.place.rpartition(":")
    read = f", for the line {reason.code[:100]!r}" if reason.code else ""
    at = f" at {portable_path(path, _roots(process))}:{line}" if path and read else ""
    return f"guard: {text[:200]}{read}{at}"


def _evidence(scene: Scene) -> Evidence:
    story = scene.story
    several = len({dim for dim, _ in story.values}) > 1
    call = "stride" if story.kind is Kind.STRIDE else "size"
    notes = [f"compiled at {scene.compiled_at} with dynamic={story.call.dynamic}"] if story.call else []
    sources = list(dict.fromkeys(reason.source for reason in story.reasons))
    if len(sources) > 1:
        notes.append(f"guarded: {', '.join(sources[:MAX_REASONS])}")
    return Evidence(
        num_events=len(story.recompiles),
        values=tuple(f"{call}({dim})={value}" if several else value for dim, value in story.values)[:MAX_KEPT],
        reasons=tuple(dict.fromkeys(reason.raw for reason in story.reasons))[:MAX_REASONS],
        compile_ids=tuple(e.compile_id for e in story.recompiles if e.compile_id)[:MAX_KEPT], notes=tuple(notes),
    )


def _cost(story: Story) -> Cost:
    seconds = story.frame.seconds(e.compile_id for e in story.recompiles)
    if seconds is None:
        return Cost(note="the source has no compile times")
    return Cost(seconds=seconds, kind=CostKind.OBSERVED, note="compile time of these recompiles")


def _verification(code: str, scene: Scene) -> tuple[str, ...]:
    limit = (f"{scene.name} does not reach its recompile limit in the next recording",) if scene.story.limit else ()
    return (f"at most 1 recompile of {scene.name} in the next recording", f"no {code} of {scene.name} in the next recording", *limit)


def _steps(story: Story) -> tuple[int, ...]:
    return tuple(sorted({event.step for event in story.recompiles if event.step is not None}))


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _limit_value(story: Story) -> str:
    return f" of {story.limit.limit}" if story.limit and story.limit.limit is not None else ""


def _before_call(story: Story, process: Process) -> str:
    """Where the user calls the function: the last line of theirs in the stack above it."""
    event = story.recompiles[0]
    callers = [e for e in event.stack if (e.path, e.function) != (event.path, event.function) and owner_of(e.path, process.facts) == YOU]
    if not callers:
        return "before the call"
    return f"before the call at {portable_path(callers[-1].path, _roots(process))}:{callers[-1].line}"


def _short(event: Placed, process: Process) -> str:
    return f"{portable_path(event.path, _roots(process))}:{event.line}"


def _roots(process: Process) -> tuple[str, ...]:
    return tuple(process.facts.get("your_roots") or ())

"""TT2xx: why frames were compiled again, a finding a cause: who changed, what it was over time, when, and what to do."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torchtriage.diagnosis.break_seen import short_place
from torchtriage.diagnosis.once import once
from torchtriage.diagnosis.own_frames import break_behind, is_target, target_name
from torchtriage.diagnosis.places import Place, frame_name, locate, owner_at, owner_of
from torchtriage.diagnosis.reasons import Kind, Reason
from torchtriage.diagnosis.recompile_patterns import MODULE_HINT, code_of, function_lines, is_broken_off
from torchtriage.diagnosis.recompile_remedies import Scene, remedy
from torchtriage.diagnosis.rules import finding, fingerprint_of, rule
from torchtriage.diagnosis.source_names import readable
from torchtriage.diagnosis.stories import Story, stories
from torchtriage.findings.catalogue import rule as catalogue_rule
from torchtriage.findings.fingerprint import portable_path
from torchtriage.findings.model import YOU, Cost, CostKind, Evidence, Finding, Fix, OwnerKind
from torchtriage.findings.severity import severity_for
from torchtriage.recording.events import Placed
from torchtriage.recording.recording import Process

MAX_SHOWN = 8           # values and steps in a sentence; the finding holds more
MAX_REASONS = 10
MAX_KEPT = 50           # values and steps kept in a finding

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
    "TT210": "global state changes, {subject}",
    "TT218": "{subject} is there or not",
    "TT219": "{subject} is a new object",
    "TT220": "the global {subject} changes",
    "TT221": "{subject} is 0 or 1 at times",
    "TT222": "a value taken from a tensor changes",
    "TT225": "the code is compiled for one side of a condition on {subject}",
    "TT298": "torch gives no reason",
    "TT299": "a guard failed that torchtriage does not know",
}
_SUBJECTS = {
    Kind.RANK: "{}.dim()", Kind.DTYPE: "{}.dtype", Kind.DEVICE: "{}.device", Kind.REQUIRES_GRAD: "{}.requires_grad",
    Kind.LENGTH: "len({})", Kind.TYPE: "type({})",
}
_WHY = {
    "TT202": "automatic dynamic shapes did not take hold",
    "TT207": "modules of one class share one code object, so each value counts against the same limit",
    "TT208": "each mode is compiled once",
    "TT219": "the compiler knows an object by its identity",
    "TT220": "a global is a constant to the compiler",
    "TT221": "torch always compiles sizes 0 and 1 apart",
}


@rule
def recompiles(process: Process) -> Iterator[Finding]:
    """A frame was compiled again; one finding a cause."""
    return (finding for _, finding in told_recompiles(process))


@once
def told_recompiles(process: Process) -> list[tuple[Story, Finding]]:
    """Every story of recompiles and its finding."""
    return [(story, _told(story, process)) for story in stories(process)]


def _told(story: Story, process: Process) -> Finding:
    code = code_of(story, process)
    place = locate(process, story.recompiles[0])
    name = target_name(process, story.recompiles[0]) or frame_name(place, story.recompiles[0], story.call.target if story.call else "")
    yours = _is_set_by_you(story, process)
    inside = place.owner.kind is OwnerKind.LIBRARY and not yours and not is_target(process, story.recompiles[0])
    broken = break_behind(process, story.recompiles[0]) if inside else None
    star = _star(story, process)
    scene = Scene(
        story=story, name=name, subject=subject(story, star), before_call=_before_call(story, process), star=star,
        compiled_at=_short(story.call, process) if story.call else "", inside=str(place.owner) if inside else "",
        broken_at=short_place(broken.path, broken.line) if broken else "",
    )
    owner = YOU if yours else locate(process, broken).owner if broken else place.owner     # who cures the break cures this
    form = "{subject} change" if story.kind is Kind.KEYS and not story.dims else _TITLES.get(code, "{subject} changes")
    tail = form.format(subject=scene.subject)
    if len(story.dims) > 1:
        tail = tail.replace("keeps changing", "keep changing").replace("is 0 or 1", "are 0 or 1")
    limit = f", until its limit{_limit_value(story)} stopped it" if story.limit else ""
    return finding(
        code, title=f"{name} recompiled {_times(len(story.recompiles))}{limit}: {tail}", cause=_cause(code, scene, process),
        fix=remedy(code, scene) if inside else _with_cause_behind(remedy(code, scene), story),
        severity=severity_for(catalogue_rule(code).severity, grows=story.keeps_on),
        location=place.location, raised_at=place.raised_at, owner=owner, cost=_cost(story), evidence=_evidence(scene),
        verification=_verification(code, scene), steps=_steps(story)[:MAX_KEPT],
        ranks=() if process.rank is None else (process.rank,),
        fingerprint=fingerprint_of(code, place, _normal_reason(story, place, process), process),
    )


def _with_cause_behind(fix: Fix, story: Story) -> Fix:
    names = " and ".join(dict.fromkeys(reason.source for reason in story.behind if reason.source))
    return replace(fix, text=f"{fix.text}; and keep {names} the same, or this comes back", safe=False) if names else fix


def _normal_reason(story: Story, place: Place, process: Process) -> str:
    """Kind and source, and the frame where a line of the user's stands for several frames of a library."""
    own = place.raised_at
    frame = f" in {portable_path(own.path, _roots(process))} {own.function}" if own else ""
    return " ".join(story.key) + frame


def subject(story: Story, star: str = "") -> str:
    """What changed, as the user writes it; `star` is how the function's head marks it."""
    if story.kind is Kind.LENGTH and star:
        return f"the number of {'keyword' if star == '**' else 'positional'} arguments"
    source = "a value kept over a graph break" if is_broken_off(story.reasons[0]) else story.source
    if story.kind is Kind.KEYS:
        return f"the dict key {source}" if story.dims else f"the keys of {source}"
    if story.dims:
        return " and ".join(f"{source}{_part(story, dim)}" for dim in story.dims)
    if story.kind is Kind.LENGTH and source.endswith("._modules"):
        return f"the number of modules in {source.removesuffix('._modules')}"
    return _SUBJECTS.get(story.kind, "{}").format(source or "a guarded value")


def _is_set_by_you(story: Story, process: Process) -> bool:
    """Whether a line of the user's made torch guard; torch shortens its path, so it is looked for among the callers."""
    path = story.reasons[0].place.rpartition(":")[0]
    callers = (entry.path for entry in story.recompiles[0].stack if owner_at(entry, process.facts) == YOU)
    return bool(path) and any(f"/{caller}".endswith(f"/{path.lstrip('/')}") for caller in callers)


def _star(story: Story, process: Process) -> str:
    """`*` or `**` if the source is what the function's head takes so; else empty."""
    head = re.search(rf"[(,]\s*(\*\*?){re.escape(story.source)}\b", "\n".join(function_lines(story.frame, process)))
    return head[1] if head and story.source else ""


def _part(story: Story, dim: int | None) -> str:
    if story.kind is Kind.KEYS:
        return f"[{dim}]"
    return f".stride({dim})" if story.kind is Kind.STRIDE else f".size({dim})"


def _cause(code: str, scene: Scene, process: Process) -> str:
    story = scene.story
    when = _listed(" at step", [str(step) for step in _steps(story)])
    parts = [f"{_took(story, scene.subject)}{when}", _guard(story.reasons[0], process)]
    if story.call and (code == "TT202" or scene.is_static):
        parts.append(f"compiled at {scene.compiled_at} with dynamic={story.call.dynamic}")
    if code in _WHY and not (code == "TT202" and scene.is_static):
        parts.append(_WHY[code])
    if MODULE_HINT in story.reasons[0].hint:
        parts.append("torch takes an int attribute of a module for a constant")
    if story.behind:
        names = ", ".join(dict.fromkeys(reason.source or reason.guard for reason in story.behind))
        parts.append(f"values came back that were compiled before, and those variants failed on {names}")
    if story.limit:
        name = f"torch._dynamo.config.{story.limit.limit_name}"
        parts.append(f"{name}{_limit_value(story)} then stopped it: other values run eager")
    return "; ".join(part for part in parts if part)


def _took(story: Story, what: str) -> str:
    dims = list(dict.fromkeys(dim for dim, _ in story.values))
    values = [value for _, value in story.values]
    if len(dims) > 1 or (story.kind is Kind.KEYS and dims and dims != [None]):
        rows = [(dim, [v for d, v in story.values if d == dim]) for dim in dims]
        rows = [row for row in rows if len(row[1]) > 1] or rows     # a size that was seen only once did not change
        return ", ".join(f"{story.source}{_part(story, dim)} took {_row(row)}" for dim, row in rows)
    if not values:
        return f"{what} changed" if story.kind not in (Kind.EMPTY, Kind.UNPARSED) else "the frame was compiled again"
    if story.kind is Kind.KEYS:
        return f"{what} changed: {_row(values)}"
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
    text = re.sub(r", \d{6,}\)", ")", re.split(r"\. (?:[Ee]xpected|Cached backend)", reason.guard)[0])
    text = text.replace(reason.path, readable(reason.path)) if reason.path else text
    path, _, line = reason.place.rpartition(":")
    read = f", for the line {reason.code[:100]!r}" if reason.code else ""
    at = f" at {portable_path(path, _roots(process))}:{line}" if path and read else ""
    return f"guard: {text[:200]}{read}{at}"


def _evidence(scene: Scene) -> Evidence:
    story = scene.story
    several = len({dim for dim, _ in story.values}) > 1
    notes = [f"compiled at {scene.compiled_at} with dynamic={story.call.dynamic}"] if story.call else []
    sources = list(dict.fromkeys(reason.source for reason in story.reasons))
    if len(sources) > 1:
        notes.append(f"guarded: {', '.join(sources[:MAX_REASONS])}")
    return Evidence(
        num_events=len(story.recompiles),
        values=tuple(f"{_part(story, dim).lstrip('.')}={value}" if several else value for dim, value in story.values)[:MAX_KEPT],
        reasons=tuple(dict.fromkeys(reason.raw for reason in story.reasons))[:MAX_REASONS],
        compile_ids=tuple(e.compile_id for e in story.recompiles if e.compile_id), notes=tuple(notes),
    )


def _cost(story: Story) -> Cost:
    seconds = story.frame.seconds(e.compile_id for e in story.recompiles)
    if seconds is None:
        return Cost(note="the source has no compile times")
    return Cost(seconds=seconds, kind=CostKind.OBSERVED, note="compile time of these recompiles")


def _verification(code: str, scene: Scene) -> tuple[str, ...]:
    limit = (f"{scene.name} does not reach its recompile limit in the next recording",) if scene.story.limit else ()
    fewer = f"at most 1 recompile of {scene.name} in the next recording"
    return (fewer, f"no {code} of {scene.name} in the next recording", *limit)


def _steps(story: Story) -> tuple[int, ...]:
    return tuple(sorted({event.step for event in story.recompiles if event.step is not None}))


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _limit_value(story: Story) -> str:
    return f" of {story.limit.limit}" if story.limit and story.limit.limit is not None else ""


def _before_call(story: Story, process: Process) -> str:
    """Where the user calls the function: the last line of theirs in the stack above it.

    Torch leaves out the two innermost callers; where both were its own, the line is the call itself.
    """
    event = story.recompiles[0]
    above = [e for e in event.stack if (e.path, e.function) != (event.path, event.function)]
    owners = [owner_of(e.path, process.facts) for e in above]
    callers = [e for e, owner in zip(above, owners, strict=True) if owner == YOU]
    if not callers:
        return "before the call"
    exact = owners[-1].kind is OwnerKind.TORCH or (event.knows_caller and owners[-1] == YOU)
    link = "at" if exact else "reached from"
    return f"before the call {link} {portable_path(callers[-1].path, _roots(process))}:{callers[-1].line}"


def _short(event: Placed, process: Process) -> str:
    return f"{portable_path(event.path, _roots(process))}:{event.line}"


def _roots(process: Process) -> tuple[str, ...]:
    return tuple(process.facts.get("your_roots") or ())

"""TT2xx: frames that were compiled again, one finding per cause."""

import re
from collections.abc import Iterator
from dataclasses import replace

from torchtriage.diagnosis.compiles.frames import compile_seconds
from torchtriage.diagnosis.compiles.targets import break_behind, is_target, target_name
from torchtriage.diagnosis.frameworks import batch_maker, compiler_at
from torchtriage.diagnosis.places import Place, frame_name, locate, owner_at, owner_of, qualified_name
from torchtriage.diagnosis.recompiles.caller import caller_of, passed_value
from torchtriage.diagnosis.recompiles.edits import RecompileSite, recompile_edits
from torchtriage.diagnosis.recompiles.groups import RecompileGroup, recompile_groups
from torchtriage.diagnosis.recompiles.guard_text import Kind, Reason, readable, type_name
from torchtriage.diagnosis.recompiles.patterns import (
    MODULE_HINT,
    code_of,
    function_lines,
    is_broken_off,
    is_ragged,
)
from torchtriage.diagnosis.recompiles.remedies import remedy
from torchtriage.diagnosis.recompiles.scene import Scene
from torchtriage.diagnosis.recompiles.settings import shown
from torchtriage.diagnosis.rules import finding, fingerprint_of, rule
from torchtriage.findings.catalogue import rule as catalogue_rule
from torchtriage.findings.fingerprint import portable_path
from torchtriage.findings.model import (
    YOU,
    Check,
    CheckKind,
    Cost,
    CostKind,
    Evidence,
    Finding,
    Fix,
    Location,
    OwnerKind,
    SampledValue,
    Severity,
)
from torchtriage.findings.severity import severity_for
from torchtriage.recording.events import Placed
from torchtriage.recording.recording import Process
from torchtriage.text import listed, numbered, resume_of, row, short_place, shortened, times

MAX_SHOWN = 8           # values and steps in a sentence; the finding holds more
MAX_REASONS = 10
MAX_KEPT = 50           # values and steps kept in a finding
MAX_NEXT = 2            # further causes that a fix names

_TITLES = {
    "TT201": "{subject} changed, then it settled",
    "TT202": "{subject} keeps changing",
    "TT203": "{subject} is smaller in the last batch",
    "TT204": "the int {subject} changes",
    "TT205": "the float {subject} changes",
    "TT206": "{subject} counts calls",
    "TT207": "{subject} differs from layer to layer",
    "TT208": "it alternates between train and eval mode",
    "TT209": "{subject} is switched on and off",
    "TT210": "global state changes ({subject})",
    "TT218": "{subject} is sometimes None",
    "TT219": "{subject} is another object",
    "TT220": "the global {subject} changes",
    "TT221": "{subject} is sometimes 0 or 1",
    "TT222": "a value taken from a tensor changes",
    "TT225": "the code is compiled for one side of a condition on {subject}",
    "TT298": "torch gives no reason",
    "TT299": "an unknown guard failed",
}
_SUBJECTS = {
    Kind.RANK: "{}.dim()", Kind.DTYPE: "{}.dtype", Kind.DEVICE: "{}.device", Kind.REQUIRES_GRAD: "{}.requires_grad",
    Kind.LENGTH: "len({})", Kind.TYPE: "type({})",
}
_WHY = {
    "TT202": "automatic dynamic shapes did not apply",
    "TT207": "modules of one class share one code object, so each value counts against the same limit",
    "TT208": "each mode is compiled once",
    "TT219": "the compiler identifies an object by its id()",
    "TT220": "a global is a constant to the compiler",
    "TT221": "torch always compiles sizes 0 and 1 separately",
}


@rule
def recompiles(process: Process) -> Iterator[Finding]:
    """A frame was compiled again; one finding per cause."""
    return (finding for _, finding in recompile_findings(process))


def recompile_findings(process: Process) -> list[tuple[RecompileGroup, Finding]]:
    """Every group of recompiles and its finding, worked out once."""
    return process.once(_recompile_findings)


def changed_at(group: RecompileGroup, process: Process) -> Location | None:
    """The user's line that reads the state which changes, if it is in a called function or behind a graph break.

    State of an object or of the program changes there; an argument is passed by the caller of the compiled function.
    """
    reason = group.reasons[0]
    yours = [entry for entry in reason.stack if owner_at(entry, process.program) == YOU]
    is_state = reason.is_global or re.match(r"(?:list\()?self\.", reason.source) is not None
    if not yours or not is_state:
        return None
    if yours[-1] != reason.stack[0]:
        return Location(path=yours[-1].path, line=yours[-1].line, function=qualified_name(process, yours[-1]))
    if resume_of(yours[-1].function) is None:
        return None
    resumed = locate(process, group.recompiles[0]).location
    return Location(path=yours[-1].path, line=yours[-1].line, function=resumed.function)


def _recompile_findings(process: Process) -> list[tuple[RecompileGroup, Finding]]:
    return [(group, _finding(group, process)) for group in recompile_groups(process)]


def _has_shape_specs(process: Process) -> bool:
    """Whether the recorded torch has torch.compile(dynamic_shapes=), as 2.14 and later do; False if it is unknown."""
    version = re.match(r"(\d+)\.(\d+)", process.program.torch or "")
    return version is not None and (int(version[1]), int(version[2])) >= (2, 14)


def _finding(group: RecompileGroup, process: Process) -> Finding:
    code = code_of(group, process)
    first = group.recompiles[0]
    place = locate(process, first)
    is_yours = _is_set_by_you(group, process)
    is_inside = place.owner.kind is OwnerKind.LIBRARY and not is_yours and not is_target(process, first)
    broken = break_behind(process, first) if is_inside else None
    star = _star(group, process)
    caller = caller_of(group, process)
    scene = Scene(
        group=group, name=_name(group, place, process), subject=subject(group, star), star=star,
        before_call=caller.place(_roots(process)) if caller else "before the call",
        compiled_at=_short(group.call, process) if group.call else "",
        body="\n".join(function_lines(group.frame, process)), value=passed_value(group, caller, process),
        batches=_same_sizes(group, process), dynamic=_set_dynamic(group, process),
        inside=str(place.owner) if is_inside else "",
        broken_at=short_place(broken.path, broken.line) if broken else "", has_specs=_has_shape_specs(process),
        calls=tuple(f"{_short(call, process)} with {shown(call)}" for call in group.calls),
    )
    owner = place.owner
    if is_yours:
        owner = YOU
    elif broken:
        owner = locate(process, broken).owner       # the fix of the break also fixes this
    fix = replace(
        remedy(code, scene), edits=recompile_edits(code, RecompileSite(process=process, scene=scene, caller=caller)))
    severity = Severity.P4 if group.is_settled else catalogue_rule(code).severity
    return finding(
        code, title=_title(code, scene), cause=_cause(code, scene, process),
        fix=fix if is_inside else _with_next_causes(fix, scene),
        severity=severity_for(severity, grows=group.keeps_on),
        location=place.location, raised_at=place.raised_at, owner=owner, cost=_cost(group), evidence=_evidence(scene),
        verification=_verification(code, scene), steps=_steps(group)[:MAX_KEPT],
        ranks=() if process.rank is None else (process.rank,),
        fingerprint=fingerprint_of(code, place, _normal_reason(group, place, process), process),
    )


def _name(group: RecompileGroup, place: Place, process: Process) -> str:
    first = group.recompiles[0]
    return target_name(process, first) or frame_name(place, first, group.call.target if group.call else "")


def _title(code: str, scene: Scene) -> str:
    group = scene.group
    form = _TITLES.get(code, "{subject} changes")
    if code == "TT201" and group.call is None:
        form = "{subject} changed"      # whether it settled is not known
    elif code == "TT203" and not scene.is_static:
        form = "{subject} is smaller in a later batch"      # once it is dynamic, no later size is seen
    if group.kind is Kind.KEYS and not group.dims:
        form = "{subject} change"
    elif group.kind is Kind.ATTRIBUTE and code == "TT218":
        form = "{subject} is sometimes missing"
    elif code == "TT220" and group.reasons[0].is_of_closure:
        form = "{subject}, which a nested function holds, changes"
    elif group.num_settings > 1:
        form = "torch.compile was called on it with other settings"
    change = form.format(subject=scene.subject)
    if len(group.dims) > 1:
        change = change.replace("keeps changing", "keep changing").replace("is sometimes", "are sometimes")
    limit = f", until its limit{_limit_value(group)} stopped it" if group.limit else ""
    return f"{scene.name} recompiled {times(len(group.recompiles))}{limit}: {change}"


def _with_next_causes(fix: Fix, scene: Scene) -> Fix:
    """The fix, and what would recompile next once it is applied: values that also change, behind this cause."""
    group = scene.group
    named = {"", *group.flags}      # the fix covers the combinations of flags
    hidden = dict.fromkeys(reason.source for reason in group.hidden if reason.source not in named)
    text = fix.text
    if hidden:
        text = f"{text}; also keep {listed(hidden)} the same, or it recompiles again"
    others = {source: values for source, values in group.also.items() if source not in hidden}
    for source, values in list(others.items())[:MAX_NEXT]:
        kinds = {type_name(value) for value in values}
        kind = kinds.pop() if len(kinds) == 1 else "value"
        article = "an" if kind == "int" else "a"
        then = "while dynamic=False is kept, " if scene.is_static else "then "
        shown = row(values, 3)
        text = f"{text}; {then}{source} would recompile: it is {article} {kind} that changes ({shown})"
    return replace(fix, text=text, safe=fix.safe and text == fix.text)


def _normal_reason(group: RecompileGroup, place: Place, process: Process) -> str:
    """Kind and source, with the frame if one line of the user covers several frames of a library."""
    own = place.raised_at
    frame = f" in {portable_path(own.path, _roots(process))} {own.function}" if own else ""
    return " ".join(group.key) + frame


def subject(group: RecompileGroup, star: str = "") -> str:
    """The value that changed, as the user writes it; `star` is its marker in the signature of the function."""
    if group.kind is Kind.LENGTH and star:
        return f"the number of {'keyword' if star == '**' else 'positional'} arguments"
    source = "a value kept over a graph break" if is_broken_off(group.reasons[0]) else group.source
    if group.kind is Kind.KEYS:
        return f"the dict key {source}" if group.dims else f"the keys of {source}"
    if group.dims:
        return listed(f"{source}{_part(group, dim)}" for dim in group.dims)
    if group.kind is Kind.LENGTH and source.endswith("._modules"):
        return f"the number of modules in {source.removesuffix('._modules')}"
    return _SUBJECTS.get(group.kind, "{}").format(source or "a guarded value")


def _is_set_by_you(group: RecompileGroup, process: Process) -> bool:
    """Whether a line of the user made torch guard; torch shortens its path, so it is searched among the callers."""
    path = group.reasons[0].place.rpartition(":")[0]
    callers = (entry.path for entry in group.recompiles[0].stack if owner_at(entry, process.program) == YOU)
    return bool(path) and any(f"/{caller}".endswith(f"/{path.lstrip('/')}") for caller in callers)


def _star(group: RecompileGroup, process: Process) -> str:
    """`*` or `**` if the signature of the function collects the source that way; else empty."""
    head = re.search(rf"[(,]\s*(\*\*?){re.escape(group.source)}\b", "\n".join(function_lines(group.frame, process)))
    return head[1] if head and group.source else ""


def _part(group: RecompileGroup, dim: int | None) -> str:
    if group.kind is Kind.KEYS:
        return f"[{dim}]"
    return f".stride({dim})" if group.kind is Kind.STRIDE else f".size({dim})"


def _cause(code: str, scene: Scene, process: Process) -> str:
    group = scene.group
    if scene.calls:
        return f"compiled at {listed(scene.calls)}; torch compiles a function once for each backend with its settings"
    steps = _steps(group)
    at_steps = f" at {numbered('step', steps, MAX_SHOWN)}" if steps else ""
    parts = [f"{_took(group, scene.subject)}{at_steps}", _guard(group.reasons[0], process)]
    if group.call and (code == "TT202" or scene.is_static):
        parts.append(f"compiled at {scene.compiled_at} with dynamic={group.call.dynamic}")
    if code in ("TT201", "TT202") and group.call is None:
        parts.append(
            "compile call not seen: with dynamic=False each new size recompiles; without it "
            + ("automatic dynamic shapes did not apply" if code == "TT202" else "one recompile makes the size dynamic")
        )
    elif code == "TT220" and group.reasons[0].is_of_closure:
        parts.append("a number that a nested function holds is a constant to the compiler")
    elif code in _WHY and not (code == "TT202" and scene.is_static):
        parts.append(_WHY[code])
    if MODULE_HINT in group.reasons[0].hint:
        parts.append("torch treats an int attribute of a module as a constant")
    if group.hidden:
        names = row(dict.fromkeys(reason.source or reason.guard for reason in group.hidden))
        parts.append(f"values recurred that already had a compiled variant, but those variants failed on {names}")
    if group.limit:
        name = f"torch._dynamo.config.{group.limit.limit_name}"
        parts.append(f"{name}{_limit_value(group)} then stopped it: other values run eager")
    return "; ".join(part for part in parts if part)


def _took(group: RecompileGroup, what: str) -> str:
    dims = list(dict.fromkeys(dim for dim, _ in group.values))
    values = [value for _, value in group.values]
    if len(dims) > 1 or (group.kind is Kind.KEYS and dims and dims != [None]):
        by_dim = [(dim, [value for own, value in group.values if own == dim]) for dim in dims]
        changed = [pair for pair in by_dim if len(pair[1]) > 1] or by_dim    # a single size did not change
        return row(f"{group.source}{_part(group, dim)} took {row(of_dim, MAX_SHOWN)}" for dim, of_dim in changed)
    if not values:
        return f"{what} changed" if group.kind not in (Kind.EMPTY, Kind.UNPARSED) else "the frame was compiled again"
    if group.kind is Kind.NONE and len(values) == 2:
        return f"{what} was {values[0]}, then {values[1]}"
    if group.kind is Kind.KEYS:
        return f"{what} changed: {row(values, MAX_SHOWN)}"
    return f"{what} was {values[0]}" if len(values) == 1 else f"{what} took {row(values, MAX_SHOWN)}"


def _guard(reason: Reason, process: Process) -> str:
    """The guard without the values, which the cause already lists, and the line that made torch set it."""
    if reason.kind is Kind.EMPTY:
        return "torch gave an empty reason"
    if reason.kind in (Kind.UNPARSED, Kind.MARKING):
        return f"torch reports: {shortened(reason.guard, 300)}"
    text = re.sub(r", \d{6,}\)", ")", re.split(r"\. (?:[Ee]xpected|Cached backend)", reason.guard)[0])
    name = reason.source if reason.is_of_closure else readable(reason.path)
    text = text.replace(reason.path, name) if reason.path else text
    path, _, line = reason.place.rpartition(":")
    path = path if path.startswith("/") else path.rpartition("/")[2]     # torch cuts a long path at its beginning
    cause = f", for the line {shortened(reason.code, 100)!r}" if reason.code else ""
    at = f" at {portable_path(path, _roots(process))}:{line}" if path and cause else ""
    return f"guard: {shortened(text, 200)}{cause}{at}"


def _evidence(scene: Scene) -> Evidence:
    group = scene.group
    notes = [f"compiled at {scene.compiled_at} with dynamic={group.call.dynamic}"] if group.call else []
    sources = list(dict.fromkeys(reason.source for reason in group.reasons))
    if len(sources) > 1:
        notes.append(f"guarded: {row(sources, MAX_REASONS)}")
    return Evidence(
        num_events=len(group.recompiles), values=_sampled(group),
        reasons=tuple(dict.fromkeys(reason.raw for reason in group.reasons))[:MAX_REASONS],
        compile_ids=tuple(e.compile_id for e in group.recompiles if e.compile_id), notes=tuple(notes),
    )


def _sampled(group: RecompileGroup) -> tuple[SampledValue, ...]:
    """The values in the order of the compiles; each names its dimension if several vary."""
    several = len({dim for dim, _ in group.values}) > 1
    values = []
    for dim, text in group.values[:MAX_KEPT]:
        part = _part(group, dim).lstrip(".") if several else ""
        values.append(SampledValue(text=text, number=_number(text), part=part))
    return tuple(values)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _cost(group: RecompileGroup) -> Cost:
    seconds = compile_seconds(group.compiles)
    if seconds is None:
        return Cost(note="the source has no compile times")
    return Cost(seconds=seconds, kind=CostKind.OBSERVED, note="compile time of these recompiles")


def _verification(code: str, scene: Scene) -> tuple[Check, ...]:
    checks = [Check(CheckKind.FEW_RECOMPILES, scene.name), Check(CheckKind.NO_FINDING, scene.name, code=code)]
    if scene.group.limit:
        checks.append(Check(CheckKind.BELOW_RECOMPILE_LIMIT, scene.name))
    return tuple(checks)


def _steps(group: RecompileGroup) -> tuple[int, ...]:
    return tuple(sorted({event.step for event in group.recompiles if event.step is not None}))


def _limit_value(group: RecompileGroup) -> str:
    return f" of {group.limit.limit}" if group.limit and group.limit.limit is not None else ""


def _same_sizes(group: RecompileGroup, process: Process) -> str:
    """How the user of a library that makes the batches keeps these sizes the same; empty if it is not known."""
    first = group.recompiles[0]
    maker = batch_maker(first.stack)
    before = batch_maker(group.frame.starts[0].stack) if group.frame.starts else None
    if maker is None or maker is not before or not is_target(process, first):
        return ""
    if 0 in group.dims:
        return maker.batch if is_ragged(group) else ""
    return maker.length


def _set_dynamic(group: RecompileGroup, process: Process) -> str:
    """How to end dynamic=False where a library calls torch.compile; empty if the user's own line does."""
    call = group.call
    owner = owner_of(call.path, process.program) if call else YOU
    if call is None or owner.kind is not OwnerKind.LIBRARY:
        return ""
    compiler = compiler_at(call.path)
    if compiler is None:
        return f"have {owner} compile without dynamic=False" if call.dynamic is False else ""
    return compiler.dynamic


def _short(event: Placed, process: Process) -> str:
    return f"{portable_path(event.path, _roots(process))}:{event.line}"


def _roots(process: Process) -> tuple[str, ...]:
    return process.program.your_roots

"""Findings that follow from another finding: folded into their cause, which lists them."""

from collections import defaultdict
from dataclasses import replace

from torchtriage.diagnosis.compiles.frames import CompileHistory, frame_key
from torchtriage.diagnosis.compiles.resume_frames import BreakKey, break_key, breaks_of_resume_frames
from torchtriage.diagnosis.compiles.targets import break_behind, is_target
from torchtriage.diagnosis.frameworks import framework_of
from torchtriage.diagnosis.graph_breaks.finding import Break, break_findings
from torchtriage.diagnosis.places import locate
from torchtriage.diagnosis.recompiles.finding import recompile_findings
from torchtriage.diagnosis.recompiles.fold import SIZE_CODES
from torchtriage.diagnosis.rules import fingerprint_of
from torchtriage.findings.model import YOU, Cost, CostKind, Finding
from torchtriage.recording.events import GraphBreak, LimitHit
from torchtriage.recording.recording import Process
from torchtriage.text import duration, short_place

MAX_LISTED = 20

Change = tuple[str, int | None, str]    # path, line, what to do there

# How Dynamo failed to continue after an earlier break of the same compile: never the first cause.
_FOLLOW_ON = frozenset({"GB0092", "GB0093", "GB0274", "GB7000", "GB0065", "GB0066", "GB0091", "GB4297", "GB9741"})
_RAISED = "GB0088"      # an exception that Dynamo met while it traced; it may be Dynamo's own
_COMPREHENSIONS = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
_ITERATOR_ARGUMENT = "GB4347"       # a comprehension that is compiled alone gets its iterator as an argument
# State of a module or of the program outlives the call: without the break it would recompile the caller instead.
_STATE_CODES = frozenset({"TT206", "TT208", "TT220"})
# Gradients and the optimizer inside one compiled function are one mistake; the first of these present names it.
TRAINING_STEP = ("TT109", "TT118", "TT110")


def fold_effects(findings: list[Finding], process: Process) -> list[Finding]:
    """The findings without those that follow from another one; the cause lists them and has the worst severity."""
    causes = causes_of_effects(process)
    by_fingerprint = {finding.fingerprint: finding for finding in findings}
    effects: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        cause = causes.get(finding.fingerprint)
        if cause in by_fingerprint:
            effects[cause].append(finding)
    folded = {effect.fingerprint for group in effects.values() for effect in group}
    return [_with_effects(f, effects[f.fingerprint]) for f in findings if f.fingerprint not in folded]


def _with_effects(finding: Finding, effects: list[Finding]) -> Finding:
    if not effects:
        return finding
    lines = tuple(_line(effect) for effect in effects)
    evidence = replace(finding.evidence, folded=(*finding.evidence.folded, *lines)[:MAX_LISTED])
    return finding.with_(
        severity=min(finding.severity, *(effect.severity for effect in effects)), evidence=evidence,
        cost=_joint_cost(finding.cost, effects),
    )


def _line(effect: Finding) -> str:
    seconds = f", {duration(effect.cost.seconds)}" if effect.cost.seconds else ""
    place = short_place(effect.location.path, effect.location.line)
    return f"{effect.code} {effect.title} ({place}{seconds})"


def _joint_cost(cost: Cost, effects: list[Finding]) -> Cost:
    """Compile time of the effects counts for the cause; a measured run-time cost stays as it is.

    The frame at a limit was compiled because of this cause or of another effect, whose cost has that time already.
    """
    extra = sum(effect.cost.seconds or 0.0 for effect in effects if effect.code != "TT301")
    if not extra or cost.ms_per_step is not None:
        return cost
    return replace(cost, seconds=(cost.seconds or 0.0) + extra, kind=CostKind.OBSERVED)


def causes_of_effects(process: Process) -> dict[str, str]:
    """For each finding that only follows from another one the fingerprint of its first cause, worked out once."""
    return process.once(_causes_of_effects)


def _causes_of_effects(process: Process) -> dict[str, str]:
    breaks = {break_key(broken.events[0]): (broken, finding) for broken, finding in break_findings(process)}
    fingerprints = {key: finding.fingerprint for key, (_, finding) in breaks.items()}
    worst_of_change = _worst_of_change(breaks)
    causes: dict[str, str] = {}
    for key, (broken, finding) in breaks.items():
        cause = (
            _first_break(process, broken) or _behind_comprehension(process, broken) or _training_step(broken, breaks)
            or _same_framework(broken, breaks) or _same_clock(broken, breaks) or _same_call(broken, breaks)
            or worst_of_change[_change(broken, finding)]
        )
        if cause in fingerprints and cause != key:
            causes[finding.fingerprint] = fingerprints[cause]
    made_by = breaks_of_resume_frames(process)
    own_limits: list[LimitHit] = []     # of resume frames that recompile with or without the break
    for group, finding in recompile_findings(process):
        first = group.recompiles[0]
        if made_by.get(frame_key(first)):
            own_limits += group.frame.limits if group.limit is not None else ()
            continue
        # Sizes come with the data: they would recompile the caller instead.
        if finding.owner != YOU or finding.code in SIZE_CODES | _STATE_CODES or is_target(process, first):
            continue
        behind = break_behind(process, first)
        if behind is not None and break_key(behind) in fingerprints:
            causes[finding.fingerprint] = fingerprints[break_key(behind)]
            if group.limit is not None:     # the limit follows from these recompiles, and so from the same break
                causes[_limit_fingerprint(group.limit, process)] = fingerprints[break_key(behind)]
    for hit in process.of(LimitHit):
        if hit in own_limits:
            continue
        keys = [key for key in made_by.get(frame_key(hit), ()) if key in fingerprints]
        if len(keys) == 1:      # the limit of a resume frame follows from the break that made the frame
            causes[_limit_fingerprint(hit, process)] = fingerprints[keys[0]]
    if process.learning.contracts:
        from torchtriage.diagnosis.learning.contracts import causes_of_contracts  # only for a training

        causes.update(causes_of_contracts(process))
    return {effect: _root(causes, effect) for effect in causes}


def _limit_fingerprint(hit: LimitHit, process: Process) -> str:
    return fingerprint_of("TT301", locate(process, hit), hit.limit_name, process)


def _root(causes: dict[str, str], effect: str) -> str:
    """The first cause of a chain; a circle ends where it began."""
    passed = {effect}
    cause = causes[effect]
    while cause in causes and cause not in passed:
        passed.add(cause)
        cause = causes[cause]
    return cause


def _first_break(process: Process, broken: Break) -> BreakKey | None:
    """The break after which Dynamo could not continue, in the same compile; None if this one came first."""
    if broken.events[0].gb_id not in _FOLLOW_ON:
        return None
    history = CompileHistory.of(process)
    first: BreakKey | None = None
    for event in broken.events:
        compile_ = history.compile_of(event)
        earlier = _before(compile_.breaks if compile_ is not None else [], event)
        if not earlier:
            return None
        first = first or break_key(earlier[-1])
    return first


def _before(breaks: list[GraphBreak], event: GraphBreak) -> list[GraphBreak]:
    """The breaks of a compile before an event that are causes themselves."""
    position = next((i for i, other in enumerate(breaks) if other is event), 0)
    return [other for other in breaks[:position] if other.gb_id not in _FOLLOW_ON]


def _behind_comprehension(process: Process, broken: Break) -> BreakKey | None:
    """The break that left the caller of a comprehension to eager, if only that makes its iterator an argument."""
    event = broken.events[0]
    if event.gb_id != _ITERATOR_ARGUMENT or event.function not in _COMPREHENSIONS:
        return None
    start = CompileHistory.of(process).start_of(event)
    behind = break_behind(process, start)
    return break_key(behind) if behind is not None else None


def _training_step(broken: Break, breaks: dict[BreakKey, tuple[Break, Finding]]) -> BreakKey | None:
    """The break that represents gradients and optimizer inside one compiled function."""
    if broken.cause.code not in TRAINING_STEP:
        return None
    place = (broken.editable.path, broken.function)
    together: list[tuple[int, BreakKey]] = []
    for key, (other, _) in breaks.items():
        if other.cause.code in TRAINING_STEP and (other.editable.path, other.function) == place:
            together.append((TRAINING_STEP.index(other.cause.code), key))
    return min(together, key=lambda pair: pair[0])[1] if len(together) > 1 else None


def _same_framework(broken: Break, breaks: dict[BreakKey, tuple[Break, Finding]]) -> BreakKey | None:
    """The first break inside the same library."""
    framework = framework_of(broken.events[0].stack)
    if framework is None:
        return None
    return next(key for key, (other, _) in breaks.items() if framework_of(other.events[0].stack) is framework)


def _worst_of_change(breaks: dict[BreakKey, tuple[Break, Finding]]) -> dict[Change, BreakKey]:
    """For each change of a line the worst break that it removes: torch may word them in several ways."""
    worst: dict[Change, BreakKey] = {}
    for key, (broken, finding) in breaks.items():
        known = worst.setdefault(_change(broken, finding), key)
        if finding.severity < breaks[known][1].severity:
            worst[_change(broken, finding)] = key
    return worst


def _change(broken: Break, finding: Finding) -> Change:
    return broken.editable.path, broken.editable.line, finding.fix.text


def _same_clock(broken: Break, breaks: dict[BreakKey, tuple[Break, Finding]]) -> BreakKey | None:
    """The first reading of a clock in the same function: start and stop are taken out together."""
    if broken.cause.code != "TT125":
        return None
    place = (broken.editable.path, broken.function, broken.cause.subject)
    for key, (other, _) in breaks.items():
        if (other.editable.path, other.function, other.cause.subject) == place:
            return key
    return None


def _same_call(broken: Break, breaks: dict[BreakKey, tuple[Break, Finding]]) -> BreakKey | None:
    """The break inside the call of a line, if it left Dynamo with a value for which the rest of the call raises."""
    if broken.events[0].gb_id != _RAISED:
        return None
    line = (broken.editable.path, broken.editable.line)
    for key, (other, _) in breaks.items():
        if other is broken:
            return None
        if (other.editable.path, other.editable.line) == line and other.events[0].gb_id != _RAISED:
            return key
    return None

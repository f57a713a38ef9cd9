"""Groups of recompiles: those of one frame with one cause, with the values that the cause took over time."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torchtriage.diagnosis.compiles.frames import Compile, CompileHistory, Frame
from torchtriage.diagnosis.compiles.resume_frames import breaks_of_resume_frames
from torchtriage.diagnosis.compiles.targets import call_behind
from torchtriage.diagnosis.recompiles.guard_text import Kind, Reason, parse_reason, readable
from torchtriage.diagnosis.recompiles.settings import (
    calls_behind,
    other_settings,
    settings_of,
    without_other_settings,
)
from torchtriage.findings.fingerprint import normalised_reason
from torchtriage.recording.events import CompileCall, LimitHit, Recompile
from torchtriage.recording.recording import Process
from torchtriage.text import original_function

# Automatic dynamic shapes settle after one recompile per dimension; more than two are a storm.
MIN_TO_KEEP_ON = 3

GroupKey = tuple[str, str]          # family of the reason, source
Policy = tuple[str, int | None, bool | None] | None   # place and `dynamic` of the torch.compile call; None if not seen
Value = tuple[int | None, str]      # dimension where it matters, value
Member = tuple[Compile, Reason]     # a recompile and why it happened
Entry = tuple[int | None, int, str]     # dimension, generation, compile id: what a cache entry was compiled for

_CELL = re.compile(r"\.__closure__\[(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecompileGroup:
    """The recompiles of one frame that have one cause; `reasons[i]` is why `compiles[i]` happened."""

    frame: Frame
    key: GroupKey
    compiles: tuple[Compile, ...]
    reasons: tuple[Reason, ...]
    values: tuple[Value, ...] = ()      # in the order in which they occurred
    hidden: tuple[Reason, ...] = ()     # second causes: why an existing variant for the new value did not serve
    # Other guarded sources that changed: their values.
    also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    limit: LimitHit | None = None
    flags: tuple[str, ...] = ()     # two-state values that alone recompile the frame, in all combinations
    call: CompileCall | None = None
    calls: tuple[CompileCall, ...] = ()     # if the backend changed: every call that compiled the frame
    in_one_step: bool | None = None     # whether every variant was compiled within a single step; None if unknown

    @property
    def recompiles(self) -> tuple[Recompile, ...]:
        return tuple(compile_.recompile for compile_ in self.compiles if compile_.recompile is not None)

    @property
    def kind(self) -> Kind:
        return Kind.KEYS if self.key[0] == Kind.KEYS else self.reasons[0].kind

    @property
    def source(self) -> str:
        return self.reasons[0].source

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(sorted({reason.dim for reason in self.reasons if reason.dim is not None}))

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is to come: a flag that has two states, or one change that automatic shapes absorbed."""
        if self.keeps_on:
            return False
        if _num_states(self.reasons[0]) is not None:
            return True
        if self.num_settings > 1:
            return len(self.compiles) < self.num_settings
        return len(self.compiles) == 1 and self.call is not None and self.call.dynamic is not False

    @property
    def num_settings(self) -> int:
        return len({settings_of(call) for call in self.calls})

    @property
    def keeps_on(self) -> bool:
        """Whether it grows with the run: it recurs again and again, or only the limit ended it."""
        if self.limit is None and (self.flags or self.num_settings > len(self.compiles)):
            return False
        return len(self.compiles) >= MIN_TO_KEEP_ON or self.limit is not None


def recompile_groups(process: Process) -> list[RecompileGroup]:
    """Every recompile of the process in at most one group.

    Recompiles of a frame that a graph break made are reported with the break, unless they would remain without it.
    """
    history = CompileHistory.of(process)
    made_by = breaks_of_resume_frames(process)
    groups: list[RecompileGroup] = []
    known: set[tuple[str, str, GroupKey]] = set()
    for key, frame in sorted(history.frames.items(), key=lambda item: bool(made_by.get(item[0]))):
        for group in _frame_groups(frame, history, process):
            cause = (key[0], original_function(key[1]), group.key)
            if made_by.get(key) and (cause in known or not _is_of_state(group)):
                continue
            known.add(cause)
            groups.append(replace(group, in_one_step=_in_one_step(group, process)))
    return groups


def _is_of_state(group: RecompileGroup) -> bool:
    """Whether state of an object or of the program changes again and again; values that cross a break are neither."""
    reason = group.reasons[0]
    is_state = reason.is_global or reason.source.startswith("self.")
    return is_state and group.keeps_on and group.kind in (Kind.EQUALS, Kind.LENGTH, Kind.KEYS)


def _in_one_step(group: RecompileGroup, process: Process) -> bool | None:
    if process.num_steps is None or process.num_steps < 2:
        return None
    # Events before the first step have None.
    return len({event.step for event in (*group.frame.starts[:1], *group.recompiles)}) == 1


def _frame_groups(frame: Frame, history: CompileHistory, process: Process) -> list[RecompileGroup]:
    members: dict[tuple[GroupKey, str, Policy], list[Member]] = defaultdict(list)
    calls: dict[Policy, CompileCall | None] = {}
    originals = {compile_.position: compile_ for compile_ in frame.compiles}
    attribution = _Attribution()
    for original in frame.compiles:
        if original.recompile is not None:
            compile_ = without_other_settings(original, frame, process)
            is_first_of_settings = bool(original.reasons) and not compile_.reasons
            reason = other_settings(original) if is_first_of_settings else attribution.cause(compile_)
            call = None if reason.is_of_backend else call_behind(process, compile_)
            policy = (call.path, call.line, call.dynamic) if call is not None else None
            calls[policy] = call
            members[_key(reason), _code_object(compile_), policy].append((compile_, reason))
    _join_keys(members)
    reasons_of_all = [reason for group in members.values() for _, reason in group]
    named = {name for reason in reasons_of_all for name in (reason.source, _value_name(reason.path))}
    also = {name: values for name, values in _changing_values(frame).items() if name not in named}
    groups = []
    for (key, _, policy), group in members.items():
        parts = _without_zero_one(group) if key[0] == Kind.SIZE else [group]
        for part in parts:
            compiles, reasons = zip(*part, strict=True)
            groups.append(RecompileGroup(
                frame=frame, key=key, compiles=tuple(originals[compile_.position] for compile_ in compiles),
                reasons=reasons, values=_values(part, key, frame.limits, history), hidden=_hidden(part, key), also=also,
                call=calls[policy], calls=calls_behind(frame, process) if reasons[0].is_of_backend else (),
            ))
    flags = _combined_flags(groups)
    return _with_limit([replace(group, flags=flags) for group in groups], frame, attribution, history)


def _join_keys(members: dict[tuple[GroupKey, str, Policy], list[Member]]) -> None:
    """Other keys and another number of keys of one dict are one cause."""
    for of_keys in [key for key in members if key[0][0] == Kind.KEYS]:
        (_, source), code_object, policy = of_keys
        of_length = ((str(Kind.LENGTH), source), code_object, policy)
        if of_length in members:
            joined = members[of_keys] + members.pop(of_length)
            members[of_keys] = sorted(joined, key=lambda member: member[0].position)


def _changing_values(frame: Frame) -> dict[str, tuple[str, ...]]:
    """Guarded values that differ between the compiles of a frame, whether or not torch named them as a reason."""
    by_source: dict[tuple[int, str], list[str]] = defaultdict(list)
    for compile_ in frame.compiles:
        for source, value in compile_.values.items():
            name = readable(source)
            if source not in compile_.dynamic and not re.search(r"\(|\.training$|___", name):
                by_source[compile_.generation, _value_name(source)].append(value)
    changing: dict[str, tuple[str, ...]] = {}
    for (_, name), values in by_source.items():
        distinct = tuple(dict.fromkeys(values))
        if len(distinct) > 1:
            changing.setdefault(name, distinct)
    return changing


def _value_name(source: str) -> str:
    """The value of a guard in words; what a nested function holds has no name in a guard, only a number."""
    cell = _CELL.search(source)
    if cell is None:
        return readable(source)
    ordinal = f"{int(cell[1]) + 1}. " if int(cell[1]) else ""
    return f"the {ordinal}value that {readable(source[:cell.start()])} holds"


class _Attribution:
    """Assigns each recompile of a frame to one cause, by the reasons of all cache entries.

    A recompile lists the first failed guard of every entry, newest entry first. A cause with n states explains at most
    n - 1 recompiles: once an entry for the present state exists, that entry failed for another reason, and that reason
    is the cause.
    """

    def __init__(self) -> None:
        self._explained: Counter[tuple[int, GroupKey]] = Counter()

    def cause(self, compile_: Compile) -> Reason:
        """The cause of a recompile, which is counted as explained by it."""
        if not compile_.reasons:
            return Reason(kind=Kind.EMPTY, raw="")
        reasons = [_completed(compile_, parse_reason(raw)) for raw in compile_.reasons]
        cause = self.select(reasons, compile_.generation)
        self._explained[compile_.generation, _key(cause)] += 1
        return cause

    def select(self, reasons: Sequence[Reason], generation: int) -> Reason:
        """The first of the reasons whose cause can still explain a recompile; else the first."""
        by_key: dict[GroupKey, list[Reason]] = defaultdict(list)
        for reason in reasons:
            by_key[_key(reason)].append(reason)
        for key, of_key in by_key.items():
            if not self._is_exhausted((generation, key), of_key[0]):
                return of_key[0]
        return reasons[0]

    def _is_exhausted(self, key: tuple[int, GroupKey], reason: Reason) -> bool:
        states = _num_states(reason)
        return states is not None and self._explained[key] >= states - 1


def _num_states(reason: Reason) -> int | None:
    """How many values the guarded thing can take; None if their number is not known."""
    if reason.kind is Kind.GLOBAL_STATE:
        return 3 if is_grad_mode(reason) and "inference" in reason.source else 2
    if reason.kind in (Kind.REQUIRES_GRAD, Kind.NONE, Kind.ATTRIBUTE):
        return 2
    return 2 if reason.kind is Kind.EQUALS and reason.value_type == "bool" else None


def _code_object(compile_: Compile) -> str:
    """Every dataclass has an `__init__` at the same line of `<string>`; Dynamo's number of the frame separates them."""
    if compile_.place.path != "<string>":
        return ""
    return f"{compile_.generation} {compile_.frame_number}"


def _key(reason: Reason) -> GroupKey:
    """Equal for two reasons that are one cause."""
    if reason.kind in (Kind.SIZE, Kind.ZERO_ONE):
        return Kind.SIZE, reason.source
    if reason.kind is Kind.EQUALS and reason.source.endswith(".training"):
        return "training", ""       # a module and its children flip together, and torch names whichever it checks first
    if reason.kind is Kind.GLOBAL_STATE:
        return reason.kind, "grad_mode" if is_grad_mode(reason) else reason.source
    if reason.kind is Kind.UNPARSED:
        return reason.kind, normalised_reason(reason.guard)
    return reason.kind, reason.source


def is_grad_mode(reason: Reason) -> bool:
    return bool({"grad_mode", "inference_mode"} & set(reason.source.split(", ")))


def _without_zero_one(group: list[Member]) -> list[list[Member]]:
    """Sizes 0 and 1 are a separate group, unless the size keeps changing anyway."""
    special = [member for member in group if member[1].is_zero_one]
    plain = [member for member in group if not member[1].is_zero_one]
    if len(plain) >= MIN_TO_KEEP_ON:
        return [group]
    return [part for part in (plain, special) if part]


def _completed(compile_: Compile, reason: Reason) -> Reason:
    """The reason with the present value, where the guards of the compile that followed show it."""
    values: dict[str, str] = {}
    for source, value in compile_.values.items():
        values.setdefault(readable(source), value)
    size = values.get(f"{reason.source}.size()[{reason.dim}]") or _actual_size(compile_, reason)
    if reason.kind is Kind.SYMBOLIC and size in ("0", "1"):
        return replace(reason, kind=Kind.ZERO_ONE, new=size)
    if reason.kind in (Kind.ZERO_ONE, Kind.SYMBOLIC):
        return replace(reason, new=size)
    if reason.kind is Kind.EQUALS and reason.old in ("True", "False"):
        return replace(reason, new=str(reason.old == "False"))
    if reason.kind is Kind.KEYS and reason.dim is not None:
        return replace(reason, new=values.get(f"{reason.source}[{reason.dim}]"))
    if reason.kind in (Kind.EQUALS, Kind.IDENTITY) and reason.new is None:
        return replace(reason, new=values.get(reason.source))
    return reason


def _actual_size(compile_: Compile, reason: Reason) -> str | None:
    """The size that an older cache entry was offered in the same call, where the newest entry names only its bound."""
    for raw in compile_.reasons:
        older = parse_reason(raw)
        if older.kind is Kind.SIZE and (older.source, older.dim) == (reason.source, reason.dim):
            return older.new
    return None


def _values(
    group: Iterable[Member], key: GroupKey, limits: Iterable[LimitHit], history: CompileHistory,
) -> tuple[Value, ...]:
    """The values of the source, ordered by the compile that had them: each reason shows one cache entry's value."""
    by_entry: dict[Entry, str] = {}
    for compile_, primary in group:
        generation = compile_.generation
        for reason in (*(parse_reason(raw) for raw in reversed(compile_.reasons)), primary):
            if _key(reason) == key:
                _note(by_entry, (reason.dim, generation, reason.entry or ""), reason.old)
        _note(by_entry, (primary.dim, generation, compile_.compile_id or ""), primary.new)
    for limit in limits:
        refused = parse_reason(limit.reasons[0]) if limit.reasons else None
        if refused and _key(refused) == key:
            generation = history.generation_of(limit)
            _note(by_entry, (refused.dim, generation, refused.entry or ""), refused.old)
            _note(by_entry, (refused.dim, generation, limit.compile_id or ""), refused.new)
    values: list[Value] = []
    for (dim, _, _), value in sorted(by_entry.items(), key=lambda item: _order(item[0])):
        if not values or values[-1] != (dim, value):
            values.append((dim, value))
    return tuple(values)


def _hidden(group: Iterable[Member], key: GroupKey) -> tuple[Reason, ...]:
    """Second causes. A recurring value already has a variant; the first cause hides the guard that failed in it."""
    by_entry: dict[Entry, str] = {}
    hidden: dict[GroupKey, Reason] = {}
    for compile_, primary in group:
        generation = compile_.generation
        for reason in map(parse_reason, compile_.reasons[1:]):
            compiled_for = by_entry.get((primary.dim, generation, reason.entry or ""))
            if _key(reason) != key and compiled_for is not None and compiled_for == primary.new:
                hidden.setdefault(_key(reason), reason)
        _note(by_entry, (primary.dim, generation, primary.entry or ""), primary.old)
        _note(by_entry, (primary.dim, generation, compile_.compile_id or ""), primary.new)
    return tuple(hidden.values())


def _note(by_entry: dict[Entry, str], entry: Entry, value: str | None) -> None:
    """Keep the value that a cache entry was compiled for; entries without an id are kept apart."""
    dim, generation, compile_id = entry
    while value is not None and by_entry.setdefault((dim, generation, compile_id), value) != value:
        compile_id += "'"


def _order(entry: Entry) -> tuple[int, int, list[int]]:
    """By dimension, then by compile; without an id they keep their order, because sorting is stable."""
    dim, generation, compile_id = entry
    return -1 if dim is None else dim, generation, [int(number) for number in re.findall(r"\d+", compile_id)]


def _with_limit(
    groups: list[RecompileGroup], frame: Frame, attribution: _Attribution, history: CompileHistory,
) -> list[RecompileGroup]:
    """The refusal belongs to the group of its cause; without a reason, to the largest one."""
    if not groups or not frame.limits:
        return groups
    limit = frame.limits[0]
    ended = groups
    if limit.reasons:
        cause = attribution.select([parse_reason(raw) for raw in limit.reasons], history.generation_of(limit))
        ended = [group for group in groups if group.key == _key(cause)] or groups
    last = max(ended, key=lambda group: len(group.compiles))
    return [replace(group, limit=limit) if group is last else group for group in groups]


def _combined_flags(groups: Sequence[RecompileGroup]) -> tuple[str, ...]:
    """The two-state values of a frame, if nothing else recompiled it: each combination of them is a variant."""
    sources = tuple(dict.fromkeys(group.source for group in groups if _num_states(group.reasons[0]) == 2))
    return sources if 1 < len(sources) == len(groups) else ()

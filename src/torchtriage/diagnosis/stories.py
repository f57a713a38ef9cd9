"""Recompiles told as stories: the recompiles of one frame that have one cause, with the values it took over time."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from torchtriage.diagnosis.frames import Frame, FrameKey, breaks_of_resume_frames, frames
from torchtriage.diagnosis.places import resume_of
from torchtriage.diagnosis.reasons import Kind, Reason, parse_reason
from torchtriage.diagnosis.source_names import readable
from torchtriage.findings.fingerprint import normalised_reason
from torchtriage.recording.events import CompileCall, GuardValue, LimitHit, Recompile
from torchtriage.recording.recording import Process

MIN_TO_KEEP_ON = 3      # automatic dynamic shapes settle after one recompile a dimension; DESIGN.md calls more than two a storm

StoryKey = tuple[str, str]          # family of the reason, source
Value = tuple[int | None, str]      # dimension where it matters, value
GuardValues = Mapping[int, Mapping[str, str]]   # by identity of the recompile, then by readable source


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The recompiles of one frame that have one cause; `reasons[i]` is why `recompiles[i]` happened."""

    frame: Frame
    key: StoryKey
    recompiles: tuple[Recompile, ...]
    reasons: tuple[Reason, ...]
    values: tuple[Value, ...] = ()      # in the order they were met
    behind: tuple[Reason, ...] = ()     # why variants that had the new value already did not serve
    limit: LimitHit | None = None
    call: CompileCall | None = None
    in_one_step: bool | None = None     # whether every variant was compiled within a single step; None if that is not known

    @property
    def kind(self) -> Kind:
        return self.reasons[0].kind

    @property
    def source(self) -> str:
        return self.reasons[0].source

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(sorted({reason.dim for reason in self.reasons if reason.dim is not None}))

    @property
    def keeps_on(self) -> bool:
        """Whether it grows with the run: it came back again and again, or only the limit ended it."""
        return len(self.recompiles) >= MIN_TO_KEEP_ON or self.limit is not None


def stories(process: Process) -> list[Story]:
    """Every recompile of the process in exactly one story, except those of frames that a graph break made."""
    values = _guard_values(process)
    folded = folded_frames(process)
    calls = list(process.of(CompileCall))
    found: list[Story] = []
    for key, frame in frames(process).items():
        if key not in folded:
            call = _call_behind(frame, calls)
            found += _with_limit([
                replace(story, call=call, in_one_step=_in_one_step(story, process)) for story in _frame_stories(frame, values)
            ])
    return found


def folded_frames(process: Process) -> frozenset[FrameKey]:
    """The resume frames whose recompiles are told with the graph break that made them."""
    return frozenset(key for key, made_by in breaks_of_resume_frames(process).items() if made_by)


def _in_one_step(story: Story, process: Process) -> bool | None:
    if process.num_steps is None or process.num_steps < 2:
        return None
    # Events before the first step have None.
    return len({event.step for event in (*story.frame.starts[:1], *story.recompiles)}) == 1


def _frame_stories(frame: Frame, values: GuardValues) -> Iterator[Story]:
    groups: dict[tuple[StoryKey, str], list[tuple[Recompile, Reason]]] = defaultdict(list)
    for event in frame.recompiles:
        reason = _primary(event, values)
        groups[_key(reason), _code_object(event)].append((event, reason))
    for (key, _), group in groups.items():
        for part in _without_zero_one(group) if key[0] == Kind.SIZE else [group]:
            events, reasons = zip(*part, strict=True)
            yield Story(
                frame=frame, key=key, recompiles=events, reasons=reasons,
                values=_values(part, key, frame.limits), behind=_behind(part, key),
            )


def _code_object(event: Recompile) -> str:
    """Every dataclass has an `__init__` at the same line of `<string>`; Dynamo's number of the frame tells them apart."""
    return (event.compile_id or "").partition("/")[0] if event.path == "<string>" else ""


def _key(reason: Reason) -> StoryKey:
    """What makes two reasons one story."""
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


def _without_zero_one(group: list[tuple[Recompile, Reason]]) -> list[list[tuple[Recompile, Reason]]]:
    """Sizes 0 and 1 are a story of their own, unless the size keeps changing anyway."""
    special = [pair for pair in group if pair[1].is_zero_one]
    plain = [pair for pair in group if not pair[1].is_zero_one]
    if len(plain) >= MIN_TO_KEEP_ON:
        return [group]
    return [part for part in (plain, special) if part]


def _primary(event: Recompile, values: GuardValues) -> Reason:
    """Why the newest cache entry did not serve: the nearest thing to what has changed since."""
    reason = parse_reason(event.reasons[0]) if event.reasons else Reason(kind=Kind.EMPTY, raw="")
    known = values.get(id(event), {})
    size = known.get(f"{reason.source}.size()[{reason.dim}]") or _actual_size(event, reason)
    if reason.kind is Kind.SYMBOLIC and size in ("0", "1"):
        return replace(reason, kind=Kind.ZERO_ONE, new=size)
    if reason.kind in (Kind.ZERO_ONE, Kind.SYMBOLIC):
        return replace(reason, new=size)
    if reason.kind is Kind.EQUALS and reason.old in ("True", "False"):
        return replace(reason, new=str(reason.old == "False"))
    if reason.kind is Kind.KEYS and reason.dim is not None:
        return replace(reason, new=known.get(f"{reason.source}[{reason.dim}]"))
    if reason.kind in (Kind.EQUALS, Kind.IDENTITY) and reason.new is None:
        return replace(reason, new=known.get(reason.source))
    return reason


def _actual_size(event: Recompile, reason: Reason) -> str | None:
    """The size that an older cache entry was offered in the same call, where the newest entry names only its bound."""
    older = (parse_reason(raw) for raw in event.reasons[1:])
    return next((r.new for r in older if r.kind is Kind.SIZE and (r.source, r.dim) == (reason.source, reason.dim)), None)


def _guard_values(process: Process) -> GuardValues:
    """What each recompile saw. Torch begins to number compiles anew after a reset, so an id alone does not tell them apart."""
    found: dict[int, dict[str, str]] = {}
    latest: dict[str | None, dict[str, str]] = {}
    for event in process.events:
        if isinstance(event, Recompile):
            latest[event.compile_id] = found[id(event)] = {}
        elif isinstance(event, GuardValue) and event.compile_id in latest:
            latest[event.compile_id].setdefault(readable(event.source), event.value)
    return found


def _values(group: Iterable[tuple[Recompile, Reason]], key: StoryKey, limits: Iterable[LimitHit]) -> tuple[Value, ...]:
    """What the source was, by the compile that saw it: each reason tells what one cache entry was compiled for."""
    seen: dict[tuple[int | None, str], str] = {}
    for event, primary in group:
        for reason in (*(parse_reason(raw) for raw in reversed(event.reasons[1:])), primary):
            if _key(reason) == key:
                _note(seen, reason.dim, reason.entry, reason.old)
        _note(seen, primary.dim, event.compile_id, primary.new)
    for limit in limits:
        refused = parse_reason(limit.reasons[0]) if limit.reasons else None
        if refused and _key(refused) == key:
            _note(seen, refused.dim, refused.entry, refused.old)
            _note(seen, refused.dim, limit.compile_id, refused.new)
    met = [(dim, value) for (dim, _), value in sorted(seen.items(), key=lambda item: _order(item[0]))]
    return tuple(pair for i, pair in enumerate(met) if i == 0 or met[i - 1] != pair)


def _behind(group: Iterable[tuple[Recompile, Reason]], key: StoryKey) -> tuple[Reason, ...]:
    """A value that comes back was compiled before: what failed in that variant is a second cause, which the first one hides."""
    seen: dict[tuple[int | None, str], str] = {}
    found: dict[StoryKey, Reason] = {}
    for event, primary in group:
        for reason in map(parse_reason, event.reasons[1:]):
            compiled_for = seen.get((primary.dim, reason.entry or ""))
            if _key(reason) != key and compiled_for is not None and compiled_for == primary.new:
                found.setdefault(_key(reason), reason)
        _note(seen, primary.dim, primary.entry, primary.old)
        _note(seen, primary.dim, event.compile_id, primary.new)
    return tuple(found.values())


def _note(seen: dict[tuple[int | None, str], str], dim: int | None, compile_id: str | None, value: str | None) -> None:
    """Keep what a compile saw; after a reset of Dynamo the same id may see something else."""
    at = compile_id or ""
    while value is not None and seen.setdefault((dim, at), value) != value:
        at += "'"


def _order(at: tuple[int | None, str]) -> tuple[int, list[int]]:
    """By dimension, then by compile; without an id they stay as they came, because sorting is stable."""
    dim, compile_id = at
    return -1 if dim is None else dim, [int(n) for n in re.findall(r"\d+", compile_id)]


def _with_limit(found: list[Story]) -> list[Story]:
    """The refusal belongs to the story that its reason names; without a reason, to the longest one."""
    if not found or not found[0].frame.limits:
        return found
    limit = found[0].frame.limits[0]
    key = _key(parse_reason(limit.reasons[0])) if limit.reasons else None
    ended = [s for s in found if s.key == key] or found
    last = max(ended, key=lambda s: len(s.recompiles))
    return [replace(s, limit=limit) if s is last else s for s in found]


def _call_behind(frame: Frame, calls: list[CompileCall]) -> CompileCall | None:
    """The torch.compile call whose target this frame is; if none fits, the only call there is."""
    path, function, line = frame.key
    resume = resume_of(function)
    name = resume[0] if resume else function
    exact = [c for c in calls if c.target_path == path and c.target_line == line and line is not None]
    named = [c for c in calls if c.target_path in (path, "") and c.target.rpartition(".")[2] == name]
    found = exact or named or calls
    places = {(c.path, c.line, c.dynamic) for c in found}
    return found[0] if len(places) == 1 else None

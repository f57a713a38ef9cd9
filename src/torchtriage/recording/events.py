"""What can happen in a run: one frozen type an event, and its form in the recording."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torchtriage.recording.validation import AnyFloat, WrongTypeError, checked, field_types


@dataclass(frozen=True, slots=True, kw_only=True)
class StackEntry:
    """One line of a user stack, outermost first."""

    path: str
    line: int
    function: str
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact with its time, step and rank; time is seconds since the epoch, 0 where the source has none."""

    kind: ClassVar[str] = ""

    time: float = 0.0
    step: int | None = None
    rank: int | None = None
    pid: int | None = None
    compile_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed(Event):
    """An event at torch's own place in the program; `line` is None where the source does not tell."""

    path: str = "unknown"
    line: int | None = None
    function: str = ""
    stack: tuple[StackEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileStart(Placed):
    """Dynamo begins to trace a frame; `line` is the first line of the code object."""

    kind: ClassVar[str] = "compile_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEnd(Placed):
    """Dynamo is done with a frame, well or not. `seconds` is None if torch did not say."""

    kind: ClassVar[str] = "compile_end"

    seconds: float | None = None
    backend_seconds: float | None = None
    inductor_seconds: float | None = None
    fail_type: str | None = None
    fail_reason: str | None = None
    produced_code: bool | None = None
    num_graph_ops: int | None = None
    num_guards: int | None = None
    suppress_errors: bool | None = None
    is_backward: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBreak(Placed):
    """A graph break at the line that torch names; `stack` ends at that line."""

    kind: ClassVar[str] = "graph_break"

    gb_id: str | None = None
    type: str = ""
    explanation: str = ""
    hints: tuple[str, ...] = ()
    context: str = ""
    whole_frame: bool = False

    @property
    def reason(self) -> str:
        return f"{self.type}: {self.explanation}" if self.explanation else self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompile(Placed):
    """A frame is compiled again; one reason per cache entry, newest entry first."""

    kind: ClassVar[str] = "recompile"

    reasons: tuple[str, ...] = ()
    knows_caller: bool = False      # the stack holds the very line that called the frame


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardValue(Event):
    """What a guarded source was at this compile: the new value that a recompile reason does not carry."""

    kind: ClassVar[str] = "guard_value"

    source: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitHit(Placed):
    """Dynamo refused to compile a frame again."""

    kind: ClassVar[str] = "limit_hit"

    limit_name: str = "recompile_limit"
    limit: int | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSkipped(Placed):
    """Dynamo decided to run a whole frame eager."""

    kind: ClassVar[str] = "frame_skipped"

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse(Event):
    """One look-up in a compile cache: cache is fx_graph or aotautograd, outcome hit, miss or bypass."""

    kind: ClassVar[str] = "cache_use"

    cache: str = ""
    outcome: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCall(Placed):
    """The program called torch.compile (or Module.compile) here, on this target."""

    kind: ClassVar[str] = "compile_call"

    target: str = ""
    target_path: str = ""
    target_line: int | None = None
    dynamic: bool | None = None
    fullgraph: bool = False
    disabled: bool = False
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceTime(Event):
    """With --measure: a compiled piece ran `calls` times and took `seconds` in all."""

    kind: ClassVar[str] = "piece_time"

    calls: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GapTime(Event):
    """With --measure: the time between the end of piece `compile_id` and the start of piece `to_compile_id`."""

    kind: ClassVar[str] = "gap_time"

    to_compile_id: str = ""
    calls: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly(Event):
    """A rule of the learning fired while the program ran; `subject` is a tensor, a group, a head or the quantity itself."""

    kind: ClassVar[str] = "anomaly"

    code: str = ""
    subject: str = ""
    value: AnyFloat = 0.0
    threshold: AnyFloat = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkipped(Event):
    """GradScaler found a gradient that is not finite and left the optimizer's step out; `total` counts those of this optimizer."""

    kind: ClassVar[str] = "step_skipped"

    optimizer: str = ""
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEvent(Event):
    """What a training tells of itself: `name` is the kind of a TelemetryEvent, `values` its fields as JSON."""

    kind: ClassVar[str] = "training_event"

    name: str = ""
    values: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tap(Event):
    """A source of events says that it is armed, absent, or lost from now on."""

    kind: ClassVar[str] = "tap"

    name: str = ""
    state: str = "armed"
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unparsed(Event):
    """Something that was meant for us and could not be read; kept, never dropped."""

    kind: ClassVar[str] = "unparsed"

    origin: str = ""
    text: str = ""


EVENT_TYPES: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        CompileStart, CompileEnd, GraphBreak, Recompile, GuardValue, LimitHit, FrameSkipped, CacheUse,
        CompileCall, PieceTime, GapTime, Anomaly, StepSkipped, TrainingEvent, Tap, Unparsed,
    )
}

COLUMNS = ("time", "step", "rank", "pid", "compile_id")


def to_payload(event: Event) -> str:
    """The event without its columns, as JSON; fields that hold their default are left out."""
    fields: dict[str, Any] = {}
    for f in dataclasses.fields(event):
        value = getattr(event, f.name)
        if f.name in COLUMNS or value == f.default:
            continue
        if f.name == "stack":
            value = [[e.path, e.line, e.function, e.code] for e in value]
        fields[f.name] = value
    return json.dumps(fields, separators=(",", ":"))


def from_payload(kind: str, payload: str, **columns: Any) -> Event:
    """The event that `to_payload` wrote; one of a later version, or with a value of a wrong type, is kept as Unparsed."""
    try:
        cls = EVENT_TYPES[kind]
        fields = json.loads(payload)
        if not columns.keys().isdisjoint(fields):
            raise KeyError("a column of the table is also in the payload")
        fields.update(columns)
        types = field_types(cls)
        for name, value in fields.items():
            fields[name] = _stack(value) if name == "stack" else checked(value, types[name])
        return cls(**fields)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return Unparsed(**_readable(columns), origin=f"event {kind}", text=str(payload))


def _stack(rows: list[list[Any]]) -> tuple[StackEntry, ...]:
    """Most of what a recording holds are lines of stacks, so they are checked without the general machinery."""
    entries = []
    for path, line, function, code in rows:
        if not (type(path) is str and type(line) is int and type(function) is str and type(code) is str):
            raise WrongTypeError("expected a path, a line, a function and a line of code")
        entries.append(StackEntry(path=path, line=line, function=function, code=code))
    return tuple(entries)


def _readable(columns: Mapping[str, Any]) -> dict[str, Any]:
    types, kept = field_types(Event), {}
    for name, value in columns.items():
        try:
            kept[name] = checked(value, types[name])
        except WrongTypeError:
            continue
    return kept

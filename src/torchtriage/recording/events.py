"""The events of a run: one frozen type per kind of event, which defines its form in the recording."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torchtriage.recording.validation import AnyFloat, Time, WrongTypeError, checked, field_types


@dataclass(frozen=True, slots=True, kw_only=True)
class StackEntry:
    """One line of a user stack, outermost first."""

    path: str
    line: int
    function: str
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, with its time, step and rank; the time is 0 if the source has none."""

    kind: ClassVar[str] = ""

    time: Time = 0.0
    step: int | None = None
    rank: int | None = None
    pid: int | None = None
    compile_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed(Event):
    """An event at a place in the program, as torch names it; `line` is None if the source does not give it."""

    path: str = "unknown"
    line: int | None = None
    function: str = ""
    stack: tuple[StackEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileStart(Placed):
    """Dynamo starts to trace a frame; `line` is the first line of the code object.

    `call` is the number of the torch.compile call whose result the program is calling; None if that was not seen.
    """

    kind: ClassVar[str] = "compile_start"

    call: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEnd(Placed):
    """Dynamo has finished with a frame, successfully or not. `seconds` is None if torch does not give it."""

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
    """A graph break at the line that torch names, which is also the last of `stack`."""

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
    """A frame is compiled again; one reason per cache entry, newest entry first, of `num_omitted` entries none."""

    kind: ClassVar[str] = "recompile"

    reasons: tuple[str, ...] = ()
    num_omitted: int = 0
    knows_caller: bool = False      # the stack holds the line that called the frame


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardValue(Event):
    """The value of a guarded source at this compile: the new value, which a recompile reason lacks."""

    kind: ClassVar[str] = "guard_value"

    source: str = ""
    value: str = ""
    is_dynamic: bool = False        # a symbol stands for it in the graph, so another value does not recompile by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitHit(Placed):
    """Dynamo refused to compile a frame again."""

    kind: ClassVar[str] = "limit_hit"

    limit_name: str = "recompile_limit"
    limit: int | None = None
    reasons: tuple[str, ...] = ()       # as those of a recompile
    num_omitted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSkipped(Placed):
    """Dynamo decided to run an entire frame eager."""

    kind: ClassVar[str] = "frame_skipped"

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse(Event):
    """One lookup in a compile cache: `cache` is fx_graph or aotautograd, `outcome` is hit, miss or bypass."""

    kind: ClassVar[str] = "cache_use"

    cache: str = ""
    outcome: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCall(Placed):
    """A call of torch.compile (or Module.compile) by the program, on this target; `num_calls` of them if repeated."""

    kind: ClassVar[str] = "compile_call"

    target: str = ""
    target_path: str = ""
    target_line: int | None = None
    dynamic: bool | None = None
    fullgraph: bool = False
    disabled: bool = False
    backend: str = ""
    options: str = ""           # mode and options as the backend received them: "max_autotune=True"
    num_calls: int = 1
    number: int | None = None   # of the call in this process


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileSite(Placed):
    """A torch.compile call in the source of the main script of a process that called torch.compile nowhere."""

    kind: ClassVar[str] = "compile_site"


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceTime(Event):
    """With --measure: a compiled piece ran `calls` times and took `seconds` in total."""

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
    """A learning rule fired while the program ran; `subject` is a tensor, a group, a head or the quantity itself."""

    kind: ClassVar[str] = "anomaly"

    code: str = ""
    subject: str = ""
    value: AnyFloat = 0.0
    threshold: AnyFloat = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkipped(Event):
    """GradScaler, or a Monitor that was asked to, skipped a step with a non-finite gradient; `total` counts them."""

    kind: ClassVar[str] = "step_skipped"

    optimizer: str = ""
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEvent(Event):
    """An event that a training reports itself: `name` is the kind of a TelemetryEvent, `values` its fields as JSON."""

    kind: ClassVar[str] = "training_event"

    name: str = ""
    values: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tap(Event):
    """A source of events is armed, absent, or lost from now on."""

    kind: ClassVar[str] = "tap"

    name: str = ""
    state: str = "armed"
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unparsed(Event):
    """A record or event that could not be read; it is kept, never dropped."""

    kind: ClassVar[str] = "unparsed"

    origin: str = ""
    text: str = ""


EVENT_TYPES: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        CompileStart, CompileEnd, GraphBreak, Recompile, GuardValue, LimitHit, FrameSkipped, CacheUse,
        CompileCall, CompileSite, PieceTime, GapTime, Anomaly, StepSkipped, TrainingEvent, Tap, Unparsed,
    )
}

COLUMNS = ("time", "step", "rank", "pid", "compile_id")


def to_payload(event: Event) -> str:
    """The event without its columns, as JSON; fields that hold their default are left out."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if field.name in COLUMNS or value == field.default:
            continue
        if field.name == "stack":
            value = [[entry.path, entry.line, entry.function, entry.code] for entry in value]
        fields[field.name] = value
    return json.dumps(fields, separators=(",", ":"))


def from_payload(kind: str, payload: str, **columns: Any) -> Event:
    """The event that `to_payload` wrote; one of a later version, or with a value of a wrong type, becomes Unparsed."""
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
    """The entries of a stack. Most of a recording is stacks, so they are checked without the general machinery."""
    entries = []
    for path, line, function, code in rows:
        if not (type(path) is str and type(line) is int and type(function) is str and type(code) is str):
            raise WrongTypeError("expected a path, a line, a function and a line of code")
        entries.append(StackEntry(path=path, line=line, function=function, code=code))
    return tuple(entries)


def _readable(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Those columns whose value has the right type."""
    types, readable = field_types(Event), {}
    for name, value in columns.items():
        try:
            readable[name] = checked(value, types[name])
        except WrongTypeError:
            continue
    return readable

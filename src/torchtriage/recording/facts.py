"""The facts that a process or a launcher leaves in a recording: one frozen record per writer.

Each field of a record is a key of the stored JSON. The reader checks each fact against the type of its field; a damaged
fact is left out and reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, cast

from torchtriage.recording.origins.origin import Origin
from torchtriage.recording.validation import AnyFloat, Time, WrongTypeError, checked, field_types

F = TypeVar("F")
UNWRITTEN = {"unwritten": True}     # metadata of a fact that is None until it is known; None is then not written


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A part of a recording that cannot be read: its name, and what is wrong with it."""

    name: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts:
    """The program of a process, its machine, and the folders of its code; by capture/process_facts."""

    run_id: str | None = None
    start: Time | None = None
    pid: int | None = None
    ppid: int | None = None
    argv: tuple[str, ...] | None = None
    executable: str | None = None
    cwd: str | None = None
    host: str | None = None
    rank: int | None = None
    world_size: str | None = None
    python: str | None = None
    platform: str | None = None
    cpu_count: int | None = None
    torch: str | None = None
    torchtriage: str | None = None
    environment: Mapping[str, str] | None = None
    your_roots: tuple[str, ...] = ()
    torch_dir: str = ""
    libraries: Mapping[str, tuple[str, str]] = field(default_factory=dict)      # package -> (distribution, version)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderFacts:
    """The end of a process's recording, and the events that it could not keep; by recording/recorder."""

    end: Time | None = field(default=None, metadata=UNWRITTEN)
    recorder_error: str | None = field(default=None, metadata=UNWRITTEN)
    dropped: Mapping[str, int] | None = field(default=None, metadata=UNWRITTEN)     # kind of event -> how many
    is_running: bool | None = field(default=None, metadata=UNWRITTEN)       # by recording/reader; None if unknown here


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """The training steps of a process; by capture/taps/steps."""

    num_steps: int | None = None
    step_source: str | None = None
    steps_of_other_optimizers: tuple[int, ...] = ()
    first_step_time: Time | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerCalls:
    """Calls since the first recompile limit; by capture/taps/eager_meter."""

    hits: int
    misses: int
    recompiles: int
    eager: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterFacts:
    """`eager_calls` is None unless a frame hit its recompile limit."""

    eager_calls: EagerCalls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A torch.compile call that a policy changed: the program's `dynamic` and the forced one."""

    path: str
    line: int | None
    target: str
    written: str
    forced: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeMark:
    """A place where the program itself marks a dimension, with the number of calls."""

    path: str
    line: int
    call: str
    dim: int | None
    num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFunction:
    """A compile call site and its target, with the number of outermost calls."""

    path: str
    line: int | None
    target: str
    num_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSize:
    """The most frequent values of one dimension (or one int) of a compiled frame's input."""

    path: str
    line: int
    function: str
    source: str
    dim: int | None
    values: Mapping[str, int]
    num_values: int
    num_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """The calls, sizes and memory of a run under a shape policy; by capture/policy. `policy` is None in other runs."""

    policy: Mapping[str, Any] | None = None
    overrides: tuple[Override, ...] = ()
    marks: tuple[SizeMark, ...] = ()
    functions: tuple[CompiledFunction, ...] = ()
    first_call_time: Time | None = None
    first_call_seconds: float | None = None
    peak_memory_bytes: int | None = None
    peak_device_memory_bytes: int | None = field(default=None, metadata=UNWRITTEN)
    processor_wait_seconds: float | None = None
    sizes: tuple[InputSize, ...] | None = field(default=None, metadata=UNWRITTEN)   # if the policy asks for them
    num_inputs_left_out: int | None = field(default=None, metadata=UNWRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteLoss:
    """The first loss that is not finite, among all steps, and the weights that it was computed with; by telemetry."""

    step: int
    last_finite: int | None = None          # the last step whose loss was finite; None if there was none
    num_weights: int = 0                    # tensors that were looked at
    num_bad_weights: int = 0
    bad_weights: tuple[str, ...] = ()       # names of some of them
    was_gradient_finite: bool | None = None     # by the averages that the optimizer keeps; None if it keeps none


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenContract:
    """Something that must hold in any training and did not, by the code of its rule; by telemetry."""

    code: str
    step: int                       # at which it was known to be broken
    count: int = 0                  # tensors, steps or optimizers; the rule knows which
    total: int = 0                  # tensors in all
    names: tuple[str, ...] = ()     # of some tensors, or of a class
    value: float | None = None      # a setting
    share: float | None = None
    is_deliberate: bool = False     # the pattern is one that is often meant


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningFacts:
    """The optimizers and limits of a training; telemetry and rl each write some of them."""

    grad_dtypes: tuple[str, ...] = ()
    autocast_dtype: str | None = None
    optimizers: tuple[str, ...] = ()
    optimizer_lr: tuple[AnyFloat, ...] = ()
    without_rate: tuple[str, ...] = ()      # tensors and groups of parameters with a learning rate of 0 beside others
    learning_limits: Mapping[str, AnyFloat] = field(default_factory=dict)       # those that differ from the default
    return_threshold: float | None = None
    non_finite_loss: NonFiniteLoss | None = field(default=None, metadata=UNWRITTEN)
    contracts: tuple[BrokenContract, ...] = ()
    logged_scalars: Mapping[str, str] = field(default_factory=dict)     # series -> the program's logger that it is from
    non_finite_origin: Origin | None = field(default=None, metadata=UNWRITTEN)      # by `torchtriage replay`


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFacts:
    """The shards of a rank: `elements` is the number of elements that it holds of each tensor."""

    ranks: tuple[int, ...]
    place: int
    elements: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryFacts:
    """The samples that telemetry lost, and the shards of this rank. Only people read its other facts."""

    num_dropped: int = 0
    num_left_out: int = 0
    shards: ShardFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """One training by `torchtriage train`: the settings that differ from the default, and its results; by rl."""

    config: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """The trace or log that a process was read from; by capture/readers."""

    trace_file: str | None = None
    num_unparsed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherFacts:
    """The command that was started, and its end; by launch/launcher_file.

    A trace adds its version of torch, a watched block its folder.
    """

    run_id: str | None = None
    argv: tuple[str, ...] | None = None
    cwd: str | None = None
    start: Time | None = None
    torchtriage: str | None = None
    end: Time | None = field(default=None, metadata=UNWRITTEN)
    exit_status: int | None = field(default=None, metadata=UNWRITTEN)
    torch: str | None = field(default=None, metadata=UNWRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts:
    """Facts that come from the folder of a recording rather than from a file of a process; by recording/reader."""

    joined: bool = False
    unreadable_files: tuple[str, ...] = ()
    shapes: Any = None              # the content of shapes.json; findings/shape_study checks it
    shapes_problem: str = ""
    proofs: Any = None              # the content of proofs.json; diagnosis/remedy_proofs checks it
    proofs_problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """All facts of one process, checked."""

    program: ProgramFacts
    recorder: RecorderFacts
    steps: StepFacts
    eager_calls: EagerCalls | None
    policy: PolicyFacts
    learning: LearningFacts
    telemetry: TelemetryFacts
    training: TrainingFacts | None
    trace: TraceFacts
    name: str | None
    damage: tuple[Damage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingFacts:
    """All facts of a run, checked."""

    launcher: LauncherFacts
    folder: FolderFacts
    damage: tuple[Damage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nested:
    """Facts that belong to no record, or whose value is itself a record."""

    name: str | None = None     # of this process among several, such as "seed 3"; by rl
    telemetry: Mapping[str, Any] | None = None
    train: Mapping[str, Any] | None = None


def read_process_facts(stored: Mapping[str, Any]) -> ProcessFacts:
    """Typed records of the stored facts of a process."""
    damage: list[Damage] = []
    nested = _read(_Nested, stored, damage)
    return ProcessFacts(
        program=_read(ProgramFacts, stored, damage), recorder=_read(RecorderFacts, stored, damage),
        steps=_read(StepFacts, stored, damage), eager_calls=_read(MeterFacts, stored, damage).eager_calls,
        policy=_read(PolicyFacts, stored, damage), learning=_read(LearningFacts, stored, damage),
        telemetry=_read(TelemetryFacts, nested.telemetry or {}, damage, within="telemetry."),
        training=None if nested.train is None else _read(TrainingFacts, nested.train, damage, within="train."),
        trace=_read(TraceFacts, stored, damage), name=nested.name, damage=tuple(damage),
    )


def read_recording_facts(stored: Mapping[str, Any]) -> RecordingFacts:
    """Typed records of the stored facts of a run."""
    damage: list[Damage] = []
    launcher, folder = _read(LauncherFacts, stored, damage), _read(FolderFacts, stored, damage)
    return RecordingFacts(launcher=launcher, folder=folder, damage=tuple(damage))


def _read(cls: type[F], stored: Mapping[str, Any], damage: list[Damage], within: str = "") -> F:
    """The record of these facts; a fact of a wrong type keeps its default and is added to `damage`."""
    values = {}
    for name, hint in field_types(cls).items():
        if name not in stored:
            continue
        try:
            values[name] = checked(stored[name], hint)
        except WrongTypeError as error:
            damage.append(Damage(name=within + name, problem=str(error)))
    return cls(**values)


def to_dict(record: Any) -> dict[str, Any]:
    """The facts of a record as they are stored."""
    stored = {}
    for fact in fields(record):
        value = getattr(record, fact.name)
        if value is not None or fact.metadata != UNWRITTEN:
            stored[fact.name] = _plain(value)
    return stored


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return to_dict(cast(Any, value))
    return value

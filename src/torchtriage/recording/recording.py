"""A run as it is read from a file: its processes, each with facts, events, source lines, series."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from torchtriage.recording.events import Event
from torchtriage.recording.facts import (
    Damage,
    EagerCalls,
    FolderFacts,
    LauncherFacts,
    LearningFacts,
    PolicyFacts,
    ProcessFacts,
    ProgramFacts,
    RecorderFacts,
    RecordingFacts,
    StepFacts,
    TelemetryFacts,
    TraceFacts,
    TrainingFacts,
    read_process_facts,
    read_recording_facts,
)

E = TypeVar("E", bound=Event)
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source lines around a place at the time of the run."""

    first_line: int
    lines: tuple[str, ...]
    qualname: str = ""

    def line(self, number: int) -> str:
        index = number - self.first_line
        return self.lines[index] if 0 <= index < len(self.lines) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Values by step, down-sampled to a bounded size: `values[i]` covers the steps from `steps[i]` on."""

    name: str
    steps: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of a run. Compile ids are unique only within it, and start again after torch._dynamo.reset().

    `facts` is the stored form; the properties are the same facts after the checks, one record per writer.
    """

    events: tuple[Event, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[tuple[str, int], Source] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    unreadable: tuple[Damage, ...] = ()     # facts, series and sources that could not be read from its file
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def of(self, kind: type[E]) -> Iterator[E]:
        if kind not in self._cache:
            self._cache[kind] = tuple(event for event in self.events if isinstance(event, kind))
        return iter(self._cache[kind])

    def once(self, function: Callable[["Process"], R]) -> R:
        """The result of a pure function of this process, computed on the first call."""
        if function not in self._cache:
            self._cache[function] = function(self)
        return cast(R, self._cache[function])

    @property
    def _checked(self) -> ProcessFacts:
        return self.once(_checked_facts)

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Everything that was left out because it could not be read."""
        return (*self.unreadable, *self._checked.damage)

    @property
    def program(self) -> ProgramFacts:
        return self._checked.program

    @property
    def recorder(self) -> RecorderFacts:
        return self._checked.recorder

    @property
    def steps(self) -> StepFacts:
        return self._checked.steps

    @property
    def eager_calls(self) -> EagerCalls | None:
        return self._checked.eager_calls

    @property
    def policy(self) -> PolicyFacts:
        return self._checked.policy

    @property
    def learning(self) -> LearningFacts:
        return self._checked.learning

    @property
    def telemetry(self) -> TelemetryFacts:
        return self._checked.telemetry

    @property
    def training(self) -> TrainingFacts | None:
        return self._checked.training

    @property
    def trace(self) -> TraceFacts:
        return self._checked.trace

    @property
    def name(self) -> str | None:
        return self._checked.name

    @property
    def rank(self) -> int | None:
        return self.program.rank

    @property
    def num_steps(self) -> int | None:
        return self.steps.num_steps


def _checked_facts(process: Process) -> ProcessFacts:
    return read_process_facts(process.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A run. `origin` is recording, trace, log, scalars or watch."""

    processes: tuple[Process, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    origin: str = "recording"
    path: str = ""
    unreadable: tuple[Damage, ...] = ()     # of the launcher's file
    _cache: dict[str, RecordingFacts] = field(default_factory=dict, init=False, repr=False, compare=False)

    def of(self, kind: type[E]) -> Iterator[E]:
        for process in self.processes:
            yield from process.of(kind)

    @property
    def _checked(self) -> RecordingFacts:
        if "facts" not in self._cache:
            self._cache["facts"] = read_recording_facts(self.facts)
        return self._cache["facts"]

    @property
    def damage(self) -> tuple[Damage, ...]:
        """The facts of the launcher that were left out because they could not be read."""
        return (*self.unreadable, *self._checked.damage)

    @property
    def launcher(self) -> LauncherFacts:
        return self._checked.launcher

    @property
    def folder(self) -> FolderFacts:
        return self._checked.folder

"""A run as it is read back: the processes that took part, each with its facts, events, source lines and series."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from torchtriage.recording.events import Event

E = TypeVar("E", bound=Event)
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The lines around a place, as they were when the run was recorded."""

    first_line: int
    lines: tuple[str, ...]
    qualname: str = ""

    def line(self, number: int) -> str:
        index = number - self.first_line
        return self.lines[index] if 0 <= index < len(self.lines) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Values by step, down-sampled to a bounded size: `steps[i]` is the first step that `values[i]` stands for."""

    name: str
    steps: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of a run. Compile ids mean something only within it, and begin anew after torch._dynamo.reset()."""

    events: tuple[Event, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[tuple[str, int], Source] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def of(self, kind: type[E]) -> Iterator[E]:
        if kind not in self._known:
            self._known[kind] = tuple(event for event in self.events if isinstance(event, kind))
        return iter(self._known[kind])

    def once(self, function: Callable[["Process"], R]) -> R:
        """What a pure function makes of this process, worked out the first time it is asked for."""
        if function not in self._known:
            self._known[function] = function(self)
        return cast(R, self._known[function])

    @property
    def rank(self) -> int | None:
        rank = self.facts.get("rank")
        return rank if isinstance(rank, int) else None

    @property
    def num_steps(self) -> int | None:
        steps = self.facts.get("num_steps")
        return steps if isinstance(steps, int) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a run left behind. `origin` is recording, trace, log or watch."""

    processes: tuple[Process, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    origin: str = "recording"
    path: str = ""

    def of(self, kind: type[E]) -> Iterator[E]:
        for process in self.processes:
            yield from process.of(kind)

"""Counts what torch.compile does in a stretch of this process, from Dynamo's own events."""

from types import TracebackType

from torchtriage.capture.observe import Observer
from torchtriage.diagnosis.totals import busy_seconds
from torchtriage.recording.events import CompileEnd, CompileStart, Event, LimitHit, Recompile


class Compiles:
    """`with Compiles() as seen:`, then `seen.num`, `seen.seconds`, `seen.events`; warm calls emit nothing, so it costs them nothing."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._observer = Observer(self.events.append)

    def __enter__(self) -> "Compiles":
        self._observer.arm_for_block()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._observer.disarm()

    @property
    def num(self) -> int:
        return sum(isinstance(e, CompileStart) for e in self.events)

    @property
    def seconds(self) -> float:
        return busy_seconds([e for e in self.events if isinstance(e, CompileEnd) and e.seconds is not None])

    @property
    def recompiles(self) -> list[Recompile]:
        return [e for e in self.events if isinstance(e, Recompile)]

    @property
    def limits(self) -> list[LimitHit]:
        return [e for e in self.events if isinstance(e, LimitHit)]

    @property
    def num_eager_calls(self) -> int:
        """Calls that ran eager after a limit, by the silent-eager meter."""
        counted = self._observer.facts()["eager_calls"]
        return int(counted["eager"]) if counted else 0

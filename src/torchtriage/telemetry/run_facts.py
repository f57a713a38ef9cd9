"""Facts that a program adds to the recording of its run, such as the results of a training."""

from collections.abc import Iterable, Mapping
from typing import Any

from torchtriage.recording import recorder as recorders
from torchtriage.recording.events import Event
from torchtriage.recording.recording import Series


def is_recorded() -> bool:
    """Whether this process is observed, as under `torchtriage run`."""
    return recorders.current is not None


class RunFacts:
    """Kept with the recording of this process; without one, `put` only remembers them."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {}
        joined = recorders.current
        if joined is not None:
            joined.follow(self)
            joined.start()

    def put(self, **facts: Any) -> None:
        """Values that JSON takes; a fact of the same name is replaced."""
        self._facts = {**self._facts, **facts}      # a new dict: the recorder's thread may be reading the old one

    # What the recorder asks for

    def facts(self) -> Mapping[str, Any]:
        return self._facts

    def series(self) -> Iterable[Series]:
        return ()

    def last_events(self) -> Iterable[Event]:
        return ()

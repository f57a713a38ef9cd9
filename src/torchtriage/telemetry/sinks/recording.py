"""What a training adds to a recording: that of `torchtriage run`, or a new one outside of it."""

import atexit
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from torchtriage import __version__
from torchtriage.errors import TriageError
from torchtriage.recording import recorder as recorders
from torchtriage.recording.events import Event, Tap
from torchtriage.recording.recorder import Recorder
from torchtriage.recording.recording import Series
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sinks.curves import Curves


def is_recorded() -> bool:
    """Whether this process is observed, as under `torchtriage run`."""
    return recorders.current is not None


class RecordingSink:
    """Writes observations as curves.

    `folder` is used only outside of `torchtriage run`, and must not hold a recording.
    """

    name = "recording"

    def __init__(self, folder: str | Path = "monitor.triage") -> None:
        self.curves = Curves()
        self.get_facts: Callable[[], Mapping[str, Any]] = dict
        self._on_close: Callable[[], None] = lambda: None
        joined = recorders.current
        self._recorder = joined if joined is not None else self._own(Path(folder))
        self._is_own = joined is None
        self._recorder.follow(self)
        self._recorder.add(Tap(name="monitor", time=time.time(), pid=os.getpid()))
        self._recorder.start()

    def _own(self, folder: Path) -> Recorder:
        if folder.exists() and any(folder.glob("*.sqlite")):
            raise TriageError(f"{folder} already holds a recording; choose another: RecordingSink('NAME.triage')")
        started = time.time()
        rank = os.environ.get("RANK")
        recorder = Recorder(folder, lambda: {
            "start": started, "pid": os.getpid(), "cwd": os.getcwd(), "host": platform.node() or "host",
            "torchtriage": __version__, "torch": str(torch.__version__), "python": platform.python_version(),
            "rank": int(rank) if rank and rank.isdigit() else None,
        }, always=True)
        atexit.register(recorder.close)
        return recorder

    def before_close(self, function: Callable[[], None]) -> None:
        """Set a function to call before the recording ends, so that pending observations are still written."""
        self._on_close = function

    def write(self, observation: Observation) -> None:
        self.curves.write(observation)

    def event(self, event: Event) -> None:
        self.curves.event(event)
        self._recorder.add(event)

    def close(self) -> None:
        self.curves.close()
        if self._is_own:
            self._recorder.close()

    # For the recorder

    def facts(self) -> Mapping[str, Any]:
        return self.get_facts()

    def series(self) -> Iterable[Series]:
        return self.curves.series()

    def last_events(self) -> Iterable[Event]:
        self._on_close()
        self.curves.close()
        return ()


class RunFacts:
    """Facts that a program adds to the recording of its process, such as results.

    Without a recording they are ignored.
    """

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {}
        recorder = recorders.current
        if recorder is not None:
            recorder.follow(self)
            recorder.start()

    def put(self, **facts: Any) -> None:
        """Add values that JSON can represent; a fact of the same name is replaced."""
        self._facts = {**self._facts, **facts}      # a new dict: the recorder's thread may be reading the old one

    # For the recorder

    def facts(self) -> Mapping[str, Any]:
        return self._facts

    def series(self) -> Iterable[Series]:
        return ()

    def last_events(self) -> Iterable[Event]:
        return ()

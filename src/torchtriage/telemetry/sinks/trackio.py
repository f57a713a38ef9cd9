"""Observations as trackio metrics, in a separate run."""

from typing import Any

from torchtriage.recording.events import Anomaly, Event
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sinks import missing


class TrackioSink:
    """Takes the arguments of trackio.init."""

    name = "trackio"

    def __init__(self, **init: Any) -> None:
        try:
            import trackio  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise missing("trackio", "trackio", error) from error
        self._run: Any = trackio.init(**init)

    def write(self, observation: Observation) -> None:
        self._run.log(observation.flat(), step=observation.step)

    def event(self, event: Event) -> None:
        if isinstance(event, Anomaly):
            self._run.log({f"anomaly/{event.code}": event.value}, step=event.step)

    def close(self) -> None:
        self._run.finish()

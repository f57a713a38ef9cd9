"""Observations as JSON lines; what JSON lacks (NaN, infinities) is text, so that every parser accepts them."""

import json
import math
from pathlib import Path
from typing import Any

from torchtriage.recording.events import Anomaly, Event, TrainingEvent
from torchtriage.telemetry.observation import Observation


class JsonlSink:
    """Appends to a file and flushes every line."""

    name = "jsonl"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, observation: Observation) -> None:
        row: dict[str, object] = {"step": observation.step, "time": observation.time}
        row |= {name: _plain(value) for name, value in observation.flat().items()}
        row |= {name: list(counts) for name, counts in observation.histograms.items()}
        self._put(row)

    def event(self, event: Event) -> None:
        row: dict[str, object] = {"step": event.step, "time": event.time, "event": event.kind}
        if isinstance(event, Anomaly):
            row |= {"code": event.code, "subject": event.subject, "value": _plain(event.value), "text": event.text}
        elif isinstance(event, TrainingEvent):
            row |= {"event": event.name, "values": _plain_tree(json.loads(event.values))}
        self._put(row)

    def close(self) -> None:
        self._file.close()

    def _put(self, row: dict[str, object]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _plain_tree(value: Any) -> Any:
    """The same for every number in lists and dicts."""
    if isinstance(value, dict):
        return {key: _plain_tree(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_tree(item) for item in value]
    return _plain(value) if isinstance(value, float) else value

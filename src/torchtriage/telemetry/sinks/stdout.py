"""One line per sample on stdout, with the header repeated every HEAD_EVERY lines."""

import sys
from collections.abc import Mapping
from typing import TextIO

from torchtriage.recording.events import Anomaly, Event
from torchtriage.recording.series import GRAD_NORM, GRAD_NORM_AFTER_CLIP, LOSS, UPDATE_RATIO, WEIGHT_NORM, series_of
from torchtriage.telemetry.observation import Observation

COLUMNS: Mapping[str, str] = {
    LOSS: LOSS, GRAD_NORM: "grad norm", GRAD_NORM_AFTER_CLIP: "clipped to", WEIGHT_NORM: "weight norm",
    series_of(UPDATE_RATIO, "all"): "update",
}
HEAD_EVERY = 20


class StdoutSink:
    name = "stdout"

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._num_lines = 0

    def write(self, observation: Observation) -> None:
        if self._num_lines % HEAD_EVERY == 0:
            self._print("step".rjust(9) + "".join(title.rjust(13) for title in COLUMNS.values()))
        self._num_lines += 1
        cells = [f"{observation.values[name]:.4g}" if name in observation.values else "" for name in COLUMNS]
        self._print(f"{observation.step:9d}" + "".join(cell.rjust(13) for cell in cells))

    def event(self, event: Event) -> None:
        if isinstance(event, Anomaly):
            self._print(f"{event.step if event.step is not None else '':>9}  {event.code} {event.text}")

    def close(self) -> None:
        pass

    def _print(self, line: str) -> None:
        print(line, file=self._file or sys.stdout, flush=True)

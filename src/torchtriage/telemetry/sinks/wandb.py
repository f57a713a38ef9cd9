"""Observations as W&B metrics, in the program's open run or in a new one."""

import math
from typing import Any

from torchtriage.recording.events import Anomaly, Event
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sinks import missing
from torchtriage.telemetry.statistics.histogram import FIRST_EXPONENT

STEP = "torchtriage/step"       # a separate axis: the program counts W&B's steps in its own way


class WandbSink:
    """Takes a `run`, or the arguments of wandb.init (`mode="offline"`); a run that it started is finished at the end.
    """

    name = "wandb"

    def __init__(self, run: Any = None, **init: Any) -> None:
        try:
            import wandb
        except ImportError as error:
            raise missing("wandb", "wandb", error) from error
        self._wandb: Any = wandb
        self._is_own = run is None and wandb.run is None
        self._run: Any = run or wandb.run or wandb.init(**init)
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)

    def write(self, observation: Observation) -> None:
        row: dict[str, Any] = {STEP: observation.step, **observation.flat()}
        for name, counts in observation.histograms.items():
            edges = list(range(FIRST_EXPONENT - 1, FIRST_EXPONENT + len(counts)))
            row[name] = self._wandb.Histogram(np_histogram=(list(counts), edges))
        self._run.log(row)

    def event(self, event: Event) -> None:
        if isinstance(event, Anomaly):
            value = event.value if math.isfinite(event.value) else str(event.value)
            self._run.log({STEP: event.step, f"anomaly/{event.code}": value})

    def close(self) -> None:
        if self._is_own:
            self._run.finish()

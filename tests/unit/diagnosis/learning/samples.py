"""Hand-made trainings: series by name, as telemetry records them."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.unit.samples import a_process, a_recording
from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.findings.model import Finding
from torchtriage.recording.events import Event
from torchtriage.recording.recording import Process, Series

NAN, INF = math.nan, math.inf


def a_training(*events: Event, facts: Mapping[str, Any] | None = None, **values: Sequence[float]) -> Process:
    """`loss=[...]` is observed at steps 1, 2, 3 ...; `__` in a name is a slash, as in `ppo__kl`."""
    points = {name.replace("__", "/"): list(enumerate(values[name], start=1)) for name in values}
    return of_series(points, *events, facts=facts)


def of_series(
    points: Mapping[str, Sequence[tuple[int, float]]], *events: Event, facts: Mapping[str, Any] | None = None,
) -> Process:
    """A training from (step, value) points by name of the series."""
    series = {}
    for name, pairs in points.items():
        steps, values = [step for step, _ in pairs], [value for _, value in pairs]
        series[name] = Series(name=name, steps=steps, values=values)
    return a_process(*events, series=series, **(facts or {}))


def findings_of(process: Process) -> dict[str, Finding]:
    """The findings of a process by code."""
    return {finding.code: finding for finding in diagnose(a_recording(process, origin="watch"))}


def noise(count: int, middle: float = 1.0, spread: float = 0.2, seed: int = 0) -> list[float]:
    """Heavy-tailed values, like gradient norms."""
    draw = random.Random(seed)
    return [middle * math.exp(draw.gauss(0.0, spread)) for _ in range(count)]

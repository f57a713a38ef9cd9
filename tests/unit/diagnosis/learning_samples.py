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


def a_training(*events: Event, facts: Mapping[str, Any] | None = None, **values: Sequence[float]) -> Process:
    """`loss=[...]` is observed at steps 1, 2, 3 ...; `__` in a name is a slash, as in `ppo__kl`."""
    return of_series({name.replace("__", "/"): list(enumerate(points, start=1)) for name, points in values.items()}, *events, facts=facts)


def of_series(points: Mapping[str, Sequence[tuple[int, float]]], *events: Event, facts: Mapping[str, Any] | None = None) -> Process:
    series = {name: Series(name=name, steps=[s for s, _ in of], values=[v for _, v in of]) for name, of in points.items()}
    return a_process(*events, series=series, **(facts or {}))


def found(process: Process) -> dict[str, Finding]:
    return {finding.code: finding for finding in diagnose(a_recording(process, origin="watch"))}


def noise(count: int, middle: float = 1.0, spread: float = 0.2, seed: int = 0) -> list[float]:
    """Heavy-tailed, as norms are."""
    draw = random.Random(seed)
    return [middle * math.exp(draw.gauss(0.0, spread)) for _ in range(count)]

"""Feeds the recorded series of a training through the learning rules, step by step."""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from torchtriage.diagnosis.learning.limits import limits_from
from torchtriage.diagnosis.learning.rule import Breach
from torchtriage.diagnosis.learning.rules import gradients, non_finite, tensors
from torchtriage.diagnosis.learning.watch import LearningWatch, is_quantity
from torchtriage.recording.events import Anomaly
from torchtriage.recording.recording import Process, Series
from torchtriage.recording.series import GRAD_NORM, GROUP, PPO_PREFIX

MAX_ROWS = 256          # steps at which the norms of all tensors are compared side by side
HALF_TYPES = frozenset({"float16", "bfloat16"})

SeriesByTensor = Mapping[str, Mapping[str, Series]]     # by name of the tensor, then by quantity


def breaches(process: Process) -> tuple[Breach, ...]:
    """All breaches of a process, ordered by step; computed once.

    A breach that was found live and that the series show too is listed once.
    """
    return process.once(_breaches)


def _breaches(process: Process) -> tuple[Breach, ...]:
    series = [one for name, one in process.series.items() if is_quantity(name)]
    by_tensor = _by_tensor(process.series)
    live = [_from_event(event) for event in process.of(Anomaly)]
    if not series and not by_tensor:
        return tuple(live)
    watch = _watch(process, series)
    replayed: list[Breach] = []
    for step, row in rows(series):
        replayed += watch.observe(row, step)
    replayed += _tensor_breaches(by_tensor, watch)
    keys = {(breach.key, breach.step) for breach in replayed}
    live_only = [breach for breach in live if (breach.key, breach.step) not in keys]
    is_skipped = non_finite.skipped_by_scaler(process)
    relevant = [
        breach for breach in (*replayed, *live_only) if breach.code != "TT402" or not is_skipped(breach.step)
    ]
    return tuple(sorted(relevant, key=lambda breach: -1 if breach.step is None else breach.step))


def _watch(process: Process, series: Iterable[Series]) -> LearningWatch:
    learning = process.learning
    dtypes = set(learning.grad_dtypes)
    return LearningWatch(
        limits_from(learning.learning_limits),
        is_policy=any(one.name.startswith(PPO_PREFIX) for one in series),
        has_float16="float16" in dtypes,
        is_half=bool(HALF_TYPES & {*dtypes, str(learning.autocast_dtype)}),
    )


def _from_event(event: Anomaly) -> Breach:
    subject = "" if is_quantity(event.subject) else event.subject
    return Breach(
        code=event.code, type="", quantity=event.subject, subject=subject, value=event.value, limit=event.threshold,
        text=event.text, step=event.step,
    )


def rows(series: Iterable[Series]) -> Iterator[tuple[int, dict[str, float]]]:
    """(step, values by name of the series); a series with two values at one step gives two rows."""
    points = []
    for one in series:
        for place, (step, value) in enumerate(zip(one.steps, one.values, strict=False)):
            if math.isfinite(step):
                points.append((int(step), place, one.name, value))
    points.sort(key=lambda point: point[:2])
    row: dict[str, float] = {}
    row_step = 0
    for step, _, name, value in points:
        if row and (step != row_step or name in row):
            yield row_step, row
            row = {}
        row_step = step
        row[name] = value
    if row:
        yield row_step, row


# Tensors

def _by_tensor(series: Mapping[str, Series]) -> SeriesByTensor:
    by_tensor: dict[str, dict[str, Series]] = defaultdict(dict)
    for name, one in series.items():
        quantity, _, tensor = name.partition("/")
        is_of_tensor = tensor and quantity in tensors.TENSOR_QUANTITIES and not tensor.startswith(GROUP)
        if is_of_tensor and len(one.values):
            by_tensor[tensor][quantity] = one
    return by_tensor


def _tensor_breaches(by_tensor: SeriesByTensor, watch: LearningWatch) -> Iterator[Breach]:
    norms = {name: series[GRAD_NORM] for name, series in by_tensor.items() if GRAD_NORM in series}
    if norms and gradients.may_breach_side_by_side(norms.values(), watch.limits):
        for step, row in _norm_rows(norms):
            yield from watch.observe_norms(row, step)
    for name, series in by_tensor.items():
        if not tensors.may_breach(series, watch.limits):
            continue
        last_norm = 0.0
        for step, row in rows(_named(quantity, one) for quantity, one in series.items()):
            last_norm = row.get(GRAD_NORM, last_norm)
            yield from watch.observe_tensor(name, {**row, tensors.LAST_NORM: last_norm}, step)


def _named(name: str, series: Series) -> Series:
    return Series(name=name, steps=series.steps, values=series.values)


def _norm_rows(norms: Mapping[str, Series]) -> Iterator[tuple[int, dict[str, float]]]:
    """At steps spread over the run, the latest norm of each tensor: each series is downsampled to its own steps."""
    steps = sorted({step for series in norms.values() for step in series.steps if math.isfinite(step)})
    if len(steps) > MAX_ROWS:
        steps = [steps[place * len(steps) // MAX_ROWS] for place in range(MAX_ROWS)]
    for step in steps:
        row = {}
        for name, series in norms.items():
            end = bisect_right(series.steps, step)
            if end:
                row[name] = series.values[end - 1]
        yield int(step), row

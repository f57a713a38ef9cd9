"""The breaches of a recorded training: its series taken through the rules in the order of the steps, and what was found live."""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from torchtriage.diagnosis.learning.limits import LearningLimits, limits_from
from torchtriage.diagnosis.learning.rule import Breach
from torchtriage.diagnosis.learning.tensors import LAST_NORM, TENSOR_QUANTITIES
from torchtriage.diagnosis.learning.watch import LearningWatch, is_quantity
from torchtriage.recording.events import Anomaly
from torchtriage.recording.recording import Process, Series
from torchtriage.recording.series import (
    GRAD_INF,
    GRAD_LARGE_FRACTION,
    GRAD_NAN,
    GRAD_NORM,
    GRAD_SMALL_FRACTION,
    GRAD_ZERO_FRACTION,
    GROUP,
    PPO_PREFIX,
    SCALER_SKIPPED_TOTAL,
    WEIGHT_INF,
    WEIGHT_NAN,
    WEIGHT_NORM,
)

MAX_ROWS = 256          # steps at which the norms of all tensors are held beside each other
HALVES = frozenset({"float16", "bfloat16"})

Tensors = Mapping[str, Mapping[str, Series]]


def breaches(process: Process) -> tuple[Breach, ...]:
    """Every breach of a process, worked out once."""
    return process.once(_breaches)


def _breaches(process: Process) -> tuple[Breach, ...]:
    """All there are, in the order of steps; what a live rule saw and the series show alike is there once."""
    whole = [series for name, series in process.series.items() if is_quantity(name)]
    tensors = _by_tensor(process.series)
    live = [_from_event(event) for event in process.of(Anomaly)]
    if not whole and not tensors:
        return tuple(live)
    dtypes = set(process.learning.grad_dtypes)
    watch = LearningWatch(
        limits_from(process.learning.learning_limits),
        is_policy=any(series.name.startswith(PPO_PREFIX) for series in whole), has_float16="float16" in dtypes,
        is_half=bool(HALVES & {*dtypes, str(process.learning.autocast_dtype)}),
    )
    found = [breach for step, row in rows(whole) for breach in watch.observe(row, step)]
    found += _of_tensors(tensors, watch)
    known = {(breach.key, breach.step) for breach in found}
    found += [breach for breach in live if (breach.key, breach.step) not in known]
    skipped = _skipped(process)
    kept = (breach for breach in found if breach.code != "TT402" or not skipped(breach.step))
    return tuple(sorted(kept, key=lambda breach: -1 if breach.step is None else breach.step))


def rows(series: Iterable[Series]) -> Iterator[tuple[int, dict[str, float]]]:
    """What was observed at each step; a quantity that was observed twice at one step makes two rows."""
    points = [
        (int(step), place, one.name, value)
        for one in series for place, (step, value) in enumerate(zip(one.steps, one.values, strict=False)) if math.isfinite(step)
    ]
    points.sort(key=lambda point: point[:2])
    row: dict[str, float] = {}
    at = 0
    for step, _, name, value in points:
        if row and (step != at or name in row):
            yield at, row
            row = {}
        at = step
        row[name] = value
    if row:
        yield at, row


def _by_tensor(series: Mapping[str, Series]) -> Tensors:
    found: dict[str, dict[str, Series]] = defaultdict(dict)
    for name, one in series.items():
        quantity, _, tensor = name.partition("/")
        if tensor and quantity in TENSOR_QUANTITIES and not tensor.startswith(GROUP) and len(one.values):
            found[tensor][quantity] = one
    return found


def _of_tensors(tensors: Tensors, watch: LearningWatch) -> Iterator[Breach]:
    norms = {name: of[GRAD_NORM] for name, of in tensors.items() if GRAD_NORM in of}
    if norms and _may_be_uneven(norms.values(), watch.limits):
        for step, row in _norm_rows(norms):
            yield from watch.observe_norms(row, step)
    for name, of in tensors.items():
        if _may_be_sick(of, watch.limits):
            last = 0.0
            for step, row in rows(Series(name=quantity, steps=one.steps, values=one.values) for quantity, one in of.items()):
                last = row.get(GRAD_NORM, last)
                yield from watch.observe_tensor(name, {**row, LAST_NORM: last}, step)


def _may_be_uneven(norms: Collection[Series], limits: LearningLimits) -> bool:
    """A quick look at the extremes of all series; most trainings end here."""
    least = min((min(_finite(one.values), default=math.inf) for one in norms), default=math.inf)
    return least < limits.vanishing_norm or max(max(_finite(one.values), default=0.0) for one in norms) > limits.norm_ratio_max * least


def _may_be_sick(of: Mapping[str, Series], limits: LearningLimits) -> bool:
    """Whether a look at each point of a tensor can find anything; there may be millions of points."""
    def most(quantity: str) -> float:
        return max(of[quantity].values) if quantity in of else 0.0

    weights = of[WEIGHT_NORM].values if WEIGHT_NORM in of else ()
    may_stay = len(weights) > limits.unchanged_patience and (
        limits.unchanged_rtol > 0.0 or len(weights) - len(set(weights)) >= limits.unchanged_patience
    )
    return (
        may_stay or any(any(of[name].values) for name in (GRAD_NAN, GRAD_INF, WEIGHT_NAN, WEIGHT_INF) if name in of)
        or any(not math.isfinite(sum(of[name].values)) for name in (GRAD_NORM, WEIGHT_NORM) if name in of)
        or (GRAD_NORM in of and min(of[GRAD_NORM].values) == 0.0) or most(GRAD_ZERO_FRACTION) > limits.zero_fraction_max
        or most(GRAD_LARGE_FRACTION) > limits.large_fraction_max or most(GRAD_SMALL_FRACTION) > limits.small_fraction_max
    )


def _norm_rows(norms: Mapping[str, Series]) -> Iterator[tuple[int, dict[str, float]]]:
    """At steps spread over the run each tensor's norm as it was last seen; a series may have been thinned out on its own."""
    steps = sorted({step for one in norms.values() for step in one.steps if math.isfinite(step)})
    if len(steps) > MAX_ROWS:
        steps = [steps[place * len(steps) // MAX_ROWS] for place in range(MAX_ROWS)]
    for step in steps:
        last = {name: bisect_right(one.steps, step) for name, one in norms.items()}
        yield int(step), {name: norms[name].values[after - 1] for name, after in last.items() if after}


def _finite(values: Sequence[float]) -> Sequence[float]:
    return values if math.isfinite(sum(values)) else [value for value in values if math.isfinite(value)]


def _skipped(process: Process) -> Callable[[int | None], bool]:
    """Whether GradScaler skipped a step, or one close by where the series is thinned out: it saw the Inf itself, and nothing came of it."""
    totals = process.series.get(SCALER_SKIPPED_TOTAL)

    def skipped(step: int | None) -> bool:
        if totals is None or step is None:
            return False
        place = bisect_left(totals.steps, step)
        return place < len(totals.values) and totals.values[place] > (totals.values[place - 1] if place else 0.0)

    return skipped


def _from_event(event: Anomaly) -> Breach:
    subject = "" if is_quantity(event.subject) else event.subject
    return Breach(
        code=event.code, type="", quantity=event.subject, subject=subject, value=event.value, limit=event.threshold,
        text=event.text, step=event.step,
    )

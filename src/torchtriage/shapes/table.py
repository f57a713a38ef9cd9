"""From the trials of each policy to the rows of the table."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtriage.findings.shape_study import Interval, PolicyResult, RoundTotal
from torchtriage.shapes.statistics import interval, noise_of
from torchtriage.shapes.trials import Span, Trial


def rows(
    trials: Mapping[str, Sequence[Trial]], span: Span, num_planned: int, *, settings: Mapping[str, Sequence[str]],
    failures: Mapping[str, str], notes: Mapping[str, Sequence[str]],
) -> list[PolicyResult]:
    """One row a policy, also for those that failed, in the order given by `settings`: over the units that all policies went through."""
    timed = {
        "compile_seconds": _intervals(trials, lambda t: t.compile_seconds),
        "first_call_seconds": _intervals(trials, lambda t: t.first_call_seconds),
        "steady_seconds": _intervals(trials, span.steady),
        "total_seconds": _intervals(trials, lambda t: span.total(t, num_planned)),
    }
    found = []
    for name, setting in settings.items():
        if name in failures:
            found.append(PolicyResult(name=name, setting=setting, failed=failures[name], notes=notes.get(name, ())))
        elif trials.get(name):
            times: dict[str, Any] = {column: intervals.get(name) for column, intervals in timed.items()}
            totals = [RoundTotal(round=t.round, seconds=round(span.total(t, num_planned), 6)) for t in trials[name]]
            counts = _counts(trials[name], span)
            found.append(PolicyResult(name=name, setting=setting, notes=notes.get(name, ()), totals=totals, **times, **counts))
    return found


def _counts(trials: Sequence[Trial], span: Span) -> dict[str, Any]:
    last = trials[-1]
    return {
        "num_runs": len(trials), "num_compiles": _middle_count(trials, lambda t: t.num_compiles),
        "num_recompiles": _middle_count(trials, lambda t: t.num_recompiles),
        "num_eager_calls": _middle_count(trials, lambda t: t.num_eager_calls) or 0,
        "peak_memory_bytes": _middle_count(trials, lambda t: t.peak_memory_bytes),
        "still_compiling": span.compiles_late(last), "overridden": tuple(last.overridden),
    }


def _intervals(trials: Mapping[str, Sequence[Trial]], read: Callable[[Trial], float | None]) -> dict[str, Interval]:
    """Of every policy that has the figure; how noisy it is, is learned from all of them."""
    found = {name: {t.round: value for t in runs if (value := read(t)) is not None} for name, runs in trials.items()}
    noise = noise_of(found, paired=False)
    return {name: interval(list(values.values()), noise) for name, values in found.items() if values}


def _middle_count(trials: Sequence[Trial], read: Callable[[Trial], int | None]) -> int | None:
    values = [value for value in map(read, trials) if value is not None]
    return int(statistics.median_high(values)) if values else None

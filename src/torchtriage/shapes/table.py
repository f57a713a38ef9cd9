"""From the trials of each policy to the rows of the table."""

import statistics
from collections.abc import Callable, Mapping, Sequence

from torchtriage.findings.shape_study import Interval, PolicyResult
from torchtriage.shapes.statistics import interval
from torchtriage.shapes.trials import Span, Trial


def row(
    name: str, trials: Sequence[Trial], span: Span, num_planned: int, *, setting: Sequence[str] = (), notes: Sequence[str] = (),
) -> PolicyResult:
    """What the trials of one policy showed over the units that all policies went through."""
    last = trials[-1]
    return PolicyResult(
        name=name, setting=setting, notes=notes, num_runs=len(trials),
        num_compiles=_middle_count(trials, lambda t: t.num_compiles), num_recompiles=_middle_count(trials, lambda t: t.num_recompiles),
        num_eager_calls=_middle_count(trials, lambda t: t.num_eager_calls) or 0,
        compile_seconds=_interval(trials, lambda t: t.compile_seconds),
        first_call_seconds=_interval(trials, lambda t: t.first_call_seconds),
        steady_seconds=_interval(trials, span.steady), total_seconds=_interval(trials, lambda t: span.total(t, num_planned)),
        peak_memory_bytes=_middle_count(trials, lambda t: t.peak_memory_bytes),
        still_compiling=span.compiles_late(last), overridden=tuple(last.overridden),
    )


def rows(
    trials: Mapping[str, Sequence[Trial]], span: Span, num_planned: int, *, settings: Mapping[str, Sequence[str]],
    failures: Mapping[str, str], notes: Mapping[str, Sequence[str]],
) -> list[PolicyResult]:
    """One row a policy, also for those that failed, in the order given by `settings`."""
    found = []
    for name, setting in settings.items():
        if name in failures:
            found.append(PolicyResult(name=name, setting=setting, failed=failures[name], notes=notes.get(name, ())))
        elif trials.get(name):
            found.append(row(name, trials[name], span, num_planned, setting=setting, notes=notes.get(name, ())))
    return found


def _values(trials: Sequence[Trial], read: Callable[[Trial], float | None]) -> list[float]:
    return [value for value in map(read, trials) if value is not None]


def _interval(trials: Sequence[Trial], read: Callable[[Trial], float | None]) -> Interval | None:
    values = _values(trials, read)
    return interval(values) if values else None


def _middle_count(trials: Sequence[Trial], read: Callable[[Trial], float | None]) -> int | None:
    values = _values(trials, read)
    return int(statistics.median_high(values)) if values else None

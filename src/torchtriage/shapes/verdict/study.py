"""Turns a measurement into the study that reports show."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtriage.findings.shape_study import (
    BASELINE,
    Advice,
    Basis,
    Interval,
    Need,
    PolicyResult,
    Requirement,
    RoundTotal,
    ShapeStudy,
    VaryingSize,
    policy_phrase,
)
from torchtriage.launch.privacy import redacted
from torchtriage.proof.statistics import interval, noise_of
from torchtriage.recording.facts import SizeMark
from torchtriage.shapes.experiment import Measurement
from torchtriage.shapes.policies import MARKED, MIXED, SOURCES
from torchtriage.shapes.runs.sizes import num_calls, varying, with_marks
from torchtriage.shapes.runs.trial import Span, Trial, main_process
from torchtriage.shapes.verdict.advice import BUDGET_MARGIN, advise, decision_tree
from torchtriage.shapes.verdict.by_function import best_by_function, divided_sites
from torchtriage.shapes.verdict.crossover import crossovers
from torchtriage.shapes.verdict.race import output_notes, unit_notes
from torchtriage.shapes.verdict.ranking import MIN_ROUNDS, Ranking
from torchtriage.text import and_more, counted, listed, path_from_here

MAX_REASONS = 4
MAX_FILES = 5
MAX_MARKS = 4
PROCESS_WIDE = f"{SOURCES} applies to every compiled function of the process"
NO_DIMENSIONS = "this torch ignores the dimension in an entry (`:0`), so every dimension of these inputs is marked"


def study_of(
    measurement: Measurement, command: Sequence[str], *, spent_seconds: float, users_sources: str = "",
) -> ShapeStudy:
    """The table, the advice, the decision tree, and every caveat."""
    race, num_planned = measurement.race, measurement.num_planned
    compared, span = race.compared(), race.span()
    ranking = race.ranking(num_planned)
    turns = crossovers(compared, span)
    settings = {name: policy.setting for name, policy in race.policies.items()}
    if len(compared) > 1:
        round_seconds = race.seconds_of(_to_repeat(ranking))
        advice = advise(
            ranking, turns, num_planned, settings, round_seconds=round_seconds, spent_seconds=spent_seconds,
        )
    else:
        advice = _advice_without_rivals(measurement, spent_seconds)
    output, by_policy = output_notes(compared)
    by_policy.setdefault(MARKED, []).extend(_marking_notes(measurement))
    sizes = None if measurement.sizes is None else varying(measurement.sizes)
    recorded = measurement.sizes or ()
    return ShapeStudy(
        command=redacted(command), unit=span.unit, num_units=span.num_units, num_planned=num_planned,
        policies=rows(compared, span, num_planned, settings=settings, failures=race.failures, notes=by_policy),
        advice=advice, crossovers=turns, branches=decision_tree(sizes, len(recorded), num_calls(recorded)),
        sizes=_sizes(measurement, sizes or ()), by_function=_by_function(measurement),
        notes=[*_notes(measurement, users_sources), *output, *unit_notes(race.trials[BASELINE])],
        seconds_spent=round(spent_seconds, 1), torch=_torch_version(measurement),
    )


def _to_repeat(ranking: Ranking) -> list[str]:
    """The policies of another round: those still in the race, and the baseline."""
    names = ranking.running()
    if ranking.baseline in ranking.totals and ranking.baseline not in names:
        names.append(ranking.baseline)
    return names


def _advice_without_rivals(measurement: Measurement, spent_seconds: float) -> Advice:
    """The advice if no other policy than the baseline has figures."""
    race = measurement.race
    if measurement.same_code:
        basis = Basis.SAME_CODE
    else:
        basis = Basis.FAILED if race.failures else Basis.NOT_MEASURED
    if measurement.is_interrupted:
        return Advice(basis=basis, requirement=Requirement(kind=Need.FULL_RUN))
    if measurement.is_static:
        return Advice(policy=BASELINE, basis=Basis.STATIC)
    if len(race.policies) - len(race.failures) > 1:
        needed = BUDGET_MARGIN * (spent_seconds + MIN_ROUNDS * race.seconds_of(list(race.policies)))
        return Advice(basis=basis, requirement=Requirement(kind=Need.BUDGET, budget_seconds=needed))
    return Advice(policy=BASELINE, basis=basis)


def _by_function(measurement: Measurement) -> dict[str, str]:
    """The best policy of each function; the policy that `mixed` gave it, if `mixed` was tried."""
    first, tried = measurement.race.trials[BASELINE][0], measurement.race.policies.get(MIXED)
    if len(first.functions) < 2:
        return {}
    if tried is None:
        return best_by_function(measurement.race.compared())
    return {function: tried.by_site.get(first.sites[function], BASELINE) for function in first.functions}


def _sizes(measurement: Measurement, sizes: Sequence[VaryingSize]) -> Sequence[VaryingSize]:
    return sizes if measurement.marking is None else with_marks(sizes, measurement.marking)


def _torch_version(measurement: Measurement) -> str:
    return "" if measurement.first is None else main_process(measurement.first).program.torch or ""


def _marking_notes(measurement: Measurement) -> list[str]:
    marking = measurement.marking
    if marking is None:
        return []
    notes = [PROCESS_WIDE]
    if not measurement.with_dims:
        notes.append(NO_DIMENSIONS)
    reasons = list(marking.new_reasons)
    if reasons:
        first = "; ".join(reasons[:MAX_REASONS]) + and_more(len(reasons) - MAX_REASONS)
        notes.append(f"recompile reasons that appear only once sizes are marked: {first}")
    if not marking.is_complete:
        notes.append(f"sizes still recompile after {counted(marking.num_runs, 'round')} of marking")
    return notes


def _notes(measurement: Measurement, users_sources: str) -> list[str]:
    return [*measurement.notes, *_comparison_notes(measurement), *_program_notes(measurement, users_sources)]


def _comparison_notes(measurement: Measurement) -> list[str]:
    """How the policies were compared, and which were not."""
    race, span = measurement.race, measurement.race.span()
    notes = [f"{name} was not run: {why}" for name, why in measurement.same.items()]
    for name, other in measurement.same_code.items():
        notes.append(f"{name} compiles exactly the same code as {policy_phrase(other)}, so it is the same policy here")
    if any(trial.was_stopped for runs in race.trials.values() for trial in runs):
        units = counted(span.num_units, span.unit)
        notes.append(f"some runs were stopped at their time limit; the first {units} of each run are compared")
    if measurement.why_alone and len(race.policies) > 1:
        notes.append("policies ran one after the other, which is noisier than in turns: " + measurement.why_alone)
    for site, functions in divided_sites(race.compared()).items():
        notes.append(f"{listed(functions)} do best under different policies but are compiled on the same line "
                     f"({path_from_here(site)}); give each its own torch.compile call to set them separately")
    return notes


def _program_notes(measurement: Measurement, users_sources: str) -> list[str]:
    """What the program itself does that affects the figures."""
    notes = []
    if measurement.files:
        files = listed(measurement.files, MAX_FILES)
        verb = "file was" if len(measurement.files) == 1 else "files were"
        notes.append(f"each run overwrites {files}; the current {verb} written by {_run_of(measurement.last_run)}")
    marks = [f"{mark.call}(dim {mark.dim}) at {path_from_here(mark.path)}:{mark.line}" for mark in _marks(measurement)]
    if marks:
        notes.append(f"the program marks dimensions itself, under every policy: {listed(marks, MAX_MARKS)}")
    if users_sources:
        notes.append(f"{SOURCES} was already set and applies to every run; the policy {MARKED} adds to it")
    if measurement.race.span().unit == "call" and _uses_accelerator(measurement):
        notes.append("calls are timed on the host; if the device runs asynchronously, call torchtriage.step() after a "
                     "synchronization")
    if measurement.is_interrupted:
        notes.append("interrupted: only the runs before the interruption are shown")
    return notes


def _run_of(policy: str) -> str:
    return policy_phrase(policy) if policy == BASELINE else f"the {policy} run"


def _marks(measurement: Measurement) -> Sequence[SizeMark]:
    return () if measurement.first is None else main_process(measurement.first).policy.marks


def _uses_accelerator(measurement: Measurement) -> bool:
    return measurement.first is not None and bool(main_process(measurement.first).policy.peak_device_memory_bytes)


def rows(
    trials: Mapping[str, Sequence[Trial]], span: Span, num_planned: int, *, settings: Mapping[str, Sequence[str]],
    failures: Mapping[str, str], notes: Mapping[str, Sequence[str]],
) -> list[PolicyResult]:
    """One row per policy, in the order of `settings`, also for those that failed.

    The figures cover the units that all policies completed.
    """
    timed = {
        "compile_seconds": _intervals(trials, lambda t: t.compile_seconds),
        "first_call_seconds": _intervals(trials, lambda t: t.first_call_seconds),
        "steady_seconds": _intervals(trials, span.steady),
        "total_seconds": _intervals(trials, lambda t: span.total(t, num_planned)),
    }
    results = []
    for name, setting in settings.items():
        own_notes = notes.get(name, ())
        if name in failures:
            results.append(PolicyResult(name=name, setting=setting, failed=failures[name], notes=own_notes))
        elif trials.get(name):
            times: dict[str, Any] = {column: intervals.get(name) for column, intervals in timed.items()}
            totals = [RoundTotal(round=t.round, seconds=round(span.total(t, num_planned), 6)) for t in trials[name]]
            counts = _counts(trials[name], span)
            results.append(
                PolicyResult(name=name, setting=setting, notes=own_notes, totals=totals, **times, **counts)
            )
    return results


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
    """The interval of one figure for every policy that has it; its noise is estimated from all policies."""
    by_round = {
        name: {t.round: value for t in runs if (value := read(t)) is not None} for name, runs in trials.items()
    }
    noise = noise_of(by_round, paired=False)
    return {name: interval(list(values.values()), noise) for name, values in by_round.items() if values}


def _middle_count(trials: Sequence[Trial], read: Callable[[Trial], int | None]) -> int | None:
    values = [value for value in map(read, trials) if value is not None]
    return int(statistics.median_high(values)) if values else None

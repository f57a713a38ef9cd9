"""From what was measured to the study that reports show."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtriage.findings.shape_study import BASELINE, Advice, Interval, PolicyResult, RoundTotal, ShapeStudy, VaryingSize
from torchtriage.recording.facts import to_dict
from torchtriage.shapes.experiment import Measurement
from torchtriage.shapes.policies import MARKED, MIXED, SOURCES
from torchtriage.shapes.runs.sizes import num_calls, varying, with_marks
from torchtriage.shapes.runs.trial import Span, Trial, main_process
from torchtriage.shapes.verdict.advice import NOT_SETTLED, Plan, advise, decision_tree
from torchtriage.shapes.verdict.by_function import best_by_function, divided_sites
from torchtriage.shapes.verdict.crossover import crossovers
from torchtriage.shapes.verdict.race import output_notes, unit_notes
from torchtriage.shapes.verdict.ranking import MIN_ROUNDS, Ranking
from torchtriage.shapes.verdict.statistics import interval, noise_of
from torchtriage.text import counted, duration_flag, listed, path_from_here

MAX_REASONS = 4
WHOLE_PROCESS = f"{SOURCES} applies to every compiled function of the process"
NO_DIMENSIONS = "this torch ignores the dimension in an entry (`:0`), so every dimension of these inputs is marked"


def study_of(found: Measurement, command: Sequence[str], *, spent_seconds: float, users_sources: str = "") -> ShapeStudy:
    """The table, the advice, the tree, and every caveat."""
    race = found.race
    compared, span = race.compared(), race.span()
    ranking = race.ranking(found.num_planned)
    lines = crossovers(compared, span)
    settings = {name: policy.setting for name, policy in race.policies.items()}
    plan = Plan(
        unit=span.unit, num_planned=found.num_planned, settings=settings,
        round_seconds=race.seconds_of(_to_repeat(ranking)), spent_seconds=spent_seconds,
    )
    advice = advise(ranking, lines, plan) if len(compared) > 1 else _only_one(found, spent_seconds)
    output, by_policy = output_notes(compared)
    by_policy.setdefault(MARKED, []).extend(_marking_notes(found))
    sizes = None if found.sizes is None else varying(found.sizes)
    table = rows(compared, span, found.num_planned, settings=settings, failures=race.failures, notes=by_policy)
    return ShapeStudy(
        command=list(command), unit=span.unit, num_units=span.num_units, num_planned=found.num_planned,
        policies=table, advice=advice, crossovers=lines,
        branches=decision_tree(sizes, len(found.sizes or ()), num_calls(found.sizes or ()), advice),
        sizes=_shown_sizes(found, sizes), by_function=_by_function(found),
        notes=[*_notes(found, users_sources), *output, *unit_notes(race.trials[BASELINE])],
        seconds_spent=round(spent_seconds, 1), torch=_torch(found),
    )


def _to_repeat(ranking: Ranking) -> list[str]:
    return list(dict.fromkeys([*ranking.running(), *([ranking.baseline] if ranking.baseline in ranking.totals else [])]))


def _only_one(found: Measurement, spent_seconds: float) -> Advice:
    """No other policy has figures."""
    race = found.race
    why = "no other policy was measured" if not race.failures else "every other policy failed"
    if found.same_code:
        why = "every other policy failed or compiles exactly the same code"
    if found.is_interrupted:
        return Advice(text=f"{NOT_SETTLED}: {why} before it was interrupted", needs="a run that is not interrupted")
    if found.is_static:
        why = "no size varies and nothing is recompiled, so no other policy has anything to spare"
    elif len(race.policies) - len(race.failures) > 1:
        needed = duration_flag(1.2 * (spent_seconds + MIN_ROUNDS * race.seconds_of(list(race.policies))))
        return Advice(text=f"{NOT_SETTLED}: {why} before the time was up; keep it {BASELINE} until then", needs=f"--budget {needed}")
    return Advice(policy=BASELINE, text=f"keep it {BASELINE}: {why}")


def _by_function(found: Measurement) -> dict[str, str]:
    """What each function wants: what `mixed` gave it, if that was tried."""
    first, tried = found.race.trials[BASELINE][0], found.race.policies.get(MIXED)
    if len(first.functions) < 2:
        return {}
    if tried is None:
        return best_by_function(found.race.compared())
    return {function: tried.by_site.get(first.sites[function], BASELINE) for function in first.functions}


def _shown_sizes(found: Measurement, sizes: Sequence[VaryingSize] | None) -> Sequence[VaryingSize]:
    return with_marks(sizes or (), found.marking) if found.marking is not None else sizes or ()


def _torch(found: Measurement) -> str:
    return main_process(found.first).program.torch or "" if found.first is not None else ""


def _marking_notes(found: Measurement) -> list[str]:
    if found.marking is None:
        return []
    notes = [WHOLE_PROCESS] + ([] if found.with_dims else [NO_DIMENSIONS])
    reasons = list(found.marking.new_reasons)
    if reasons:
        more = f" and {len(reasons) - MAX_REASONS} more" if len(reasons) > MAX_REASONS else ""
        notes.append(f"recompile reasons that only show once sizes are marked: {'; '.join(reasons[:MAX_REASONS])}{more}")
    if not found.marking.is_complete:
        notes.append(f"sizes still recompile after {found.marking.num_runs} rounds of marking")
    return notes


def _notes(found: Measurement, users_sources: str) -> list[str]:
    notes, span = list(found.notes), found.race.span()
    notes += [f"{name} was not run: {why}" for name, why in found.same.items()]
    notes += [f"{name} compiles exactly the code of {other}, so it is the same policy here" for name, other in found.same_code.items()]
    stopped = [t for runs in found.race.trials.values() for t in runs if t.was_stopped]
    if stopped:
        notes.append(f"runs were stopped at their time limit; compared are the first {counted(span.num_units, span.unit)} of each")
    if found.why_alone and len(found.race.policies) > 1:
        notes.append(f"policies were run one after the other, which is noisier than in turns: {found.why_alone}")
    for site, functions in divided_sites(found.race.compared()).items():
        notes.append(f"{listed(functions)} want different policies, and one line compiles them ({path_from_here(site)}): "
                     "with a torch.compile call on a line of its own each can be measured, and have its own")
    if found.files:
        notes.append(f"every run writes {listed(list(found.files[:5]))} again; what is there now is from a run {_of(found.last_run)}")
    marks = [f"{m['call']}(dim {m['dim']}) at {path_from_here(m['path'])}:{m['line']}" for m in _own_marks(found)]
    if marks:
        notes.append(f"the program marks dimensions itself, under every policy: {listed(marks[:4])}")
    if users_sources:
        notes.append(f"{SOURCES} was set already and is kept in every run; the policy {MARKED} adds to it")
    if span.unit == "call" and found.first is not None and main_process(found.first).policy.peak_device_memory_bytes:
        notes.append("calls are timed on the host: where the device works behind it, call torchtriage.step() after a synchronisation")
    if found.is_interrupted:
        notes.append("interrupted: this is what was measured until then")
    return notes


def _of(policy: str) -> str:
    return policy if policy == BASELINE else f"under {policy}"


def _own_marks(found: Measurement) -> list[dict[str, Any]]:
    return [to_dict(mark) for mark in main_process(found.first).policy.marks] if found.first is not None else []


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

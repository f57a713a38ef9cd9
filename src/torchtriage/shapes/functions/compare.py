"""Compares shape policies for one function in this process: every trial starts from nothing, rounds are interleaved."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtriage.capture.torch_private import shapes as torch_private_shapes
from torchtriage.errors import TriageError
from torchtriage.findings.shape_study import ShapeStudy
from torchtriage.shapes.functions.buckets import bucketed
from torchtriage.shapes.functions.call_inputs import Arguments, Calls, Inputs, SeenSizes, sizes_of
from torchtriage.shapes.functions.compiling import (
    Compiles,
    name_of,
    parameter_names,
    peak_memory_bytes,
    reset_peak_memory,
    synchronise,
    uncompiled,
)
from torchtriage.shapes.policies import FORCED, MARKED
from torchtriage.shapes.runs.trial import Lane, Trial, common_span
from torchtriage.shapes.verdict.advice import Plan, advise, decision_tree
from torchtriage.shapes.verdict.crossover import crossovers
from torchtriage.shapes.verdict.ranking import FAR_BEHIND, ranked
from torchtriage.shapes.verdict.study import rows

BUCKETED = "bucketed"
POLICIES = (*FORCED, MARKED)
_DYNAMIC = {"true": True, "false": False, "none": None}
_WITHOUT_CACHE = ("eager", "aot_eager")     # backends that keep nothing on disk
IN_PROCESS = ("measured in one process: what torch loads only once is in no trial; "
              "for a process of its own each: torchtriage shapes FILE.py::FUNCTION --sizes ...")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A policy: how it makes the callable, what it does to the arguments before a call, and how the user would set it."""

    name: str
    make: Callable[[], Callable[..., Any]]
    prepare: Callable[[Arguments], Arguments] = lambda arguments: arguments
    verify: Callable[[Arguments], object] | None = None     # raises if the policy would change the result
    setting: Sequence[str] = ()


def study_policies(
    fn: Callable[..., Any], inputs: Inputs, *, policies: Sequence[str] = POLICIES, rounds: int = 3,
    buckets: int | Mapping[str, Any] | None = None, num_planned: int | None = None, **compile_options: Any,
) -> ShapeStudy:
    """Measure `fn` over the calls in `inputs` under each policy, and advise. See `torchtriage.compare_policies`."""
    begin = time.perf_counter()
    _refuse(policies, rounds, compile_options)
    plain = uncompiled(fn)
    calls = Calls(parameter_names(plain), inputs if callable(inputs) else list(inputs))
    sizes = sizes_of(calls)
    candidates = _candidates(plain, calls, sizes, policies, buckets, compile_options)
    is_cached = compile_options.get("backend") not in _WITHOUT_CACHE
    trials, failures = _measure(candidates, calls, name_of(plain), rounds, is_cached)
    notes = [IN_PROCESS] + ([f"{name_of(plain)} was compiled already; what it was compiled from is measured"] if plain is not fn else [])
    study = _study(plain, sizes, candidates, trials, failures, num_planned or sizes.num_calls)
    return dataclasses.replace(study, notes=notes, seconds_spent=round(time.perf_counter() - begin, 1))


def _refuse(policies: Sequence[str], rounds: int, compile_options: Mapping[str, Any]) -> None:
    unknown = [name for name in policies if name not in POLICIES]
    if unknown or isinstance(policies, str) or not policies:
        raise TriageError(f"policies={policies!r} are not known; give some of {', '.join(map(repr, POLICIES))} (and buckets= for buckets)")
    if rounds < 1 or "dynamic" in compile_options:
        raise TriageError(f"rounds={rounds}, dynamic={compile_options.get('dynamic', 'not given')}: at least 1 round is needed, and "
                          "dynamic= is what is compared; leave it out")


def _candidates(
    fn: Callable[..., Any], calls: Calls, sizes: SeenSizes, policies: Sequence[str], buckets: int | Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> list[Candidate]:
    import torch

    name, given = name_of(fn), "".join(f", {key}={value!r}" for key, value in options.items())
    found = [
        Candidate(name=policy, make=lambda dynamic=_DYNAMIC[FORCED[policy]]: torch.compile(fn, dynamic=dynamic, **options),   # type: ignore[misc]
                  setting=(f"torch.compile({name}{given}{'' if policy == 'dynamic=None' else f', {policy}'})",))
        for policy in policies if policy in FORCED
    ]
    dims = sizes.dims()
    if MARKED in policies and dims:
        marks = [f"torch._dynamo.maybe_mark_dynamic({argument}, {dim})" for argument, some in dims.items() for dim in some]
        found.append(Candidate(name=MARKED, make=lambda: torch.compile(fn, **options), prepare=lambda a: calls.marked(a, dims),
                               setting=[f"torch.compile({name}{given})", *(f"{mark}    # before each call" for mark in marks)]))
    if buckets is not None:
        chosen = _bucket_options(buckets, sizes)
        sample = bucketed(fn, **chosen, **options)
        shown = {key: value for key, value in chosen.items() if key not in ("sizes", "num_buckets")} | {"sizes": sample.edges}
        found.append(Candidate(
            name=BUCKETED, make=lambda: bucketed(fn, **chosen, **options), verify=lambda call: sample.check(*call[0], **call[1]),
            setting=(f"torchtriage.bucketed({name}, {', '.join(f'{key}={value!r}' for key, value in shown.items())}{given})",),
        ))
    return found


def _bucket_options(buckets: int | Mapping[str, Any], sizes: SeenSizes) -> Mapping[str, Any]:
    """The arguments of `bucketed`; of a mere number, over the size that varies most."""
    if not isinstance(buckets, int):
        return buckets
    varying = {key: counts for key, counts in sizes.varying().items() if key[1] is not None}
    if not varying:
        raise TriageError(f"buckets={buckets} was given, but no size varies over the inputs; leave it out")
    (_, dim), counts = max(varying.items(), key=lambda item: len(item[1]))
    return {"dim": dim, "sizes": dict(counts), "num_buckets": buckets}


def _measure(
    candidates: Sequence[Candidate], calls: Calls, function: str, rounds: int, is_cached: bool,
) -> tuple[dict[str, list[Trial]], dict[str, str]]:
    """The trials of each policy, and why others have none; one that lies far behind is not repeated."""
    trials: dict[str, list[Trial]] = {candidate.name: [] for candidate in candidates}
    failures = {candidate.name: why for candidate in candidates if (why := _problem(candidate, calls))}
    _load(candidates[0], calls)
    for number in range(1, rounds + 1):
        order = [*candidates[(number - 1) % len(candidates):], *candidates[:(number - 1) % len(candidates)]]
        running = _running(trials, failures) if number > FAR_BEHIND.num_rounds else list(trials)
        for candidate in order:
            if candidate.name in failures or candidate.name not in running:
                continue
            try:
                trials[candidate.name].append(_trial(candidate, calls, function, number, is_cached))
            except Exception as error:      # another policy may well work
                failures[candidate.name] = _told(error)
    if len(failures) == len(candidates):
        raise TriageError(f"{function} failed under every policy: {'; '.join(f'{name}: {why}' for name, why in failures.items())}")
    return trials, failures


def _problem(candidate: Candidate, calls: Calls) -> str:
    """Why a policy may not be used at all; looked at with the first call."""
    if candidate.verify is None:
        return ""
    try:
        candidate.verify(next(iter(calls)))
    except Exception as error:
        return _told(error)
    return ""


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(line.strip() for line in str(error).strip().splitlines()[:2])}"


def _load(candidate: Candidate, calls: Calls) -> None:
    """One call that is not timed: what torch imports at its first compile must not be on the first policy's bill."""
    args, kwargs = candidate.prepare(next(iter(calls)))
    with contextlib.suppress(Exception):        # a policy that fails is found out in its trial
        candidate.make()(*args, **kwargs)


def _running(trials: Mapping[str, Sequence[Trial]], failures: Mapping[str, str]) -> list[str]:
    compared = _compared(trials, failures)
    span = common_span([trial for runs in compared.values() for trial in runs])
    return ranked(compared, span, span.num_units).running()


def _compared(trials: Mapping[str, Sequence[Trial]], failures: Mapping[str, str]) -> dict[str, Sequence[Trial]]:
    return {name: runs for name, runs in trials.items() if runs and name not in failures}


def _trial(candidate: Candidate, calls: Calls, function: str, number: int, is_cached: bool) -> Trial:
    """All calls once, from an empty cache; marking and the like is not timed."""
    import torch

    torch._dynamo.reset()
    reset_peak_memory()
    seconds: list[float] = []
    compiles: list[int] = []
    with (torch_private_shapes.fresh_cache() if is_cached else None) or contextlib.nullcontext(), Compiles() as seen:
        compiled = candidate.make()
        for arguments in calls:
            args, kwargs = candidate.prepare(arguments)
            before = seen.num
            synchronise()
            begin = time.perf_counter()
            compiled(*args, **kwargs)
            synchronise()
            seconds.append(time.perf_counter() - begin)
            compiles.append(seen.num - before)
    return Trial(
        policy=candidate.name, round=number, functions={function: Lane.of(seconds, compiles)}, num_compiles=seen.num,
        num_recompiles=len(seen.recompiles), num_eager_calls=seen.num_eager_calls, hit_limit=bool(seen.limits),
        compile_seconds=seen.seconds, first_call_seconds=seconds[0], peak_memory_bytes=peak_memory_bytes(), seconds=sum(seconds),
    )


def _study(
    fn: Callable[..., Any], sizes: SeenSizes, candidates: Sequence[Candidate], trials: Mapping[str, Sequence[Trial]],
    failures: Mapping[str, str], num_planned: int,
) -> ShapeStudy:
    import torch

    compared = _compared(trials, failures)
    span = common_span([trial for runs in compared.values() for trial in runs])
    settings = {candidate.name: candidate.setting for candidate in candidates}
    lines = crossovers(compared, span)
    plan = Plan(unit=span.unit, num_planned=num_planned, settings=settings)
    advice = advise(ranked(compared, span, num_planned), lines, plan)
    varying = sizes.as_study(fn, is_marked=MARKED in compared)
    return ShapeStudy(
        command=(f"compare_policies({name_of(fn)})",), unit=span.unit, num_units=span.num_units, num_planned=num_planned, advice=advice,
        policies=rows(compared, span, num_planned, settings=settings, failures=failures, notes=_row_notes(trials)),
        crossovers=lines, sizes=varying,
        branches=decision_tree(varying, len(sizes.values), sizes.num_calls, advice), torch=str(torch.__version__),
    )


def _row_notes(trials: Mapping[str, Sequence[Trial]]) -> dict[str, list[str]]:
    if not any(trial.num_recompiles for trial in trials.get(MARKED, ())):
        return {}
    return {MARKED: ["recompiles although every size that varies is marked: one became constant again, or something else changes"]}

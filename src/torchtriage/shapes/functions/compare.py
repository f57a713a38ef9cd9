"""Compares shape policies for one function within this process; every trial starts with empty caches."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchtriage.capture.torch_private import shapes as torch_private_shapes
from torchtriage.errors import TriageError
from torchtriage.findings.shape_study import ShapeStudy
from torchtriage.shapes.functions.buckets import bucketed
from torchtriage.shapes.functions.call_inputs import Arguments, Calls, CallSizeCounts, Inputs, sizes_of
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
from torchtriage.shapes.verdict.advice import advise, decision_tree
from torchtriage.shapes.verdict.crossover import crossovers
from torchtriage.shapes.verdict.ranking import FAR_BEHIND, ranked
from torchtriage.shapes.verdict.study import rows

BUCKETED = "bucketed"
POLICIES = (*FORCED, MARKED)
_DYNAMIC = {"true": True, "false": False, "none": None}
_WITHOUT_CACHE = ("eager", "aot_eager")     # backends that keep nothing on disk
IN_PROCESS = ("measured in one process, so no trial includes what torch loads only once; "
              "to use a separate process for each: torchtriage shapes FILE.py::FUNCTION --sizes ...")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A policy for one function: how to make the callable and prepare its arguments, and how a user would set it."""

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
    notes = [IN_PROCESS]
    if plain is not fn:
        notes.append(f"{name_of(plain)} was already compiled; the original function is measured")
    study = _study(plain, sizes, candidates, trials, failures, num_planned or sizes.num_calls)
    return dataclasses.replace(study, notes=notes, seconds_spent=round(time.perf_counter() - begin, 1))


def _refuse(policies: Sequence[str], rounds: int, compile_options: Mapping[str, Any]) -> None:
    unknown = [name for name in policies if name not in POLICIES]
    if unknown or isinstance(policies, str) or not policies:
        choices = ", ".join(map(repr, POLICIES))
        raise TriageError(f"policies={policies!r} are unknown; give some of {choices} (and buckets= for buckets)")
    if rounds < 1 or "dynamic" in compile_options:
        dynamic = compile_options.get("dynamic", "not given")
        raise TriageError(f"rounds={rounds}, dynamic={dynamic}: at least 1 round is needed, and dynamic= is chosen by "
                          "the policies; leave it out")


def _candidates(
    fn: Callable[..., Any], calls: Calls, sizes: CallSizeCounts, policies: Sequence[str],
    buckets: int | Mapping[str, Any] | None, options: Mapping[str, Any],
) -> list[Candidate]:
    candidates = [_forced(fn, policy, options) for policy in policies if policy in FORCED]
    if MARKED in policies and sizes.dims():
        candidates.append(_marked(fn, calls, sizes.dims(), options))
    if buckets is not None:
        candidates.append(_bucketed(fn, _bucket_options(buckets, sizes), options))
    return candidates


def _forced(fn: Callable[..., Any], policy: str, options: Mapping[str, Any]) -> Candidate:
    import torch

    dynamic = _DYNAMIC[FORCED[policy]]
    argument = "" if dynamic is None else f", {policy}"
    return Candidate(
        name=policy, make=lambda: torch.compile(fn, dynamic=dynamic, **options),
        setting=(f"torch.compile({name_of(fn)}{_as_code(options)}{argument})",),
    )


def _marked(
    fn: Callable[..., Any], calls: Calls, dims: Mapping[str, Sequence[int]], options: Mapping[str, Any],
) -> Candidate:
    import torch

    setting = [f"torch.compile({name_of(fn)}{_as_code(options)})"]
    for argument, marked_dims in dims.items():
        for dim in marked_dims:
            setting.append(f"torch._dynamo.maybe_mark_dynamic({argument}, {dim})    # before each call")
    return Candidate(
        name=MARKED, make=lambda: torch.compile(fn, **options),
        prepare=lambda arguments: calls.marked(arguments, dims), setting=setting,
    )


def _bucketed(
    fn: Callable[..., Any], bucket_options: Mapping[str, Any], options: Mapping[str, Any],
) -> Candidate:
    sample = bucketed(fn, **bucket_options, **options)
    shown = {key: value for key, value in bucket_options.items() if key not in ("sizes", "num_buckets")}
    arguments = _as_code({**shown, "sizes": sample.edges, **options})
    return Candidate(
        name=BUCKETED, make=lambda: bucketed(fn, **bucket_options, **options),
        verify=lambda call: sample.check(*call[0], **call[1]),
        setting=(f"torchtriage.bucketed({name_of(fn)}{arguments})",),
    )


def _as_code(options: Mapping[str, Any]) -> str:
    """`, key=value` for each option."""
    return "".join(f", {key}={value!r}" for key, value in options.items())


def _bucket_options(buckets: int | Mapping[str, Any], sizes: CallSizeCounts) -> Mapping[str, Any]:
    """The arguments of `bucketed`; for a plain number, those for the size that varies most."""
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
    """(the trials of each policy, why others have none). A policy that is far behind is not repeated."""
    trials: dict[str, list[Trial]] = {candidate.name: [] for candidate in candidates}
    failures = {candidate.name: why for candidate in candidates if (why := _problem(candidate, calls))}
    _load(candidates[0], calls)
    for number in range(1, rounds + 1):
        first = (number - 1) % len(candidates)
        order = [*candidates[first:], *candidates[:first]]
        running = _running(trials, failures) if number > FAR_BEHIND.num_rounds else list(trials)
        for candidate in order:
            if candidate.name in failures or candidate.name not in running:
                continue
            try:
                trials[candidate.name].append(_trial(candidate, calls, function, number, is_cached))
            except Exception as error:      # another policy may work
                failures[candidate.name] = _error_text(error)
    if len(failures) == len(candidates):
        reasons = "; ".join(f"{name}: {why}" for name, why in failures.items())
        raise TriageError(f"{function} failed under every policy: {reasons}")
    return trials, failures


def _problem(candidate: Candidate, calls: Calls) -> str:
    """Why a policy cannot be used at all, by its check of the first call; empty if it can."""
    if candidate.verify is None:
        return ""
    try:
        candidate.verify(next(iter(calls)))
    except Exception as error:
        return _error_text(error)
    return ""


def _error_text(error: Exception) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"


def _load(candidate: Candidate, calls: Calls) -> None:
    """Make one untimed call, so that the imports of torch's first compile do not count for the first policy."""
    args, kwargs = candidate.prepare(next(iter(calls)))
    with contextlib.suppress(Exception):        # a failing policy is reported by its trial
        candidate.make()(*args, **kwargs)


def _running(trials: Mapping[str, Sequence[Trial]], failures: Mapping[str, str]) -> list[str]:
    compared = _compared(trials, failures)
    span = common_span([trial for runs in compared.values() for trial in runs])
    return ranked(compared, span, span.num_units).running()


def _compared(trials: Mapping[str, Sequence[Trial]], failures: Mapping[str, str]) -> dict[str, Sequence[Trial]]:
    return {name: runs for name, runs in trials.items() if runs and name not in failures}


def _trial(candidate: Candidate, calls: Calls, function: str, number: int, is_cached: bool) -> Trial:
    """All calls once, with empty caches; the preparation of arguments is not timed."""
    import torch

    torch._dynamo.reset()
    reset_peak_memory()
    seconds: list[float] = []
    compiles: list[int] = []
    cache = torch_private_shapes.fresh_cache() if is_cached else None
    with cache or contextlib.nullcontext(), Compiles() as observed:
        compiled = candidate.make()
        for arguments in calls:
            args, kwargs = candidate.prepare(arguments)
            before = observed.num
            synchronise()
            begin = time.perf_counter()
            compiled(*args, **kwargs)
            synchronise()
            seconds.append(time.perf_counter() - begin)
            compiles.append(observed.num - before)
    return Trial(
        policy=candidate.name, round=number, functions={function: Lane.of(seconds, compiles)},
        num_compiles=observed.num, num_recompiles=len(observed.recompiles), num_eager_calls=observed.num_eager_calls,
        hit_limit=bool(observed.limits), compile_seconds=observed.seconds, first_call_seconds=seconds[0],
        peak_memory_bytes=peak_memory_bytes(), seconds=sum(seconds),
    )


def _study(
    fn: Callable[..., Any], sizes: CallSizeCounts, candidates: Sequence[Candidate],
    trials: Mapping[str, Sequence[Trial]], failures: Mapping[str, str], num_planned: int,
) -> ShapeStudy:
    import torch

    compared = _compared(trials, failures)
    span = common_span([trial for runs in compared.values() for trial in runs])
    settings = {candidate.name: candidate.setting for candidate in candidates}
    turns = crossovers(compared, span)
    varying = sizes.as_study(fn, is_marked=MARKED in compared)
    return ShapeStudy(
        command=(f"compare_policies({name_of(fn)})",), unit=span.unit, num_units=span.num_units,
        num_planned=num_planned, advice=advise(ranked(compared, span, num_planned), turns, num_planned, settings),
        policies=rows(compared, span, num_planned, settings=settings, failures=failures, notes=_row_notes(trials)),
        crossovers=turns, sizes=varying, branches=decision_tree(varying, len(sizes.values), sizes.num_calls),
        torch=str(torch.__version__),
    )


def _row_notes(trials: Mapping[str, Sequence[Trial]]) -> dict[str, list[str]]:
    if not any(trial.num_recompiles for trial in trials.get(MARKED, ())):
        return {}
    return {MARKED: ["recompiles although every varying size is marked: one is specialized to a constant, or something "
                     "other than a size changes"]}

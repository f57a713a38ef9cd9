"""A shape study to pass on, without the program's own names.

Policies, counts and times stay; the command, sources, sizes, places and sentences are dropped.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchtriage.findings import catalogue
from torchtriage.findings.shape_study import (
    BASELINE,
    Advice,
    Basis,
    Branch,
    Crossover,
    Interval,
    Need,
    PolicyResult,
    Question,
    Requirement,
    ShapeStudy,
    VaryingSize,
)

if TYPE_CHECKING:
    from torchtriage.findings.redaction import Pseudonyms

_PART = rf"(?:{BASELINE}|dynamic=(?:True|False|None)|marked|mixed|bucketed|recompile_limit=\d+)"
_POLICY = re.compile(rf"{_PART}(?:, {_PART})*")
_UNITS = ("step", "call")


def redacted_study(study: ShapeStudy, names: "Pseudonyms", version: str) -> ShapeStudy:
    def policy(name: str) -> str:
        return name if not name or _POLICY.fullmatch(name) else names.of("policy", name)

    return ShapeStudy(
        command=(), unit=study.unit if study.unit in _UNITS else "unit", num_units=study.num_units,
        num_planned=study.num_planned, policies=[_result(p, policy, names) for p in study.policies],
        advice=_advice(study.advice, policy), crossovers=[_crossover(c, policy) for c in study.crossovers],
        branches=[_branch(b, names) for b in study.branches if b.kind in set(Question)],
        sizes=[_size(s, names) for s in study.sizes],
        by_function={names.of("function", "", name): policy(best) for name, best in study.by_function.items()},
        seconds_spent=study.seconds_spent, torch=version,
        standing=[code for code in study.standing if code in catalogue.codes()],
    )


def _advice(advice: Advice, policy: Callable[[str], str]) -> Advice:
    """Without its setting, which holds lines of the program, and without the sentences of an older version."""
    return Advice(
        policy=policy(advice.policy), basis=advice.basis if advice.basis in set(Basis) else "",
        total_seconds=advice.total_seconds, compared_with=policy(advice.compared_with), gain=_interval(advice.gain),
        tolerance=advice.tolerance, rivals=[policy(name) for name in advice.rivals], num_rounds=advice.num_rounds,
        horizon=None if advice.horizon is None else _crossover(advice.horizon, policy),
        requirement=None if advice.requirement is None else _requirement(advice.requirement),
    )


def _requirement(needed: Requirement) -> Requirement:
    return Requirement(
        kind=needed.kind if needed.kind in set(Need) else "", num_rounds=needed.num_rounds, seconds=needed.seconds,
        budget_seconds=needed.budget_seconds,
    )


def _crossover(c: Crossover, policy: Callable[[str], str]) -> Crossover:
    return Crossover(units=c.units, before=policy(c.before), after=policy(c.after))


def _branch(b: Branch, names: "Pseudonyms") -> Branch:
    """Without the edges of buckets: they are sizes of the program."""
    return Branch(
        kind=b.kind, is_yes=b.is_yes, names=[names.of("size", name) for name in b.names],
        num_varying=b.num_varying, num_sources=b.num_sources, num_values=b.num_values, num_calls=b.num_calls,
        waste_share=b.waste_share,
    )


def _result(p: PolicyResult, policy: Callable[[str], str], names: "Pseudonyms") -> PolicyResult:
    return PolicyResult(
        name=policy(p.name), num_runs=p.num_runs, failed="its reason is not named here" if p.failed else "",
        num_compiles=p.num_compiles, num_recompiles=p.num_recompiles,
        num_eager_calls=p.num_eager_calls, compile_seconds=_interval(p.compile_seconds),
        first_call_seconds=_interval(p.first_call_seconds), steady_seconds=_interval(p.steady_seconds),
        peak_memory_bytes=p.peak_memory_bytes, total_seconds=_interval(p.total_seconds), totals=list(p.totals),
        still_compiling=p.still_compiling, overridden=[names.of("call", call) for call in p.overridden],
    )


def _interval(interval: Interval | None) -> Interval | None:
    return None if interval is None else Interval(middle=interval.middle, low=interval.low, high=interval.high)


def _size(s: VaryingSize, names: "Pseudonyms") -> VaryingSize:
    return VaryingSize(
        path=names.path(s.path), line=s.line, function=names.function(s.path, s.function),
        source=names.of("source", s.path, s.source), dim=s.dim, values={}, num_values=s.num_values,
        num_calls=s.num_calls, is_marked=s.is_marked,
        why_not="the reason it could not be marked is not named here" if s.why_not else "",
    )

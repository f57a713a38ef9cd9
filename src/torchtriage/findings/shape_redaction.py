"""A shape study to pass on: policies, counts and times stay; the command, sources, sizes, places and sentences go."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchtriage.findings.shape_study import AS_WRITTEN, Advice, Crossover, Interval, PolicyResult, ShapeStudy, VaryingSize

if TYPE_CHECKING:
    from torchtriage.findings.redaction import Pseudonyms

_PART = rf"(?:{AS_WRITTEN}|dynamic=(?:True|False|None)|marked|mixed|bucketed|recompile_limit=\d+)"
_POLICY = re.compile(rf"{_PART}(?:, {_PART})*")
_UNITS = ("step", "call")


def redacted_study(study: ShapeStudy, names: "Pseudonyms", version: str) -> ShapeStudy:
    def policy(name: str) -> str:
        return name if not name or _POLICY.fullmatch(name) else names.of("policy", name)

    return ShapeStudy(
        command=(), unit=study.unit if study.unit in _UNITS else "unit", num_units=study.num_units, num_planned=study.num_planned,
        policies=[_result(p, policy, names) for p in study.policies], advice=Advice(policy=policy(study.advice.policy)),
        crossovers=[Crossover(units=c.units, before=policy(c.before), after=policy(c.after)) for c in study.crossovers],
        sizes=[_size(s, names) for s in study.sizes],
        by_function={names.of("function", "", name): policy(best) for name, best in study.by_function.items()},
        seconds_spent=study.seconds_spent, torch=version,
    )


def _result(p: PolicyResult, policy: Callable[[str], str], names: "Pseudonyms") -> PolicyResult:
    return PolicyResult(
        name=policy(p.name), num_runs=p.num_runs, failed=_failed(p.failed), num_compiles=p.num_compiles,
        num_recompiles=p.num_recompiles, num_eager_calls=p.num_eager_calls, compile_seconds=_interval(p.compile_seconds),
        first_call_seconds=_interval(p.first_call_seconds), steady_seconds=_interval(p.steady_seconds),
        peak_memory_bytes=p.peak_memory_bytes, total_seconds=_interval(p.total_seconds), totals=list(p.totals),
        still_compiling=p.still_compiling, overridden=[names.of("call", call) for call in p.overridden],
    )


def _failed(why: str) -> str:
    was_run = "" if why.startswith("not run") else "its reason is not named here"
    return (was_run or "not run: why is not named here") if why else ""


def _interval(interval: Interval | None) -> Interval | None:
    return None if interval is None else Interval(middle=interval.middle, low=interval.low, high=interval.high)


def _size(s: VaryingSize, names: "Pseudonyms") -> VaryingSize:
    return VaryingSize(
        path=names.path(s.path), line=s.line, function=names.function(s.path, s.function), source=names.of("source", s.path, s.source),
        dim=s.dim, values={}, num_values=s.num_values, num_calls=s.num_calls, is_marked=s.is_marked,
        why_not="why it could not be marked is not named here" if s.why_not else "",
    )

"""What every form of a report says of a shape study: the rows of its table and its sentences."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchtriage.findings.shape_study import (
    BASELINE,
    Branch,
    Crossover,
    Interval,
    PolicyResult,
    ShapeStudy,
    VaryingSize,
)
from torchtriage.text import counted

MAX_VALUES = 6          # of a size that varies, in a sentence
NOTHING = "-"           # not measured
NOT_RUN = "not run"     # how the reason begins if nothing went wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy as text; `remarks` stand below it, and are all there is of one without figures."""

    policy: str
    compiles: str = NOTHING
    compiling: str = NOTHING
    first_call: str = NOTHING
    steady: str = NOTHING
    memory: str = NOTHING
    total: str = NOTHING
    remarks: Sequence[str] = ()
    is_advised: bool = False
    is_bare: bool = False


_VERDICTS = {
    "": "not settled, no policy is recommended", BASELINE: "keep it as written",
    "marked": "mark the dimensions that vary", "mixed": "use a policy of its own for each function",
}


def headings(study: ShapeStudy) -> tuple[str, ...]:
    """In the order of a row's cells."""
    return ("policy", "compiles", "compiling", "first call", f"a {study.unit}", "memory", units(study, study.num_planned))


def rows(study: ShapeStudy, *, brief: bool = False) -> list[Row]:
    """The table, in the order in which the policies were measured; `brief` writes an interval as a percentage."""
    spread = _brief if brief else _full
    several = max((p.num_runs for p in study.policies), default=0) > 1
    return [
        Row(policy=p.name, remarks=tuple(_remarks(p, several)), is_bare=True) if p.failed else Row(
            policy=p.name, compiles=NOTHING if p.num_compiles is None else f"{p.num_compiles:,}",
            compiling=_middle(p.compile_seconds), first_call=_middle(p.first_call_seconds),
            steady=spread(p.steady_seconds), memory=_memory(p.peak_memory_bytes),
            total=("~" if is_estimated(study) and p.total_seconds else "") + spread(p.total_seconds),
            remarks=tuple(_remarks(p, several)), is_advised=p.name == study.advice.policy,
        )
        for p in study.policies
    ]


def is_estimated(study: ShapeStudy) -> bool:
    """Whether the totals reach beyond what ran."""
    return study.num_planned > study.num_units


def verdict(study: ShapeStudy) -> str:
    """The advice in a few words."""
    policy = study.advice.policy
    return _VERDICTS.get(policy) or f"use {policy}"


def reason(study: ShapeStudy) -> str:
    """Why, without the words that the verdict has said already."""
    said = ("not settled: ", f"keep it {BASELINE}: ", f"{study.advice.policy}: ")
    return next((study.advice.text.removeprefix(words) for words in said if study.advice.text.startswith(words)), study.advice.text)


def how_measured(study: ShapeStudy) -> str:
    runs = sorted({p.num_runs for p in study.policies if p.num_runs and not p.failed})
    if not runs:
        return ""
    times = f"{runs[0]} to {runs[-1]} times" if len(runs) > 1 else "once" if runs == [1] else f"{runs[0]} times"
    ranges = ", intervals of 95 %" if runs[-1] > 1 else ", so that there is no interval"
    total = "~ is estimated beyond them" if is_estimated(study) else "all times are observed"
    return f"{units(study, study.num_units)} under each policy, {times}{ranges}; {total}"


def crossover(study: ShapeStudy, c: Crossover) -> str:
    return f"{c.before} wins up to {units(study, c.units)}, then {c.after}"


def branch(b: Branch) -> str:
    """A question of the decision tree, how it is answered here, and by which fact."""
    return f"{b.question} {b.answer}" + (f": {b.evidence}" if b.evidence else "")


def size(s: VaryingSize) -> str:
    """What varies: who, over which values, and whether torch was told."""
    values = ", ".join(size_values(s))
    shown = f"took {values}{' ...' if s.num_values > MAX_VALUES else ''} " if values else "varied "
    mark = "; marked" if s.is_marked else ""
    return f"{size_name(s)} {shown}({s.num_values:,} values in {s.num_calls:,} calls){mark}{f'; {s.why_not}' if s.why_not else ''}"


def size_values(s: VaryingSize) -> list[str]:
    """The most frequent values, with how often each came unless all came once."""
    is_counted = any(number > 1 for number in s.values.values())
    return [f"{value} ({number:,}x)" if is_counted else value for value, number in s.values.items()][:MAX_VALUES]


def size_name(s: VaryingSize) -> str:
    """By torch's name of the source, which is the one that its settings take."""
    return s.source if s.dim is None else f"{s.source}.size({s.dim})"


def overrides(study: ShapeStudy) -> list[tuple[str, Sequence[str]]]:
    """(policy, the calls whose own dynamic= it overrode)."""
    return [(p.name, p.overridden) for p in study.policies if p.overridden]


def spent(study: ShapeStudy) -> str:
    num_runs = sum(p.num_runs for p in study.policies)
    runs = f" on {counted(num_runs, 'timed run')}" if num_runs else ""
    program = f" of {shlex.join(study.command)}" if runs and study.command else ""
    return f"{precise(study.seconds_spent)}{runs}{program}" + (f", torch {study.torch}" if study.torch else "")


def units(study: ShapeStudy, number: int) -> str:
    return f"{number:,} {study.unit}{'' if number == 1 else 's'}"


def precise(seconds: float) -> str:
    """Three digits, so that policies a few percent apart differ: 1.04 s, 251 us, 12.4 min."""
    return _scaled(seconds, *handy_unit(seconds))


def _remarks(p: PolicyResult, several: bool) -> Iterator[str]:
    if p.failed:
        yield p.failed if p.failed.startswith(NOT_RUN) else f"failed: {p.failed}"
    if p.num_eager_calls:
        yield f"{counted(p.num_eager_calls, 'call')} ran eager past the recompile limit"
    if p.still_compiling:
        yield "still compiling in the second half of its run: a longer run costs more than its steady time says"
    if several and p.num_runs == 1 and not p.failed:
        yield "ran once, so that there is no interval"
    yield from p.notes


def _middle(interval: Interval | None) -> str:
    return NOTHING if interval is None else precise(interval.middle)


def _brief(interval: Interval | None) -> str:
    """`1.23 ms ±3%`: the farther end of the interval."""
    if interval is None or interval.low is None or interval.high is None or not interval.middle:
        return _middle(interval)
    reach = max(interval.high - interval.middle, interval.middle - interval.low) / interval.middle
    return f"{precise(interval.middle)} ±{reach:.0%}" if math.isfinite(reach) else precise(interval.middle)


def _full(interval: Interval | None) -> str:
    """`1.23 ms (1.20 to 1.27)`."""
    if interval is None or interval.low is None or interval.high is None:
        return _middle(interval)
    factor, unit = handy_unit(interval.middle)
    low, high = (_scaled(end, factor, unit).removesuffix(f" {unit}") for end in (interval.low, interval.high))
    return f"{precise(interval.middle)} ({low} to {high})"


_UNITS = ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (600.0, 1.0, "s"), (7200.0, 1 / 60, "min"), (math.inf, 1 / 3600, "h"))


def handy_unit(seconds: float) -> tuple[float, str]:
    """(factor, name) of the unit in which so many seconds are a handy number."""
    return next(((factor, unit) for below, factor, unit in _UNITS if abs(seconds) < below), (1.0, "s"))


def _scaled(seconds: float, factor: float, unit: str) -> str:
    if not math.isfinite(seconds):
        return "not known"
    value = seconds * factor
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:,.{digits}f} {unit}"


def _memory(number: int | None) -> str:
    if number is None:
        return NOTHING
    return f"{number / 2**20:,.0f} MiB" if number < 10 * 2**30 else f"{number / 2**30:,.1f} GiB"

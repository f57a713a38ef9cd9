"""The text of a shape study, in table rows or sentences, shared by every report format."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torchtriage.findings.shape_study import (
    BASELINE,
    Basis,
    Branch,
    Crossover,
    Interval,
    Need,
    PolicyResult,
    Question,
    ShapeStudy,
    VaryingSize,
    policy_label,
    policy_phrase,
)
from torchtriage.text import and_more, counted, duration, duration_flag, duration_in, factor, listed, row, time_unit

MAX_VALUES = 6          # of a varying size, in a sentence
NOTHING = "-"           # not measured
INCONCLUSIVE = "inconclusive"
KEEP = "keep your code unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """One policy as text. `remarks` are shown below the row; a row without figures (`is_bare`) has only remarks."""

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


def headings(study: ShapeStudy) -> tuple[str, ...]:
    """In the order of a row's cells."""
    total = counted(study.num_planned, study.unit)
    return ("policy", "compiles", "compiling", "first call", f"per {study.unit}", "memory", total)


def rows(study: ShapeStudy, *, brief: bool = False) -> list[PolicyRow]:
    """The table, in the order in which the policies were measured; `brief` writes an interval as a percentage."""
    return [_row(study, policy, brief) for policy in study.policies]


def _row(study: ShapeStudy, p: PolicyResult, brief: bool) -> PolicyRow:
    has_repeats = max(policy.num_runs for policy in study.policies) > 1
    remarks = tuple(_remarks(p, has_repeats))
    if p.failed:
        return PolicyRow(policy=policy_label(p.name), remarks=remarks, is_bare=True)
    spread = _brief if brief else _full
    estimated = "~" if is_estimated(study) and p.total_seconds else ""
    return PolicyRow(
        policy=policy_label(p.name), compiles=NOTHING if p.num_compiles is None else f"{p.num_compiles:,}",
        compiling=_middle(p.compile_seconds), first_call=_middle(p.first_call_seconds),
        steady=spread(p.steady_seconds), memory=_memory(p.peak_memory_bytes),
        total=estimated + spread(p.total_seconds), remarks=remarks, is_advised=p.name == study.advice.policy,
    )


def is_estimated(study: ShapeStudy) -> bool:
    """Whether the totals extend beyond the units that ran."""
    return study.num_planned > study.num_units


_VERDICTS = {
    "": f"{INCONCLUSIVE}, no policy is recommended", BASELINE: KEEP,
    "marked": "mark the dimensions that vary", "mixed": "use a separate policy for each function",
}


def verdict(study: ShapeStudy) -> str:
    """The advice in a few words."""
    policy = study.advice.policy
    if policy == BASELINE and study.standing:
        return f"no other shape policy is recommended, but {_meanwhile(study)}"
    return _VERDICTS.get(policy) or f"use {policy}"


def _meanwhile(study: ShapeStudy) -> str:
    """What to do without another policy: nothing, unless the unmodified program has a severe finding."""
    if not study.standing:
        return KEEP
    verb = "is" if len(study.standing) == 1 else "are"
    return f"{listed(study.standing)} {verb} unsolved: fix that first"


def reason(study: ShapeStudy) -> str:
    """The evidence for the verdict, without repeating it."""
    advice = study.advice
    if not advice.basis:
        return advice.text
    if advice.basis != Basis.MEASURED:
        return _reason_without_rivals(study)
    return _measured_gain(study) if advice.policy else _undecided(study)


def _measured_gain(study: ShapeStudy) -> str:
    advice = study.advice
    clauses = []
    if advice.total_seconds is not None:
        clauses.append(f"{duration(advice.total_seconds)} for {counted(study.num_planned, study.unit)}")
    if advice.policy == BASELINE:
        clauses.append(f"and no other policy is faster by more than {advice.tolerance:.0%}")
    elif advice.gain is not None:
        clauses.append(f"{_gain(advice.gain)} faster than {policy_phrase(advice.compared_with)}")
    sentences = [", ".join(clauses), _horizon(study)]
    if advice.rivals:
        rivals = listed(map(policy_phrase, advice.rivals))
        sentences.append(f"{rivals} may be faster still, which {counted(advice.num_rounds, 'round')} cannot decide")
    return "; ".join(filter(None, sentences))


def _gain(gain: Interval) -> str:
    if gain.low is None or gain.high is None:
        return factor(gain.middle)
    return f"{factor(gain.middle)} ({factor(gain.low)} to {factor(gain.high)})"


def _horizon(study: ShapeStudy) -> str:
    """The run length from which, or up to which, the advised policy is the fastest."""
    horizon = study.advice.horizon
    if horizon is None:
        return ""
    units = counted(horizon.units, study.unit)
    if horizon.before == study.advice.policy:
        return f"it is the fastest up to about {units}, then {policy_phrase(horizon.after)}"
    return f"it is the fastest from about {units} on, before that {policy_phrase(horizon.before)}"


def _undecided(study: ShapeStudy) -> str:
    advice = study.advice
    if not advice.rivals:
        return f"{policy_phrase(advice.compared_with)} has too few runs"
    rivals = listed(advice.rivals)
    if advice.compared_with:
        verb = "is" if len(advice.rivals) == 1 else "are"
        baseline = policy_phrase(advice.compared_with)
        return f"{rivals} {verb} neither clearly faster nor slower than {baseline}; {_meanwhile(study)}"
    return f"{rivals} has too few runs" if len(advice.rivals) == 1 else f"none of {rivals} is clearly faster"


_WITHOUT_RIVALS = {
    Basis.STATIC: "no size varies and nothing recompiles, so no other policy can save time",
    Basis.NOT_MEASURED: "no other policy was measured",
    Basis.FAILED: "every other policy failed",
    Basis.SAME_CODE: "every other policy failed or compiles exactly the same code",
}


def _reason_without_rivals(study: ShapeStudy) -> str:
    advice = study.advice
    text = next((words for basis, words in _WITHOUT_RIVALS.items() if basis == advice.basis), "")
    needed = advice.requirement.kind if advice.requirement is not None else ""
    if needed == Need.FULL_RUN:
        return f"{text} before the interruption"
    if needed == Need.BUDGET:
        text = f"{text} before the budget ran out"
        return f"{text}; {_meanwhile(study)}" if study.standing else text
    return text


def needs(study: ShapeStudy) -> str:
    """What would make an inconclusive study conclusive; empty if it is conclusive."""
    advice = study.advice
    if not advice.basis:
        return advice.needs
    needed = advice.requirement
    if needed is None:
        return ""
    budget = f"--budget {duration_flag(needed.budget_seconds)}"
    if needed.kind == Need.BUDGET:
        return budget
    if needed.kind == Need.FULL_RUN:
        return "a run that is not interrupted"
    if needed.kind == Need.LESS_NOISE:
        return "more rounds will not decide it: the difference is smaller than this machine's timing noise"
    rounds = f"about {counted(needed.num_rounds, 'more round')}"
    return f"{rounds}, {duration_flag(needed.seconds)}: {budget}" if needed.seconds else rounds


def how_measured(study: ShapeStudy) -> str:
    runs = sorted({p.num_runs for p in study.policies if p.num_runs and not p.failed})
    if not runs:
        return ""
    most = counted(runs[-1], "run") if runs[-1] > 1 else "one run"
    number = most if len(runs) == 1 else f"{runs[0]} to {most}"
    intervals = ", 95 % confidence intervals" if runs[-1] > 1 else " (no confidence interval)"
    total = "~ marks totals estimated beyond them" if is_estimated(study) else "all times are observed"
    return f"{counted(study.num_units, study.unit)} per policy, {number} each{intervals}; {total}"


def crossover(study: ShapeStudy, c: Crossover) -> str:
    units = counted(c.units, study.unit)
    return f"{policy_phrase(c.before)} is the fastest up to {units}, then {policy_phrase(c.after)}"


def branch(study: ShapeStudy, b: Branch) -> str:
    """A question of the decision tree, its answer for this program, and the fact behind the answer."""
    question, answer, evidence = branch_cells(study, b)
    return f"{question} {answer}" + (f": {evidence}" if evidence else "")


def branch_cells(study: ShapeStudy, b: Branch) -> tuple[str, str, str]:
    """(question, answer, evidence)."""
    if b.kind == Question.IS_FIXED:
        return "Is the tensor shape fixed?", *_fixed_shape(b)
    if b.kind == Question.IS_FREQUENT:
        values = counted(b.num_values, "value")
        if b.is_yes:
            answer = f"yes: use dynamic shapes, a graph for each of {values} does not pay off"
        else:
            answer = f"no: {values}, each could have its own graph"
        return "Does it change frequently?", answer, f"{row(b.names)} took {values} in {counted(b.num_calls, 'call')}"
    if b.kind == Question.IS_BUCKETED:
        return "Would padding or buckets work?", *_buckets(b)
    if b.kind == Question.IS_MEASURED:
        policy = study.advice.policy
        return "What did the measurement show?", policy_label(policy) if policy else INCONCLUSIVE, reason(study)
    return b.question, b.answer, b.evidence


def _fixed_shape(b: Branch) -> tuple[str, str]:
    """(answer, evidence)."""
    if b.is_yes is None:
        return "not measured", "the sizes of the calls could not be recorded"
    if b.is_yes:
        evidence = f"{b.num_sources:,} sizes and numbers over {counted(b.num_calls, 'call')}, none took a second value"
        return "yes: one graph is enough, dynamic=False is safe", evidence
    more = b.num_varying - len(b.names)
    names = row(b.names) + and_more(more) if more > 0 else listed(b.names)
    verb = "varies" if b.num_varying == 1 else "vary"
    return "no", f"{names} {verb}; sizes and numbers recorded: {b.num_sources:,}"


def _buckets(b: Branch) -> tuple[str, str]:
    """(answer, evidence). A redacted study has no edges."""
    number = len(b.edges)
    answer = f"{counted(number, 'bucket')} at {row(b.edges)}: {counted(number, 'compile')}" if b.edges else "yes"
    share = "an unknown share" if b.waste_share is None else f"{b.waste_share:.0%}"
    waste = f"{share} of the padded {row(b.names)} would be padding (estimated from the recorded sizes, not run)"
    return answer, f"{waste}; try torchtriage.bucketed"


def with_sentences(study: ShapeStudy) -> ShapeStudy:
    """The study with its sentences filled in, for JSON; those of an older version stay as they are."""
    branches = []
    for b in study.branches:
        question, answer, evidence = branch_cells(study, b)
        branches.append(replace(b, question=question, answer=answer, evidence=evidence))
    advice = study.advice
    if advice.basis:
        advice = replace(advice, text=f"{verdict(study)}: {reason(study)}", needs=needs(study))
    return replace(study, advice=advice, branches=branches)


def size(s: VaryingSize) -> str:
    """A varying size: its name, its values, and whether it is marked."""
    values = row(size_values(s))
    more = " ..." if s.num_values > MAX_VALUES else ""
    took = f"took {values}{more}" if values else "varied"
    counts = f"{counted(s.num_values, 'value')} in {counted(s.num_calls, 'call')}"
    return "; ".join([f"{size_name(s)} {took} ({counts})", *size_marks(s)])


def size_marks(s: VaryingSize) -> list[str]:
    return ["marked"] * s.is_marked + [s.why_not] * bool(s.why_not)


def size_values(s: VaryingSize) -> list[str]:
    """The most frequent values, each with its number of calls unless all occurred once."""
    has_repeats = any(number > 1 for number in s.values.values())
    texts = [f"{value} ({number:,}x)" if has_repeats else value for value, number in s.values.items()]
    return texts[:MAX_VALUES]


def size_name(s: VaryingSize) -> str:
    """With torch's name of the source, which is the one that its settings accept."""
    return s.source if s.dim is None else f"{s.source}.size({s.dim})"


def functions(study: ShapeStudy) -> list[tuple[str, str]]:
    """(compiled function, its best policy)."""
    return [(function, policy_label(policy)) for function, policy in study.by_function.items()]


def overrides(study: ShapeStudy) -> list[tuple[str, Sequence[str]]]:
    """(policy, the calls whose own dynamic= it overrode)."""
    return [(policy_label(p.name), p.overridden) for p in study.policies if p.overridden]


def spent(study: ShapeStudy) -> str:
    num_runs = sum(p.num_runs for p in study.policies)
    runs = f" on {counted(num_runs, 'timed run')}" if num_runs else ""
    program = f" of {shlex.join(study.command)}" if runs and study.command else ""
    return f"{duration(study.seconds_spent)}{runs}{program}" + (f", torch {study.torch}" if study.torch else "")


def _remarks(p: PolicyResult, has_repeats: bool) -> Iterator[str]:
    if p.failed:
        yield f"failed: {p.failed}"
    if p.num_eager_calls:
        yield f"{counted(p.num_eager_calls, 'call')} ran eagerly after the recompile limit"
    if p.still_compiling:
        yield "still compiling in the second half of its run: a longer run costs more than its steady time suggests"
    if has_repeats and p.num_runs == 1 and not p.failed:
        yield "ran once (no confidence interval)"
    yield from p.notes


def _middle(interval: Interval | None) -> str:
    return NOTHING if interval is None else duration(interval.middle)


def _brief(interval: Interval | None) -> str:
    """`1.23 ms ±3%`: the distance to the farther end of the interval."""
    if interval is None or interval.low is None or interval.high is None or not interval.middle:
        return _middle(interval)
    reach = max(interval.high - interval.middle, interval.middle - interval.low) / interval.middle
    return f"{duration(interval.middle)} ±{reach:.0%}" if math.isfinite(reach) else duration(interval.middle)


def _full(interval: Interval | None) -> str:
    """`1.23 ms (1.20 to 1.27)`."""
    if interval is None or interval.low is None or interval.high is None:
        return _middle(interval)
    unit = time_unit(interval.middle)
    low, high = (duration_in(unit, end, with_unit=False) for end in (interval.low, interval.high))
    return f"{duration_in(unit, interval.middle)} ({low} to {high})"


def _memory(number: int | None) -> str:
    if number is None:
        return NOTHING
    return f"{number / 2**20:,.0f} MiB" if number < 10 * 2**30 else f"{number / 2**30:,.1f} GiB"

"""Turns a ranking into one recommendation, or into a refusal with the cost of settling the question."""

from collections.abc import Mapping, Sequence

from torchtriage.diagnosis.recompiles.guard_text import readable
from torchtriage.findings.shape_study import (
    Advice,
    Basis,
    Branch,
    Crossover,
    Interval,
    Need,
    Question,
    Requirement,
    VaryingSize,
)
from torchtriage.shapes.functions.edges import best_edges
from torchtriage.shapes.verdict.ranking import TOLERANCE, Ranking

BUDGET_MARGIN = 1.2     # the recommended budget over the estimated time, since rounds vary in length


def advise(
    ranking: Ranking, crossovers: Sequence[Crossover], num_planned: int, settings: Mapping[str, Sequence[str]], *,
    round_seconds: float = 0.0, spent_seconds: float = 0.0,
) -> Advice:
    """The simplest policy that is as good as any other.

    If the rounds do not decide that, the policy that seems to be, provided that it clearly beats the baseline.
    `settings`: policy -> the lines or the variable that select it. `round_seconds`: of another round of the policies
    still in the race, 0 if unknown.
    """
    settled = ranking.settled()
    policy = settled or ranking.guess()
    requirement = None if settled else more_rounds(ranking, round_seconds, spent_seconds)
    num_rounds = len({number for by_round in ranking.totals.values() for number in by_round})
    if not policy:
        rivals = tuple(name for name in ranking.running() if name != ranking.baseline)
        return Advice(
            basis=Basis.MEASURED, compared_with=ranking.baseline, rivals=rivals, num_rounds=num_rounds,
            tolerance=TOLERANCE, requirement=requirement,
        )
    rivals = ()
    if not settled:
        rivals = tuple(name for name in ranking.running() if ranking.may_be_faster(name, policy))
    compared_with, gain = _gain(policy, ranking)
    return Advice(
        policy=policy, setting=settings.get(policy, ()), basis=Basis.MEASURED, total_seconds=ranking.middle(policy),
        compared_with=compared_with, gain=gain, tolerance=TOLERANCE, rivals=rivals, num_rounds=num_rounds,
        horizon=_horizon(policy, crossovers, num_planned), requirement=requirement,
    )


def _gain(policy: str, ranking: Ranking) -> tuple[str, Interval | None]:
    """(the baseline, its total over that of the policy); without a baseline, the runner-up if it is slower."""
    if policy == ranking.baseline:
        return "", None
    if ranking.baseline in ranking.totals:
        return ranking.baseline, ranking.ratio(ranking.baseline, policy)
    ratios = []
    for other in ranking.totals:
        ratio = ranking.ratio(other, policy)
        if other != policy and ratio is not None:
            ratios.append((ratio.middle, other))
    if not ratios or min(ratios)[0] <= 1:
        return "", None
    middle, runner_up = min(ratios)
    return runner_up, Interval(middle=middle)


def _horizon(policy: str, crossovers: Sequence[Crossover], num_planned: int) -> Crossover | None:
    """Where the policy stops being the fastest beyond the planned units; else where it starts to be."""
    for crossover in crossovers:
        if crossover.before == policy and crossover.units > num_planned:
            return crossover
    return next((crossover for crossover in crossovers if crossover.after == policy), None)


def more_rounds(ranking: Ranking, round_seconds: float, spent_seconds: float) -> Requirement:
    """The rounds that would decide it."""
    num_rounds = ranking.more_rounds()
    if num_rounds is None:
        return Requirement(kind=Need.LESS_NOISE)
    seconds = num_rounds * round_seconds
    budget = BUDGET_MARGIN * (spent_seconds + seconds) if seconds else 0.0
    return Requirement(kind=Need.ROUNDS, num_rounds=num_rounds, seconds=seconds, budget_seconds=budget)


FEW_SHAPES = 8      # torch's default limit of graphs per function
NUM_BUCKETS = 4
MAX_NAMED = 3


def decision_tree(sizes: Sequence[VaryingSize] | None, num_sources: int, num_calls: int) -> list[Branch]:
    """The questions that lead to a policy, each with the facts that answer it.

    `sizes`: those that vary; None if they could not be recorded.
    """
    measured = Branch(kind=Question.IS_MEASURED)
    if sizes is None:
        return [Branch(kind=Question.IS_FIXED), measured]
    if not sizes:
        return [Branch(kind=Question.IS_FIXED, is_yes=True, num_sources=num_sources, num_calls=num_calls), measured]
    ordered = sorted(sizes, key=lambda size: -size.num_values)
    most = ordered[0]
    branches = [
        Branch(
            kind=Question.IS_FIXED, is_yes=False, names=[_name(size) for size in ordered[:MAX_NAMED]],
            num_varying=len(sizes), num_sources=num_sources, num_calls=num_calls,
        ),
        Branch(
            kind=Question.IS_FREQUENT, is_yes=most.num_values > FEW_SHAPES, names=[_name(most)],
            num_values=most.num_values, num_calls=most.num_calls,
        ),
    ]
    buckets = _buckets(most)
    if buckets is not None:
        branches.append(buckets)
    return [*branches, measured]


def _name(size: VaryingSize) -> str:
    """x.size(1), or n for a number."""
    name = readable(size.source)
    return name if size.dim is None else f"{name}.size({size.dim})"


def _buckets(size: VaryingSize) -> Branch | None:
    """The bucket edges that would pad least; None for a number, or if not every value is listed."""
    histogram = {int(value): num_calls for value, num_calls in size.values.items() if value.isdigit()}
    if size.dim is None or len(histogram) < size.num_values or size.num_values < 2:
        return None
    edges, waste_share = best_edges(histogram, min(NUM_BUCKETS, size.num_values - 1))
    return Branch(
        kind=Question.IS_BUCKETED, is_yes=True, names=[_name(size)], num_values=size.num_values,
        num_calls=size.num_calls, edges=edges, waste_share=waste_share,
    )

"""From a ranking to one recommendation, or to the refusal and what would settle it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.recompiles.guard_text import readable
from torchtriage.findings.shape_study import Advice, Branch, Crossover, Interval, VaryingSize
from torchtriage.shapes.functions.edges import best_edges
from torchtriage.shapes.verdict.ranking import TOLERANCE, Ranking
from torchtriage.text import counted, duration, duration_flag, factor, listed

NOT_SETTLED = "not settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the advice is for, and what measuring costs."""

    unit: str
    num_planned: int
    settings: Mapping[str, Sequence[str]]           # policy -> the lines or the variable that bring it about
    round_seconds: float = 0.0                      # of another round of the policies still in the race; 0: not known
    spent_seconds: float = 0.0


def advise(ranking: Ranking, crossovers: Sequence[Crossover], plan: Plan) -> Advice:
    """The simplest policy that is as good as any; where that is open, the one that seems to be and surely beats as written; else none."""
    settled = ranking.settled()
    chosen = settled or ranking.guess()
    if not chosen:
        return Advice(text=_refusal(ranking), needs=_needs(ranking, plan))
    rivals = [] if settled else [name for name in ranking.running() if ranking.may_be_quicker(name, chosen)]
    num_rounds = len({number for by_round in ranking.totals.values() for number in by_round})
    doubt = f"; {listed(rivals)} may be better still, which {num_rounds} rounds do not settle" if rivals else ""
    text, needs = _verdict(chosen, ranking, crossovers, plan) + doubt, "" if settled else _needs(ranking, plan)
    return Advice(policy=chosen, text=text, setting=plan.settings.get(chosen, ()), needs=needs)


def _verdict(name: str, ranking: Ranking, crossovers: Sequence[Crossover], plan: Plan) -> str:
    took = f"{duration(ranking.middle(name))} for {counted(plan.num_planned, plan.unit)}"
    if name == ranking.baseline:
        text = f"keep it {name}: {took}, and nothing measured is quicker by more than {TOLERANCE:.0%}"
    elif ranking.baseline in ranking.totals:
        gain = ranking.ratio(ranking.baseline, name)
        text = f"{name}: {took}, {_gain_text(gain)} quicker than {ranking.baseline}"
    else:
        text = f"{name}: {took}{_lead_text(name, ranking)}"
    return text + _horizon(name, crossovers, plan)


def _gain_text(gain: Interval | None) -> str:
    assert gain is not None     # what is recommended surely beats the baseline
    ends = f" ({factor(gain.low)} to {factor(gain.high)})" if gain.low is not None and gain.high is not None else ""
    return f"{factor(gain.middle)}{ends}"


def _lead_text(name: str, ranking: Ranking) -> str:
    others = [(ratio.middle, other) for other in ranking.totals if other != name and (ratio := ranking.ratio(other, name)) is not None]
    return f", {factor(min(others)[0])} quicker than {min(others)[1]}" if others and min(others)[0] > 1 else ""


def _horizon(name: str, crossovers: Sequence[Crossover], plan: Plan) -> str:
    """Up to where it holds."""
    for crossover in crossovers:
        if crossover.before == name and crossover.units > plan.num_planned:
            return f"; it wins up to about {counted(crossover.units, plan.unit)}, then {crossover.after}"
    for crossover in crossovers:
        if crossover.after == name:
            return f"; it wins from about {counted(crossover.units, plan.unit)} on, before that {crossover.before}"
    return ""


def _refusal(ranking: Ranking) -> str:
    rivals = [name for name in ranking.running() if name != ranking.baseline]
    if not rivals:
        return f"{NOT_SETTLED}: {ranking.leader} was not measured often enough"
    if not ranking.baseline:
        return f"{NOT_SETTLED}: {listed(rivals)} were not told apart"
    were = "was" if len(rivals) == 1 else "were"
    return f"{NOT_SETTLED}: {listed(rivals)} {were} not told apart from {ranking.baseline}; keep it until then"


def _needs(ranking: Ranking, plan: Plan) -> str:
    """How long a run would settle it."""
    more = ranking.more_rounds()
    if more is None:
        return "repeating does not settle it in any reasonable time: the policies lie too close together for the noise of this machine"
    text = f"about {more} more round{'s' * (more > 1)}"
    if not plan.round_seconds:
        return text
    seconds = more * plan.round_seconds
    return f"{text}, {duration_flag(seconds)}: --budget {duration_flag(1.2 * (plan.spent_seconds + seconds))}"


FEW_SHAPES = 8      # torch's default limit of graphs for one function
NUM_BUCKETS = 4
MAX_NAMED = 3
IS_FIXED = "Is the tensor shape fixed?"


def decision_tree(sizes: Sequence[VaryingSize] | None, num_sources: int, num_calls: int, advice: Advice) -> list[Branch]:
    """Each question on the way, its answer, and the fact behind it. `sizes`: those that vary; None if they could not be seen."""
    verdict = advice.policy or NOT_SETTLED
    measured = Branch(question="What did the measurement say?", answer=verdict, evidence=advice.text.removeprefix(f"{verdict}: "))
    if sizes is None:
        return [Branch(question=IS_FIXED, answer="not measured", evidence="the sizes of the calls could not be seen"), measured]
    if not sizes:
        evidence = f"{num_sources} sizes and numbers were seen over {num_calls} calls, none took a second value"
        return [Branch(question=IS_FIXED, answer="yes: one graph is enough, dynamic=False is safe", evidence=evidence), measured]
    most = max(sizes, key=lambda size: size.num_values)
    names = [name_of(size) for size in sorted(sizes, key=lambda size: -size.num_values)[:MAX_NAMED]]
    more = f" and {len(sizes) - MAX_NAMED} more" if len(sizes) > MAX_NAMED else ""
    evidence = f"{listed(names)}{more} {'varies' if len(sizes) == 1 else 'vary'}; sizes and numbers seen: {num_sources}"
    fixed = Branch(question=IS_FIXED, answer="no", evidence=evidence)
    if most.num_values > FEW_SHAPES:
        often = f"yes: dynamic shapes, a graph for each of {most.num_values} values does not pay"
    else:
        often = f"no: {most.num_values} values, each could have a graph of its own"
    changes = Branch(
        question="Does it change frequently?", answer=often,
        evidence=f"{name_of(most)} took {most.num_values:,} values in {most.num_calls:,} calls",
    )
    buckets = _buckets(most)
    return [branch for branch in (fixed, changes, buckets, measured) if branch is not None]


def name_of(size: VaryingSize) -> str:
    """x.size(1), or n for a number."""
    name = readable(size.source)
    return name if size.dim is None else f"{name}.size({size.dim})"


def _buckets(size: VaryingSize) -> Branch | None:
    """Which bucket edges would waste least, if the sizes are known in full."""
    known = {int(value): number for value, number in size.values.items() if value.isdigit()}
    if size.dim is None or len(known) < size.num_values or size.num_values < 2:
        return None
    num_buckets = min(NUM_BUCKETS, size.num_values - 1)
    edges, waste = best_edges(known, num_buckets)
    where = f"{num_buckets} bucket{'s' * (num_buckets > 1)} at {', '.join(map(str, edges))}"
    return Branch(
        question="Would padding or buckets do?", answer=f"{where}: {num_buckets} compile{'s' * (num_buckets > 1)}",
        evidence=f"{waste:.0%} of the padded {name_of(size)} would be padding (estimated from the sizes seen; not run). "
                 "Try it with torchtriage.bucketed",
    )

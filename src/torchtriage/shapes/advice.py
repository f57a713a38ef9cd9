"""From a ranking to one recommendation, or to the refusal and what would settle it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchtriage.findings.shape_study import Advice, Crossover, Interval
from torchtriage.shapes.ranking import TOLERANCE, Ranking
from torchtriage.shapes.wording import listed, minutes_text, seconds_text, times_text, units_text

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
    took = f"{seconds_text(ranking.middle(name))} for {units_text(plan.num_planned, plan.unit)}"
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
    ends = f" ({times_text(gain.low)} to {times_text(gain.high)})" if gain.low is not None and gain.high is not None else ""
    return f"{times_text(gain.middle)}{ends}"


def _lead_text(name: str, ranking: Ranking) -> str:
    others = [(ratio.middle, other) for other in ranking.totals if other != name and (ratio := ranking.ratio(other, name)) is not None]
    return f", {times_text(min(others)[0])} quicker than {min(others)[1]}" if others and min(others)[0] > 1 else ""


def _horizon(name: str, crossovers: Sequence[Crossover], plan: Plan) -> str:
    """Up to where it holds."""
    for crossover in crossovers:
        if crossover.before == name and crossover.units > plan.num_planned:
            return f"; it wins up to about {units_text(crossover.units, plan.unit)}, then {crossover.after}"
    for crossover in crossovers:
        if crossover.after == name:
            return f"; it wins from about {units_text(crossover.units, plan.unit)} on, before that {crossover.before}"
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
    return f"{text}, {minutes_text(seconds)}: --budget {minutes_text(1.2 * (plan.spent_seconds + seconds))}"

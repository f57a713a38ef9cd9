"""Trials made by hand."""

from collections.abc import Sequence
from typing import Any

from torchtriage.shapes.policies import ShapePolicy, baseline_policy
from torchtriage.shapes.runs.trial import Lane, Trial
from torchtriage.shapes.verdict.race import Race


def trial(
    policy: str, number: int = 1, *, startup: float = 1.0, rate: float = 0.1, units: int = 10, **more: Any
) -> Trial:
    """A compile in the first call, then calls that all take the same."""
    seconds = [startup + rate, *([rate] * (units - 1))]
    return Trial(
        policy=policy,
        round=number,
        **{"functions": {"f": Lane.of(seconds, [1, *([0] * (units - 1))])}, "seconds": 5.0, **more},
    )


def rounds(policy: str, totals: Sequence[float], **more: Any) -> list[Trial]:
    """One trial per round, each of ten calls with this total."""
    return [trial(policy, number, startup=0.0, rate=total / 10, **more) for number, total in enumerate(totals, start=1)]


def race(**totals: list[float]) -> Race:
    """The policies with their totals by round; `w` is the baseline."""
    found = Race()
    found.enter(baseline_policy())
    for name, values in {"as written": totals.pop("w"), **totals}.items():
        found.enter(ShapePolicy(name=name))
        for one in rounds(name, values):
            found.add(one)
    return found

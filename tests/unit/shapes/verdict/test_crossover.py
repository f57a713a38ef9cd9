"""A crossover is reported only where the start as well as the rate differ for certain."""

import pytest

from tests.unit.shapes.trial_samples import trial
from torchtriage.findings.shape_study import Crossover
from torchtriage.shapes.runs.trial import Lane, Trial, common_span
from torchtriage.shapes.verdict.crossover import crossovers, rounded


def found(**lines: tuple[float, float] | list[tuple[float, float]]) -> list[Crossover]:
    """name -> (startup, rate), or one such pair a round."""
    trials = {
        name: [
            trial(name, number, startup=s, rate=r)
            for number, (s, r) in enumerate(pairs if isinstance(pairs, list) else [pairs] * 3, 1)
        ]
        for name, pairs in lines.items()
    }
    return crossovers(trials, common_span([t for runs in trials.values() for t in runs]))


def test_the_lower_startup_wins_first_and_the_lower_rate_later() -> None:
    assert found(dynamic=(1.0, 0.002), static=(9.0, 0.001)) == [Crossover(units=8000, before="dynamic", after="static")]


def test_three_policies_may_lead_one_after_the_other() -> None:
    assert found(a=(1.0, 0.4), b=(2.0, 0.2), c=(20.0, 0.1)) == [
        Crossover(units=5, before="a", after="b"), Crossover(units=180, before="b", after="c"),
    ]


def test_a_policy_that_is_better_in_both_is_never_overtaken() -> None:
    assert found(a=(1.0, 0.1), b=(2.0, 0.2)) == []


def test_overlapping_rates_have_no_crossover() -> None:
    assert found(a=[(1.0, 0.2), (1.0, 0.1), (1.0, 0.15)], b=[(5.0, 0.1), (5.0, 0.16), (5.0, 0.12)]) == []


def test_one_round_has_no_crossover() -> None:
    assert found(a=[(1.0, 0.2)], b=[(5.0, 0.1)]) == []


def test_a_policy_that_keeps_compiling_has_no_crossover() -> None:
    late = [Trial(policy="b", round=n, functions={"f": Lane.of([3.0, *([0.05] * 9)], [1] * 10)}) for n in (1, 2, 3)]
    early = [trial("a", n, startup=1.0, rate=0.1) for n in (1, 2, 3)]
    assert crossovers({"a": early, "b": late}, common_span([*early, *late])) == []


@pytest.mark.parametrize(("units", "expected"), [(41_234.0, 41_000), (7.4, 7), (12.0, 12), (129.0, 130), (1.2, 1)])
def test_a_crossover_is_given_to_two_digits(units: float, expected: int) -> None:
    assert rounded(units) == expected

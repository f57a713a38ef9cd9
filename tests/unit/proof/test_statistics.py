"""Intervals hold what they promise, and more rounds are asked for only where they help."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.proof.statistics import interval, levels, noise_of, paired_ratio, rounds_to_decide, t_quantile

TIMES = st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=12)


@given(TIMES)
def test_the_median_is_within_the_interval(values: list[float]) -> None:
    found = interval(values)
    assert (found.low or 0.0) <= found.middle <= (found.high or 0.0)


@given(TIMES, st.floats(1e-3, 1e3))
def test_an_interval_scales_with_its_values(values: list[float], factor: float) -> None:
    one, scaled = interval(values), interval([factor * value for value in values])
    assert scaled.middle == pytest.approx(factor * one.middle)
    assert one.high is not None
    assert scaled.high == pytest.approx(factor * one.high, rel=1e-6)


def test_one_value_has_no_interval() -> None:
    assert (interval([3.0]).middle, interval([3.0]).low, interval([3.0]).high) == (3.0, None, None)


def test_three_values_by_hand() -> None:
    found = interval([1.0, math.e, math.e**2])
    assert found.middle == math.e
    assert found.low == pytest.approx(math.exp(1 - 4.303 / math.sqrt(3)))


def test_a_value_of_zero_gives_the_range() -> None:
    assert (interval([0.0, 1.0, 2.0]).low, interval([0.0, 1.0, 2.0]).high) == (0.0, 2.0)


def test_a_slowdown_of_an_entire_round_cancels_out() -> None:
    ratio = paired_ratio({1: 2.0, 2: 20.0, 3: 4.0}, {1: 1.0, 2: 10.0, 3: 2.0})
    assert ratio is not None
    assert ratio.low == pytest.approx(2.0)
    assert ratio.high == pytest.approx(2.0)


def test_only_common_rounds_count() -> None:
    ratio = paired_ratio({1: 2.0, 2: 9.0}, {1: 1.0, 3: 1.0})
    assert ratio is not None
    assert (ratio.middle, ratio.low) == (2.0, None)
    assert paired_ratio({1: 1.0}, {2: 1.0}) is None


def test_the_interval_of_a_ratio_contains_the_truth_95_times_in_100() -> None:
    rng, held = random.Random(1), 0
    for _ in range(400):
        pairs = {n: math.exp(rng.gauss(math.log(1.1), 0.08)) for n in range(1, 5)}
        ratio = paired_ratio(pairs, dict.fromkeys(pairs, 1.0))
        assert ratio is not None
        held += (ratio.low or 0.0) <= 1.1 <= (ratio.high or 0.0)
    assert 365 <= held <= 395


def test_the_quantiles_approach_the_normal_one() -> None:
    quantiles = [t_quantile(n) for n in range(1, 200)]
    assert quantiles == sorted(quantiles, reverse=True)
    assert t_quantile(31) == pytest.approx(2.040, abs=0.01)
    assert t_quantile(10_000) == pytest.approx(1.960, abs=0.001)


def test_clear_differences_need_no_more_rounds_and_noisy_ones_do() -> None:
    ones = {1: 1.0, 2: 1.0, 3: 1.0}
    assert rounds_to_decide({1: 2.0, 2: 2.1, 3: 1.9}, ones, 1.05, 0.01) == 3
    assert rounds_to_decide({1: 0.5, 2: 0.51, 3: 0.49}, ones, 1.05, 0.01) == 3
    noisy = rounds_to_decide({1: 0.8, 2: 1.1, 3: 0.9}, ones, 1.05, 0.01)
    assert noisy is not None
    assert 5 < noisy < 60
    assert rounds_to_decide({1: 1.0}, ones, 1.05, 0.01) is None


def test_no_number_of_rounds_is_given_for_a_ratio_at_the_edge() -> None:
    at_the_edge, ones = {1: 2.1, 2: 0.525, 3: 1.05}, {1: 1.0, 2: 1.0, 3: 1.0}
    assert rounds_to_decide(at_the_edge, ones, 1.05, 0.01) is None
    assert rounds_to_decide({1: 1.05, 2: 1.06, 3: 1.04}, ones, 1.05, 0.01) is not None  # a narrow interval is enough


def noisy_rounds(
    rng: random.Random, levels: dict[str, float], num_rounds: int, spread: float = 0.08
) -> dict[str, dict[int, float]]:
    """What each policy takes in each round; a round as a whole may be half or twice as slow."""
    slow = {n: rng.uniform(0.5, 2.0) for n in range(1, num_rounds + 1)}
    return {name: {n: level * slow[n] * math.exp(rng.gauss(0, spread)) for n in slow} for name, level in levels.items()}


def test_noise_is_the_residual_after_policies_and_rounds() -> None:
    exact = noise_of(noisy_rounds(random.Random(0), {"a": 1.0, "b": 2.0, "c": 7.0}, 3, spread=0.0), paired=True)
    assert exact is not None
    assert exact.spread == pytest.approx(0, abs=1e-12)
    assert exact.degrees == 4
    many = noise_of(noisy_rounds(random.Random(0), {"a": 1.0, "b": 2.0, "c": 7.0}, 400), paired=True)
    assert many is not None
    assert many.spread == pytest.approx(0.08, rel=0.1)
    unpaired = noise_of({"a": {1: 1.0, 2: math.e}, "b": {1: 2.0, 2: 2 * math.e}}, paired=False)
    assert unpaired is not None
    assert (unpaired.degrees, unpaired.spread) == (2, pytest.approx(math.sqrt(0.5)))


def test_an_eliminated_policy_counts_for_the_rounds_it_ran() -> None:
    rounds = noisy_rounds(random.Random(3), {"a": 1.0, "b": 2.0, "c": 9.0}, 5, spread=0.0)
    del rounds["c"][4], rounds["c"][5]
    found = noise_of(rounds, paired=True)
    assert found is not None
    assert found.degrees == 13 - 3 - 4
    assert found.spread == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("measured", [{}, {"a": {1: 1.0}}, {"a": {1: 1.0}, "b": {1: 2.0}}, {"a": {1: 1.0, 2: 3.0}}])
def test_noise_is_unknown_without_a_degree_of_freedom(measured: dict[str, dict[int, float]]) -> None:
    assert noise_of(measured, paired=True) is None


def test_pooled_intervals_contain_the_truth_and_are_narrower() -> None:
    rng, held, pooled, alone = random.Random(2), 0, 0.0, 0.0
    for _ in range(400):
        rounds = noisy_rounds(rng, {"a": 1.1, "b": 1.0, "c": 2.0, "d": 3.0}, 3)
        ratio, own = (
            paired_ratio(rounds["a"], rounds["b"], noise_of(rounds, paired=True)),
            paired_ratio(rounds["a"], rounds["b"]),
        )
        assert ratio is not None
        assert own is not None
        held += (ratio.low or 0.0) <= 1.1 <= (ratio.high or 0.0)
        pooled += math.log((ratio.high or 0.0) / (ratio.low or 1.0))
        alone += math.log((own.high or 0.0) / (own.low or 1.0))
    assert 365 <= held <= 395
    assert pooled < 0.8 * alone


SPEEDS = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.1, 100), min_size=1)


@given(SPEEDS, st.lists(st.floats(0.5, 2), min_size=1, max_size=6))
def test_levels_do_not_depend_on_the_speed_of_the_rounds(speeds: dict[str, float], slowness: list[float]) -> None:
    found = levels({name: {n: speed * slow for n, slow in enumerate(slowness)} for name, speed in speeds.items()})
    for name in speeds:
        for other in speeds:
            assert found[name] / found[other] == pytest.approx(speeds[name] / speeds[other])


def test_levels_ignore_slow_rounds_and_outliers() -> None:
    slowness = {1: 2.0, 2: 1.0, 3: 1.0, 4: 1.1, 5: 0.9}
    measured = {
        name: {n: speed * slow for n, slow in slowness.items()}
        for name, speed in (("a", 10.0), ("b", 12.0), ("c", 20.0))
    }
    measured["d"] = {1: 2.0 * 9.0}
    assert levels(measured) == pytest.approx({"a": 10.0, "b": 12.0, "c": 20.0, "d": 9.0})
    measured["a"][3] *= 3
    assert levels(measured) == pytest.approx({"a": 10.0, "b": 12.0, "c": 20.0, "d": 9.0})


def test_no_measurement_has_no_levels() -> None:
    assert levels({}) == levels({"a": {}}) == {}

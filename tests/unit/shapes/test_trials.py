"""What a trial says about units that were run, and about those that were not."""

import pytest

from tests.unit.shapes.trial_samples import trial
from torchtriage.shapes.trials import Lane, Span, Stretch, Trial, common_span, unit_of


def test_a_total_within_the_run_is_observed_and_beyond_it_goes_on_at_the_rate_of_the_second_half() -> None:
    one = Trial(policy="p", round=1, functions={"f": Lane.of([5.0, 1.0, 1.0, 2.0])})
    span = common_span([one])
    assert span.total(one, 2) == 6.0
    assert span.total(one, 4) == 9.0
    assert span.total(one, 6) == 9.0 + 2 * 1.5


def test_startup_and_rate_make_the_total() -> None:
    one = trial("p", startup=3.0, rate=0.5, units=20)
    span = common_span([one])
    assert span.rate(one) == pytest.approx(0.5)
    assert span.startup(one) == pytest.approx(3.0)


def test_a_steady_unit_has_no_compile_in_it_and_is_one_of_the_second_half_if_possible() -> None:
    assert Lane.of([9, 1, 3, 5], [1, 0, 0, 0]).steady(4) == (2, 8)
    assert Lane.of([9, 1, 3, 5], [1, 0, 1, 1]).steady(4) == (1, 1)
    assert Lane.of([9, 1], [1, 1]).steady(2) == (0, 0)


def test_a_compile_in_the_second_half_is_seen() -> None:
    assert Lane.of([1, 1, 1, 1], [1, 0, 0, 1]).compiles_late(4)
    assert not Lane.of([1, 1, 1, 1], [1, 1, 0, 0]).compiles_late(4)
    assert not Lane.of([1, 1, 1, 1], [1, 0, 0, 1]).compiles_late(3)


def test_merged_units_are_taken_in_part() -> None:
    lane = Lane((Stretch(4, 8.0, 1), Stretch(4, 4.0, 0)))
    assert lane.num_units == 8
    assert lane.total(2) == 4.0
    assert lane.total(6) == 10.0


def test_trials_are_compared_over_the_units_that_all_went_through_lane_by_lane() -> None:
    a = Trial(policy="a", round=1, functions={"f": Lane.of([1] * 10), "g": Lane.of([2] * 3)})
    b = Trial(policy="b", round=1, functions={"g": Lane.of([2] * 5), "f": Lane.of([1] * 7)})
    c = Trial(policy="c", round=1, functions={"f": Lane.of([1] * 8), "g": Lane.of([2] * 3), "h": Lane.of([9])})
    span = common_span([a, b, c])
    assert span.lanes == {"f": 7, "g": 3}
    assert span.total(b, span.num_units) == 13
    assert span.total(c, 5) == 6.5      # half of each lane
    assert span.rate(a) == pytest.approx(1.3)
    assert span.steady(a) == pytest.approx(1.3)


def test_a_function_that_one_trial_never_called_is_not_compared() -> None:
    a = Trial(policy="a", round=1, functions={"f": Lane.of([1]), "g": Lane.of([1])})
    assert common_span([a, Trial(policy="b", round=1, functions={"f": Lane.of([1])})]).lanes == {"f": 1}


def test_steps_are_the_units_where_every_trial_has_enough_of_them() -> None:
    with_steps = Trial(policy="a", round=1, steps=Lane.of([1] * 5), functions={"f": Lane.of([1])})
    without = Trial(policy="a", round=2, steps=Lane.of([1] * 4), functions={"f": Lane.of([1])})
    assert unit_of([with_steps]) == "step"
    assert unit_of([with_steps, without]) == "call"
    assert common_span([with_steps]).lanes == {"steps": 5}


def test_no_trial_has_nothing_in_common() -> None:
    assert common_span([]) == Span(unit="step", lanes={})

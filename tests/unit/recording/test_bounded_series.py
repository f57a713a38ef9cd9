"""A series stays within its bound and preserves its total."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.recording.bounded_series import MeanSeries


def filled(values: list[float], max_points: int = 4) -> MeanSeries:
    merged = MeanSeries(max_points)
    for value in values:
        merged.add(value)
    return merged


def test_values_are_exact_up_to_the_bound() -> None:
    series = filled([1.0, 2.0, 3.0, 4.0]).series("call_seconds/0", 1)
    assert (series.name, series.steps, series.values) == ("call_seconds/0", [1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0])


def test_beyond_the_bound_neighbours_become_their_mean() -> None:
    series = filled([1.0, 2.0, 3.0, 4.0, 9.0]).series("x", 1)
    assert (series.steps, series.values) == ([1, 3, 5], [1.5, 3.5, 9.0])


def test_an_empty_series_has_no_points() -> None:
    assert filled([]).series("x", 2).values == []


@given(st.lists(st.integers(0, 9), min_size=1, max_size=100))
def test_the_total_is_preserved(values: list[int]) -> None:
    series = filled(list(map(float, values))).series("x", 1)
    ends = [*series.steps[1:], len(values) + 1]
    assert len(series.values) <= 4
    total = sum(value * (end - start) for start, end, value in zip(series.steps, ends, series.values, strict=True))
    assert total == pytest.approx(sum(values))

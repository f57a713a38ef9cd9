"""The series of a parameter are combined from those of its shards."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from torchtriage.recording.recording import Process, Series
from torchtriage.recording.shards import with_complete_series


def rank(place: int, elements: Mapping[str, int], series: Mapping[str, Mapping[int, float]], size: int = 2) -> Process:
    shards: dict[str, Any] = {"ranks": list(range(size)), "place": place, "elements": dict(elements)}
    recorded = {}
    for name, values in series.items():
        recorded[name] = Series(name=name, steps=list(map(float, values)), values=list(values.values()))
    return Process(facts={"rank": place, "telemetry": {"shards": shards}}, series=recorded)


def points(process: Process, name: str) -> dict[float, float]:
    return dict(zip(process.series[name].steps, process.series[name].values, strict=True))


def test_norms_and_fractions_of_shards_combine_at_common_steps() -> None:
    first, second = with_complete_series([
        rank(
            0, {"w": 3},
            {"shard_grad_norm/w": {1: 3.0, 2: 1.0, 4: 6.0}, "shard_grad_zero_fraction/w": {1: 0.0}, "loss": {1: 2.0}},
        ),
        rank(1, {"w": 1}, {"shard_grad_norm/w": {1: 4.0, 3: 1.0, 4: 8.0}, "shard_grad_zero_fraction/w": {1: 1.0}}),
    ])
    assert points(first, "grad_norm/w") == {1: 5.0, 4: 10.0}
    assert points(first, "grad_zero_fraction/w") == {1: 0.25}
    assert points(first, "loss") == {1: 2.0}
    assert set(second.series) == {
        "shard_grad_norm/w", "shard_grad_zero_fraction/w",
    }        # the first describes the entire tensor, the others do not


def test_a_rank_without_elements_of_a_tensor_is_not_needed() -> None:
    first, _ = with_complete_series([
        rank(0, {"bias": 1}, {"shard_grad_norm/bias": {1: 2.0}, "shard_grad_norm": {1: 2.0}}),
        rank(1, {"bias": 0}, {"shard_grad_norm": {1: 0.0}}),
    ])
    assert points(first, "grad_norm/bias") == {1: 2.0}
    assert points(first, "grad_norm") == {1: 2.0}


def test_a_nan_or_inf_in_a_shard_is_one_in_the_complete_series() -> None:
    parts = {"shard_grad_norm/w": {1: math.nan, 2: math.inf}}, {"shard_grad_norm/w": {1: math.inf, 2: 1.0}}
    first, _ = with_complete_series([rank(place, {"w": 1}, part) for place, part in enumerate(parts)])
    assert math.isnan(points(first, "grad_norm/w")[1])
    assert points(first, "grad_norm/w")[2] == math.inf


def test_values_that_the_ranks_combined_themselves_are_used() -> None:
    first, _ = with_complete_series([
        rank(0, {"w": 1}, {"grad_norm/w": {1: 5.0}, "shard_grad_norm/w": {2: 3.0}}),
        rank(1, {"w": 1}, {"shard_grad_norm/w": {2: 4.0}}),
    ])
    assert points(first, "grad_norm/w") == {1: 5.0, 2: 5.0}


@pytest.mark.parametrize(
    "places", [(0,), (0, 0), (0, 1, 1)], ids=["one is missing", "started twice", "one started twice"],
)
def test_without_each_rank_exactly_once_there_is_no_complete_series(places: tuple[int, ...]) -> None:
    for process in with_complete_series([rank(place, {"w": 1}, {"shard_grad_norm/w": {1: 3.0}}) for place in places]):
        assert set(process.series) == {"shard_grad_norm/w"}


def test_a_missing_series_or_shard_changes_nothing() -> None:
    plain = Process(facts={"telemetry": {"level": "NORMAL"}}, series={})
    processes = [rank(0, {"w": 1}, {"shard_grad_norm/w": {1: 3.0}}), rank(1, {"w": 1}, {}), plain, Process()]
    assert with_complete_series(processes) == processes

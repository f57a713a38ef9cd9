"""The norm of a parameter from what each rank recorded of its shard."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from torchtriage.recording.recording import Process, Series
from torchtriage.recording.shards import with_complete_series


def rank(place: int, elements: Mapping[str, int], series: Mapping[str, Mapping[int, float]], size: int = 2) -> Process:
    shards: dict[str, Any] = {"ranks": list(range(size)), "place": place, "elements": dict(elements)}
    return Process(
        facts={"rank": place, "telemetry": {"shards": shards}},
        series={name: Series(name=name, steps=list(map(float, of)), values=list(of.values())) for name, of in series.items()},
    )


def points(process: Process, name: str) -> dict[float, float]:
    return dict(zip(process.series[name].steps, process.series[name].values, strict=True))


def test_norms_and_shares_of_the_parts_make_those_of_the_whole_at_common_steps() -> None:
    first, second = with_complete_series([
        rank(0, {"w": 3}, {"shard_grad_norm/w": {1: 3.0, 2: 1.0, 4: 6.0}, "shard_grad_zero_fraction/w": {1: 0.0}, "loss": {1: 2.0}}),
        rank(1, {"w": 1}, {"shard_grad_norm/w": {1: 4.0, 3: 1.0, 4: 8.0}, "shard_grad_zero_fraction/w": {1: 1.0}}),
    ])
    assert points(first, "grad_norm/w") == {1: 5.0, 4: 10.0}
    assert points(first, "grad_zero_fraction/w") == {1: 0.25}
    assert points(first, "loss") == {1: 2.0}
    assert set(second.series) == {"shard_grad_norm/w", "shard_grad_zero_fraction/w"}        # one tells of the whole, not each


def test_who_holds_nothing_of_a_tensor_or_a_copy_that_does_not_count_is_not_waited_for() -> None:
    first, _ = with_complete_series([
        rank(0, {"bias": 1}, {"shard_grad_norm/bias": {1: 2.0}, "shard_grad_norm": {1: 2.0}}),
        rank(1, {"bias": 0}, {"shard_grad_norm": {1: 0.0}}),
    ])
    assert points(first, "grad_norm/bias") == {1: 2.0}
    assert points(first, "grad_norm") == {1: 2.0}


def test_a_nan_or_inf_in_a_part_is_one_in_the_whole() -> None:
    parts = {"shard_grad_norm/w": {1: math.nan, 2: math.inf}}, {"shard_grad_norm/w": {1: math.inf, 2: 1.0}}
    first, _ = with_complete_series([rank(place, {"w": 1}, part) for place, part in enumerate(parts)])
    assert math.isnan(points(first, "grad_norm/w")[1])
    assert points(first, "grad_norm/w")[2] == math.inf


def test_what_the_ranks_put_together_themselves_stays() -> None:
    first, _ = with_complete_series([
        rank(0, {"w": 1}, {"grad_norm/w": {1: 5.0}, "shard_grad_norm/w": {2: 3.0}}), rank(1, {"w": 1}, {"shard_grad_norm/w": {2: 4.0}}),
    ])
    assert points(first, "grad_norm/w") == {1: 5.0, 2: 5.0}


@pytest.mark.parametrize("places", [(0,), (0, 0), (0, 1, 1)], ids=["one is missing", "started twice", "one started twice"])
def test_without_each_rank_just_once_nothing_is_said_of_the_whole(places: tuple[int, ...]) -> None:
    for process in with_complete_series([rank(place, {"w": 1}, {"shard_grad_norm/w": {1: 3.0}}) for place in places]):
        assert set(process.series) == {"shard_grad_norm/w"}


def test_a_part_without_its_curve_and_processes_without_shards_change_nothing() -> None:
    plain = Process(facts={"telemetry": {"level": "NORMAL"}}, series={})
    processes = [rank(0, {"w": 1}, {"shard_grad_norm/w": {1: 3.0}}), rank(1, {"w": 1}, {}), plain, Process()]
    assert with_complete_series(processes) == processes

"""Ranks with shards of the same tensors report the statistics of the full tensors, and none waits for another."""

import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.telemetry.reference import KINDS, assert_exact, true_row
from torchtriage.telemetry.config import TelemetryConfig
from torchtriage.telemetry.sampling.pace import Pace
from torchtriage.telemetry.sampling.row import GRADS, Label, Sample
from torchtriage.telemetry.sharding import exchange as sharded
from torchtriage.telemetry.sharding.exchange import MAX_BEHIND, PATIENCE_SECONDS, ShardExchange
from torchtriage.telemetry.sharding.merge import merge, sums, tops
from torchtriage.telemetry.sharding.promises import Meeting
from torchtriage.telemetry.statistics.columns import Stat
from torchtriage.telemetry.statistics.plan import statistics

# Tables


def together(parts: Sequence[Any], counts: Sequence[bool], num_elements: int) -> Any:
    """The row of one tensor whose parts lie on as many ranks, without the ranks."""
    rows = [statistics([part])[0][None] for part in parts]
    flags = [np.array([flag]) for flag in counts]
    top_NT = np.max([tops(row, flag) for row, flag in zip(rows, flags, strict=True)], axis=0)
    sum_NA = np.sum([sums(row, flag, top_NT) for row, flag in zip(rows, flags, strict=True)], axis=0)
    return merge(top_NT, sum_NA, np.array([num_elements]))[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cuts", [(10_000,), (0,), (1, 19_000, 19_000)], ids=["even", "all on one", "uneven and empty"])
def test_parts_merge_to_the_row_of_the_full_tensor(kind: str, cuts: tuple[int, ...]) -> None:
    full = KINDS[kind](torch.randn(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    assert_exact(together(full.tensor_split(cuts), [True] * (len(cuts) + 1), 20_000), true_row(full))


def test_part_with_a_distant_mean_loses_no_precision() -> None:
    full = torch.cat([torch.randn(1000).double() + 1e6, torch.randn(3).double() - 1e6, torch.zeros(4000).double()])
    assert_exact(together(full.split([1000, 3, 4000]), [True] * 3, 5003), true_row(full))


@given(values=st.lists(st.floats(width=32), min_size=1, max_size=40), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_merged_row_does_not_depend_on_the_split(values: list[float], cuts: list[int]) -> None:
    full = torch.tensor(values, dtype=torch.float32)
    parts = full.tensor_split(sorted(cuts))
    assert_exact(together(parts, [True] * len(parts), len(values)), true_row(full))


def test_one_of_several_equal_parts_counts_and_a_nan_in_any_is_reported() -> None:
    first, second = torch.arange(3.0), torch.arange(3.0, 6.0)
    sick = torch.tensor([math.nan, 1.0, 2.0])
    row = together([first, second, sick, second], [True, True, False, False], 6)
    assert row[Stat.NUM_NAN] == 1
    assert row[Stat.NUM_ELEMENTS] == 6
    assert row[Stat.NORM] == pytest.approx(torch.arange(6.0).norm().item(), rel=1e-6)


@pytest.mark.parametrize("counts", [[True, False], [True, True, True]], ids=["one is missing", "one is there twice"])
def test_tensor_with_a_missing_or_repeated_part_has_no_row(counts: list[bool]) -> None:
    assert not together([torch.ones(3)] * len(counts), counts, 6).any()


# Meetings


def test_a_promise_can_be_taken_back_until_all_have_promised() -> None:
    store = dist.HashStore()
    a, b = Meeting(store, 0, 2), Meeting(store, 1, 2)
    a.promise("x")
    assert not a.is_on("x")
    assert a.take_back("x")
    b.promise("x")
    assert not b.is_on("x")
    assert b.take_back("x")
    a.promise("y")
    b.promise("y")
    assert a.is_on("y")
    assert not b.take_back("y")
    assert a.is_on("y")


# Ranks, as threads of this process


class Rank:
    """One of `size` ranks that hold equal parts of one tensor; `samples` are the unread samples of its track."""

    def __init__(self, place: int, size: int, store: Any) -> None:
        self.now = 0.0
        self.samples: deque[Sample] = deque()
        self.pace = Pace(TelemetryConfig())
        reader = SimpleNamespace(
            samples=self._read, observation=lambda sample, is_merged=False: (sample.label.update, is_merged, sample),
        )
        track: Any = SimpleNamespace(
            names=("p", "plain"),
            ranks=tuple(range(size)),
            place=place,
            shard_P=np.array([True, False]),
            groups={"all": [0, 1]},
            counts_P=np.array([True, place == 0]),
            parameters=[torch.zeros(2 * size), torch.zeros(1)],
            reader=reader,
        )
        self.rows = ShardExchange(
            track, self.pace, lambda: Meeting(dist.PrefixStore("test", store), place, size), lambda: self.now
        )
        sharded._num_made.clear()       # every rank would count for itself
        self.observations: list[tuple[int, bool, Sample]] = []

    def sample(self, update: int, value: float = 1.0) -> None:
        table_PS = statistics([torch.full((2,), value), torch.full((1,), value)])
        self.samples.append(
            Sample(
                label=Label(update=update),
                tables={GRADS: table_PS},
                extras={},
                late={},
                norms_2G=np.array([[value], [2 * value]]),
            )
        )

    def _read(self, wait: bool) -> Iterator[Sample]:
        while self.samples:
            yield self.samples.popleft()

    def drain(self, wait: bool = False) -> None:
        self.observations += self.rows.observations(wait)

    @property
    def outcome(self) -> list[tuple[int, bool]]:
        return [(update, is_merged) for update, is_merged, _ in self.observations]


@pytest.fixture
def pair() -> list[Rank]:
    store = dist.HashStore()
    return [Rank(place, 2, store) for place in range(2)]


def drain(ranks: Sequence[Rank], nums: Sequence[int]) -> None:
    """Drain all ranks concurrently until each has `nums` observations, and once more to detect surplus ones."""
    deadline = time.monotonic() + 120

    def loop(rank: Rank, num: int) -> None:
        while len(rank.observations) < num and time.monotonic() < deadline:
            rank.drain()
        rank.drain()

    threads = [threading.Thread(target=loop, args=pair) for pair in zip(ranks, nums, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(150)
        assert not thread.is_alive(), "a rank waits for another"


def test_sample_of_all_ranks_is_merged_on_all(pair: list[Rank]) -> None:
    pair[1].pace.stretch, pair[1].pace.own_seconds = 7, 1.0
    for rank, value in zip(pair, (3.0, 4.0), strict=True):
        rank.sample(5, value)
    drain(pair, [1, 1])
    for rank, own in zip(pair, (3.0, 4.0), strict=True):
        assert rank.outcome == [(5, True)]
        sample = rank.observations[0][2]
        assert sample.tables[GRADS][0, Stat.NORM] == pytest.approx(math.sqrt(50))
        assert sample.tables[GRADS][0, Stat.NUM_ELEMENTS] == 4
        assert sample.tables[GRADS][1, Stat.NORM] == own          # what every rank has is not added up
        assert sample.norms_2G.tolist() == [[5.0], [10.0]]
        assert rank.pace.agreed == 7


def test_sample_that_one_rank_missed_covers_the_shard_and_the_next_is_merged(pair: list[Rank]) -> None:
    for update in (1, 2, 3, 4, 6):
        pair[0].sample(update)
    for update in (1, 3, 5, 6):
        pair[1].sample(update)
    drain(pair, [5, 4])
    assert pair[0].outcome == [(1, True), (2, False), (3, True), (4, False), (6, True)]
    assert pair[1].outcome == [(1, True), (3, True), (5, False), (6, True)]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sets(st.integers(0, 12), max_size=9), min_size=2, max_size=3))
def test_common_samples_are_merged_in_order(updates_by_rank: list[set[int]]) -> None:
    store = dist.HashStore()
    ranks = [Rank(place, len(updates_by_rank), store) for place in range(len(updates_by_rank))]
    common = set.intersection(*updates_by_rank)
    for rank, updates in zip(ranks, updates_by_rank, strict=True):
        for update in sorted(updates):
            rank.sample(update)
    settled = [sorted(update for update in updates if common and update <= max(common)) for updates in updates_by_rank]
    drain(ranks, [len(updates) for updates in settled])
    for rank, updates in zip(ranks, settled, strict=True):
        assert [update for update, is_merged in rank.outcome if is_merged] == sorted(common)
        assert [update for update, _ in rank.outcome] == updates


def test_rank_that_stops_sampling_leaves_the_others_alone_with_one_warning(pair: list[Rank]) -> None:
    for update in range(MAX_BEHIND + 1):
        pair[0].sample(update)
    pair[0].drain()
    assert pair[0].outcome == []
    pair[0].now = PATIENCE_SECONDS + 1       # it may be saving a checkpoint, so time alone is no sign
    pair[0].sample(100)
    with pytest.warns(RuntimeWarning, match="now cover only this rank's shard.*not all of the 2 ranks.*on every rank"):
        pair[0].drain()
    assert [is_merged for _, is_merged in pair[0].outcome] == [False] * (MAX_BEHIND + 2)
    pair[1].sample(3)
    pair[1].drain()
    pair[1].drain()
    assert pair[1].outcome == []            # no rank relies on the promise that was taken back
    pair[0].sample(101)
    pair[0].drain()
    assert pair[0].outcome[-1] == (101, False)


def test_at_the_end_it_waits_for_other_ranks_only_for_a_while(
    pair: list[Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair[0].sample(1)
    late = threading.Timer(0.2, lambda: (pair[1].sample(1), pair[1].drain(True)))
    late.start()
    pair[0].drain(True)
    late.join()
    assert pair[0].outcome == pair[1].outcome == [(1, True)]
    monkeypatch.setattr(sharded, "WAIT_SECONDS", 0.0)
    pair[0].sample(2)
    pair[0].drain(True)
    assert pair[0].outcome[1:] == [(2, False)]


def test_monitor_replaced_on_any_rank_is_alone_on_all(pair: list[Rank]) -> None:
    """Else what the first of one rank has seen could be taken together with what the second of another has."""
    for rank in pair:
        rank.sample(1)
    pair[1].rows._number -= 2       # as if so many had been made since
    with pytest.warns(RuntimeWarning, match="a newer Monitor of the same parameters"):
        drain(pair, [1, 1])
    assert pair[0].outcome == pair[1].outcome == [(1, False)]


def test_lost_store_is_reported_and_shards_continue(pair: list[Rank]) -> None:
    def lost() -> Meeting:
        raise ConnectionError("reset by peer")

    pair[0].rows._new_meeting = lost
    pair[0].sample(1)
    with pytest.warns(RuntimeWarning, match="can no longer be reached: ConnectionError: reset by peer"):
        pair[0].drain()
    pair[0].sample(2)
    pair[0].drain()
    assert pair[0].outcome == [(1, False), (2, False)]
    assert pair[0].rows.facts()["num_alone"] == 2


# When to sample


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 30))
def test_ranks_of_different_speed_share_every_sample_of_the_slower(fast: int, slow: int, interval: int) -> None:
    fast, slow = sorted((fast, slow))
    sampled = []
    for stretch in (fast, slow):
        pace = Pace(TelemetryConfig(normal_interval=interval), clock=lambda: 0.0)
        pace.is_shared, pace.own_seconds, pace.stretch = True, 1.0, stretch
        pace._learn = lambda: None      # by this clock no step takes any time, from which nothing can be learned
        due = []
        for update in range(1, 801):
            if pace.is_due:
                due.append(update)
            pace.update_ended(pace.is_due)
        sampled.append(set(due))
    assert sampled[1] <= sampled[0] | {1}
    assert any(update > 300 for update in sampled[1])



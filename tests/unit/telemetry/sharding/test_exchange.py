"""Ranks that hold parts of the same tensors: what they tell together is what one would tell of the whole, and none waits for another."""

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
from torchtriage.telemetry.sampling.row import GRADS, Label, Look
from torchtriage.telemetry.sharding import exchange as sharded
from torchtriage.telemetry.sharding.exchange import MAX_BEHIND, PATIENCE_SECONDS, WholeRows
from torchtriage.telemetry.sharding.merge import merged, sums, tops
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
    return merged(top_NT, sum_NA, np.array([num_elements]))[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cuts", [(10_000,), (0,), (1, 19_000, 19_000)], ids=["even", "all on one", "uneven and empty"])
def test_parts_make_the_row_of_the_whole(kind: str, cuts: tuple[int, ...]) -> None:
    whole = KINDS[kind](torch.randn(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    assert_exact(together(whole.tensor_split(cuts), [True] * (len(cuts) + 1), 20_000), true_row(whole))


def test_a_part_whose_mean_is_far_from_the_others_is_no_loss() -> None:
    whole = torch.cat([torch.randn(1000).double() + 1e6, torch.randn(3).double() - 1e6, torch.zeros(4000).double()])
    assert_exact(together(whole.split([1000, 3, 4000]), [True] * 3, 5003), true_row(whole))


@given(values=st.lists(st.floats(width=32), min_size=1, max_size=40), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_however_a_tensor_is_cut_its_row_is_the_same(values: list[float], cuts: list[int]) -> None:
    whole = torch.tensor(values, dtype=torch.float32)
    parts = whole.tensor_split(sorted(cuts))
    assert_exact(together(parts, [True] * len(parts), len(values)), true_row(whole))


def test_of_equal_parts_one_counts_and_a_nan_in_any_is_known() -> None:
    first, second = torch.arange(3.0), torch.arange(3.0, 6.0)
    sick = torch.tensor([math.nan, 1.0, 2.0])
    row = together([first, second, sick, second], [True, True, False, False], 6)
    assert row[Stat.NUM_NAN] == 1
    assert row[Stat.NUM_ELEMENTS] == 6
    assert row[Stat.NORM] == pytest.approx(torch.arange(6.0).norm().item(), rel=1e-6)


@pytest.mark.parametrize("counts", [[True, False], [True, True, True]], ids=["one is missing", "one is there twice"])
def test_a_tensor_of_which_not_every_part_is_there_once_has_no_row(counts: list[bool]) -> None:
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
    """One of `size` that hold equal parts of one tensor; `looks` are those that its track has for it."""

    def __init__(self, place: int, size: int, store: Any) -> None:
        self.now = 0.0
        self.looks: deque[Look] = deque()
        self.pace = Pace(TelemetryConfig())
        reader = SimpleNamespace(
            looks=self._looks, observation=lambda look, is_whole=False: (look.label.update, is_whole, look),
        )
        track: Any = SimpleNamespace(
            names=("p", "plain"), ranks=tuple(range(size)), place=place, shard_P=np.array([True, False]), groups={"all": [0, 1]},
            counts_P=np.array([True, place == 0]), parameters=[torch.zeros(2 * size), torch.zeros(1)], reader=reader,
        )
        self.rows = WholeRows(track, self.pace, lambda: Meeting(dist.PrefixStore("test", store), place, size), lambda: self.now)
        sharded._num_made.clear()       # every rank would count for itself
        self.told: list[tuple[int, bool, Look]] = []

    def look(self, update: int, value: float = 1.0) -> None:
        table_PS = statistics([torch.full((2,), value), torch.full((1,), value)])
        self.looks.append(Look(
            label=Label(update=update), tables={GRADS: table_PS}, extras={}, late={}, norms_2G=np.array([[value], [2 * value]]),
        ))

    def _looks(self, wait: bool) -> Iterator[Look]:
        while self.looks:
            yield self.looks.popleft()

    def drain(self, wait: bool = False) -> None:
        self.told += self.rows.observations(wait)

    @property
    def outcome(self) -> list[tuple[int, bool]]:
        return [(update, is_whole) for update, is_whole, _ in self.told]


@pytest.fixture
def pair() -> list[Rank]:
    store = dist.HashStore()
    return [Rank(place, 2, store) for place in range(2)]


def drain(ranks: Sequence[Rank], nums: Sequence[int]) -> None:
    """All at the same time and again and again, until each has told of so many looks; and once more, for one that would be too many."""
    deadline = time.monotonic() + 20

    def loop(rank: Rank, num: int) -> None:
        while len(rank.told) < num and time.monotonic() < deadline:
            rank.drain()
        rank.drain()

    threads = [threading.Thread(target=loop, args=pair) for pair in zip(ranks, nums, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a rank waits for another"


def test_a_look_that_all_have_made_is_whole_on_all(pair: list[Rank]) -> None:
    pair[1].pace.stretch, pair[1].pace.own_seconds = 7, 1.0
    for rank, value in zip(pair, (3.0, 4.0), strict=True):
        rank.look(5, value)
    drain(pair, [1, 1])
    for rank, own in zip(pair, (3.0, 4.0), strict=True):
        assert rank.outcome == [(5, True)]
        look = rank.told[0][2]
        assert look.tables[GRADS][0, Stat.NORM] == pytest.approx(math.sqrt(50))
        assert look.tables[GRADS][0, Stat.NUM_ELEMENTS] == 4
        assert look.tables[GRADS][1, Stat.NORM] == own          # what every rank has is not added up
        assert look.norms_2G.tolist() == [[5.0], [10.0]]
        assert rank.pace.agreed == 7


def test_a_look_that_one_has_missed_is_of_the_shard_and_the_next_is_whole(pair: list[Rank]) -> None:
    for update in (1, 2, 3, 4, 6):
        pair[0].look(update)
    for update in (1, 3, 5, 6):
        pair[1].look(update)
    drain(pair, [5, 4])
    assert pair[0].outcome == [(1, True), (2, False), (3, True), (4, False), (6, True)]
    assert pair[1].outcome == [(1, True), (3, True), (5, False), (6, True)]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sets(st.integers(0, 12), max_size=9), min_size=2, max_size=3))
def test_whatever_each_has_looked_at_the_common_ones_are_whole_and_in_order(looked: list[set[int]]) -> None:
    store = dist.HashStore()
    ranks = [Rank(place, len(looked), store) for place in range(len(looked))]
    common = set.intersection(*looked)
    for rank, updates in zip(ranks, looked, strict=True):
        for update in sorted(updates):
            rank.look(update)
    settled = [sorted(update for update in updates if common and update <= max(common)) for updates in looked]
    drain(ranks, [len(updates) for updates in settled])
    for rank, updates in zip(ranks, settled, strict=True):
        assert [update for update, is_whole in rank.outcome if is_whole] == sorted(common)
        assert [update for update, _ in rank.outcome] == updates


def test_one_that_stops_looking_leaves_the_others_alone_and_it_is_said_once(pair: list[Rank]) -> None:
    for update in range(MAX_BEHIND + 1):
        pair[0].look(update)
    pair[0].drain()
    assert pair[0].outcome == []
    pair[0].now = PATIENCE_SECONDS + 1       # it may be saving a checkpoint, so time alone is no sign
    pair[0].look(100)
    with pytest.warns(RuntimeWarning, match="of this rank's shard from here on.*not all of the 2 ranks.*on every rank"):
        pair[0].drain()
    assert [is_whole for _, is_whole in pair[0].outcome] == [False] * (MAX_BEHIND + 2)
    pair[1].look(3)
    pair[1].drain()
    pair[1].drain()
    assert pair[1].outcome == []            # nobody counts on the promise that was taken back
    pair[0].look(101)
    pair[0].drain()
    assert pair[0].outcome[-1] == (101, False)


def test_at_the_end_it_waits_for_the_others_and_then_no_longer(pair: list[Rank], monkeypatch: pytest.MonkeyPatch) -> None:
    pair[0].look(1)
    late = threading.Timer(0.2, lambda: (pair[1].look(1), pair[1].drain(True)))
    late.start()
    pair[0].drain(True)
    late.join()
    assert pair[0].outcome == pair[1].outcome == [(1, True)]
    monkeypatch.setattr(sharded, "WAIT_SECONDS", 0.0)
    pair[0].look(2)
    pair[0].drain(True)
    assert pair[0].outcome[1:] == [(2, False)]


def test_a_monitor_that_another_has_followed_on_any_rank_is_alone_on_all(pair: list[Rank]) -> None:
    """Else what the first of one rank has seen could be taken together with what the second of another has."""
    for rank in pair:
        rank.look(1)
    pair[1].rows._number -= 2       # as if so many had been made since
    with pytest.warns(RuntimeWarning, match="another Monitor of the same parameters has been made"):
        drain(pair, [1, 1])
    assert pair[0].outcome == pair[1].outcome == [(1, False)]


def test_a_store_that_is_gone_is_said_and_the_shards_go_on(pair: list[Rank]) -> None:
    pair[0].rows._new_meeting = lambda: (_ for _ in ()).throw(ConnectionError("reset by peer"))  # type: ignore[assignment]
    pair[0].look(1)
    with pytest.warns(RuntimeWarning, match="can no longer be asked: ConnectionError: reset by peer"):
        pair[0].drain()
    pair[0].look(2)
    pair[0].drain()
    assert pair[0].outcome == [(1, False), (2, False)]
    assert pair[0].rows.facts()["num_alone"] == 2


# When to look


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 30))
def test_ranks_of_different_speed_meet_at_every_look_of_the_slower(fast: int, slow: int, interval: int) -> None:
    fast, slow = sorted((fast, slow))
    looked = []
    for stretch in (fast, slow):
        pace = Pace(TelemetryConfig(normal_interval=interval), clock=lambda: 0.0)
        pace.is_shared, pace.own_seconds, pace.stretch = True, 1.0, stretch
        pace._learn = lambda: None      # by this clock no step takes any time, from which nothing can be learned
        due = []
        for update in range(1, 801):
            if pace.is_due:
                due.append(update)
            pace.update_ended(pace.is_due)
        looked.append(set(due))
    assert looked[1] <= looked[0] | {1}
    assert any(update > 300 for update in looked[1])



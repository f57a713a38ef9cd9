"""Statistics of complete parameters that are sharded over ranks, which exchange their parts in the background.

P tensors, N rows of all blocks, S statistics, G groups, T columns of maxima, A columns of sums.
"""

import collections
import hashlib
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch.distributed as dist

from torchtriage.errors import TriageError
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sampling.pace import Pace
from torchtriage.telemetry.sampling.row import AFTER, GRADS, WEIGHTS, Sample
from torchtriage.telemetry.sampling.track import Track
from torchtriage.telemetry.sharding.merge import NUM_SUMS, NUM_TOPS, merge, sums, tops
from torchtriage.telemetry.sharding.promises import Meeting
from torchtriage.telemetry.statistics.columns import NUM_STATS, Stat

BLOCKS = (GRADS, AFTER, WEIGHTS)
WAIT_SECONDS = 5.0          # at the end of a run, for samples that other ranks have not taken yet
POLL_SECONDS = 0.01         # while waiting
# Samples that no other rank takes, over at least that many seconds, after which this rank continues alone.
MAX_BEHIND = 16
PATIENCE_SECONDS = 10.0
_num_made: "collections.Counter[str]" = collections.Counter()      # exchanges of this process, by form of parameters


class ShardExchange:
    """Observations of a track with sharded parameters: of complete parameters at steps that all ranks have sampled.

    One MAX and one SUM complete a sample, after every rank has promised it. The training never waits for them, and a
    rank that does not sample, fails or ends does not block the others. A sample that other ranks do not share is
    reported as that of a shard.
    """

    def __init__(
        self, track: Track, pace: Pace, new_meeting: Callable[[], Meeting] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._track, self._pace, self._clock = track, pace, clock
        self.num_whole = 0
        self.num_alone = 0
        self.why_alone = ""
        self._form = parameter_form(track)
        self._number = _num_made[self._form]
        _num_made[self._form] += 1
        prefix = f"torchtriage/{self._form}/{self._number}"
        self._new_meeting = new_meeting or self._try(lambda: meeting_factory(track, prefix))
        self._meeting: Meeting | None = None
        self._pending: collections.deque[tuple[float, Sample]] = collections.deque()
        self._shards = np.flatnonzero(track.shard_P)
        self._counts_N = np.tile(track.counts_P[self._shards], len(BLOCKS))
        sizes = [p.numel() for p, is_shard in zip(track.parameters, track.shard_P.tolist(), strict=True) if is_shard]
        self._num_elements_N = np.tile(np.array(sizes, dtype=np.float64), len(BLOCKS))

    def observations(self, wait: bool = False) -> Iterator[Observation]:
        for sample in self._track.reader.samples(wait):
            self._pending.append((self._clock(), sample))
            if not self.why_alone:
                self._try(self._promise)
        yield from self._settle(wait)

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"num_whole": self.num_whole, "num_alone": self.num_alone}
        if self.why_alone:
            facts["why_alone"] = self.why_alone
        return facts

    def _settle(self, wait: bool) -> Iterator[Observation]:
        """Pending samples in order, as far as their outcome is known."""
        until = self._clock() + WAIT_SECONDS
        while self._pending and not self.why_alone:
            index = self._try(self._first_promised)
            if index is not None:
                for _ in range(index):
                    yield self._missed()
                yield self._together()
            elif not wait:
                break
            elif self._clock() >= until:
                yield from self._withdraw()
            else:
                time.sleep(POLL_SECONDS)
        if self._is_left_behind():
            yield from self._withdraw()
            self._go_alone(
                f"not all of the {len(self._track.ranks)} ranks that hold the parameters sample them; "
                "make a Monitor of the model on every rank, and call it at every step"
            )
        while self._pending and self.why_alone:
            yield self._alone(self._pending.popleft()[1])

    def _promise(self) -> None:
        self._joined().promise(_name(self._pending[-1][1]))

    def _first_promised(self) -> int | None:
        """The first sample that all ranks have promised.

        They promise in the order of steps, so no earlier sample can still become complete.
        """
        for index in range(len(self._pending)):
            if self._is_promised(index):
                break
        else:
            return None
        # The last promise for an earlier sample may have arrived while later ones were checked.
        return next(i for i in range(index + 1) if i == index or self._is_promised(i))

    def _is_promised(self, index: int) -> bool:
        return self._joined().is_on(_name(self._pending[index][1]))

    def _withdraw(self) -> Iterator[Observation]:
        """Take back every promise that the other ranks do not rely on yet."""
        while self._pending and not self.why_alone:
            is_withdrawn = self._try(lambda: self._joined().take_back(_name(self._pending[0][1])))
            if is_withdrawn is not None:
                yield self._missed() if is_withdrawn else self._together()

    def _is_left_behind(self) -> bool:
        behind = len(self._pending) > MAX_BEHIND and self._clock() - self._pending[0][0] > PATIENCE_SECONDS
        return behind and not self.why_alone

    def _missed(self) -> Observation:
        sample = self._pending.popleft()[1]
        self._try(lambda: self._joined().forget(_name(sample)))
        return self._alone(sample)

    def _alone(self, sample: Sample) -> Observation:
        self.num_alone += 1
        return self._track.reader.observation(sample)

    def _together(self) -> Observation:
        sample = self._pending.popleft()[1]
        merged = self._try(lambda: self._merged(sample))
        if merged is None:
            return self._alone(sample)
        if not self._track.place:
            self._try(lambda: self._joined().forget(_name(sample)))
        self.num_whole += 1
        return self._track.reader.observation(merged, is_merged=True)

    def _merged(self, sample: Sample) -> Sample:
        """Run the two collectives. Their size is the same on all ranks, whatever this rank has measured."""
        meeting, nothing_PS = self._joined(), np.zeros((len(self._track.names), NUM_STATS))
        part_NS = np.concatenate([sample.tables.get(block, nothing_PS)[self._shards] for block in BLOCKS])
        has_newer = _num_made[self._form] > self._number + 1
        own_top = tops(part_NS, self._counts_N)
        top = meeting.largest(np.concatenate([[self._pace.needed, has_newer], own_top.ravel()]))
        if top[1]:      # a rank's second Monitor would meet another rank's first, which samples other steps
            raise TriageError("there is a newer Monitor of the same parameters; close one before you make the next")
        self._pace.agreed = int(top[0])
        top_NT = top[2:].reshape(-1, NUM_TOPS)
        norms_2G = np.zeros((2, len(self._track.groups))) if sample.norms_2G is None else sample.norms_2G
        own_sums = sums(part_NS, self._counts_N, top_NT)
        vector = np.concatenate([[sample.norms_2G is not None], norms_2G.ravel() ** 2, own_sums.ravel()])
        total = meeting.sum(vector)
        squares_2G = total[1 : 1 + norms_2G.size].reshape(2, -1)
        sum_NA = total[1 + norms_2G.size :].reshape(-1, NUM_SUMS)
        full_NS = merge(top_NT, sum_NA, self._num_elements_N)
        tables: dict[int, Any] = {}
        for block, full_PS in zip(BLOCKS, np.split(full_NS, len(BLOCKS)), strict=True):
            table_PS = sample.tables.get(block, nothing_PS).copy()
            table_PS[self._shards] = full_PS
            if table_PS[:, Stat.NUM_ELEMENTS].any():
                tables[block] = table_PS
        have_all_updates = total[0] == len(self._track.ranks)
        return replace(sample, tables=tables, norms_2G=np.sqrt(squares_2G) if have_all_updates else None)

    def _joined(self) -> Meeting:
        if self._meeting is None:
            self._meeting = self._new_meeting()
        return self._meeting

    def _try(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except Exception as error:      # another rank may be gone, or the store that the ranks share
            reason = str(error) if isinstance(error, TriageError) else f"{type(error).__name__}: {error}"
            self._go_alone(f"the ranks that hold the parameters can no longer be reached: {reason}")
            return None

    def _go_alone(self, reason: str) -> None:
        if not self.why_alone:
            self.why_alone = reason
            text = f"torchtriage Monitor: statistics now cover only this rank's shard of the parameters: {reason}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _name(sample: Sample) -> str:
    return f"sample {sample.label.update}"


def parameter_form(track: Track) -> str:
    """A hash that is equal on all ranks that watch the same parameters."""
    shapes = [tuple(p.shape) for p in track.parameters]
    form = repr((track.names, shapes, track.ranks, list(track.groups)))
    return hashlib.sha256(form.encode()).hexdigest()[:16]


def meeting_factory(track: Track, prefix: str) -> Callable[[], Meeting]:
    """Makes the meeting, to be called on the background thread: it needs its own connection, as the program may be
    waiting on its.
    """
    store = dist.group.WORLD.get_group_store()
    return lambda: Meeting(dist.PrefixStore(prefix, store.clone()), track.place, len(track.ranks))

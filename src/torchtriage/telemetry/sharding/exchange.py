"""Statistics of whole parameters where each rank holds a part of them: the ranks exchange theirs in the background.

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
from torchtriage.telemetry.sampling.row import AFTER, GRADS, WEIGHTS, Look
from torchtriage.telemetry.sampling.track import Track
from torchtriage.telemetry.sharding.merge import NUM_SUMS, NUM_TOPS, merged, sums, tops
from torchtriage.telemetry.sharding.promises import Meeting
from torchtriage.telemetry.statistics.columns import NUM_STATS, Stat

BLOCKS = (GRADS, AFTER, WEIGHTS)
WAIT_SECONDS = 5.0          # at the end, for looks that other ranks are still to make
POLL_SECONDS = 0.01         # while it waits
MAX_BEHIND = 16             # looks of its own that no other rank makes, over so many seconds at least: then it goes on alone
PATIENCE_SECONDS = 10.0
_num_made: "collections.Counter[str]" = collections.Counter()      # in this process, by the form of the parameters


class WholeRows:
    """Observations of a track whose parameters are spread over ranks: of all of them at steps that all have looked at.

    A look is made whole by one MAX and one SUM, once every rank has promised it: the training waits for none of it, and a rank that does
    not look, fails or ends takes nobody with it. What stays without the others is told as that of a shard.
    """

    def __init__(
        self, track: Track, pace: Pace, new_meeting: Callable[[], Meeting] | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._track, self._pace, self._clock = track, pace, clock
        self.num_whole = 0
        self.num_alone = 0
        self.why_alone = ""
        self._form = form_of(track)
        self._number = _num_made[self._form]
        _num_made[self._form] += 1
        self._new_meeting = new_meeting or self._try(lambda: new_meeting_of(track, f"torchtriage/{self._form}/{self._number}"))
        self._meeting: Meeting | None = None
        self._pending: collections.deque[tuple[float, Look]] = collections.deque()
        self._shards = np.flatnonzero(track.shard_P)
        self._counts_N = np.tile(track.counts_P[self._shards], len(BLOCKS))
        sizes = [p.numel() for p, is_shard in zip(track.parameters, track.shard_P.tolist(), strict=True) if is_shard]
        self._num_elements_N = np.tile(np.array(sizes, dtype=np.float64), len(BLOCKS))

    def observations(self, wait: bool = False) -> Iterator[Observation]:
        for look in self._track.reader.looks(wait):
            self._pending.append((self._clock(), look))
            if not self.why_alone:
                self._try(self._promise)
        yield from self._settle(wait)

    def facts(self) -> dict[str, Any]:
        said = {"why_alone": self.why_alone} if self.why_alone else {}
        return {"num_whole": self.num_whole, "num_alone": self.num_alone, **said}

    def _settle(self, wait: bool) -> Iterator[Observation]:
        """Looks in their order, as far as it is known what becomes of them."""
        until = self._clock() + WAIT_SECONDS
        while self._pending and not self.why_alone:
            place = self._try(self._first_on)
            if place is not None:
                for _ in range(place):
                    yield self._missed()
                yield self._together()
            elif not wait:
                break
            elif self._clock() >= until:
                yield from self._give_back()
            else:
                time.sleep(POLL_SECONDS)
        if self._is_left_behind():
            yield from self._give_back()
            do = "make a Monitor of the model on every rank, and call it at every step"
            self._go_alone(f"not all of the {len(self._track.ranks)} ranks that hold the parameters look at them; {do}")
        while self._pending and self.why_alone:
            yield self._alone(self._pending.popleft()[1])

    def _promise(self) -> None:
        self._met().promise(_name(self._pending[-1][1]))

    def _first_on(self) -> int | None:
        """The first look that all ranks have promised. They promise in the order of steps, so those before it will never be on."""
        found = next((i for i, (_, look) in enumerate(self._pending) if self._met().is_on(_name(look))), None)
        if found:       # the last promise of one before it may have come while the others were asked for
            found = next(i for i in range(found + 1) if self._met().is_on(_name(self._pending[i][1])))
        return found

    def _give_back(self) -> Iterator[Observation]:
        """Take every promise back that the others do not count on yet."""
        while self._pending and not self.why_alone:
            taken_back = self._try(lambda: self._met().take_back(_name(self._pending[0][1])))
            if taken_back is not None:
                yield self._missed() if taken_back else self._together()

    def _is_left_behind(self) -> bool:
        behind = len(self._pending) > MAX_BEHIND and self._clock() - self._pending[0][0] > PATIENCE_SECONDS
        return behind and not self.why_alone

    def _missed(self) -> Observation:
        look = self._pending.popleft()[1]
        self._try(lambda: self._met().forget(_name(look)))
        return self._alone(look)

    def _alone(self, look: Look) -> Observation:
        self.num_alone += 1
        return self._track.reader.observation(look)

    def _together(self) -> Observation:
        look = self._pending.popleft()[1]
        whole = self._try(lambda: self._whole(look))
        if whole is None:
            return self._alone(look)
        if not self._track.place:
            self._try(lambda: self._met().forget(_name(look)))
        self.num_whole += 1
        return self._track.reader.observation(whole, is_whole=True)

    def _whole(self, look: Look) -> Look:
        """The two collectives. Their size is the same on all ranks whatever this one has seen."""
        meeting, nothing_PS = self._met(), np.zeros((len(self._track.names), NUM_STATS))
        part_NS = np.concatenate([look.tables.get(block, nothing_PS)[self._shards] for block in BLOCKS])
        has_newer = _num_made[self._form] > self._number + 1
        top = meeting.largest(np.concatenate([[self._pace.needed, has_newer], tops(part_NS, self._counts_N).ravel()]))
        if top[1]:      # where it is the first Monitor of one rank and the second of another, they look at other steps
            raise TriageError("another Monitor of the same parameters has been made; close one before you make the next")
        self._pace.agreed = int(top[0])
        top_NT = top[2:].reshape(-1, NUM_TOPS)
        norms_2G = np.zeros((2, len(self._track.groups))) if look.norms_2G is None else look.norms_2G
        told = [[look.norms_2G is not None], norms_2G.ravel() ** 2, sums(part_NS, self._counts_N, top_NT).ravel()]
        summed = meeting.sum(np.concatenate(told))
        squares_2G, sum_NA = summed[1 : 1 + norms_2G.size].reshape(2, -1), summed[1 + norms_2G.size :].reshape(-1, NUM_SUMS)
        whole_NS = merged(top_NT, sum_NA, self._num_elements_N)
        tables: dict[int, Any] = {}
        for block, whole_PS in zip(BLOCKS, np.split(whole_NS, len(BLOCKS)), strict=True):
            table_PS = look.tables.get(block, nothing_PS).copy()
            table_PS[self._shards] = whole_PS
            if table_PS[:, Stat.NUM_ELEMENTS].any():
                tables[block] = table_PS
        have_all_updates = summed[0] == len(self._track.ranks)
        return replace(look, tables=tables, norms_2G=np.sqrt(squares_2G) if have_all_updates else None)

    def _met(self) -> Meeting:
        if self._meeting is None:
            self._meeting = self._new_meeting()
        return self._meeting

    def _try(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except Exception as error:      # another rank may be gone, or the store that all of them share
            said = str(error) if isinstance(error, TriageError) else f"{type(error).__name__}: {error}"
            self._go_alone(f"the ranks that hold the parameters can no longer be asked: {said}")
            return None

    def _go_alone(self, reason: str) -> None:
        if not self.why_alone:
            self.why_alone = reason
            text = f"torchtriage Monitor: statistics are of this rank's shard from here on, and not of whole parameters: {reason}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _name(look: Look) -> str:
    return f"look {look.label.update}"


def form_of(track: Track) -> str:
    """The same on all ranks that watch the same parameters."""
    shapes = [tuple(p.shape) for p in track.parameters]
    return hashlib.sha256(repr((track.names, shapes, track.ranks, list(track.groups))).encode()).hexdigest()[:16]


def new_meeting_of(track: Track, prefix: str) -> Callable[[], Meeting]:
    """To be called on the background's thread: it makes a connection of its own, for the program may be waiting on its."""
    store = dist.group.WORLD.get_group_store()
    return lambda: Meeting(dist.PrefixStore(prefix, store.clone()), track.place, len(track.ranks))

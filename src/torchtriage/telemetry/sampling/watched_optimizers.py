"""The optimizers of a program under `torchtriage run`, from their first step to their last reference."""

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

from torchtriage.telemetry.sampling.parameters import Namer, is_claimed, parameter_groups
from torchtriage.telemetry.sampling.row import AFTER, GRADS
from torchtriage.telemetry.sampling.sampler import Sampler, Sampling
from torchtriage.telemetry.sampling.scaler import TappedScaler
from torchtriage.telemetry.sampling.track import Track

MAX_OPTIMIZERS = 16     # of different parameters, such as one per task


class WatchedOptimizer(Sampler):
    """One optimizer, which is not kept alive."""

    def __init__(self, sampling: Sampling, optimizer: torch.optim.Optimizer, label: str) -> None:
        self.tapped = TappedScaler()
        super().__init__(sampling, kind=type(optimizer).__name__, label=label, scaler=self.tapped)
        self.follow(optimizer)
        self.is_clipped_unseen = False      # the program clips, and may have done so before there was a track
        self.is_left = False                # a Monitor in the program watches these parameters

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Follow this optimizer from now on: the program has made it in place of the former one."""
        self.optimizer = weakref.ref(optimizer)
        self._type, (first, self._num) = type(optimizer), _parameters(optimizer)
        self._first = weakref.ref(first) if first is not None else None

    def is_made_again_as(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimizer has the class and the parameters of this one."""
        first, num = _parameters(optimizer)
        is_same = type(optimizer) is self._type and num == self._num
        return is_same and self._first is not None and self._first() is first

    def take_gradients(self, track: Track) -> None:
        """Gradients that are not in the row yet; after clipping, all of them once more."""
        if self.is_clipped_unseen:
            return
        track.take_gradients(GRADS)
        if track.label.is_clipped:
            track.take_gradients(AFTER)


class WatchedOptimizers:
    """Every optimizer that has stepped, each with a track of its current parameters."""

    def __init__(self, sampling: Sampling, namer: Namer, report_absent: Callable[[str, str], None]) -> None:
        self._sampling, self._namer, self._report_absent = sampling, namer, report_absent
        self._by_id: dict[int, WatchedOptimizer] = {}
        self._all: list[WatchedOptimizer] = []      # those that are gone too
        self._is_full = False               # there are more optimizers than MAX_OPTIMIZERS
        self._names: dict[str, int] = {}
        self._shards: dict[str, Any] = {}   # about parameters that this rank holds a part of

    def alive(self) -> list[WatchedOptimizer]:
        return list(self._by_id.values())

    def find(self, optimizer: torch.optim.Optimizer) -> WatchedOptimizer | None:
        """None beyond MAX_OPTIMIZERS."""
        watched = self._by_id.get(id(optimizer))
        if watched is not None and watched.optimizer() is optimizer:
            return watched
        for known in self._all:
            if known.is_made_again_as(optimizer):
                known.follow(optimizer)
                self._add(optimizer, known)
                return known
        num_before = len(self._sampling.samplers)       # optimizers that are gone count too
        if num_before >= MAX_OPTIMIZERS:
            if not self._is_full:
                self._is_full = True
                detail = f"only the first {MAX_OPTIMIZERS} of a process are followed"
                self._report_absent("gradients of more optimizers", detail)
            return None
        label = f"{type(optimizer).__name__} {num_before + 1}" if num_before else ""
        watched = WatchedOptimizer(self._sampling, optimizer, label)
        self._all.append(watched)
        self._add(optimizer, watched)
        return watched

    def _add(self, optimizer: torch.optim.Optimizer, watched: WatchedOptimizer) -> None:
        self._by_id = {key: other for key, other in self._by_id.items() if other is not watched}
        self._by_id[id(optimizer)] = watched
        weakref.finalize(optimizer, self._forget, id(optimizer), watched).atexit = False

    def _forget(self, key: int, watched: WatchedOptimizer) -> None:
        """The optimizer is gone: release its parameters, unless it was made again."""
        if self._by_id.get(key) is watched and watched.optimizer() is None:
            del self._by_id[key]
            watched.retire()

    def prepare(self, watched: WatchedOptimizer, optimizer: torch.optim.Optimizer, is_clipped: bool) -> bool:
        """Make a track if there is none for the current parameters: groups may be added, a model may move.

        Returns whether it did.
        """
        members: dict[int, torch.Tensor] = {}
        for group in optimizer.param_groups:
            members.update((id(p), p) for p in group["params"] if p.requires_grad)
        if watched.track is not None:
            if watched.track.is_of(members.values()) and watched.track.is_still():
                return False
            watched.retire()
        watched.is_left = is_claimed(members.values())
        if not members or watched.is_left:
            return False
        parameters = list(members.values())
        names = self._namer.names(optimizer, parameters, sys._getframe(1))
        named = [(self._unique(name, id(p), watched.label), p) for name, p in zip(names, parameters, strict=True)]
        track = Track(named, parameter_groups(optimizer, watched.label), main=watched.label)
        watched.is_clipped_unseen = is_clipped
        self._sampling.note_dtypes(track.dtypes)
        if track.ranks:     # ranks do not wait for each other here: the reader of the recording merges their parts
            shards = track.shard_facts()
            self._shards = {**shards, "elements": {**self._shards.get("elements", {}), **shards["elements"]}}
        watched.start(track)
        return True

    def _unique(self, name: str, key: int, label: str) -> str:
        """Two optimizers may have parameters of the same name."""
        if self._names.setdefault(name, key) == key or not label:
            return name
        return f"{name} ({label})"

    def facts(self) -> dict[str, Any]:
        """Facts for the recording about the parameters themselves."""
        return {"num_tensors": len(self._names), **({"shards": self._shards} if self._shards else {})}


def _parameters(optimizer: torch.optim.Optimizer) -> tuple[torch.Tensor | None, int]:
    """The first parameter, and the number of all."""
    groups = [group["params"] for group in optimizer.param_groups]
    return next((p for group in groups for p in group), None), sum(map(len, groups))

"""The parameters that a Monitor watches, followed as they come, go and move."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchtriage.telemetry.pace import Pace
from torchtriage.telemetry.sharded import WholeRows
from torchtriage.telemetry.taken import Track
from torchtriage.telemetry.trained import Group, Trained
from torchtriage.telemetry.writer import Writer


class Followed:
    """What of a model is trained, and the track through which its statistics go; no track while nothing is trained."""

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, groups: Mapping[str, Group] | None, *, pace: Pace,
        writer: Writer, warn: Callable[[str, str], None], on_ranks: Callable[[], None],
    ) -> None:
        """`warn(key, text)` says something once a key; `on_ranks` is called where ranks hold parts of the parameters."""
        self._model, self._optimizer, self._groups = model, optimizer, groups
        self._pace, self._writer, self._warn, self._on_ranks = pace, writer, warn, on_ranks
        self._refused: dict[str, str] = {}
        self._num_dropped = 0                       # in rings that are gone
        self.track: Track | None = None
        self.whole: WholeRows | None = None         # where ranks hold parts of the parameters

    def is_ready(self) -> bool:
        """Whether there is something to look at; says once what is missing."""
        # What modules a model has changes as slowly as its weights, and a model mostly moves as a whole. A single parameter that moved is
        # found with them; until then its gradients are taken where they are.
        pace, track = self._pace, self.track
        is_sure = track is not None and pace.since_rare < pace.config.weight_track_interval
        if track is None or not (track.is_still(first_only=is_sure) and (is_sure or self._trained.is_still())):
            began = pace.clock()
            self.prepare()
            pace.set_up(pace.clock() - began)
            track = self.track
        if track is None:
            return False
        for parameter in track.parameters:      # mostly the first has one
            if parameter.grad is not None:
                return True
        if track.parameters:        # else it has been said that they have no statistics
            self._warn("gradients", "no parameter has a gradient; call after_backward() after loss.backward() and before zero_grad()")
        return False

    def prepare(self) -> None:
        """A new track for what is trained now."""
        self._trained = Trained(self._model, self._optimizer)
        trained = self._trained.by_name
        if self.track is not None:
            self._say_changes(self.track, trained)
            self._num_dropped += self.track.ring.num_dropped
            self._writer.remove(self.whole or self.track)
            self.track.release()
            self.track = None
        if not trained:
            self._warn("parameters", f"{type(self._model).__name__} has no parameter that is trained, so nothing is recorded; give a "
                       "model with parameters that require gradients")
            return
        self.track = Track(list(trained.items()), self._trained.groups(self._groups))
        self.whole = WholeRows(self.track, self._pace) if self.track.ranks else None
        if self.whole is not None:
            self._on_ranks()
        self._pace.is_shared = self.whole is not None
        self.say_refused(self.track)
        self._writer.add(self.whole or self.track, self._pace.spent_behind)

    def say_refused(self, track: Track) -> None:
        """Once a reason: a model may have thousands of tensors."""
        new = {name: reason for name, reason in track.refused.items() if name not in self._refused}
        self._refused |= new
        for reason in dict.fromkeys(new.values()):
            names = [name for name, of in new.items() if of == reason]
            self._warn(f"refused {names[0]}", f"no statistics of {_listed(names)}: it {reason}")

    def _say_changes(self, track: Track, trained: Mapping[str, torch.Tensor]) -> None:
        gone = [name for name in track.names if name not in trained]
        if gone:
            self._warn("gone", f"{_listed(gone)} no longer trained or part of the model; curves end here, those of {len(trained)} "
                       "parameters go on. If that is not meant, see what was removed or frozen")
        kept = [trained[name] for name in track.names if name in trained]
        moved = sorted({str(new.device) for new in kept if new.device != track.device})
        if moved:
            self._warn("moved", f"the model was on {track.device} and is now on {', '.join(moved)}; it is followed there")

    def dtypes(self) -> list[str]:
        return self.track.dtypes if self.track is not None else []

    def facts(self) -> dict[str, Any]:
        """For what a Monitor says of itself."""
        track, dropped_here = self.track, self.track.ring.num_dropped if self.track is not None else 0
        shards = {"shards": {**track.shard_facts(), **self.whole.facts()}} if track is not None and self.whole is not None else {}
        return {"num_tensors": len(track.names) if track is not None else 0, "num_dropped": self._num_dropped + dropped_here, **shards}


def _listed(names: Sequence[str]) -> str:
    return f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}"

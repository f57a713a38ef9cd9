"""The model of a Monitor: its trained parameters, which may be added, removed or moved while it trains."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchtriage.telemetry.sampling.parameters import Group, TrainedParameters
from torchtriage.telemetry.sampling.sampler import Sampler, Sampling
from torchtriage.telemetry.sampling.scaler import MonitorScaler
from torchtriage.telemetry.sampling.track import Track
from torchtriage.telemetry.sharding.exchange import ShardExchange
from torchtriage.text import listed


class WatchedModel(Sampler):
    """Samples the trained parameters of a model; it has no track while nothing is trained."""

    def __init__(
        self, sampling: Sampling, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None,
        groups: Mapping[str, Group] | None, *, scaler: MonitorScaler | None, warn: Callable[[str, str], None],
        on_ranks: Callable[[], None],
    ) -> None:
        """`warn(key, text)` warns once per key; `on_ranks` is called where ranks hold parts of the parameters."""
        super().__init__(sampling, kind=type(optimizer).__name__ if optimizer is not None else "", scaler=scaler)
        self._model, self._optimizer, self._groups = model, optimizer, groups
        self._warn, self._on_ranks = warn, on_ranks
        self._exchange: ShardExchange | None = None        # where ranks hold parts of the parameters

    def is_ready(self) -> bool:
        """Whether there is a gradient to measure; warns once if something is missing."""
        # Modules are checked as rarely as weights are measured, and a model usually moves as one. A single parameter
        # that
        # moved is detected when weights are measured; until then its gradients are measured where they are.
        pace, track = self.pace, self.track
        is_sure = track is not None and pace.since_rare < pace.config.weight_track_interval
        if track is None or not (track.is_still(first_only=is_sure) and (is_sure or self._trained.is_still())):
            began = pace.clock()
            self.prepare()
            pace.charge_setup(pace.clock() - began)
            track = self.track
        if track is None:
            return False
        for parameter in track.parameters:      # usually the first one has a gradient
            if parameter.grad is not None:
                return True
        if track.parameters:        # otherwise a warning said that they have no statistics
            self._warn("gradients", "no parameter has a gradient; "
                       "call after_backward() after loss.backward() and before zero_grad()")
        return False

    def prepare(self) -> None:
        """A new track for the parameters that are trained now."""
        self._trained = TrainedParameters(self._model, self._optimizer)
        trained = self._trained.by_name
        if self.track is not None:
            self._warn_of_changes(self.track, trained)
            self.retire()
        if not trained:
            self._warn("parameters", f"{type(self._model).__name__} has no trained parameter, so nothing is recorded; "
                       "give a model with parameters that require gradients")
            return
        track = Track(list(trained.items()), self._trained.groups(self._groups))
        self._exchange = ShardExchange(track, self.pace) if track.ranks else None
        if self._exchange is not None:
            self._on_ranks()
        self.start(track, self._exchange)

    def _warn_of_changes(self, track: Track, trained: Mapping[str, torch.Tensor]) -> None:
        gone = [name for name in track.names if name not in trained]
        if gone:
            self._warn("gone", f"no longer trained or part of the model: {listed(gone, 1)}; curves end here, those of "
                       f"{len(trained)} parameters continue. If this is not intended, check what was removed or frozen")
        still_trained = [trained[name] for name in track.names if name in trained]
        moved = sorted({str(p.device) for p in still_trained if p.device != track.device})
        if moved:
            self._warn("moved", f"the model moved from {track.device} to {', '.join(moved)}; statistics continue there")

    def facts(self) -> dict[str, Any]:
        """Facts for the recording about the parameters themselves."""
        track = self.track
        facts: dict[str, Any] = {"num_tensors": len(track.names) if track is not None else 0}
        if track is not None and self._exchange is not None:
            facts["shards"] = {**track.shard_facts(), **self._exchange.facts()}
        return facts

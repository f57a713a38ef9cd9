"""BatchNorm counts its forward passes in training mode: those that no backward pass follows are an evaluation."""

import weakref
from collections.abc import Iterable
from itertools import pairwise

import torch

from torchtriage.telemetry.contract_checks.count import Count, is_readable

BATCH_NORM = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)
NUM_USUAL = 8           # updates at the start that show how many forward passes belong to a backward pass
MIN_EXTRA = 2           # one may be a batch that was skipped
REGULAR = 4             # single ones at equal distances
MIN_EVENTS = 2          # the first one may be a calibration
LOOKS = 5               # in a row at a layer in eval mode without statistics
MAX_LAYERS = 4          # one per model; more would tell the same


class BatchNormCounts:
    """Compares, from step to step, the forward passes that a layer counted with the number of backward passes."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._layers: list[tuple[str, weakref.ref[torch.nn.Module]]] = []
        self._roots: list[weakref.ref[torch.nn.Module]] = []
        self._last: dict[int, float] = {}       # the count of a layer at the end of the last step, by its place
        self._usual: dict[int, float] = {}
        self._num_extra: dict[int, int] = {}
        self._num_events: dict[int, int] = {}
        self._single: dict[int, list[int]] = {}     # the updates before which one more forward pass was counted
        self._num_updates = 0
        self.num_backwards = 0                  # since the last step

    def follow(self, roots: Iterable[torch.nn.Module]) -> None:
        """Follow the first layer of each of these models."""
        self._layers, self._roots = [], []
        for root in roots:
            name, layer = next(((n, m) for n, m in root.named_modules() if _counts(m)), ("", None))
            if layer is not None and len(self._layers) < MAX_LAYERS:
                self._layers.append((name, weakref.ref(layer)))
                self._roots.append(weakref.ref(root))

    def judge_mode(self, step: int) -> None:
        """A layer in eval mode normalises with a mean of 0 and a variance of 1 until it has seen a batch.

        One that is not trained may be part of a backbone that is frozen on purpose.
        """
        for place, (name, ref) in enumerate(self._layers):
            layer, root = ref(), self._roots[place]()
            if layer is not None and root is not None and not layer.training:
                is_empty = all(_is_trained_and_empty(one) for one in root.modules() if _counts(one))
                self._count("TT424", is_empty, LOOKS, step, key=f"TT424:empty:{place}", name=name, value=0.0)

    def step_ended(self, step: int) -> None:
        if not self._layers:
            return
        self._num_updates += 1
        for place, (name, ref) in enumerate(self._layers):
            layer = ref()
            total = _total(layer) if layer is not None else None
            if total is not None:
                self._compare(place, name, total, step)
        self.num_backwards = 0

    def _is_regular(self, place: int) -> bool:
        """Whether single forward passes come at equal distances: a batch that is skipped does not."""
        updates = self._single.setdefault(place, [])
        updates.append(self._num_updates)
        del updates[:-REGULAR]
        gaps = {after - before for before, after in pairwise(updates)}
        return len(updates) == REGULAR and len(gaps) == 1 and min(gaps) > 1

    def _compare(self, place: int, name: str, total: float, step: int) -> None:
        before, self._last[place] = self._last.get(place), total
        if before is None or not self.num_backwards:
            return
        new = total - before
        if self._num_updates <= NUM_USUAL:
            self._usual[place] = max(self._usual.get(place, 0.0), new / self.num_backwards)
            return
        extra = new - self._usual.get(place, 0.0) * self.num_backwards
        is_regular = extra == 1 and self._is_regular(place)
        if (extra >= MIN_EXTRA or is_regular) and place in self._usual:
            new_events = REGULAR if is_regular else 1
            num = self._num_events[place] = self._num_events.get(place, 0) + new_events
            self._num_extra[place] = self._num_extra.get(place, 0) + new_events * round(extra)
            self._count(
                "TT429", num >= MIN_EVENTS, 1, step, name=name, value=float(self._num_extra[place]), share=float(num),
            )


def _counts(module: torch.nn.Module) -> bool:
    return isinstance(module, BATCH_NORM) and isinstance(getattr(module, "num_batches_tracked", None), torch.Tensor)


def _is_trained_and_empty(layer: torch.nn.Module) -> bool:
    weight = layer.weight
    is_trained = isinstance(weight, torch.Tensor) and weight.requires_grad and weight.grad is not None
    return is_trained and not layer.training and _total(layer) == 0.0 and not _has_statistics(layer)


def _has_statistics(layer: torch.nn.Module) -> bool:
    mean, variance = layer.running_mean, layer.running_var
    if not isinstance(mean, torch.Tensor) or not isinstance(variance, torch.Tensor):
        return True
    return not (is_readable(mean) and is_readable(variance)) or bool(mean.any()) or not bool((variance == 1).all())


def _total(layer: torch.nn.Module) -> float | None:
    counted = getattr(layer, "num_batches_tracked", None)
    if not isinstance(counted, torch.Tensor) or not counted.is_cpu:
        return None
    return float(counted.item())

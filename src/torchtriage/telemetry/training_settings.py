"""The settings of a training as series: learning rate, weight decay, momentum, accumulation, clipping threshold."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from torchtriage.recording.recording import Series
from torchtriage.recording.series import (
    BACKWARD_PASSES,
    CLIP_THRESHOLD,
    LEARNING_RATE,
    MOMENTUM,
    WEIGHT_DECAY,
    series_of,
)
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sinks.curves import Curves

_KEYS = ("lr", "weight_decay", "betas", "momentum")
MAX_WAITING = 1024      # changes
MAX_GROUPS = 8      # parameter groups of one optimizer; those of a rate per layer would be many curves


class TrainingSettings:
    """Compares the settings at every step, and records those that changed; at the end, all of them once more."""

    def __init__(self) -> None:
        self._curves = Curves()
        self._last: dict[str, float] = {}       # by series
        self._raw: dict[str, list[Any]] = {}    # by label, to see quickly that nothing has changed
        self._waiting: list[tuple[int, dict[str, float]]] = []
        self._step = 0
        self._num_backwards = 0
        self._threshold: float | None = None

    def backward(self) -> None:
        self._num_backwards += 1

    def clipping(self, threshold: Any) -> None:
        self._threshold = _number(threshold)

    def step_ended(self, optimizer: torch.optim.Optimizer, label: str, step: int) -> None:
        """`label` of an optimizer other than the first."""
        num_backwards, threshold = self._num_backwards, self._threshold
        self._step, self._num_backwards, self._threshold = step, 0, None
        raw = [threshold, num_backwards]
        for group in optimizer.param_groups[:MAX_GROUPS]:
            raw += map(group.get, _KEYS)
        # A tensor may have been changed in place, and comparing it would be an operation on its device.
        has_tensor = torch.Tensor in map(type, raw)
        if not has_tensor and self._raw.get(label) == raw:
            return
        self._raw[label] = [] if has_tensor else raw
        changed = {}
        for name, value in self._settings(optimizer, label, num_backwards, threshold):
            if self._last.get(name) != value:
                changed[name] = self._last[name] = value
        if changed:
            self._waiting.append((step, changed))
            if len(self._waiting) >= MAX_WAITING:
                self._take_in()

    def _settings(
        self, optimizer: torch.optim.Optimizer, label: str, num_backwards: int, threshold: float | None,
    ) -> Iterator[tuple[str, float]]:
        for number, group in enumerate(optimizer.param_groups[:MAX_GROUPS]):
            subject = label
            if number:
                subject = f"{label} {group.get('name') or number}".strip()
            for quantity, value in _of_group(group).items():
                if value is not None:
                    yield series_of(quantity, subject) if subject else quantity, value
        if not label:
            yield BACKWARD_PASSES, float(num_backwards)
            if threshold is not None:
                yield CLIP_THRESHOLD, threshold

    def names(self) -> set[str]:
        return set(self._last)

    def series(self) -> list[Series]:
        self._take_in()
        return self._curves.series()

    def close(self) -> None:
        if self._last and (not self._waiting or self._waiting[-1][0] != self._step):
            self._waiting.append((self._step, dict(self._last)))
        self._take_in()
        self._curves.close()

    def _take_in(self) -> None:
        """On the recorder's thread, or on the program's where it is busy."""
        waiting, self._waiting = self._waiting, []
        for step, values in waiting:
            self._curves.write(Observation(step=step, time=0.0, values=values))


def _of_group(group: Mapping[str, Any]) -> dict[str, float | None]:
    betas = group.get("betas")
    momentum = betas[0] if isinstance(betas, tuple | list) and betas else group.get("momentum")
    return {
        LEARNING_RATE: _number(group.get("lr")), WEIGHT_DECAY: _number(group.get("weight_decay")),
        MOMENTUM: _number(momentum),
    }


def _number(value: Any) -> float | None:
    """A number that can be read without waiting for a device."""
    if isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.is_cpu and value.numel() == 1):
        return float(value)
    return None

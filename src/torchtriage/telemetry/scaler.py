"""What a Monitor knows of the GradScaler that it was given; a value on a device stays there."""

from typing import Any

import torch


class ScalerWatch:
    """A step was skipped if the scale came down with update(), so `step_ended` belongs after it."""

    def __init__(self, scaler: Any, optimizer: torch.optim.Optimizer | None) -> None:
        self._scaler, self._optimizer = scaler, optimizer
        self._next: Any = None          # the scale of the step under way
        self._last: Any = None          # that of the step that ended
        self._skipped: Any = 0.0

    def is_scaled(self) -> bool:
        """Whether the gradients still hold the scale: unscale_() was not called for this optimizer yet."""
        if not self._scaler.is_enabled():
            return False
        if self._next is None:
            self._next = self._now()
        states = getattr(self._scaler, "_per_optimizer_states", {})
        stage = states[id(self._optimizer)].get("stage") if id(self._optimizer) in states else None
        return getattr(stage, "name", "READY") == "READY"

    def step_ended(self) -> bool:
        """Whether it was skipped, as far as that is known without waiting for a device."""
        self._last, self._next = self._next, self._now()
        if self._last is None:
            return False
        skipped = self._next < self._last
        self._skipped = self._skipped + skipped
        return skipped is True

    def scale(self) -> torch.Tensor | float:
        """The scale that the gradients of the step that ended had."""
        known: torch.Tensor | float = self._next if self._last is None else self._last
        return known

    def skipped_total(self) -> torch.Tensor | float:
        total: torch.Tensor | float = self._skipped
        return total

    @property
    def num_skipped(self) -> int | None:
        """None while it is known to a device only."""
        return None if isinstance(self._skipped, torch.Tensor) else int(self._skipped)

    def close(self) -> None:
        """At the end of the run nothing waits for the device any more."""
        self._skipped = float(self._skipped)

    def _now(self) -> torch.Tensor | float:
        held = getattr(self._scaler, "_scale", None)
        if not isinstance(held, torch.Tensor) or held.device.type == "cpu":
            return float(self._scaler.get_scale())
        return held.clone()

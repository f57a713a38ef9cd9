"""What GradScaler did to the gradients of one optimizer since its last step."""

from typing import Any

import torch


class Scaling:
    """A step that it skips shows nothing but that none follows: the next backward or unscaling tells."""

    def __init__(self) -> None:
        self.inv_scale: torch.Tensor | None = None
        self.is_unscaled = False            # since the last step
        self.was_clipped_scaled = False     # clipping came before unscaling
        self.num_skipped = 0
        self.is_used = False
        self._skipped_on_device: torch.Tensor | None = None
        self._scale: torch.Tensor | None = None     # the scaler's own, which it changes in place

    def unscaling(self, inv_scale: torch.Tensor, is_check: bool, scale: torch.Tensor | None = None) -> None:
        """`is_check`: a fused optimizer only wants to know what is finite, and unscales by itself."""
        self.is_used = True
        self._scale = scale
        if not is_check:
            self.inv_scale = inv_scale
            self.is_unscaled = True

    def take_skipped(self) -> bool:
        """Whether gradients were unscaled and no step came of it, now that something new begins."""
        was_skipped, self.is_unscaled = self.is_unscaled, False
        self.num_skipped += was_skipped
        return was_skipped

    def take_last_skipped(self) -> bool:
        """At the end of the run nothing new begins. That the scale came down tells then; the program may also have ended in between."""
        if not self.is_unscaled or self._scale is None or self.inv_scale is None:
            return False
        return float(self._scale) * float(self.inv_scale) < 1.0 and self.take_skipped()

    def clipping(self) -> None:
        self.was_clipped_scaled = not self.is_unscaled

    def step_ended(self, optimizer: Any) -> tuple[torch.Tensor | None, bool]:
        """(the scale that the gradients still hold or None, whether the fused step found them not finite and changed nothing)."""
        self.is_unscaled = False
        found = getattr(optimizer, "found_inf", None)
        is_skipped = False
        if isinstance(found, torch.Tensor):
            self.is_used = True
            if found.device.type == "cpu":
                is_skipped = bool(found)
                self.num_skipped += is_skipped
            else:
                self._count_on_device(found)
        scale = getattr(optimizer, "grad_scale", None)
        return scale if isinstance(scale, torch.Tensor) else None, is_skipped

    def _count_on_device(self, found: torch.Tensor) -> None:
        if self._skipped_on_device is None:
            self._skipped_on_device = torch.zeros_like(found)
        self._skipped_on_device.add_(found)

    def scale(self, held: torch.Tensor | None) -> torch.Tensor | None:
        """The scale of this step."""
        if held is not None:
            return held
        return None if self.inv_scale is None else self.inv_scale.reciprocal()

    def skipped_total(self) -> torch.Tensor | float:
        return float(self.num_skipped) if self._skipped_on_device is None else self._skipped_on_device + self.num_skipped

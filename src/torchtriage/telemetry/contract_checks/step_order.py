"""The order of a step: backward, unscale, clip, step, clear."""

from collections.abc import Callable, Collection

import torch

from torchtriage.telemetry.contract_checks.count import Count, is_readable

PATIENCE = 3            # steps in a row
FIRST_UPDATES = 16      # updates at the start, and after each INTERVAL, whose order is followed
INTERVAL = 512


class StepOrder:
    """Follows the order of calls by numbers: a call belongs to the backward pass that was the last one before it."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._num_backwards = 0
        self._stepped_at: dict[int, int] = {}   # per optimizer: the backward passes before its last step
        self._clips: dict[int, int] = {}        # per first parameter that was clipped: the backward passes before it
        self._num_updates = 0

    @property
    def is_due(self) -> bool:
        return self._num_updates % INTERVAL < FIRST_UPDATES

    def begin_phase(self) -> None:
        """Follow the order as closely as at the start."""
        self._num_updates = 0

    def backward(self) -> None:
        self._num_backwards += 1

    def clipping(self, parameters: Collection[torch.Tensor]) -> None:
        if self.is_due:
            self._clips.update((id(p), self._num_backwards) for p in list(parameters)[:1])

    def unscaling(self, optimizer: torch.optim.Optimizer, scale: float, step: int) -> None:
        """GradScaler divides the gradients now: clipping since the last backward pass saw them too large."""
        if self.is_due and scale > 1.0:
            clipped_at = self._clipped_at(optimizer)
            last = self._stepped_at.get(id(optimizer), 0)
            if clipped_at is not None:
                key = f"TT428:scaled:{id(optimizer)}"
                is_scaled = clipped_at == self._num_backwards > last
                self._count("TT428", is_scaled, PATIENCE, step, key=key, name="scaled", value=scale)

    def step_begins(self, optimizer: torch.optim.Optimizer, step: int, is_reached: Callable[[int], bool]) -> None:
        """`is_reached`: whether a loss leads to the parameter with this id."""
        last = self._stepped_at.get(id(optimizer), 0)
        if self._num_backwards > last and self.is_due:
            self._judge_gradients(optimizer, step, is_reached)
            clipped_at = self._clipped_at(optimizer)
            # A clip before the first backward pass of a step cannot change a gradient that the step uses.
            if clipped_at is not None and clipped_at >= last:
                key = f"TT428:order:{id(optimizer)}"
                self._count("TT428", clipped_at <= last, PATIENCE, step, key=key, name="order")
        self._stepped_at[id(optimizer)] = self._num_backwards

    def step_ended(self) -> None:
        self._num_updates += 1

    def _clipped_at(self, optimizer: torch.optim.Optimizer) -> int | None:
        """The place of the last clipping of a parameter of this optimizer."""
        places = [
            self._clips[id(p)] for group in optimizer.param_groups for p in group["params"] if id(p) in self._clips
        ]
        return max(places, default=None)

    def _judge_gradients(
        self, optimizer: torch.optim.Optimizer, step: int, is_reached: Callable[[int], bool],
    ) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not all(map(is_readable, gradients)):
            return
        is_empty = not any(bool(gradient.any()) for gradient in gradients)    # torchtriage: ignore[TT701] on the CPU
        is_broken = is_empty and any(is_reached(id(p)) for p in parameters)
        name = "zero" if gradients else "none"
        key = f"TT427:{id(optimizer)}"
        self._count("TT427", is_broken, PATIENCE, step, key=key, name=name, value=float(len(parameters)))

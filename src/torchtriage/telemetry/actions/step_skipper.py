"""Keeps the step of an optimizer from changing anything if a gradient is not finite, without waiting for a device."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchtriage.errors import TriageError, pass_on_signals
from torchtriage.telemetry.statistics.columns import why_refused


class StepSkipper:
    """Hooks of one optimizer. On the CPU a bad step sees no gradient. Elsewhere it is undone on the device.

    Undoing takes a copy of the weights and of the optimizer's state. `on_skip` is called where the skip is known.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, on_skip: Callable[[], None], on_failure: Callable[[str], None],
    ) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise TriageError("skip_non_finite needs an optimizer whose gradients are there before its step; "
                              "LBFGS computes them inside of it")
        self._optimizer = optimizer
        self._on_skip, self._on_failure = on_skip, on_failure
        self._gradients: list[tuple[torch.Tensor, torch.Tensor]] = []       # withheld from a step on the CPU
        self._undo: tuple[torch.Tensor, dict[int, torch.Tensor]] | None = None      # (is bad, copies by id)
        self._skipped_on_device: torch.Tensor | None = None
        self._hooks = [
            optimizer.register_step_pre_hook(self._before), optimizer.register_step_post_hook(self._after),
        ]

    def num_undone(self) -> int:
        """The number of steps that were undone on a device; reading it waits for the device."""
        return 0 if self._skipped_on_device is None else int(self._skipped_on_device.item())

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_dynamo_compiling():
            return
        try:
            if any(callable(given) for given in (*args[1:], kwargs.get("closure"))):
                self._fail("step() was given a closure, which computes the gradients inside of it")
                return
            with_grad = [(p, p.grad) for p in self._parameters() if p.grad is not None]
            if reasons := list(filter(None, (why_refused(grad) for _, grad in with_grad))):
                self._fail(f"a gradient {reasons[0]}")
                return
            # The largest magnitude: it is not finite if any element is not, and cannot overflow.
            largest = torch.nn.utils.get_total_norm([grad for _, grad in with_grad], norm_type=math.inf)
            if not is_read_without_waiting(largest):
                self._undo = (~torch.isfinite(largest), {id(t): t.detach().clone() for t in self._tensors()})
            elif not math.isfinite(largest.item()):
                self._withhold(with_grad)
        except Exception as error:
            pass_on_signals(error)
            self._fail(f"{type(error).__name__}: {error}")

    def _withhold(self, with_grad: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """An optimizer leaves parameters without a gradient alone, and with them their state."""
        for parameter, _ in with_grad:
            parameter.grad = None
        self._gradients = with_grad

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_dynamo_compiling():
            return
        if self._gradients:
            for parameter, grad in self._gradients:
                parameter.grad = grad
            self._gradients = []
            self._on_skip()
        if self._undo is not None:
            (is_bad, before), self._undo = self._undo, None
            self._put_back(is_bad, before)

    def _put_back(self, is_bad: torch.Tensor, before: dict[int, torch.Tensor]) -> None:
        with torch.no_grad():
            for tensor in self._tensors():
                # State that the first step made begins with zeros.
                old = before.get(id(tensor), torch.zeros_like(tensor))
                tensor.copy_(torch.where(is_bad.to(tensor.device), old, tensor))
        number = is_bad.to(torch.int64)
        self._skipped_on_device = number if self._skipped_on_device is None else self._skipped_on_device + number

    def _parameters(self) -> Iterator[torch.Tensor]:
        for group in self._optimizer.param_groups:
            yield from group["params"]

    def _tensors(self) -> Iterator[torch.Tensor]:
        """What a step changes: parameters and the tensors of the optimizer's state."""
        for parameter in self._parameters():
            yield parameter
            yield from filter(torch.is_tensor, self._optimizer.state.get(parameter, {}).values())

    def _fail(self, reason: str) -> None:
        self.close()
        self._on_failure(reason)


def is_read_without_waiting(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_cpu)


def skipper_of(
    optimizer: torch.optim.Optimizer | None, on_skip: Callable[[], None], warn: Callable[[str, str], None],
) -> StepSkipper:
    """The skipper of a Monitor with `skip_non_finite`."""
    if optimizer is None:
        raise TriageError("skip_non_finite needs the optimizer: Monitor(model, optimizer, skip_non_finite=True)")
    failed = functools.partial(warn, "skip_non_finite")
    return StepSkipper(optimizer, on_skip, lambda reason: failed(f"steps are no longer skipped: {reason}"))

"""Mixed precision in a training: GradScaler's scale, the steps it skips, the 16-bit type of autocast."""

from typing import Any

import torch

MAX_LOSSES_INSPECTED = 3    # losses whose graph is searched for the type they were computed in
# Graph nodes searched per loss; with autocast a 16-bit one is among the last before the loss.
MAX_NODES = 512
_HALF_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}


class ScalerWatch:
    """Follows what GradScaler does to the gradients of one optimizer. Values on a device stay there."""

    def __init__(self) -> None:
        self.is_used = False
        self.was_clipped_scaled = False     # clipping came before unscaling
        self._num_skipped = 0
        self._skipped_on_device: torch.Tensor | None = None

    @property
    def num_skipped(self) -> int | None:
        """The number of skipped steps; None if it is only available on a device."""
        return self._num_skipped

    def skipped_total(self) -> torch.Tensor | float:
        if self._skipped_on_device is None:
            return float(self._num_skipped)
        return self._skipped_on_device + self._num_skipped

    def scale(self) -> torch.Tensor | float | None:
        """The scale of the step that ended; None if it is unknown."""
        raise NotImplementedError

    def end(self) -> bool:
        """Called at the end of the run, where waiting for a device is fine.

        Whether the last step was skipped and not counted yet.
        """
        raise NotImplementedError

    def _count(self, is_skipped: bool | torch.Tensor) -> None:
        if not isinstance(is_skipped, torch.Tensor):
            self._num_skipped += is_skipped
        elif self._skipped_on_device is None:
            self._skipped_on_device = is_skipped.to(torch.float32, copy=True)     # the scaler reuses its own
        else:
            self._skipped_on_device = self._skipped_on_device + is_skipped


class MonitorScaler(ScalerWatch):
    """The GradScaler passed to a Monitor. A lower scale after its update() means a skipped step."""

    def __init__(self, scaler: Any, optimizer: torch.optim.Optimizer | None) -> None:
        super().__init__()
        self.is_used = True
        self._scaler, self._optimizer = scaler, optimizer
        self._next: Any = None          # the scale of the current step
        self._last: Any = None          # the scale of the step that ended

    @property
    def num_skipped(self) -> int | None:
        return None if self._skipped_on_device is not None else self._num_skipped

    def is_scaled(self) -> bool:
        """Whether the gradients still include the scale: unscale_() has not been called for this optimizer yet."""
        if not self._scaler.is_enabled():
            return False
        if self._next is None:
            self._next = self._now()
        states = getattr(self._scaler, "_per_optimizer_states", {})
        stage = states[id(self._optimizer)].get("stage") if id(self._optimizer) in states else None
        return getattr(stage, "name", "READY") == "READY"

    def step_ended(self) -> bool:
        """Whether the step was skipped, as far as that is known without waiting for a device."""
        self._last, self._next = self._next, self._now()
        if self._last is None:
            return False
        is_skipped = self._next < self._last
        self._count(is_skipped)
        return is_skipped is True

    def scale(self) -> torch.Tensor | float | None:
        scale: torch.Tensor | float = self._next if self._last is None else self._last
        return scale

    def end(self) -> bool:
        if self._skipped_on_device is not None:
            self._num_skipped += int(self._skipped_on_device)
            self._skipped_on_device = None
        return False

    def _now(self) -> torch.Tensor | float:
        scale = getattr(self._scaler, "_scale", None)
        if not isinstance(scale, torch.Tensor) or scale.device.type == "cpu":
            return float(self._scaler.get_scale())
        return scale.clone()


class TappedScaler(ScalerWatch):
    """A GradScaler observed by taps.

    It skips a step silently: the next backward or unscaling shows that no step followed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_unscaled = False            # since the last step
        self._inv_scale: torch.Tensor | None = None
        self._fused_scale: torch.Tensor | None = None      # the scale that gradients still included in a fused step
        self._scale: torch.Tensor | None = None     # the scaler's own tensor, which it changes in place

    def unscaling(self, inv_scale: torch.Tensor, is_check: bool, scale: torch.Tensor | None = None) -> None:
        """`is_check`: for a fused optimizer, which unscales by itself, GradScaler only checks for non-finite
        gradients.
        """
        self.is_used = True
        self._scale = scale
        if not is_check:
            self._inv_scale = inv_scale
            self.is_unscaled = True

    def clipping(self) -> None:
        self.was_clipped_scaled = not self.is_unscaled

    def take_skipped(self) -> bool:
        """Called when a new step begins: whether gradients were unscaled and no optimizer step followed."""
        was_skipped, self.is_unscaled = self.is_unscaled, False
        self._num_skipped += was_skipped
        return was_skipped

    def step_ended(self, optimizer: Any) -> bool:
        """Whether a fused step found non-finite gradients and changed nothing."""
        self.is_unscaled = False
        found_inf = getattr(optimizer, "found_inf", None)
        is_skipped = False
        if isinstance(found_inf, torch.Tensor):
            self.is_used = True
            is_skipped = found_inf.device.type == "cpu" and bool(found_inf)
            self._count(is_skipped if found_inf.device.type == "cpu" else found_inf)
        scale = getattr(optimizer, "grad_scale", None)
        self._fused_scale = scale if isinstance(scale, torch.Tensor) else None
        return is_skipped

    def scale(self) -> torch.Tensor | float | None:
        if self._fused_scale is not None:
            return self._fused_scale
        return None if self._inv_scale is None else self._inv_scale.reciprocal()

    def end(self) -> bool:
        """No new step begins, so only a lower scale shows a skip; the program may also have ended between two calls."""
        if not self.is_unscaled or self._scale is None or self._inv_scale is None:
            return False
        return float(self._scale) * float(self._inv_scale) < 1.0 and self.take_skipped()


class AutocastWatch:
    """Finds the 16-bit type in which autocast computes the loss, from its graph: backward() is usually called outside
    autocast.
    """

    def __init__(self) -> None:
        self.dtype = ""
        self.num_left = MAX_LOSSES_INSPECTED

    def inspect(self, loss: Any) -> bool:
        """Whether this loss is the first that shows the type."""
        if not self.num_left or not isinstance(loss, torch.Tensor):
            return False
        self.num_left -= 1
        self.dtype = _half_type(loss)
        self.num_left = 0 if self.dtype else self.num_left
        return bool(self.dtype)


def _half_type(loss: torch.Tensor) -> str:
    device = loss.device.type
    if torch.is_autocast_enabled(device):
        return _HALF_NAMES.get(torch.get_autocast_dtype(device), "")
    nodes: list[Any] = [loss.grad_fn] if loss.grad_fn is not None else []
    queued = set(nodes)
    for node in nodes:      # grows while it is walked
        # Private; without it only an active autocast is detected.
        for metadata in getattr(node, "_input_metadata", ()):
            if metadata.dtype in _HALF_NAMES:
                return _HALF_NAMES[metadata.dtype]
        new = [inner for inner, _ in node.next_functions if inner is not None and inner not in queued]
        queued.update(new)
        nodes += new[: MAX_NODES - len(nodes)]
    return ""

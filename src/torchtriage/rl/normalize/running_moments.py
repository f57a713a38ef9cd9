"""Running moments of samples as a module, the state of every normalizer."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchtriage.errors import level_of_the_caller
from torchtriage.rl.normalize.moments import Moments, of_rows

STATE_VERSION = 1
EXTRA = "_extra_state"  # the key under which torch stores the result of get_extra_state


class RunningMoments(nn.Module):  # type: ignore[misc]  # torch is untyped for mypy here
    """Mean, population variance and count of all samples so far, in float64.

    It is float32 on MPS, which has no float64: construct it there. The buffers change in place: Dynamo takes them as
    inputs of one graph, and a policy that contains this module moves and saves it. A sample with a non-finite value is
    ignored and counted in `num_rejected`; raising an error would need a host sync and a graph break. Under DDP pass
    broadcast_buffers=False, otherwise each forward replaces the statistics of all ranks by those of rank 0.
    """

    # Numbers beside the buffers; loading a state replaces them, as for an optimizer.
    SETTINGS: ClassVar[tuple[str, ...]] = ("frozen",)

    mean: Tensor
    var: Tensor
    count: Tensor
    num_rejected: Tensor

    def __init__(
        self, shape: int | Sequence[int], initial: tuple[float, float, float], device: Any, strict_device: bool
    ) -> None:
        super().__init__()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if not all(size > 0 for size in self.shape):
            raise ValueError(
                f"shape must have sizes above 0, got {self.shape}; give the shape of one sample, () for numbers"
            )
        count, mean, var = initial
        dtype = torch.float32 if device is not None and torch.device(device).type == "mps" else torch.float64
        # Each has at least one dimension: inductor silently drops in-place writes to a zero-dimensional float64 tensor
        # on the CPU (torch 2.13).
        self.register_buffer("mean", torch.full(self.shape or (1,), mean, dtype=dtype, device=device))
        self.register_buffer("var", torch.full(self.shape or (1,), var, dtype=dtype, device=device))
        self.register_buffer("count", torch.full((1,), count, dtype=dtype, device=device))
        self.register_buffer("num_rejected", torch.tensor(0, device=device))
        self.strict_device = strict_device
        self.frozen = False
        self._has_warned = False

    def update(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Add samples `[..., *shape]`; with a mask `[...]`, only those where it is true."""
        self._check_input(x)
        if self.frozen:
            return
        with torch.no_grad():
            rows_NF = x.detach().to(self.mean.dtype).reshape(-1, math.prod(self.shape))
            keep_N = rows_NF.isfinite().all(1)
            rejected_N = ~keep_N
            if mask is not None:
                mask_N = self._mask(x, mask)
                keep_N, rejected_N = keep_N & mask_N, rejected_N & mask_N
            batch = of_rows(rows_NF, keep_N)
            batch = batch._replace(mean=batch.mean.view_as(self.mean), var=batch.var.view_as(self.var))
            self._store(self._after(batch))
            self.num_rejected.add_(rejected_N.sum())

    def freeze(self) -> None:
        """Ignore updates until `unfreeze`."""
        self.frozen = True

    def unfreeze(self) -> None:
        self.frozen = False

    def _after(self, batch: Moments) -> Moments:
        """The moments after a batch."""
        raise NotImplementedError

    @property
    def _moments(self) -> Moments:
        return Moments(self.count, self.mean, self.var)

    def _store(self, moments: Moments) -> None:
        self.count.copy_(moments.count)
        self.mean.copy_(moments.mean)
        self.var.copy_(moments.var)

    def _check_input(self, x: Tensor) -> None:
        """Check the type and shape of an input, and move to its device."""
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{type(self).__name__} expects a tensor, got {type(x).__name__}; pass torch.as_tensor(...) of it"
            )
        if x.shape[max(0, x.dim() - len(self.shape)) :] != self.shape:
            raise ValueError(
                f"{type(self).__name__} expects samples of shape [..., *{self.shape}], got {tuple(x.shape)}; "
                "the last dimensions must be those of one sample"
            )
        if x.device != self.mean.device:
            self._move_to(x.device)

    def _mask(self, x: Tensor, mask: Tensor) -> Tensor:
        expected = x.shape[: x.dim() - len(self.shape)]
        if mask.shape != expected:
            raise ValueError(
                f"mask must have one entry per sample, shape {tuple(expected)}, got {tuple(mask.shape)}; "
                "leave the sample's own dimensions out"
            )
        return mask.to(torch.bool).reshape(-1)

    def _like(self, x: Tensor, values: Tensor) -> Tensor:
        """`values`, computed from `x` in float64, with the shape and the floating-point type of `x`."""
        return values.reshape(x.shape).to(x.dtype if x.is_floating_point() else torch.get_default_dtype())

    @torch.compiler.disable(reason="normalizer and input are on different devices")  # type: ignore[untyped-decorator]
    def _move_to(self, device: torch.device) -> None:
        name, current = type(self).__name__, self.mean.device
        advice = (
            f"construct it with device={str(device)!r} or move it there before training: in a compiled region the move"
            " breaks the graph"
        )
        if self.strict_device:
            raise RuntimeError(
                f"{name} has strict_device set and its statistics on {current}, got an input on {device}; {advice}"
            )
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{name} moves its statistics from {current} to {device}; {advice}", stacklevel=level_of_the_caller()
            )
        # Otherwise a move during a rollout would create inference tensors, which no later update may change.
        with torch.inference_mode(False):
            self.to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RunningMoments":
        """half() or to(bfloat16) of a model moves the statistics, but does not change their precision."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            if self._buffers[name].dtype != buffer.dtype:
                self._buffers[name] = buffer.to(self._buffers[name].device)
        return self

    def get_extra_state(self) -> Tensor:
        """The version, then SETTINGS (None as NaN).

        It is a tensor, since code that averages or sends state dicts often accepts only tensors.
        """
        numbers = [float(STATE_VERSION)]
        for name in self.SETTINGS:
            value = getattr(self, name)
            numbers.append(math.nan if value is None else float(value))
        return torch.tensor(numbers, dtype=torch.float64, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        for name, value in zip(self.SETTINGS, state.tolist()[1:], strict=True):
            current = getattr(self, name)
            if math.isnan(value):
                setattr(self, name, None)
            else:
                setattr(self, name, type(current)(value) if isinstance(current, int) else value)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        ours = {name: state_dict[prefix + name] for name in (*self._buffers, EXTRA) if prefix + name in state_dict}
        problem = self._problem(ours) if ours else None  # without any of these keys, torch reports the missing ones
        if problem is None:
            super()._load_from_state_dict(state_dict, prefix, *rest)
        else:
            error_messages = rest[-1]
            error_messages.append(f"{prefix}{type(self).__name__}: {problem}")

    def _problem(self, state: Mapping[str, Any]) -> str | None:
        """Why a state cannot be loaded, if so; then no part of it is loaded."""
        version = int(state[EXTRA][0]) if EXTRA in state and len(state[EXTRA]) == len(self.SETTINGS) + 1 else None
        if version != STATE_VERSION:
            version_text = "one without a version" if version is None else f"version {version}"
            return (
                f"expected a state of version {STATE_VERSION}, found {version_text}; load it with the release that "
                "wrote it, or leave out its keys to start new statistics"
            )
        for name, buffer in self._buffers.items():
            if name in state and state[name].shape != buffer.shape:
                return (
                    f"expected {name} of shape {tuple(buffer.shape)}, found {tuple(state[name].shape)}; "
                    f"construct it with shape={tuple(state.get('mean', state[name]).shape)}, or start new statistics"
                )
        return None

    def extra_repr(self) -> str:
        return ", ".join([f"shape={self.shape}", *(f"{name}={getattr(self, name)}" for name in self.SETTINGS)])

"""Health of a recurrent state: is it finite, does it explode, has it vanished, in which environment."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from torchtriage.diagnosis.learning.limits import LearningLimits
from torchtriage.diagnosis.learning.rules.recurrent import recurrent_finite, recurrent_range
from torchtriage.recording.series import LSTM_PREFIX

# Shape suffixes: L layers, B environments, H hidden units.


@dataclass(frozen=True, slots=True, kw_only=True)
class LSTMHealthMetrics:
    """Of one state (h, c), over its finite elements. L2 grows with the number of elements, so RMS is judged and L2 is information."""

    h_rms: float
    h_rms_mean: float   # mean, max and min are over the environments
    h_rms_max: float
    h_rms_min: float
    h_max_abs: float
    h_l2: float
    c_rms: float
    c_rms_mean: float
    c_rms_max: float
    c_rms_min: float
    c_max_abs: float
    c_l2: float
    has_nan: bool
    has_inf: bool

    @classmethod
    def from_tensor(cls, health: Tensor) -> "LSTMHealthMetrics":
        """From what `lstm_health_tensor` returned; this is the one transfer from the device."""
        *numbers, has_nan, has_inf = health.tolist()
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**dict(zip(names, [*numbers, has_nan > 0, has_inf > 0], strict=True)))

    def is_healthy(self, limits: LearningLimits | None = None) -> bool:
        """Whether no rule of recurrent state (TT501 to TT504) has a word to say."""
        limits = limits or LearningLimits()
        breaches = [
            *recurrent_finite(self.has_nan, self.has_inf),
            *recurrent_range("h", self.h_rms, self.h_rms_max, limits), *recurrent_range("c", self.c_rms, self.c_rms_max, limits),
        ]
        return not breaches

    def to_dict(self) -> dict[str, float]:
        """By metric name, as the rules know them."""
        return {LSTM_PREFIX + name: float(value) for name, value in dataclasses.asdict(self).items()}


@torch.compiler.disable(reason="reads numbers back to the host; inside a compiled function use lstm_health_tensor")  # type: ignore[untyped-decorator]
@torch.inference_mode()  # type: ignore[untyped-decorator]
def compute_lstm_health(state: tuple[Tensor, Tensor] | None) -> LSTMHealthMetrics | None:
    """The health of (h, c), each [layers, environments, hidden]; None if there is no state or nothing in it. One transfer."""
    if state is None:
        return None
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        found = f"{type(state).__name__} of {len(state)}" if isinstance(state, (tuple, list)) else type(state).__name__
        raise ValueError(f"an LSTM state is a pair (h, c), got a {found}; pass the second result of nn.LSTM")
    h_LBH, c_LBH = state
    health = lstm_health_tensor(h_LBH, c_LBH)
    return LSTMHealthMetrics.from_tensor(health) if h_LBH.numel() and c_LBH.numel() else None


def lstm_health_tensor(h_LBH: Tensor, c_LBH: Tensor) -> Tensor:
    """The same as one tensor on the device, without a transfer: safe inside a full-graph compiled function. `from_tensor` reads it."""
    with torch.no_grad():
        (*h, h_nan, h_inf), (*c, c_nan, c_inf) = _columns("h", h_LBH), _columns("c", c_LBH)
        # Booleans travel as numbers: all of one type fit one stack, and so one transfer.
        return torch.stack([*h, *c, torch.maximum(h_nan, c_nan), torch.maximum(h_inf, c_inf)])


def _columns(name: str, x_LBH: Tensor) -> list[Tensor]:
    """In the order of the fields of LSTMHealthMetrics, then whether there is a NaN and an Inf."""
    if x_LBH.dim() != 3:
        raise ValueError(f"{name} must be [layers, environments, hidden], got {tuple(x_LBH.shape)}; for an LSTMCell: {name}.unsqueeze(0)")
    dtype = torch.float32 if x_LBH.device.type == "mps" else torch.float64     # squares of float32 overflow from 1.8e19 on
    if x_LBH.numel() == 0:
        return [x_LBH.new_zeros((), dtype=dtype)] * 8
    num_nan_B, num_inf_B = x_LBH.isnan().sum((0, 2)), x_LBH.isinf().sum((0, 2))
    known_LBH = x_LBH.nan_to_num(0.0, 0.0, 0.0)
    count_B = (x_LBH.shape[0] * x_LBH.shape[2] - num_nan_B - num_inf_B).to(dtype)
    l2_B = torch.linalg.vector_norm(known_LBH, dim=(0, 2), dtype=dtype)
    rms_B = l2_B / count_B.clamp(min=1).sqrt()
    l2 = torch.linalg.vector_norm(l2_B)
    rms = l2 / count_B.sum().clamp(min=1).sqrt()
    max_abs = known_LBH.abs().amax().to(dtype)
    return [rms, rms_B.mean(), rms_B.amax(), rms_B.amin(), max_abs, l2, num_nan_B.any().to(dtype), num_inf_B.any().to(dtype)]

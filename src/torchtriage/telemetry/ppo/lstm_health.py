"""Health of a recurrent state: whether it is finite, explodes or has vanished in some environment."""

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
    """Statistics of one state (h, c), over its finite elements.

    The rules use RMS, because L2 grows with the number of elements.
    """

    h_rms: float
    h_rms_mean: float   # mean, max and min over the environments
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
        """Read the result of `lstm_health_tensor`, in one transfer from the device."""
        *numbers, has_nan, has_inf = health.tolist()
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**dict(zip(names, [*numbers, has_nan > 0, has_inf > 0], strict=True)))

    def is_healthy(self, limits: LearningLimits | None = None) -> bool:
        """Whether no rule for recurrent state (TT501 to TT504) fires."""
        limits = limits or LearningLimits()
        breaches = [
            *recurrent_finite(self.has_nan, self.has_inf),
            *recurrent_range("h", self.h_rms, self.h_rms_max, limits),
            *recurrent_range("c", self.c_rms, self.c_rms_max, limits),
        ]
        return not breaches

    def to_dict(self) -> dict[str, float]:
        """The values by series name, as the rules read them."""
        return {LSTM_PREFIX + name: float(value) for name, value in dataclasses.asdict(self).items()}


@torch.compiler.disable(  # type: ignore[untyped-decorator]
    reason="reads numbers back to the host; inside a compiled function use lstm_health_tensor",
)
@torch.inference_mode()  # type: ignore[untyped-decorator]
def compute_lstm_health(state: tuple[Tensor, Tensor] | None) -> LSTMHealthMetrics | None:
    """The health of (h, c), each [layers, environments, hidden], in one transfer; None without a state or elements."""
    if state is None:
        return None
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        kind = type(state).__name__
        if isinstance(state, (tuple, list)):
            kind = f"{kind} of {len(state)}"
        raise ValueError(f"an LSTM state must be a pair (h, c), got a {kind}; pass the second result of nn.LSTM")
    h_LBH, c_LBH = state
    health = lstm_health_tensor(h_LBH, c_LBH)
    return LSTMHealthMetrics.from_tensor(health) if h_LBH.numel() and c_LBH.numel() else None


def lstm_health_tensor(h_LBH: Tensor, c_LBH: Tensor) -> Tensor:
    """The health as one tensor on the device, for use inside a full-graph compiled function. `from_tensor` reads it."""
    with torch.no_grad():    # torchtriage: ignore[TT718] a decorator is traced as well
        (*h, h_nan, h_inf), (*c, c_nan, c_inf) = _columns("h", h_LBH), _columns("c", c_LBH)
        # Booleans become numbers: values of one type fit into one stack, and so into one transfer.
        return torch.stack([*h, *c, torch.maximum(h_nan, c_nan), torch.maximum(h_inf, c_inf)])


def _columns(name: str, x_LBH: Tensor) -> list[Tensor]:
    """The statistics in the order of LSTMHealthMetrics, then whether there is a NaN and an Inf."""
    if x_LBH.dim() != 3:
        raise ValueError(
            f"{name} must be [layers, environments, hidden], got {tuple(x_LBH.shape)}; "
            f"for an LSTMCell give {name}.unsqueeze(0)"
        )
    # In float32 squares overflow above 1.8e19.
    dtype = torch.float32 if x_LBH.device.type == "mps" else torch.float64
    if x_LBH.numel() == 0:
        return [x_LBH.new_zeros((), dtype=dtype)] * 8
    num_nan_B, num_inf_B = x_LBH.isnan().sum((0, 2)), x_LBH.isinf().sum((0, 2))
    finite_LBH = x_LBH.nan_to_num(0.0, 0.0, 0.0)
    count_B = (x_LBH.shape[0] * x_LBH.shape[2] - num_nan_B - num_inf_B).to(dtype)
    l2_B = torch.linalg.vector_norm(finite_LBH, dim=(0, 2), dtype=dtype)
    rms_B = l2_B / count_B.clamp(min=1).sqrt()
    l2 = torch.linalg.vector_norm(l2_B)
    rms = l2 / count_B.sum().clamp(min=1).sqrt()
    max_abs = finite_LBH.abs().amax().to(dtype)
    has_nan, has_inf = num_nan_B.any().to(dtype), num_inf_B.any().to(dtype)
    return [rms, rms_B.mean(), rms_B.amax(), rms_B.amin(), max_abs, l2, has_nan, has_inf]

"""Health of the hidden state that a recurrent policy carries along."""

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class CellHealth:
    hidden_norm: float
    cell_norm: float
    hidden_max: float
    cell_max: float
    has_nan: bool
    has_inf: bool

    def is_healthy(self, ceiling: float = 100.0, floor: float = 1e-6) -> bool:
        """Whether both norms are within limits and every number is finite."""
        if self.has_nan or self.has_inf:
            return False
        return floor < self.hidden_norm < ceiling and floor < self.cell_norm < ceiling


def cell_health(state: tuple[torch.Tensor, torch.Tensor] | None) -> CellHealth | None:
    """Measures (h, c); None before the first step."""
    if state is None:
        return None
    h, c = state
    with torch.inference_mode():
        numbers = torch.stack([
            torch.linalg.vector_norm(h),
            torch.linalg.vector_norm(c),
            h.abs().max(),
            c.abs().max(),
            torch.isnan(h).any().float(),
            torch.isnan(c).any().float(),
            torch.isinf(h).any().float(),
            torch.isinf(c).any().float(),
        ])
        h_norm, c_norm, h_max, c_max, h_nan, c_nan, h_inf, c_inf = numbers.tolist()
    return CellHealth(h_norm, c_norm, h_max, c_max, bool(h_nan or c_nan), bool(h_inf or c_inf))

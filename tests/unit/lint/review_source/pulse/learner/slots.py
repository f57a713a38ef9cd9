"""The state of one environment while several run side by side."""

from dataclasses import dataclass, field

import torch


@dataclass
class SlotState:
    device: str = "cpu"
    pairs: list[tuple[int, int]] = field(default_factory=list)
    reward_sum: torch.Tensor | None = None
    pair_sums: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)

    def reset(self) -> None:
        self.reward_sum = torch.zeros(1, device=self.device)
        self.pair_sums = {pair: torch.zeros(1, device=self.device) for pair in self.pairs}

    def add(self, pair: tuple[int, int], value: torch.Tensor) -> None:
        self.pair_sums[pair] += value

"""Counters of N environments in an epoch, in training as well as for every subset of the slots."""

from typing import Any

import torch
from torch import Tensor, nn

from torchtriage.rl.growth.subsets import check_num_slots, pairs, subset_number

# N environments, S slots, L pairs of slots, C subsets of the slots (2 ** S).


class ParallelEnvState(nn.Module):  # type: ignore[misc]  # torch is untyped for mypy here
    """Accumulators of N environments that a full-graph compiled region zeroes, adds to and reads.

    Pairs of slots are one flat tensor, indexed by pair number. A dictionary with (i, j) as keys would make Dynamo guard
    on every key, and a region that takes the pair as an argument would compile once per pair.
    """

    train_loss_N: Tensor
    train_correct_N: Tensor
    num_train: Tensor
    val_loss_N: Tensor
    val_correct_N: Tensor  # with all slots on
    num_val: Tensor
    none_correct_N: Tensor
    alone_correct_NS: Tensor  # only slot s on
    off_correct_NS: Tensor  # all but slot s on
    pair_correct_NL: Tensor  # only the two slots of a pair on

    def __init__(self, num_envs: int, num_slots: int, device: Any = None) -> None:
        super().__init__()
        check_num_slots(num_slots)
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        self.num_envs, self.num_slots = num_envs, num_slots
        all_slots = (1 << num_slots) - 1
        alone = [subset_number(s) for s in range(num_slots)]
        off = [all_slots - number for number in alone]
        pair = [subset_number(i, j) for i, j in pairs(num_slots)]
        for name in ("train_loss_N", "train_correct_N", "val_loss_N", "val_correct_N", "none_correct_N"):
            self.register_buffer(name, torch.zeros(num_envs, device=device))
        for name in ("num_train", "num_val"):
            self.register_buffer(name, torch.zeros(1, device=device))
        for name, numbers in (("alone", alone), ("off", off), ("pair", pair)):
            self.register_buffer(
                f"{name}_correct_N{'L' if name == 'pair' else 'S'}", torch.zeros(num_envs, len(numbers), device=device)
            )
            self.register_buffer(f"_{name}", torch.tensor(numbers, device=device), persistent=False)
        # With three slots the pairs are also the subsets with one slot off; each subset is read from one place.
        stored = [0, *alone, *pair, *(off if num_slots > 3 else ()), all_slots]
        self.register_buffer("_place_C", torch.tensor(stored, device=device).argsort(), persistent=False)

    def zero_(self) -> None:
        """Begin an epoch: set every accumulator to 0 in place."""
        for accumulator in self.buffers():
            if accumulator.is_floating_point():
                accumulator.zero_()

    def add_train(self, loss_N: Tensor, correct_N: Tensor, num_rows: int) -> None:
        """Add a training minibatch: the summed loss and the correct answers of each environment."""
        self.train_loss_N.add_(loss_N)
        self.train_correct_N.add_(correct_N)
        self.num_train.add_(num_rows)

    def add_validation(self, loss_N: Tensor, correct_NC: Tensor, num_rows: int) -> None:
        """Add a validation batch: the summed loss with all slots on, and the correct answers with each subset on."""
        self.val_loss_N.add_(loss_N)
        self.val_correct_N.add_(correct_NC[:, -1])
        self.none_correct_N.add_(correct_NC[:, 0])
        self.alone_correct_NS.add_(correct_NC[:, self._alone])
        self.off_correct_NS.add_(correct_NC[:, self._off])
        self.pair_correct_NL.add_(correct_NC[:, self._pair])
        self.num_val.add_(num_rows)

    def accuracies(self) -> Tensor:
        """Validation accuracy [N, C] with each subset of the slots on, by subset number; 0 before any validation."""
        off = [self.off_correct_NS] if self.num_slots > 3 else []
        stored = [
            self.none_correct_N.unsqueeze(1),
            self.alone_correct_NS,
            self.pair_correct_NL,
            *off,
            self.val_correct_N.unsqueeze(1),
        ]
        return torch.cat(stored, 1)[:, self._place_C] / self.num_val.clamp(min=1)

    def train_accuracies(self) -> Tensor:
        return self.train_correct_N / self.num_train.clamp(min=1)

    def mean_losses(self) -> Tensor:
        """Mean loss in training and in validation, [N, 2]."""
        return torch.stack(
            [self.train_loss_N / self.num_train.clamp(min=1), self.val_loss_N / self.num_val.clamp(min=1)], 1
        )

"""The transitions of one rollout, in tensors that are allocated once, from which minibatches are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from torchtriage.rl.envs.protocol import Outcome
from torchtriage.rl.envs.spaces import Spaces
from torchtriage.rl.ppo.advantages import gae

# T steps, N environments, B rows or sequences of a minibatch, O observation size, A action size, S numbers of recurrent
# state, F numbers of a transition, W actions as numbers (A, or 1 if discrete).


class Minibatch(NamedTuple):
    """A batch of transitions to learn from; an MLP has T=1. All tensors are overwritten by the next minibatch."""

    observation_TBO: Tensor
    action_TB: Tensor  # int64; continuous: float32 [T, B, A]
    log_prob_TB: Tensor  # of the policy that acted
    value_TB: Tensor  # of the policy that acted
    advantage_TB: Tensor
    return_TB: Tensor
    keep_TB: Tensor  # 0 where the observation starts an episode, else 1
    weight_TB: Tensor  # 0 for dead transitions and padding, else 1: every mean over the minibatch is weighted by it
    state_BS: Tensor  # recurrent state before the first step of each sequence


class Rollout:
    """T steps of N environments, written row by row with `put`, completed by `finish`, read as `minibatches`.

    All data of a minibatch is in one matrix [T, N + 1, F] of which the named tensors are views, so that a minibatch is
    one index_select. Column N is never written: it is all zeros, weight included, and pads the last minibatch to the
    shape of the others.
    """

    def __init__(self, num_steps: int, num_envs: int, spaces: Spaces, state_size: int = 0) -> None:
        if num_steps < 1 or num_envs < 1:
            raise ValueError(f"a rollout needs at least 1 step of 1 environment, got {num_steps} steps of {num_envs}")
        self.num_steps, self.num_envs, self.spaces = num_steps, num_envs, spaces
        # Columns per field of a Minibatch, up to weight_TB.
        self._sizes = (spaces.observation_size, spaces.action_size or 1, 1, 1, 1, 1, 1, 1)
        self._packed_TMF = torch.zeros(num_steps, num_envs + 1, sum(self._sizes))
        real_TNF = self._packed_TMF[:, :num_envs]
        self.observation_TNO, self.action_TNW, *numbers = real_TNF.split(self._sizes, -1)
        self.log_prob_TN, self.value_TN, self.advantage_TN, self.return_TN, self.keep_TN, self.weight_TN = (
            n.squeeze(-1) for n in numbers
        )
        self._state_MS = torch.zeros(num_envs + 1, state_size)
        self.state_NS = self._state_MS[:num_envs]  # before step 0

        self.reward_TN, self.final_value_TN, self.error_TN = torch.zeros(3, num_steps, num_envs)
        self.terminated_TN, self.truncated_TN, self.live_TN = torch.zeros(3, num_steps, num_envs, dtype=torch.bool)
        action_TN = self.action_TNW if spaces.num_actions is None else self.action_TNW.squeeze(-1)
        # Indexing a tensor costs as much as the copy into it, so the views of each row are made once.
        self._rows = list(
            zip(
                self.observation_TNO,
                self.keep_TN,
                action_TN,
                self.log_prob_TN,
                self.value_TN,
                self.reward_TN,
                self.terminated_TN,
                self.truncated_TN,
                self.live_TN,
                self.weight_TN,
                self.final_value_TN,
                strict=True,
            )
        )
        # The source of minibatch columns and the real columns in it: complete sequences, or all transitions with T=1.
        self._recurrent = state_size > 0
        self._source_TMF = self._packed_TMF if self._recurrent else self._packed_TMF.flatten(0, 1)[None]
        self._real: Tensor = torch.arange(self._source_TMF.shape[1]).view(-1, num_envs + 1)[:, :num_envs].flatten()
        self._buffers: dict[int, tuple[Tensor, Tensor, Minibatch]] = {}

    def put(
        self,
        step: int,
        observation_NO: Tensor,
        keep_N: Tensor,
        action: Tensor,
        log_prob_N: Tensor,
        value_N: Tensor,
        reward_N: Tensor,
        outcome: Outcome,
        final_value_N: Tensor | None = None,
    ) -> None:
        """Write row `step`: the observation, the action and its outcome.

        The reward is the one to learn from (the outcome's, or normalized). `final_value_N` is the value of the
        outcome's final observation; it is needed only where an episode was truncated.
        """
        live_N = ~outcome.dead_N
        row = (
            observation_NO,
            keep_N,
            action,
            log_prob_N,
            value_N,
            reward_N,
            outcome.terminated_N,
            outcome.truncated_N,
            live_N,
            live_N,
        )
        *targets, final_row_N = self._rows[step]
        for target, source in zip(targets, row, strict=True):
            target.copy_(source)
        if final_value_N is not None:
            final_row_N.copy_(final_value_N)
        elif outcome.episodes and outcome.truncated_N.any():
            raise ValueError(
                f"row {step} has a truncated episode but no final_value_N; pass the value of outcome.final_NO"
            )

    def finish(self, last_value_N: Tensor, gamma: float, lam: float) -> None:
        """Fill in advantages, returns and errors; `last_value_N` is the value of the observation after the last row."""
        estimates = gae(
            self.reward_TN,
            self.value_TN,
            self.final_value_TN,
            self.terminated_TN,
            self.truncated_TN,
            self.live_TN,
            last_value_N,
            gamma,
            lam,
        )
        for target_TN, source_TN in zip((self.advantage_TN, self.return_TN, self.error_TN), estimates, strict=True):
            target_TN.copy_(source_TN)

    def minibatches(self, generator: Generator, size: int) -> Iterator[Minibatch]:
        """All transitions once, in an order drawn from `generator`, `size` at a time, all minibatches of one shape.

        Without recurrent state they are single rows (T=1). With it they are complete sequences of environments, as many
        as fit in `size` (at least one). The last minibatch is padded with transitions of weight 0.
        """
        if size < 1:
            raise ValueError(f"a minibatch needs at least 1 transition, got {size}")
        num_columns = max(1, size // self.num_steps) if self._recurrent else size
        num_columns = min(num_columns, len(self._real))
        order = self._real[torch.randperm(len(self._real), generator=generator)]
        padded = torch.nn.functional.pad(order, (0, -len(order) % num_columns), value=self.num_envs)
        buffer_TBF, action_TBW, minibatch = self._buffer(num_columns)
        for index_B in padded.split(num_columns):
            torch.index_select(self._source_TMF, 1, index_B, out=buffer_TBF)
            if self._recurrent:
                torch.index_select(self._state_MS, 0, index_B, out=minibatch.state_BS)
            if self.spaces.num_actions is not None:
                minibatch.action_TB.copy_(action_TBW.squeeze(-1))
            yield minibatch

    def _buffer(self, num_columns: int) -> tuple[Tensor, Tensor, Minibatch]:
        """The buffer of minibatches of this shape: its matrix, the action columns of it, and views as a Minibatch."""
        if num_columns not in self._buffers:
            num_steps = self._source_TMF.shape[0]
            buffer_TBF = torch.zeros(num_steps, num_columns, sum(self._sizes))
            observation_TBO, action_TBW, *numbers = buffer_TBF.split(self._sizes, -1)
            action_TB = action_TBW
            if self.spaces.num_actions is not None:
                action_TB = torch.zeros(num_steps, num_columns, dtype=torch.int64)
            state_BS = torch.zeros(num_columns, self._state_MS.shape[1])
            log_prob_TB, value_TB, advantage_TB, return_TB, keep_TB, weight_TB = (n.squeeze(-1) for n in numbers)
            minibatch = Minibatch(
                observation_TBO, action_TB, log_prob_TB, value_TB, advantage_TB, return_TB, keep_TB, weight_TB, state_BS
            )
            self._buffers[num_columns] = (buffer_TBF, action_TBW, minibatch)
        return self._buffers[num_columns]

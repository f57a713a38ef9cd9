"""Actor or critic as a function of its weights.

The two trunks have the same widths, so each layer of both is one batched product.

Shape suffixes: N environments, T steps, B sequences, R = T * B rows, O observation size, A action size or number of
actions, F features, H hidden units of the LSTM, S numbers of recurrent state, P parameters in all; a leading 2 is
actor, critic.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from torchtriage.rl.policy.distributions import Discrete, Gaussian
from torchtriage.rl.policy.lstm import lstm

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}

Weights = dict[str, Tensor]


class Act(NamedTuple):
    """The output of a policy for one step of all environments."""

    action: Tensor  # int64 [N], or float32 [N, A]
    log_prob_N: Tensor
    value_N: Tensor
    state_NS: Tensor


class Evaluation(NamedTuple):
    """The output of a policy for the actions of a rollout."""

    log_prob_TB: Tensor
    entropy_TB: Tensor  # nats
    value_TB: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The structure of the computation, without weights: equal networks share one compiled function."""

    is_discrete: bool
    num_layers: int
    activation: str
    num_states: int  # h and c of each LSTM; 0 without one
    parts: tuple[tuple[str, tuple[int, ...]], ...]  # names and shapes of the parts of the flat vector, in order

    def weights(self, flat_P: Tensor) -> Weights:
        """Views into a flat vector; each layer of both trunks is one view."""
        sizes = [math.prod(shape) for _, shape in self.parts]
        return {name: part.view(shape) for (name, shape), part in zip(self.parts, flat_P.split(sizes), strict=True)}

    def act(self, w: Weights, observation_NO: Tensor, state_NS: Tensor, keep_N: Tensor, noise: Tensor | None) -> Act:
        """One step; without noise with the most likely action."""
        output_NA, value_N, state_NS = self.forward(w, observation_NO.unsqueeze(0), state_NS, keep_N.unsqueeze(0))
        distribution = self._distribution(w, output_NA)
        action = distribution.mode() if noise is None else distribution.draw(noise)
        return Act(action, distribution.log_prob(action), value_N, state_NS)

    def evaluate(
        self, w: Weights, observation_TBO: Tensor, state_BS: Tensor, keep_TB: Tensor, action_TB: Tensor
    ) -> Evaluation:
        """Evaluate complete sequences; T is 1 without an LSTM."""
        output_RA, value_R, _ = self.forward(w, observation_TBO, state_BS, keep_TB)
        distribution = self._distribution(w, output_RA)
        log_prob_R = distribution.log_prob(action_TB.flatten(0, 1))
        return Evaluation(*(x_R.view(keep_TB.shape) for x_R in (log_prob_R, distribution.entropy(), value_R)))

    def forward(
        self, w: Weights, observation_TBO: Tensor, state_BS: Tensor, keep_TB: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The outputs of the heads per row, and the recurrent state after the last step."""
        x_2RF, state_BS = self._features(w, observation_TBO, state_BS, keep_TB)
        for layer in range(self.num_layers):
            x_2RF = ACTIVATIONS[self.activation](torch.baddbmm(w[f"bias {layer}"], x_2RF, w[f"weight {layer}"].mT))
        actor_RF, critic_RF = x_2RF.unbind()
        output_RA = functional.linear(actor_RF, w["action_head.weight"], w["action_head.bias"])
        value_R = functional.linear(critic_RF, w["value_head.weight"], w["value_head.bias"]).squeeze(-1)
        return output_RA, value_R, state_BS

    def _features(
        self, w: Weights, observation_TBO: Tensor, state_BS: Tensor, keep_TB: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The inputs of the two trunks."""
        if not self.num_states:
            return observation_TBO.flatten(0, 1).expand(2, -1, -1), state_BS
        states = state_BS.chunk(self.num_states, 1)
        actor_TBH, *next_states = _run_lstm(w, "actor_memory", observation_TBO, keep_TB, *states[:2])
        if self.num_states == 4:
            critic_TBH, *critic_states = _run_lstm(w, "critic_memory", observation_TBO, keep_TB, *states[2:])
            next_states += critic_states
        else:
            critic_TBH = functional.linear(observation_TBO, w["critic_memory.weight"], w["critic_memory.bias"])
        return torch.stack([actor_TBH.flatten(0, 1), critic_TBH.flatten(0, 1)]), torch.cat(next_states, 1)

    def _distribution(self, w: Weights, output_RA: Tensor) -> Discrete | Gaussian:
        return Discrete(output_RA) if self.is_discrete else Gaussian(output_RA, w["log_std"])


def _run_lstm(
    w: Weights, name: str, x_TBO: Tensor, keep_TB: Tensor, h_BH: Tensor, c_BH: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    bias_4H = w[f"{name}.bias_ih_l0"] + w[f"{name}.bias_hh_l0"]
    return lstm(x_TBO, keep_TB, h_BH, c_BH, w[f"{name}.weight_ih_l0"], w[f"{name}.weight_hh_l0"], bias_4H)

"""Minibatches made by hand for the tests of policies and updates.
T steps, B sequences or rows, O observation size.
"""

import torch

from torchtriage.rl.envs.spaces import Spaces
from torchtriage.rl.policy.policy import Policy
from torchtriage.rl.ppo.rollout import Minibatch

OBSERVATION_SIZE = 4
DISCRETE = Spaces(observation_size=OBSERVATION_SIZE, num_actions=3)
CONTINUOUS = Spaces(observation_size=OBSERVATION_SIZE, action_size=2, low_A=(-1.0, -1.0), high_A=(1.0, 1.0))


def minibatch(policy: Policy, *, steps: int = 1, rows: int = 32, live: int | None = None, seed: int = 0) -> Minibatch:
    """Steps of `policy` with random advantages and returns; rows from `live` on are padding: zeros, of weight 0."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(steps, rows, *shape, generator=generator)

    observation_TBO, keep_TB, weight_TB = random(OBSERVATION_SIZE), torch.ones(steps, rows), torch.ones(steps, rows)
    if policy.state_size:
        keep_TB[steps // 2, ::3] = 0
    state_BS = torch.randn(rows, policy.state_size, generator=generator) * 0.1
    if policy.is_discrete:
        action_TB = torch.randint(0, policy.num_outputs, (steps, rows), generator=generator)
    else:
        action_TB = random(policy.num_outputs)
    advantage_TB, return_TB = random(), random()
    for tensor in () if live is None else (observation_TBO, action_TB, advantage_TB, return_TB, keep_TB, weight_TB):
        tensor[:, live:] = 0
    log_prob_TB, _, value_TB = policy.evaluate(observation_TBO, state_BS, keep_TB, action_TB)
    return Minibatch(
        observation_TBO, action_TB, log_prob_TB, value_TB, advantage_TB, return_TB, keep_TB, weight_TB, state_BS
    )

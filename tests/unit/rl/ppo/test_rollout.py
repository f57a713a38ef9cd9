"""Rollouts: every transition appears once in minibatches of one shape, in an order drawn from the generator."""

import pytest
import torch

from torchtriage.rl.envs.protocol import Outcome
from torchtriage.rl.envs.spaces import Spaces
from torchtriage.rl.ppo.rollout import Rollout

T, N = 5, 3
DISCRETE = Spaces(observation_size=2, num_actions=4)
CONTINUOUS = Spaces(observation_size=2, action_size=2, low_A=(-1, -1), high_A=(1, 1))


def outcome(*, dead=(), terminated=(), truncated=()):
    def mask(indices):
        return torch.tensor([n in indices for n in range(N)])

    episodes = [(n, 0.0, 1) for n in (*terminated, *truncated)]
    return Outcome(
        torch.zeros(N, 2),
        torch.ones(N),
        mask(terminated),
        mask(truncated),
        torch.zeros(N, 2),
        mask(dead),
        mask(()),
        episodes,
    )


def filled(spaces=DISCRETE, state_size=0, dead_at=None):
    """Observation [step, environment], value 10 * step + environment."""
    rollout = Rollout(T, N, spaces, state_size)
    rollout.state_NS.copy_(torch.arange(N)[:, None].expand(N, state_size))
    for t in range(T):
        numbers_N = 10.0 * t + torch.arange(N)
        observation_NO = torch.stack([torch.full((N,), float(t)), torch.arange(N).float()], 1)
        action = torch.arange(N) if spaces.num_actions else torch.stack([numbers_N, -numbers_N], 1)
        rollout.put(
            t,
            observation_NO,
            torch.full((N,), float(t > 0)),
            action,
            -numbers_N,
            numbers_N,
            torch.ones(N),
            outcome(dead=[1] if t == dead_at else []),
        )
    rollout.finish(torch.zeros(N), 0.9, 0.9)
    return rollout


def taken(rollout, size, seed=0):
    """Copies: a minibatch is overwritten by the next."""
    return [type(m)(*(x.clone() for x in m)) for m in rollout.minibatches(torch.Generator().manual_seed(seed), size)]


@pytest.mark.parametrize("size", [1, 4, 7, 15, 99])
def test_every_transition_appears_once_and_padding_has_no_weight(size):
    minibatches = taken(filled(), size)
    assert len({m.observation_TBO.shape for m in minibatches}) == 1
    assert len(minibatches) == -(-T * N // min(size, T * N))
    real = [
        value
        for m in minibatches
        for value, weight in zip(m.value_TB[0].tolist(), m.weight_TB[0].tolist(), strict=True)
        if weight
    ]
    assert sorted(real) == sorted(filled().value_TN.flatten().tolist())


def test_the_columns_of_a_row_stay_together():
    (minibatch,) = taken(rollout := filled(), T * N)
    order = [10 * int(t) + int(n) for t, n in minibatch.observation_TBO[0]]
    assert order == minibatch.value_TB[0].tolist() == (-minibatch.log_prob_TB[0]).tolist()
    assert minibatch.action_TB.dtype == torch.int64
    assert minibatch.action_TB[0].tolist() == [n % 10 for n in order]
    assert minibatch.keep_TB[0].tolist() == [float(n >= 10) for n in order]
    assert minibatch.advantage_TB[0].tolist() == [rollout.advantage_TN[n // 10, n % 10].item() for n in order]
    assert minibatch.return_TB[0].tolist() == [rollout.return_TN[n // 10, n % 10].item() for n in order]


def test_recurrent_minibatches_have_complete_sequences_and_their_first_state():
    minibatches = taken(filled(state_size=6), size=2 * T)
    assert [tuple(m.observation_TBO.shape) for m in minibatches] == [(T, 2, 2)] * 2
    seen = []
    for m in minibatches:
        assert (m.observation_TBO[:, :, 0] == torch.arange(T)[:, None]).logical_or(m.weight_TB == 0).all()
        for column in range(2):
            if m.weight_TB[0, column]:
                environment = m.observation_TBO[0, column, 1].item()
                assert (m.observation_TBO[:, column, 1] == environment).all()
                assert m.state_BS[column].tolist() == [environment] * 6
                seen.append(environment)
    assert sorted(seen) == [0, 1, 2]
    assert minibatches[-1].weight_TB[:, 1].tolist() == [0.0] * T


def test_a_dead_transition_has_no_weight_and_no_advantage():
    rollout = filled(dead_at=2)
    assert (rollout.weight_TN == rollout.live_TN).all()
    assert not rollout.live_TN[2, 1]
    assert rollout.advantage_TN[2, 1] == 0
    (minibatch,) = taken(rollout, T * N)
    assert minibatch.value_TB[minibatch.weight_TB == 0].tolist() == [21.0]


def test_continuous_actions_keep_their_size():
    (minibatch,) = taken(filled(CONTINUOUS), T * N)
    assert minibatch.action_TB.shape == (1, T * N, 2)
    assert torch.equal(minibatch.action_TB[..., 0], minibatch.value_TB)


def test_the_order_depends_only_on_the_generator():
    rollout = filled()
    first, again, other = (torch.stack([m.value_TB for m in taken(rollout, 4, seed)]) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_minibatches_of_one_size_reuse_their_memory():
    rollout, generator = filled(), torch.Generator().manual_seed(0)
    assert len({m.observation_TBO.data_ptr() for _ in range(2) for m in rollout.minibatches(generator, 4)}) == 1


def test_a_truncated_episode_without_its_final_value_is_refused():
    rollout = Rollout(T, N, DISCRETE)
    row = (torch.zeros(N, 2), torch.ones(N), torch.zeros(N), torch.zeros(N), torch.zeros(N), torch.ones(N))
    rollout.put(0, *row, outcome(terminated=[1]))
    with pytest.raises(ValueError, match="row 0 has a truncated episode"):
        rollout.put(0, *row, outcome(truncated=[1]))
    rollout.put(0, *row, outcome(truncated=[1]), torch.full((N,), 7.0))
    rollout.finish(torch.zeros(N), 0.5, 0.5)
    assert rollout.return_TN[0].tolist() == [1.0, 1.0 + 0.5 * 7.0, 1.0]

"""Policies: batched trunks agree with the modules, parameters are views into one vector, acting equals evaluating."""

import copy
import io
import math

import pytest
import torch
from torch import nn

from tests.unit.rl.minibatches import CONTINUOUS, DISCRETE, minibatch
from torchtriage.rl.policy.policy import Policy

N = 6
makers = pytest.mark.parametrize(
    "make",
    [
        lambda: Policy(DISCRETE),
        lambda: Policy(CONTINUOUS, activation="relu"),
        lambda: Policy(DISCRETE, hidden=()),
        lambda: Policy(DISCRETE, hidden=(16,), lstm_size=8),
        lambda: Policy(CONTINUOUS, hidden=(16,), lstm_size=8, critic_lstm=False),
    ],
    ids=["mlp", "mlp-continuous", "linear", "lstm", "lstm-actor-only"],
)


def step_of(policy: Policy, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    observation_NO = torch.randn(N, 4, generator=generator)
    state_NS = torch.randn(N, policy.state_size, generator=generator)
    return observation_NO, state_NS, torch.tensor([1.0, 0, 1, 1, 0, 1]), policy.noise(N, generator=generator)


@makers
def test_the_policy_agrees_with_its_modules(make) -> None:
    torch.manual_seed(0)
    policy = make()
    observation_NO, state_NS, keep_N, noise = step_of(policy)
    actor_NF = critic_NF = observation_NO
    after = [state_NS]
    if policy.num_states:
        h_c = state_NS.chunk(policy.num_states, 1)
        actor_1NF, *after = policy.actor_memory(observation_NO[None], keep_N[None], *h_c[:2])
        if policy.num_states == 4:
            critic_1NF, *more = policy.critic_memory(observation_NO[None], keep_N[None], *h_c[2:])
            after += more
        else:
            critic_1NF = policy.critic_memory(observation_NO[None])
        actor_NF, critic_NF = actor_1NF[0], critic_1NF[0]
    outputs = policy.action_head(policy.actor(actor_NF))
    said = policy.act(observation_NO, state_NS, keep_N, noise)
    torch.testing.assert_close(said.value_N, policy.value_head(policy.critic(critic_NF)).squeeze(-1).detach())
    torch.testing.assert_close(said.value_N, policy.value(observation_NO, state_NS, keep_N))
    torch.testing.assert_close(said.state_NS, torch.cat(after, 1).detach())
    wanted = (
        (outputs.log_softmax(-1) + noise).argmax(-1) if policy.is_discrete else outputs + policy.log_std.exp() * noise
    )
    torch.testing.assert_close(said.action, wanted.detach())
    assert not said.log_prob_N.requires_grad


@makers
def test_evaluating_a_sequence_agrees_with_acting_step_by_step(make) -> None:
    torch.manual_seed(1)
    policy = make()
    steps = 5 if policy.num_states else 1
    observation_TNO, keep_TN = torch.randn(steps, N, 4), (torch.rand(steps, N) > 0.3).float()
    first_NS = state_NS = torch.randn(N, policy.state_size)
    done = []
    for observation_NO, keep_N, noise in zip(observation_TNO, keep_TN, policy.noise(steps, N), strict=True):
        done.append(policy.act(observation_NO, state_NS, keep_N, noise))
        state_NS = done[-1].state_NS
    found = policy.evaluate(observation_TNO, first_NS, keep_TN, torch.stack([d.action for d in done]))
    torch.testing.assert_close(found.log_prob_TB, torch.stack([d.log_prob_N for d in done]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.value_TB, torch.stack([d.value_N for d in done]), rtol=1e-5, atol=1e-5)
    assert found.entropy_TB.shape == keep_TN.shape


@makers
def test_parameters_stay_views_into_one_vector(make) -> None:
    policy = make()
    for same in (policy, copy.deepcopy(policy), make().to(torch.float64).to(torch.float32)):
        same.flat_P.fill_(0.5)
        assert sum(p.numel() for p in same.parameters()) == same.flat_P.numel()
        assert all((p == 0.5).all() and p.requires_grad for p in same.parameters())
        next(same.parameters()).data.fill_(2.0)
        assert (same.flat_P == 2.0).any()
        inputs = step_of(same)[:3]
        before_N = same.value(*inputs)
        same.value_head.bias.data.add_(1.0)
        torch.testing.assert_close(same.value(*inputs), before_N + 1)


@makers
def test_a_state_dict_restores_a_policy(make) -> None:
    torch.manual_seed(2)
    policy, other = make(), make()
    file = io.BytesIO()
    torch.save(policy.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other.flat_P, policy.flat_P)
    assert torch.equal(other.act(*step_of(policy)).value_N, policy.act(*step_of(policy)).value_N)


def test_the_initial_policy_is_nearly_uniform_with_orthogonal_trunks() -> None:
    torch.manual_seed(3)
    policy = Policy(DISCRETE)
    second, action, value = (
        layer.weight.detach() for layer in (policy.actor[2], policy.action_head, policy.value_head)
    )
    torch.testing.assert_close(second @ second.T, 2 * torch.eye(64), atol=1e-5, rtol=0)
    torch.testing.assert_close(action @ action.T, 1e-4 * torch.eye(3), atol=1e-9, rtol=0)
    torch.testing.assert_close(value @ value.T, torch.eye(1), atol=1e-5, rtol=0)
    assert not any(layer.bias.any() for layer in policy.modules() if isinstance(layer, nn.Linear))
    batch = minibatch(policy)
    entropy_TB = policy.evaluate(batch.observation_TBO, batch.state_BS, batch.keep_TB, batch.action_TB).entropy_TB
    assert entropy_TB.min() > math.log(3) - 1e-3
    assert Policy(DISCRETE, orthogonal=False).actor[0].bias.any()


def test_without_noise_the_most_likely_action_is_taken() -> None:
    for policy in (Policy(DISCRETE), Policy(CONTINUOUS)):
        observation_NO, state_NS, keep_N, noise = step_of(policy)
        assert torch.equal(
            policy.act(observation_NO, state_NS, keep_N, None).action,
            policy.act(observation_NO, state_NS, keep_N, torch.zeros_like(noise)).action,
        )


@pytest.mark.parametrize("wrong", [{"activation": "gelu"}, {"hidden": (64, 0)}, {"lstm_size": -1}])
def test_invalid_policy_settings_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match="must be"):
        Policy(DISCRETE, **wrong)

"""Advantages equal explicit sums, over episodes that terminate, are truncated, or skip a step."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.rl.ppo.advantages import gae

GAMMA, LAM = 0.97, 0.9


def slow_advantages(reward, value, final_value, terminated, truncated, live, last_value):
    """Each advantage as the sum of the discounted errors that follow it in its episode."""
    num_steps, num_envs = reward.shape
    advantage = torch.zeros_like(reward)
    for n in range(num_envs):
        for first in range(num_steps):
            weight = 1.0
            for t in range(first, num_steps):
                if not live[t, n]:
                    break
                if terminated[t, n]:
                    successor = 0.0
                elif truncated[t, n]:
                    successor = final_value[t, n]
                else:
                    successor = value[t + 1, n] if t + 1 < num_steps else last_value[n]
                advantage[first, n] += weight * (reward[t, n] + GAMMA * successor - value[t, n])
                weight *= GAMMA * LAM
                if terminated[t, n] or truncated[t, n]:
                    break
    return advantage


@st.composite
def rollouts(draw):
    num_steps, num_envs = draw(st.integers(1, 21)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    reward, value, final_value = torch.randn(3, num_steps, num_envs, generator=generator, dtype=torch.float64)
    terminated, truncated = torch.rand(2, num_steps, num_envs, generator=generator) < draw(
        st.sampled_from([0.0, 0.1, 0.5])
    )
    live = torch.ones(num_steps, num_envs, dtype=torch.bool)
    if draw(st.booleans()):  # as an autoreset in the next step leaves it: the transition after the end is dead
        for t in range(1, num_steps):
            live[t] = ~((terminated | truncated)[t - 1] & live[t - 1])
            terminated[t] &= live[t]
            truncated[t] &= live[t]
    last_value = torch.randn(num_envs, generator=generator, dtype=torch.float64)
    return reward, value, final_value, terminated, truncated, live, last_value


@settings(max_examples=60, deadline=None)
@given(rollouts())
def test_advantages_equal_the_explicit_sums(rollout):
    advantage, returns, error = gae(*rollout, GAMMA, LAM)
    torch.testing.assert_close(advantage, slow_advantages(*rollout), atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(returns, advantage + rollout[1])
    # With lambda 0 an advantage is the error of its transition.
    assert torch.equal(error, gae(*rollout, GAMMA, 0.0).advantage_TN)


@settings(max_examples=40, deadline=None)
@given(rollouts(), st.floats(-1e6, 1e6))
def test_a_dead_transition_does_not_affect_others(rollout, rubbish):
    reward, value, final_value, terminated, truncated, live, last_value = rollout
    before = gae(*rollout, GAMMA, LAM).advantage_TN
    ended_before = torch.cat([torch.ones_like(live[:1]), (terminated | truncated)[:-1]])
    dead = ~live & ended_before
    reward, value, final_value = (torch.where(dead, rubbish, x) for x in (reward, value, final_value))
    after, returns, error = gae(reward, value, final_value, terminated, truncated, live, last_value, GAMMA, LAM)
    assert torch.equal(after, before)
    assert (after[dead] == 0).all()
    assert (error[dead] == 0).all()
    assert torch.equal(returns[dead], value[dead])


def test_a_masked_value_may_be_nan():
    nan, off = torch.full((3, 1), float("nan")), torch.zeros(3, 1, dtype=torch.bool)
    terminated, truncated = off.clone(), off.clone()
    terminated[2] = True
    found = gae(
        torch.ones(3, 1),
        torch.zeros(3, 1),
        nan,
        terminated,
        truncated,
        ~off,
        torch.full((1,), float("nan")),
        GAMMA,
        LAM,
    )
    assert all(x.isfinite().all() for x in found)


def test_long_rollouts_agree_in_float32():
    generator = torch.Generator().manual_seed(0)
    reward, value, final_value = torch.randn(3, 2048, 4, generator=generator)
    terminated, truncated = torch.rand(2, 2048, 4, generator=generator) < 0.01
    args = (reward, value, final_value, terminated, truncated, torch.ones_like(terminated), torch.zeros(4))
    exact = [x.double() if x.is_floating_point() else x for x in args]
    torch.testing.assert_close(gae(*args, GAMMA, LAM)[0].double(), gae(*exact, GAMMA, LAM)[0], atol=2e-5, rtol=1e-5)


def test_gae_compiles_to_one_graph():
    compiled = torch.compile(gae, fullgraph=True, backend="eager")
    rollout = (
        *torch.randn(3, 5, 2).unbind(),
        *(torch.rand(2, 5, 2) < 0.3).unbind(),
        torch.ones(5, 2, dtype=torch.bool),
        torch.randn(2),
    )
    assert torch.equal(compiled(*rollout, GAMMA, LAM)[0], gae(*rollout, GAMMA, LAM)[0])

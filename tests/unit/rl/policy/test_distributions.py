"""Actions drawn from given noise agree with torch.distributions."""

import math

import pytest
import torch
from torch import distributions as truth

from torchtriage.rl.policy.distributions import Discrete, Gaussian, gumbel


def logits(rows: int = 5, actions: int = 4) -> torch.Tensor:
    return torch.randn(rows, actions, generator=torch.Generator().manual_seed(0)) * 3


def test_discrete_log_probabilities_and_entropy_agree_with_torch() -> None:
    action_N = torch.tensor([0, 3, 2, 1, 1])
    ours, theirs = Discrete(logits()), truth.Categorical(logits=logits())
    torch.testing.assert_close(ours.log_prob(action_N), theirs.log_prob(action_N))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), logits().argmax(-1))


def test_discrete_draws_follow_the_probabilities() -> None:
    num = 200_000
    row_K = torch.tensor([2.0, 0.0, -1.0, -torch.inf])
    drawn = Discrete(row_K.expand(num, 4)).draw(gumbel(num, 4, generator=torch.Generator().manual_seed(1)))
    share_K = torch.bincount(drawn, minlength=4) / num
    torch.testing.assert_close(share_K, row_K.softmax(-1), atol=5 * 0.5 / math.sqrt(num), rtol=0)
    assert share_K[3] == 0, "an action of probability 0 was drawn"


def test_gumbel_noise_is_finite_and_reproducible() -> None:
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    noise = gumbel(100_000, generator=generator)
    assert noise.isfinite().all()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.02)
    assert torch.equal(gumbel(100_000, generator=generator.set_state(state)), noise)


def test_gaussian_log_probabilities_and_entropy_agree_with_torch() -> None:
    mean_NA, log_std_A, noise_NA = logits(6, 3), torch.tensor([-2.0, 0.0, 0.7]), logits(6, 3) / 3
    ours, theirs = Gaussian(mean_NA, log_std_A), truth.Normal(mean_NA, log_std_A.exp())
    action_NA = ours.draw(noise_NA)
    torch.testing.assert_close(action_NA, mean_NA + log_std_A.exp() * noise_NA)
    torch.testing.assert_close(ours.log_prob(action_NA), theirs.log_prob(action_NA).sum(-1))
    torch.testing.assert_close(ours.entropy(), theirs.entropy().sum(-1))
    assert torch.equal(ours.mode(), mean_NA)

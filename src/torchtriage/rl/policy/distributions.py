"""Distributions of actions, sampled from noise that the caller provides.

So a compiled graph contains no random state, and a resumed run draws the same actions.

Shape suffixes: N rows (any number of leading dimensions), K actions to choose from, A numbers of an action.
"""

import math

import torch
from torch import Tensor

LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


class Discrete:
    """One of K actions, by unnormalized log-probabilities."""

    def __init__(self, logits_NK: Tensor) -> None:
        self.log_prob_NK = logits_NK.log_softmax(-1)

    def draw(self, noise_NK: Tensor) -> Tensor:
        """The action with the largest sum of log-probability and Gumbel noise.

        This samples exactly; an action of probability 0 is never drawn.
        """
        return (self.log_prob_NK + noise_NK).argmax(-1)

    def mode(self) -> Tensor:
        return self.log_prob_NK.argmax(-1)

    def log_prob(self, action_N: Tensor) -> Tensor:
        return self.log_prob_NK.gather(-1, action_N.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_prob_NK.exp() * self.log_prob_NK).sum(-1)


class Gaussian:
    """A vector of A numbers, each normal around its own mean; the spread does not depend on the observation."""

    def __init__(self, mean_NA: Tensor, log_std_A: Tensor) -> None:
        self.mean_NA, self.log_std_A = mean_NA, log_std_A

    def draw(self, noise_NA: Tensor) -> Tensor:
        """An action from standard normal noise.

        It is not clipped: the environment clips, and the log-probability is that of the sample.
        """
        return self.mean_NA + self.log_std_A.exp() * noise_NA

    def mode(self) -> Tensor:
        return self.mean_NA

    def log_prob(self, action_NA: Tensor) -> Tensor:
        z_NA = (action_NA - self.mean_NA) * (-self.log_std_A).exp()
        return (-0.5 * z_NA.square() - self.log_std_A - LOG_SQRT_2_PI).sum(-1)

    def entropy(self) -> Tensor:
        """The differential entropy in nats: it may be negative, and there is no uniform policy to compare it with."""
        return (self.log_std_A + (0.5 + LOG_SQRT_2_PI)).sum().expand(self.mean_NA.shape[:-1])


def gumbel(*shape: int, generator: torch.Generator | None = None, device: torch.device | str | None = None) -> Tensor:
    """Standard Gumbel noise for `Discrete.draw`: minus the logarithm of a standard exponential, which is never 0."""
    return torch.empty(*shape, device=device).exponential_(generator=generator).log_().neg_()

"""The terms of a PPO loss, as the graph behind it holds them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torchtriage.telemetry.ppo.loss_terms import LossTerms, Surrogate, read_terms

N = 6


class Loss:
    """The parts of the loss of one minibatch."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(N, 3)
        self.actor, self.critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
        self.distribution = torch.distributions.Categorical(logits=self.actor(self.x))
        self.new = self.distribution.log_prob(torch.zeros(N))
        self.old = self.new.detach() + 0.3 * torch.randn(N)
        self.advantages, self.returns = torch.randn(N), torch.randn(N)
        self.ratio = (self.new - self.old).exp()
        self.values = self.critic(self.x).view(-1)
        self.entropy = self.distribution.entropy().mean()

    def clipped(self) -> Tensor:
        return self.ratio.clamp(0.8, 1.2)


@pytest.fixture
def parts() -> Loss:
    return Loss()


def surrogate_of(loss: Tensor) -> Surrogate:
    surrogate = read_terms(loss).surrogate
    assert surrogate is not None
    return surrogate


@pytest.mark.parametrize("form", [
    lambda p: -torch.min(p.ratio * p.advantages, p.clipped() * p.advantages).mean(),
    lambda p: torch.max(-p.advantages * p.ratio, -p.advantages * p.clipped()).mean(),
    lambda p: torch.maximum(-p.advantages * p.ratio, -p.advantages * p.clipped()).sum() / N,
    lambda p: 0.0 - torch.min(p.ratio * p.advantages, p.advantages * p.clipped()).mean(),
])
def test_the_clipped_surrogate_is_read_in_each_form(parts: Loss, form: Callable[[Loss], Tensor]) -> None:
    surrogate = surrogate_of(form(parts))
    assert torch.equal(surrogate.ratio_N, parts.ratio)
    assert torch.allclose(-surrogate.push_N, parts.advantages)
    assert (surrogate.low, surrogate.high) == pytest.approx((0.8, 1.2))
    assert not surrogate.is_inverted
    assert not surrogate.is_optimistic
    assert surrogate.trained_constants == ()
    assert surrogate.parameter is parts.actor.bias
    assert surrogate.num_products == N

@pytest.mark.parametrize("form", [
    lambda p: 2 * -(p.ratio * p.advantages).mean() - 0.5 * p.entropy,
    lambda p: 2 * (-(p.ratio * p.advantages).sum() - p.distribution.entropy().sum() / 4) / N,
    lambda p: (-2 * (p.ratio * p.advantages) - 0.5 * p.distribution.entropy()).mean(),
])
def test_coefficients_are_those_of_means(parts: Loss, form: Callable[[Loss], Tensor]) -> None:
    terms = read_terms(form(parts))
    assert terms.surrogate is not None
    assert terms.surrogate.coefficient == pytest.approx(2.0)
    assert [entropy.coefficient for entropy in terms.entropies] == pytest.approx([0.5])


def test_a_flipped_policy_loss_pushes_the_other_way(parts: Loss) -> None:
    surrogate = surrogate_of((parts.ratio * parts.advantages).mean())
    assert torch.allclose(surrogate.push_N, parts.advantages)
    assert surrogate.low is None


def test_an_inverted_ratio_is_recognised_and_pushes_the_other_way(parts: Loss) -> None:
    ratio = (parts.old - parts.new).exp()
    surrogate = surrogate_of(-(ratio * parts.advantages).mean())
    assert surrogate.is_inverted
    assert torch.allclose(surrogate.push_N, parts.advantages)


@pytest.mark.parametrize("form", [
    lambda p: -torch.max(p.ratio * p.advantages, p.clipped() * p.advantages).mean(),
    lambda p: torch.min(-p.ratio * p.advantages, -p.clipped() * p.advantages).mean(),
])
def test_the_larger_objective_is_optimistic(parts: Loss, form: Callable[[Loss], Tensor]) -> None:
    assert surrogate_of(form(parts)).is_optimistic


def test_constants_with_a_gradient_are_named(parts: Loss) -> None:
    old, advantages = parts.old.requires_grad_(), parts.advantages.requires_grad_()
    surrogate = surrogate_of(-((parts.new - old).exp() * advantages).mean())
    assert surrogate.trained_constants == ("old log-probabilities", "advantages")


@pytest.mark.parametrize("form", [
    lambda p: 0.5 * ((p.values - p.returns) ** 2).mean(),
    lambda p: (p.returns - p.values).square().mean(),
    lambda p: torch.nn.functional.mse_loss(p.values, p.returns),
    lambda p: torch.nn.functional.smooth_l1_loss(p.returns, p.values),
    lambda p: torch.max(
        (p.values - p.returns) ** 2, (p.returns + (p.values - p.returns).clamp(-0.1, 0.1) - p.returns) ** 2).mean(),
])
def test_the_error_and_the_values_of_the_critic_are_read(parts: Loss, form: Callable[[Loss], Tensor]) -> None:
    (error,) = read_terms(form(parts)).errors
    assert torch.allclose(error.error_N, parts.values - parts.returns)
    assert torch.allclose(error.value_N, parts.values)
    assert error.sign == 1.0
    assert not error.is_target_trained


def test_a_broadcast_error_keeps_its_shape(parts: Loss) -> None:
    (error,) = read_terms((parts.critic(parts.x) - parts.returns).square().mean()).errors
    assert error.error_N.shape == (N, N)


def test_ratios_that_are_broadcast_against_the_advantages_are_counted(parts: Loss) -> None:
    ratio = parts.ratio.unsqueeze(-1)
    loss = -torch.min(ratio * parts.advantages, ratio.clamp(0.8, 1.2) * parts.advantages).mean()
    assert surrogate_of(loss).num_products == N * N


def test_a_maximised_error_and_a_trained_target_are_recognised(parts: Loss) -> None:
    (error,) = read_terms(-((parts.values - parts.values * 0.9) ** 2).mean()).errors
    assert error.sign == -1.0
    assert error.is_target_trained


@pytest.mark.parametrize(("coefficient", "sign"), [(-0.01, -1.0), (0.01, 1.0)])
def test_the_entropy_of_a_categorical_policy_is_read_with_its_sign(
    parts: Loss, coefficient: float, sign: float,
) -> None:
    (entropy,) = read_terms(parts.values.mean() + coefficient * parts.entropy).entropies
    assert (entropy.sign, entropy.num_choices) == (sign, 4)
    assert torch.allclose(entropy.nats, parts.entropy)


@pytest.mark.parametrize(("coefficient", "sign"), [(-0.01, -1.0), (0.01, 1.0)])
def test_the_entropy_of_a_policy_that_ends_in_a_softmax_is_read(parts: Loss, coefficient: float, sign: float) -> None:
    distribution = torch.distributions.Categorical(probs=parts.actor(parts.x).softmax(-1))
    (entropy,) = read_terms(parts.values.mean() + coefficient * distribution.entropy().mean()).entropies
    assert (entropy.sign, entropy.num_choices) == (sign, 4)
    assert torch.allclose(entropy.nats, distribution.entropy().mean())


@pytest.mark.parametrize(("coefficient", "sign"), [(-0.01, -1.0), (0.01, 1.0)])
def test_the_entropy_of_a_gaussian_policy_has_a_sign(parts: Loss, coefficient: float, sign: float) -> None:
    log_std = torch.zeros(2, requires_grad=True)
    normal = torch.distributions.Normal(torch.zeros(N, 2), log_std.expand(N, 2).exp())
    (entropy,) = read_terms(coefficient * normal.entropy().sum(1).mean()).entropies
    assert entropy.sign == sign


@pytest.mark.parametrize("form", [
    lambda p: torch.nn.functional.cross_entropy(p.actor(p.x), torch.zeros(N, dtype=torch.long)),
    lambda p: (p.values.exp() * p.advantages).mean(),
    lambda p: -(p.new * p.advantages).mean(),
    lambda p: (p.actor(p.x) - p.actor(p.x).detach().max()).exp().sum(),
])
def test_other_losses_have_no_surrogate(parts: Loss, form: Callable[[Loss], Tensor]) -> None:
    assert read_terms(form(parts)).surrogate is None


def test_saved_tensors_with_hooks_of_the_program_are_not_read() -> None:
    unpacked: list[Tensor] = []

    def unpack(tensor: Tensor) -> Tensor:
        unpacked.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        parts = Loss()
        loss = -torch.min(parts.ratio * parts.advantages, parts.clipped() * parts.advantages).mean()
    assert read_terms(loss).surrogate is None
    assert unpacked == []


def test_a_graph_that_was_freed_has_no_terms(parts: Loss) -> None:
    loss = -torch.min(parts.ratio * parts.advantages, parts.clipped() * parts.advantages).mean()
    loss.backward(retain_graph=False)
    assert read_terms(loss).surrogate is None


def test_reading_changes_neither_gradients_nor_random_numbers(parts: Loss) -> None:
    def gradient(parts: Loss, is_read: bool) -> tuple[LossTerms | None, Tensor, Tensor]:
        loss = (
            -torch.min(parts.ratio * parts.advantages, parts.clipped() * parts.advantages).mean()
            + (parts.values - parts.returns).square().mean() - 0.1 * parts.entropy
        )
        terms = read_terms(loss) if is_read else None
        loss.backward()
        assert parts.actor.weight.grad is not None
        return terms, parts.actor.weight.grad, torch.rand(3)

    terms, read, random_after = gradient(parts, is_read=True)
    _, unread, random_without = gradient(Loss(), is_read=False)
    assert terms is not None
    assert torch.equal(read, unread)
    assert torch.equal(random_after, random_without)


def test_padding_is_left_out_of_masked_terms(parts: Loss) -> None:
    mask = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    per_sample = -torch.min(parts.ratio * parts.advantages, parts.clipped() * parts.advantages)
    kept = mask > 0
    errors = (parts.values - parts.returns) ** 2
    for loss in (
        (per_sample * mask).sum() / mask.sum() + (errors * mask).sum() / mask.sum(),
        ((per_sample + errors) * mask).sum() / mask.sum(), per_sample[kept].mean() + errors[kept].mean(),
    ):
        terms = read_terms(loss)
        assert terms.surrogate is not None
        assert torch.equal(terms.surrogate.ratio_N, parts.ratio[kept])
        assert torch.allclose(-terms.surrogate.push_N, parts.advantages[kept])
        assert torch.allclose(terms.errors[0].error_N, (parts.values - parts.returns)[kept])


def test_an_advantage_per_sequence_belongs_to_each_of_its_tokens(parts: Loss) -> None:
    ratio = (parts.new.view(2, 3) - parts.old.view(2, 3)).exp()
    advantages = torch.tensor([[1.0], [-1.0]])
    surrogate = surrogate_of(-torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean())
    assert surrogate.push_N.shape == ratio.shape


def test_a_ratio_without_an_exponential_is_known_by_its_clamp(parts: Loss) -> None:
    difference = parts.new - parts.old
    clamped = difference.clamp(0.8, 1.2)
    surrogate = surrogate_of(-torch.min(difference * parts.advantages, clamped * parts.advantages).mean())
    assert surrogate.lacks_exp
    assert torch.allclose(surrogate.ratio_N, parts.ratio)
    around_zero = difference.clamp(-0.2, 0.2)
    loss = -torch.min(difference * parts.advantages, around_zero * parts.advantages).mean()
    assert read_terms(loss).surrogate is None


def test_a_log_ratio_may_be_masked(parts: Loss) -> None:
    mask = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    ratio = ((parts.new - parts.old) * mask).exp()
    per_sample = torch.max(-parts.advantages * ratio, -parts.advantages * ratio.clamp(0.8, 1.2))
    surrogate = surrogate_of((per_sample * mask).sum() / mask.sum())
    assert torch.equal(surrogate.ratio_N, parts.ratio[mask > 0])
    assert not surrogate.is_inverted
    assert surrogate.parameter is parts.actor.bias


def test_values_clipped_between_tensors_are_not_taken_for_the_values(parts: Loss) -> None:
    old = parts.values.detach() + 0.3
    clipped = torch.clamp(parts.values, old - 0.2, old + 0.2)
    loss = 0.5 * torch.max((parts.values - parts.returns) ** 2, (clipped - parts.returns) ** 2).mean()
    (error,) = read_terms(loss).errors
    assert torch.allclose(error.error_N, parts.values - parts.returns)

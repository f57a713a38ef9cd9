"""A hand-written PPO, followed by the calls that the taps make."""

import itertools
from collections.abc import Iterator

import pytest
import torch

from torchtriage.recording.series import PPO_FIRST_RATIO_DEVIATION, PPO_RATIO_MAX
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.ppo import followed_policy
from torchtriage.telemetry.ppo.followed_policy import FollowedPolicy


class Program:
    """Updates of three minibatches, each of one epoch."""

    def __init__(self, clock: Iterator[float] | None = None) -> None:
        torch.manual_seed(0)
        self.followed = FollowedPolicy() if clock is None else FollowedPolicy(lambda: next(clock))
        self.policy, self.critic = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD([*self.policy.parameters(), *self.critic.parameters()], lr=0.5)
        self.step = 1

    def update(
        self, num_acts: int = 10, num_minibatches: int = 3, is_split: bool = False,
        shift: float = 0.0,
    ) -> None:
        x = torch.randn(12, 3)
        with torch.no_grad():
            action = torch.distributions.Categorical(logits=self.policy(x)).sample()
            old = torch.distributions.Categorical(logits=self.policy(x)).log_prob(action) + shift * torch.randn(12)
        self.followed.rollout(num_acts, [])
        self.minibatches(x, action, old, num_minibatches, is_split)

    def minibatches(
        self, x: torch.Tensor, action: torch.Tensor, old: torch.Tensor, count: int, is_split: bool = False,
    ) -> None:
        self.continue_update = lambda: self.minibatches(x, action, old, count)
        for _ in range(count):
            new = torch.distributions.Categorical(logits=self.policy(x)).log_prob(action)
            ratio, advantages = (new - old).exp(), torch.linspace(-1, 1, 12)
            losses = [-torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean(),
                      (self.critic(x).squeeze(-1) - advantages).square().mean()]
            for loss in losses if is_split else [losses[0] + losses[1]]:
                self.followed.backward(loss, self.step)
                loss.backward()
                self.followed.rollout(1, [])        # the KL divergence, under no_grad()
            self.optimizer.step()
            self.step += 1

    def observations(self) -> list[Observation]:
        return list(self.followed.observations(wait=True))


def test_an_update_is_one_observation_that_begins_at_its_first_minibatch() -> None:
    program = Program()
    for _ in range(4):
        program.update()
    observations = program.observations()
    assert [one.step for one in observations] == [1, 4, 7, 10]
    assert all(one.values[PPO_FIRST_RATIO_DEVIATION] < 1e-6 for one in observations)
    assert all(one.values[PPO_RATIO_MAX] > 1.001 for one in observations)


def test_a_rollout_that_was_not_seen_gives_no_first_ratio() -> None:
    program = Program()
    program.update(num_acts=2)
    (observation,) = program.observations()
    assert PPO_FIRST_RATIO_DEVIATION not in observation.values


def test_a_few_entries_to_no_grad_within_an_update_are_no_rollout() -> None:
    program = Program()
    program.update(num_acts=100)
    program.followed.rollout(20, [])
    program.update(num_acts=0)
    assert len(program.observations()) == 1


def test_steps_of_an_environment_show_the_rollouts_once_there_is_one() -> None:
    program = Program()
    program.followed.rollout(0, [(1, 1.0, False, False)] * 12)
    program.update(num_acts=50)
    program.update(num_acts=50)
    (observation,) = program.observations()
    assert PPO_FIRST_RATIO_DEVIATION in observation.values


def test_a_value_loss_with_its_own_backward_pass_belongs_to_the_same_minibatch() -> None:
    program = Program()
    program.update(is_split=True)
    (observation,) = program.observations()
    assert observation.values["ppo/value_loss"] > 0


def test_updates_are_left_out_once_reading_has_used_up_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_policy, "GRACE_SECONDS", 0.0)
    ticks = iter(float(second) for second in range(10_000))
    program = Program(ticks)
    for _ in range(10):
        program.update()
    assert 1 <= len(program.observations()) <= 3


def test_another_training_is_looked_at_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    followed, looks = FollowedPolicy(), []
    monkeypatch.setattr(followed_policy, "read_terms", lambda loss: looks.append(loss) or followed_policy.LossTerms())
    for _ in range(1000):
        followed.rollout(20, [])
        followed.backward(torch.zeros(1, requires_grad=True).sum(), 1)
    assert len(looks) == followed_policy.EARLY_LOOKS + 6     # at 16, 32, ... 512
    assert not followed.is_found


def test_a_rollout_in_one_function_under_no_grad_is_guessed() -> None:
    program = Program()
    for _ in range(4):
        program.update(num_acts=3)
    observations = program.observations()
    assert [one.step for one in observations] == [1, 7, 10]      # at first nothing is known of other backward passes
    assert [PPO_FIRST_RATIO_DEVIATION in one.values for one in observations] == [False, True, True]


def test_a_look_at_the_divergence_after_an_epoch_is_no_rollout() -> None:
    program = Program()
    for _ in range(4):
        program.update(num_acts=3)
        program.followed.rollout(3, [])         # the same number of entries, within the update
        program.continue_update()
    starts = [one.values.get(PPO_FIRST_RATIO_DEVIATION, 0.0) for one in program.observations()]
    assert max(starts) < 1e-2


def test_a_ratio_that_never_begins_at_one_again_is_the_fault_itself() -> None:
    program = Program()
    for number in range(48):
        program.update(num_acts=3, shift=0.0 if number == 0 else 0.1)
    starts = [one.values.get(PPO_FIRST_RATIO_DEVIATION, 0.0) for one in program.observations()]
    assert len([start for start in starts if start > 1e-2]) >= 3


def test_guessed_rollouts_are_read_within_the_budget() -> None:
    program = Program(clock=itertools.count(0.0, 0.1))      # each look takes a tenth of a second
    for _ in range(20):
        program.update(num_acts=3)
    assert len(program.observations()) <= 3

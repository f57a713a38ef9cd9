"""Returns and lengths of episodes, from the steps of environments."""

import numpy as np

from torchtriage.recording.series import EPISODE_LENGTH_MEAN, EPISODE_RETURN_MEAN
from torchtriage.telemetry.ppo.episodes import EnvironmentStep, Episodes
from torchtriage.telemetry.ppo.policy_update import PolicyUpdate


def described(*rollouts: list[EnvironmentStep]) -> PolicyUpdate:
    episodes, update = Episodes(), PolicyUpdate(step=1)
    for steps in rollouts:
        episodes.add(steps)
    episodes.describe(update)
    return update


def test_an_episode_continues_over_rollouts() -> None:
    running = EnvironmentStep(1, 2.0, False, False)
    update = described([running, running], [running, EnvironmentStep(1, 5.0, True, False)])
    assert update.episode_values == {EPISODE_RETURN_MEAN: 11.0, EPISODE_LENGTH_MEAN: 4.0}
    assert update.terminal_rewards == (5.0,)
    assert update.rollout_size == 2
    assert not update.has_equal_rewards


def test_an_end_by_time_limit_is_not_terminal() -> None:
    update = described([EnvironmentStep(1, 1.0, False, True)])
    assert update.episode_values[EPISODE_RETURN_MEAN] == 1.0
    assert update.terminal_rewards == ()


def test_the_step_in_which_a_vector_of_environments_resets_belongs_to_no_episode() -> None:
    def step(rewards: list[float], ended: list[bool]) -> EnvironmentStep:
        return EnvironmentStep(1, np.array(rewards), np.array(ended), np.array([False, False]))

    update = described([
        step([1, 1], [True, False]), step([0, 1], [False, False]), step([1, 1], [True, False])])
    assert update.episode_values == {EPISODE_RETURN_MEAN: 1.0, EPISODE_LENGTH_MEAN: 1.0}
    assert update.has_equal_rewards
    assert update.terminal_rewards == (1.0, 1.0)
    assert update.rollout_size == 6


def test_the_environment_with_the_most_steps_counts() -> None:
    update = described([EnvironmentStep(2, 9.0, True, False), *[EnvironmentStep(1, 1.0, True, False)] * 3])
    assert (update.rollout_size, update.episode_values[EPISODE_RETURN_MEAN]) == (3, 1.0)


def test_results_of_other_shapes_are_left_out() -> None:
    assert described([EnvironmentStep(1, np.ones(3), np.zeros(2), np.zeros(2))]).rollout_size is None

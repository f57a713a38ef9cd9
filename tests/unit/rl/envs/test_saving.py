"""Environments saved in mid-episode continue exactly, or say why they do not."""

import io
import warnings

import gymnasium
import pytest
import torch

from tests.unit.rl.environment_samples import GO, Forgetful, Noisy, Unrepeatable, serial
from torchtriage.errors import TriageError
from torchtriage.rl.envs.gymnasium import GymnasiumEnvironments
from torchtriage.rl.envs.protocol import make_environments


def random_actions(environments, num_steps, seed):
    generator, spaces = torch.Generator().manual_seed(seed), environments.spaces
    if spaces.num_actions is None:
        return torch.randn(num_steps, environments.num_envs, spaces.action_size, generator=generator)
    return torch.randint(spaces.num_actions, (num_steps, environments.num_envs), generator=generator)


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def assert_continues_exactly(make, before=47, after=250):
    """Save after `before` steps, load into other environments, and compare `after` more steps."""
    original, resumed = make(), make()
    original.reset(3)
    resumed.reset(99)
    for actions in random_actions(original, before, seed=1):
        last = original.step(actions)
    assert torch.equal(resumed.load_state(through_a_file(original.state())), last.observation_NO)
    num_episodes = 0
    for actions in random_actions(original, after, seed=2):
        expected, found = original.step(actions), resumed.step(actions)
        assert all(torch.equal(a, b) for a, b in zip(expected[:-1], found[:-1], strict=True))
        assert expected.episodes == found.episodes
        num_episodes += len(found.episodes)
    return num_episodes


@pytest.fixture
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.usefixtures("no_warnings")
@pytest.mark.parametrize(
    ("name", "stepping"),
    [
        ("CartPole-v1", "serial"),
        ("CartPole-v1", "vector"),
        ("CartPoleNoVel-v1", "vector"),
        ("Acrobot-v1", "serial"),
        ("Pendulum-v1", "serial"),
    ],
)
def test_a_resumed_run_continues_exactly(name, stepping):
    num_episodes = assert_continues_exactly(lambda: make_environments(name, 3, stepping))
    assert num_episodes or name == "Acrobot-v1"  # whose episodes are longer


def test_loaded_environments_are_closed():
    original, resumed = make_environments("CartPole-v1", 2), make_environments("CartPole-v1", 2)
    original.reset(0)
    resumed.load_state(original.state())
    closed = []
    for env in resumed.vector.envs:
        env.close = lambda: closed.append(True)
    resumed.close()
    assert closed == [True, True]


def test_a_state_saved_before_a_delayed_reset_continues_exactly():
    environments = make_environments("CartPole-v1", 3, "vector")
    environments.reset(0)
    push = torch.ones(3, dtype=torch.int64)
    while not environments.step(push).episodes:
        pass
    resumed = make_environments("CartPole-v1", 3, "vector")
    resumed.load_state(environments.state())
    expected, found = environments.step(push), resumed.step(push)
    assert expected.dead_N.any()
    assert all(torch.equal(a, b) for a, b in zip(expected[:-1], found[:-1], strict=True))


@pytest.mark.usefixtures("no_warnings")
@pytest.mark.parametrize("env", [Noisy, Forgetful])
@pytest.mark.parametrize("before", [1, 47])
def test_an_environment_that_is_not_data_is_replayed(env, before):
    assert assert_continues_exactly(lambda: serial(env), before) > 1


def test_a_resumed_state_can_be_saved_again():
    first, second, third = serial(Noisy), serial(Noisy), serial(Noisy)
    first.reset(0)
    for actions in random_actions(first, 20, seed=1):
        first.step(actions)
    second.load_state(first.state())
    for actions in random_actions(first, 20, seed=2):
        expected = first.step(actions)
        second.step(actions)
    assert torch.equal(third.load_state(second.state()), expected.observation_NO)


def test_an_episode_that_cannot_be_replayed_restarts_with_a_warning():
    original, resumed = serial(Unrepeatable), serial(Unrepeatable)
    original.reset(0)
    for _ in range(3):
        original.step(torch.zeros(2, 2))
    with pytest.warns(
        UserWarning, match=r"environments \[0, 1\] continue with new episodes.*Test-v0 cannot be saved as data"
    ):
        observation = resumed.load_state(original.state())
    assert observation.tolist() == resumed.vector.observations.tolist()
    assert resumed.step(torch.zeros(2, 2)).episodes == []


def test_a_vector_environment_that_cannot_be_saved_restarts_with_a_warning():
    vector = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")  # its makers are local functions
    environments = GymnasiumEnvironments(vector, "CartPole-v1")
    environments.reset(0)
    environments.step(GO)
    with pytest.warns(UserWarning, match="starts new episodes.*CartPole-v1 cannot be saved as data"):
        state = environments.state()
    with pytest.warns(UserWarning, match="continues with new episodes of CartPole-v1: it could not be saved"):
        observation = environments.load_state(state)
    assert observation.abs().max() <= 0.05
    assert environments.step(GO).reward_N.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "num_envs", "stepping", "message"),
    [
        (
            "CartPole-v1",
            3,
            "serial",
            "expected the state of 3 environments with 4 numbers each .CartPole-v1., found 2 with 4",
        ),
        ("Pendulum-v1", 2, "serial", "2 environments with 3 numbers each .Pendulum-v1., found 2 with 4"),
        ("CartPole-v1", 2, "vector", "stepped as CartPoleVectorEnv, found one stepped as SerialVectorEnv"),
    ],
)
def test_a_state_of_other_environments_is_refused(name, num_envs, stepping, message):
    environments = make_environments("CartPole-v1", 2, "serial")
    environments.reset(0)
    with pytest.raises(TriageError, match=message):
        make_environments(name, num_envs, stepping).load_state(environments.state())

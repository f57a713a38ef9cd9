"""Steps of gymnasium's environments in every autoreset mode, their spaces, and the errors for bad input."""

import re
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.unit.rl.environment_samples import GO, Frugal, Scripted, serial
from torchtriage.errors import TriageError
from torchtriage.rl.envs.gymnasium import GymnasiumEnvironments
from torchtriage.rl.envs.protocol import make_environments
from torchtriage.rl.envs.serial import SerialVectorEnv


def vectored(mode):
    return GymnasiumEnvironments(SyncVectorEnv([Scripted] * 2, autoreset_mode=mode), "Scripted-v0")


def all_steps(environments, num_steps):
    environments.reset(0)
    return [environments.step(GO) for _ in range(num_steps)]


def of_first(outcomes, field):
    return [getattr(outcome, field)[0].tolist() for outcome in outcomes]


SAME_STEP = {
    "same step": lambda: vectored(AutoresetMode.SAME_STEP),
    "disabled": lambda: vectored(AutoresetMode.DISABLED),
    "serial": lambda: serial(Scripted),
    "serial, in one array": lambda: serial(Frugal),
}


@pytest.mark.parametrize("make", SAME_STEP.values(), ids=SAME_STEP)
def test_a_same_step_reset_returns_the_next_and_the_final_observation(make):
    outcomes = all_steps(make(), 4)
    assert of_first(outcomes, "observation_NO") == [[0, 1], [1, 0], [1, 1], [2, 0]]
    assert of_first(outcomes, "final_NO") == [[0, 1], [0, 2], [1, 1], [1, 2]]
    assert of_first(outcomes, "reward_N") == [1, 2, 11, 12]
    assert of_first(outcomes, "terminated_N") == [False, True, False, False]
    assert of_first(outcomes, "truncated_N") == [False, False, False, True]
    assert of_first(outcomes, "dead_N") == [False] * 4
    assert of_first(outcomes, "starts_N") == [False, True, False, True]
    assert [outcome.episodes for outcome in outcomes] == [
        [],
        [(0, 3.0, 2), (1, 3.0, 2)],
        [],
        [(0, 23.0, 2), (1, 23.0, 2)],
    ]


def test_a_next_step_reset_makes_that_transition_dead():
    outcomes = all_steps(vectored(AutoresetMode.NEXT_STEP), 6)
    assert of_first(outcomes, "observation_NO") == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0]]
    assert of_first(outcomes, "final_NO") == of_first(outcomes, "observation_NO")
    assert of_first(outcomes, "reward_N") == [1, 2, 0, 11, 12, 0]
    assert of_first(outcomes, "terminated_N") == [False, True, False, False, False, False]
    assert of_first(outcomes, "truncated_N") == [False, False, False, False, True, False]
    assert of_first(outcomes, "dead_N") == of_first(outcomes, "starts_N") == [False, False, True, False, False, True]
    assert [outcome.episodes[0] for outcome in outcomes if outcome.episodes] == [(0, 3.0, 2), (0, 23.0, 2)]


def test_values_of_a_dead_transition_are_ignored():
    environments = vectored(AutoresetMode.NEXT_STEP)
    environments.reset(0)
    step, ones = environments.vector.step, np.ones(2, bool)
    environments.step(GO), environments.step(GO)
    environments.vector.step = lambda actions: (step(actions)[0], np.full(2, 5.0), ones, ones, {})
    outcome = environments.step(GO)
    assert outcome.dead_N.all()
    assert not (outcome.terminated_N | outcome.truncated_N).any()
    assert outcome.reward_N.tolist() == [0, 0]
    assert outcome.episodes == []


def test_outcomes_are_not_overwritten_by_later_steps():
    environments = serial(Scripted)
    first = environments.reset(0)
    outcomes = [environments.step(GO) for _ in range(5)]
    copies = [[tensor.clone() for tensor in outcome[:-1]] for outcome in outcomes]
    for _ in range(5):
        environments.step(GO)
    assert first.tolist() == [[0, 0]] * 2
    assert all(
        torch.equal(a, b)
        for outcome, copy in zip(outcomes, copies, strict=True)
        for a, b in zip(outcome[:-1], copy, strict=True)
    )


def test_a_missing_autoreset_mode_is_refused():
    vector = SyncVectorEnv([Scripted] * 2)
    vector.metadata = {}
    with pytest.raises(TriageError, match=r"must declare when it resets.*found metadata\['autoreset_mode'\] None"):
        GymnasiumEnvironments(vector, "Silent-v0")


def test_serial_stepping_agrees_with_gymnasium():
    ours = SerialVectorEnv(lambda: gymnasium.make("CartPole-v1"), 3)
    theirs = gymnasium.make_vec(
        "CartPole-v1", 3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}
    )
    first, _ = ours.reset(seed=7)
    expected, _ = theirs.reset(seed=[int(s) for s in np.random.SeedSequence(7).generate_state(3)])
    np.testing.assert_array_equal(first, expected)
    for actions in np.random.default_rng(0).integers(0, 2, (100, 3)):
        for mine, his in zip(ours.step(actions)[:-1], theirs.step(actions)[:-1], strict=True):
            np.testing.assert_array_equal(mine, his)


@pytest.mark.parametrize(
    ("num_envs", "stepping", "expected"),
    [
        (8, "auto", "SerialVectorEnv"),
        (64, "auto", "CartPoleVectorEnv"),
        (2, "vector", "CartPoleVectorEnv"),
        (64, "serial", "SerialVectorEnv"),
    ],
)
def test_the_stepping_depends_on_the_number_of_environments(num_envs, stepping, expected):
    assert type(make_environments("CartPole-v1", num_envs, stepping).vector).__name__ == expected


@pytest.mark.parametrize("stepping", ["serial", "vector"])
@pytest.mark.parametrize("name", ["CartPoleNoVel-v1", "torchtriage/CartPoleNoVel-v1"])
def test_cartpole_without_velocities_shows_position_and_angle(name, stepping):
    hidden, full = make_environments(name, 3, stepping), make_environments("CartPole-v1", 3, stepping)
    assert hidden.spaces.observation_size == 2
    assert torch.equal(hidden.reset(3), full.reset(3)[:, [0, 2]])
    for _ in range(30):
        seen, whole = hidden.step(torch.ones(3, dtype=torch.int64)), full.step(torch.ones(3, dtype=torch.int64))
        assert torch.equal(seen.observation_NO, whole.observation_NO[:, [0, 2]])
        assert torch.equal(seen.final_NO, whole.final_NO[:, [0, 2]])
    assert hidden.vector.single_observation_space.shape == (2,)


class Shaped(Scripted):
    def __init__(self, observation_space, action_space=None):
        self.observation_space, self.action_space = observation_space, action_space or Discrete(3)
        self.taken = []

    def step(self, action):
        self.taken.append(action)
        return super().step(action)

    def seen(self):
        return self.observation_space.sample()


def test_a_discrete_observation_becomes_one_hot():
    environments = serial(lambda: Shaped(Discrete(3, start=5)))
    environments.vector.envs[1].seen = lambda: np.int64(6)
    assert environments.reset(0)[1].tolist() == [0, 1, 0]
    assert environments.step(GO).observation_NO.shape == (2, 3)


def test_an_observation_of_any_shape_and_type_is_flattened_to_float32():
    environments = serial(lambda: Shaped(Box(0, 255, (2, 3), np.uint8)))
    assert environments.reset(0).shape == (2, 6)
    assert environments.step(environments.spaces.num_actions * GO).final_NO.dtype == torch.float32


def test_continuous_actions_are_clipped_and_shaped_for_the_environment():
    environments = serial(lambda: Shaped(Box(-1, 1, (1,)), Box(-2, 2, (1, 2), np.float64)))
    assert (environments.spaces.low_A, environments.spaces.high_A) == ((-2.0, -2.0), (2.0, 2.0))
    environments.reset(0)
    environments.step(torch.tensor([[9.0, 0.5], [-9.0, 0.0]], requires_grad=True))
    assert [env.taken[0].tolist() for env in environments.vector.envs] == [[[2.0, 0.5]], [[-2.0, 0.0]]]
    assert environments.vector.envs[0].taken[0].dtype == np.float64


def test_a_discrete_action_space_may_start_above_zero():
    environments = serial(lambda: Shaped(Box(-1, 1, (1,)), Discrete(3, start=4)))
    environments.reset(0)
    environments.step(torch.tensor([0, 2]))
    assert [env.taken for env in environments.vector.envs] == [[4], [6]]


@pytest.mark.parametrize(
    ("observations", "actions", "message"),
    [
        (
            Dict(a=Discrete(2)),
            Discrete(2),
            r"observations of Odd-v0 are Dict.*Box or Discrete observations.*FlattenObservation",
        ),
        (
            Discrete(2),
            MultiDiscrete([2, 3]),
            r"actions of Odd-v0 are MultiDiscrete\(\[2 3\]\).*Discrete actions, or a Box.*one Discrete",
        ),
        (Discrete(2), Dict(a=Discrete(2)), r"actions of Odd-v0 are Dict"),
        (Discrete(2), Box(0, 5, (2,), np.int64), r"actions of Odd-v0 are Box\(0, 5, \(2,\), int64\).*a Box of floats"),
    ],
)
def test_an_unsupported_space_is_refused_by_name(observations, actions, message):
    gymnasium.register("Odd-v0", entry_point=lambda: Shaped(observations, actions))
    try:
        with pytest.raises(TriageError, match=message):
            make_environments("Odd-v0", 2)
    finally:
        del gymnasium.registry["Odd-v0"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPol-v1", "no environment 'CartPol-v1'; did you mean CartPole-v1"),
        ("CartPoleNoVell-v1", "did you mean CartPoleNoVel-v1"),
        ("cartpole", "did you mean CartPole-v"),
        ("zzzzzzzzzzz", "'zzzzzzzzzzz'; give an environment of another package as MODULE:NAME"),
        ("nosuchmodule:Thing-v0", "names a module that cannot be imported: No module named 'nosuchmodule'"),
    ],
)
def test_an_unknown_environment_is_refused_with_the_nearest_names(name, message):
    with pytest.raises(TriageError, match=message):
        make_environments(name, 2)


def test_an_environment_of_another_package_is_found_by_its_module(tmp_path, monkeypatch):
    source = "import gymnasium\ngymnasium.register('Other-v0', entry_point='gymnasium.envs.toy_text:FrozenLakeEnv')\n"
    (tmp_path / "other_package.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert make_environments("other_package:Other-v0", 2).spaces.observation_size == 16


def test_an_environment_with_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(
        TriageError, match=r"LunarLander-v3 needs a package that is missing: Box2D is not installed.*pip install"
    ):
        make_environments("LunarLander-v3", 2)


def test_missing_gymnasium_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(TriageError, match=re.escape("pip install 'torchtriage[rl]'")):
        make_environments("CartPole-v1", 2)


@pytest.mark.parametrize(
    ("num_envs", "stepping", "message"),
    [
        (0, "auto", "at least 1 environment, got 0"),
        (2, "asink", "auto, serial, vector, got 'asink'"),
        (2, "vector", "no vector entry point"),
    ],
)
def test_invalid_settings_are_refused(num_envs, stepping, message):
    with pytest.raises(TriageError, match=message):
        make_environments("Acrobot-v1", num_envs, stepping)


@pytest.mark.parametrize(
    ("observation", "reward", "message"),
    [
        ([np.nan, 1.0], 0.0, r"environment 1 of Test-v0 .* at step 1: observation\[0\] is nan; its action was finite"),
        ([1.0, -np.inf], np.nan, r"step 1: observation\[1\] is -inf, reward is nan"),
        ([1.0, 1.0], np.inf, "reward is inf"),
    ],
)
@pytest.mark.parametrize("ended", [False, True])
def test_nonfinite_numbers_are_refused_with_their_place(observation, reward, message, ended):
    environments = serial(Scripted)
    environments.reset(0)
    environments.vector.envs[1].step = lambda action: (np.array(observation, np.float32), reward, False, ended, {})
    with pytest.raises(TriageError, match=message):
        environments.step(GO)


def test_a_nonfinite_action_is_distinguished_from_a_broken_environment():
    environments = make_environments("Pendulum-v1", 2)
    environments.reset(0)
    with pytest.raises(TriageError, match=r"environment 1 of Pendulum-v1.*its action \[nan\] was not finite either"):
        environments.step(torch.tensor([[0.0], [float("nan")]]))


def test_huge_but_finite_observations_pass():
    environments = serial(lambda: Shaped(Box(3e38, 3.1e38, (4,))))
    environments.reset(0)
    assert environments.step(GO).observation_NO.isfinite().all()


def test_runs_with_adjacent_seeds_share_no_environment():
    environments = make_environments("CartPole-v1", 8)
    starts = torch.cat([environments.reset(seed) for seed in range(4)])
    assert len(starts.unique(dim=0)) == 32

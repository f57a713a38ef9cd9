"""The steps of gymnasium's environments, as the tap logs them."""

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from torchtriage.capture.taps import environments
from torchtriage.capture.taps.environments import EnvironmentLog

gym = pytest.importorskip("gymnasium")


class Before(gym.Env):  # type: ignore[misc]
    def step(self, action: Any) -> Any:
        """One step."""
        return action, 1.0, False, True, {}


@pytest.fixture
def log() -> Iterator[EnvironmentLog]:
    log = EnvironmentLog()
    undos = [environments.arm(log, base) for base in (gym.Env, gym.vector.VectorEnv)]
    yield log
    for undo in undos:
        if undo is not None:
            undo()


def results(log: EnvironmentLog) -> list[tuple[Any, ...]]:
    return [step[1:] for step in log.take()]


def test_classes_made_before_and_after_are_logged(log: EnvironmentLog) -> None:
    class After(gym.Env):  # type: ignore[misc]
        def step(self, action: Any) -> Any:
            return action, 2.0, True, False, {}

    assert Before().step(3) == (3, 1.0, False, True, {})
    After().step(4)
    assert results(log) == [(1.0, False, True), (2.0, True, False)]


def test_only_the_outermost_environment_is_logged(log: EnvironmentLog) -> None:
    wrapped = gym.wrappers.TransformReward(Before(), lambda reward: 10.0 * reward)
    wrapped.step(0)
    assert results(log) == [(10.0, False, True)]


def test_arrays_are_kept_as_they_were(log: EnvironmentLog) -> None:
    reward = np.ones(2)

    class Pair(gym.vector.VectorEnv):  # type: ignore[misc]
        def step(self, actions: Any) -> Any:
            return actions, reward, np.zeros(2, dtype=bool), np.zeros(2, dtype=bool), {}

    Pair().step(None)
    reward[:] = 7.0
    assert results(log)[0][0].tolist() == [1.0, 1.0]


def test_a_failing_step_fails_as_before_and_the_next_one_is_logged(log: EnvironmentLog) -> None:
    class Failing(gym.Env):  # type: ignore[misc]
        def step(self, action: Any) -> Any:
            raise KeyError(action)

    with pytest.raises(KeyError):
        Failing().step(1)
    Before().step(1)
    assert len(log.take()) == 1


def test_another_result_is_not_logged_and_not_changed(log: EnvironmentLog) -> None:
    class Old(gym.Env):  # type: ignore[misc]
        def step(self, action: Any) -> Any:
            return action, 1.0, False, {}

    assert Old().step(1) == (1, 1.0, False, {})
    assert log.take() == []


def test_more_steps_than_are_kept_are_no_rollout(log: EnvironmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "MAX_STEPS", 2)
    for _ in range(3):
        Before().step(1)
    assert log.take() == []
    Before().step(1)
    assert len(log.take()) == 1


def test_an_environment_keeps_its_name_its_docs_and_its_pickle(log: EnvironmentLog) -> None:
    assert (Before.step.__qualname__, Before.step.__doc__) == ("Before.step", "One step.")
    assert pickle.loads(pickle.dumps(Before())).step(2)[0] == 2
    cloudpickle = pytest.importorskip("cloudpickle")
    source = "class Main(gym.Env):\n    def step(self, action):\n        return action, 1.0, False, False, {}\n"
    names: dict[str, Any] = {"gym": gym, "__name__": "__main__"}
    exec(source, names)
    made = pickle.loads(cloudpickle.dumps(names["Main"]))
    assert made().step(5)[0] == 5


def test_a_compiled_function_that_steps_an_environment_has_the_same_graphs(log: EnvironmentLog) -> None:
    torch = pytest.importorskip("torch")
    from torch._dynamo.testing import CompileCounter

    def graphs(step_of: Any) -> tuple[int, int]:
        class Plain(gym.Env):  # type: ignore[misc]
            pass

        Plain.step = step_of
        environment, counter = Plain(), CompileCounter()
        torch._dynamo.reset()

        def act(x: Any) -> Any:
            return environment.step(x * 2.0)[0] + 1.0

        compiled = torch.compile(act, backend=counter)
        assert compiled(torch.ones(2)).tolist() == [7.0, 7.0]
        return counter.frame_count, counter.op_count

    def step(self: Any, action: Any) -> Any:
        return action * 3.0, 1.0, False, False, {}

    assert graphs(environments._logged(step)) == graphs(step)
    assert log.take() == []

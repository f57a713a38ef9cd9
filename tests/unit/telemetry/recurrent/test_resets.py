"""Whether a state starts again with each episode, on hand-made calls."""

import numpy as np
import torch

from torchtriage.telemetry.recurrent.resets import Resets
from torchtriage.telemetry.recurrent.state_calls import StateCall

T, E = 40, 4
DONE_TE = np.arange(T)[:, None] % 8 == np.arange(E) + 2     # four or five ends in each environment


def codes(given: str, done_TE: np.ndarray = DONE_TE, num_objects: int = 1, is_one_step: bool = True) -> list[str]:
    """`given`: what is passed in at the first step of an episode, or at every step."""
    calls, steps = [], []
    hidden_E = np.zeros(E)
    for t in range(T):
        ended_E = done_TE[t - 1] if t else np.ones(E, bool)
        late_E = done_TE[t - 2] if t > 1 else np.zeros(E, bool)
        reset_E = {"reset": ended_E, "late": late_E, "never": ended_E & False, "always": ended_E | True}[given]
        given_E = np.where(reset_E, 0.0, hidden_E)
        hidden_E = given_E + 1.0 + 0.1 * np.arange(E)
        calls.append(StateCall(
            module=1, position=t * num_objects, given_B=torch.tensor(given_E), hidden_B=torch.tensor(hidden_E),
            cell_B=None, num_units=1, is_one_step=is_one_step,
        ))
        if num_objects == 1:
            steps.append((7, np.ones(E), done_TE[t], np.zeros(E, bool)))
        else:
            steps += [(key, 1.0, bool(done_TE[t, key]), False) for key in range(E)]
    resets = Resets()
    resets.add(steps, calls, lambda _: "GRUCell", step=3)
    resets.judge()
    return [fact["code"] for fact in resets.facts()]


def test_a_state_that_survives_every_end_breaks_its_contract() -> None:
    assert codes("never") == ["TT505"]
    assert codes("never", num_objects=E) == ["TT505"]


def test_a_state_that_is_always_zero_breaks_its_contract() -> None:
    assert codes("always") == ["TT506"]


def test_a_state_that_starts_again_with_an_episode_keeps_its_contracts() -> None:
    assert codes("reset") == []
    assert codes("late") == []      # a vector of environments that resets in the step after the end
    assert codes("reset", num_objects=E) == []


def test_what_is_not_known_is_not_judged() -> None:
    few_TE = DONE_TE & (np.arange(T)[:, None] < 4)
    assert codes("never", few_TE) == []
    assert codes("always", np.ones((T, E), bool)) == []         # episodes of one step
    assert codes("never", is_one_step=False) == []
    assert codes("always", is_one_step=False) == []

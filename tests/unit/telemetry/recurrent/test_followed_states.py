"""Windows in which the states of recurrent modules are followed."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from torchtriage.recording.series import LSTM_C_RMS_MAX, LSTM_H_RMS, LSTM_HAS_INF, LSTM_HAS_NAN
from torchtriage.telemetry.recurrent.followed_states import FIRST_STEPS, INTERVAL, FollowedStates

CELL = nn.LSTMCell(3, 4)


@pytest.fixture
def followed() -> Iterator[FollowedStates]:
    states = FollowedStates(lambda: [CELL], lambda: 0)
    yield states
    states.stop()


def is_open() -> bool:
    return hasattr(nn.LSTMCell.forward, "torchtriage_original")


def test_the_window_is_open_at_first_and_then_in_some_steps(followed: FollowedStates) -> None:
    opened = []
    for step in range(1, FIRST_STEPS + 2 * INTERVAL):
        followed.step_ended(step)
        if is_open():
            opened.append(step)
    first, later = opened[:FIRST_STEPS - 1], opened[FIRST_STEPS - 1:]
    assert first == list(range(1, FIRST_STEPS))
    assert [step % INTERVAL for step in later] == [INTERVAL - 1] * 2


def test_the_last_state_of_a_window_is_observed(followed: FollowedStates) -> None:
    followed.step_ended(1)
    h, c = CELL(torch.randn(2, 3))
    followed.step_ended(2)
    (observation,) = followed.observations()
    assert observation.step == 2
    assert observation.values[LSTM_H_RMS] == pytest.approx(h.square().mean().sqrt().item())
    assert observation.values[LSTM_C_RMS_MAX] == pytest.approx(c.square().mean(1).max().sqrt().item())


def test_states_that_are_not_finite_are_flags(followed: FollowedStates) -> None:
    followed.step_ended(1)
    CELL(torch.tensor([[math.nan, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    followed.step_ended(2)
    (observation,) = followed.observations()
    assert (observation.values[LSTM_HAS_NAN], observation.values[LSTM_HAS_INF]) == (1.0, 0.0)
    assert math.isfinite(observation.values[LSTM_H_RMS])


def test_a_program_that_compiles_is_left_alone(followed: FollowedStates) -> None:
    followed.step_ended(1)
    followed.stop()
    assert not is_open()
    followed.step_ended(2)
    assert not is_open()


def test_a_program_without_recurrent_modules_is_left_alone() -> None:
    followed = FollowedStates(lambda: [nn.Linear(2, 2)], lambda: 0)
    followed.step_ended(1)
    followed.step_ended(2)
    assert not followed.has_modules

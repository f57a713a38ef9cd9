"""Follows the states of recurrent modules in windows of a training, for the rules and contracts about them."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from torchtriage.recording.series import (
    LSTM_C_RMS,
    LSTM_C_RMS_MAX,
    LSTM_H_RMS,
    LSTM_H_RMS_MAX,
    LSTM_HAS_INF,
    LSTM_HAS_NAN,
)
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.recurrent.resets import Resets
from torchtriage.telemetry.recurrent.state_calls import StateCall, StateCalls

FIRST_STEPS = 24        # the window is open in these steps, and longer while the first rollouts are judged
MOST_STEPS = 400        # but not beyond these
INTERVAL = 20           # later it is open in one of these steps
NUM_ROLLOUTS = 4        # that are judged
MAX_QUEUE = 64


class FollowedStates:
    """Called by the taps after each step of an optimizer and before the first backward pass after a rollout."""

    def __init__(self, modules: Callable[[], Iterable[torch.nn.Module]], position: Callable[[], int]) -> None:
        """`modules` searches the process; `position` is the number of steps of environments since the last loss."""
        self.resets = Resets()
        self._modules = modules
        self._calls = StateCalls(position)
        self._num_steps = 0
        self._num_rollouts = 0
        self._has_environments = False
        self._is_stopped = False
        self._finished: deque[tuple[int, list[StateCall]]] = deque(maxlen=MAX_QUEUE)

    @property
    def has_modules(self) -> bool:
        return self._calls.has_modules

    def stop(self) -> None:
        """Nothing is replaced any more: the program compiles."""
        self._is_stopped = True
        self._calls.close()

    def step_ended(self, step: int) -> None:
        if self._is_stopped:
            return
        self._num_steps += 1
        if self._num_steps == 1:
            self._calls.follow(self._modules())
        elif not self._calls.has_modules:
            self.stop()
            return
        calls = self._calls.take()
        if calls:
            self._finished.append((step, calls))
        if self._is_window():
            self._calls.open()
        else:
            self._calls.close()

    def rollout(self, steps: Sequence[tuple[Any, ...]], step: int) -> None:
        """The steps of environments since the last backward pass; calls of the modules came in between."""
        if self._is_stopped or not steps:
            return
        self._has_environments = True
        calls = self._calls.take()
        if calls:
            self._num_rollouts += 1
            self.resets.add(steps, calls, self._calls.name, step)
            self._finished.append((step, calls))

    def observations(self, wait: bool = False) -> Iterator[Observation]:
        """On the background thread: the sizes of the states at the end of each window."""
        while self._finished:
            step, calls = self._finished.popleft()
            self.resets.judge()
            yield Observation(step=step, time=time.time(), values=_values(calls))

    def _is_window(self) -> bool:
        number = self._num_steps
        if number == FIRST_STEPS:
            self._calls.forget_unproven()
        is_rollout_open = self._has_environments and self._num_rollouts < NUM_ROLLOUTS and number < MOST_STEPS
        return number < FIRST_STEPS or is_rollout_open or number % INTERVAL == INTERVAL - 1


def _values(calls: Sequence[StateCall]) -> dict[str, float]:
    """The last state of the module whose state is largest; one that is not finite is largest."""
    last = {call.module: call for call in calls}
    return max((_of_call(call) for call in last.values()), key=_size)


def _size(values: dict[str, float]) -> float:
    if values[LSTM_HAS_NAN] or values[LSTM_HAS_INF]:
        return math.inf
    return max(values[LSTM_H_RMS_MAX], values.get(LSTM_C_RMS_MAX, 0.0))


def _of_call(call: StateCall) -> dict[str, float]:
    values = {LSTM_HAS_NAN: 0.0, LSTM_HAS_INF: 0.0}
    states = ((call.hidden_B, LSTM_H_RMS, LSTM_H_RMS_MAX), (call.cell_B, LSTM_C_RMS, LSTM_C_RMS_MAX))
    for norms, overall, most in states:
        if norms is None:
            continue
        sizes = [norm / math.sqrt(call.num_units) for norm in norms.tolist()]
        values[LSTM_HAS_NAN] = max(values[LSTM_HAS_NAN], float(any(map(math.isnan, sizes))))
        values[LSTM_HAS_INF] = max(values[LSTM_HAS_INF], float(any(map(math.isinf, sizes))))
        finite = [size for size in sizes if math.isfinite(size)] or [0.0]
        values[overall] = math.sqrt(sum(size * size for size in finite) / len(finite))
        values[most] = max(finite)
    return values

"""The first loss that is not finite, found at its step, with the state of the weights that it was computed with."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from torchtriage.recording.events import Anomaly
from torchtriage.recording.facts import NonFiniteLoss, to_dict
from torchtriage.recording.series import LOSS
from torchtriage.telemetry.sampling.track import Track

MAX_NAMED = 20      # bad tensors that are named; the rest are counted
STATES = ("exp_avg", "momentum_buffer")     # averages of gradients: not finite if a gradient was not finite
Part = tuple[torch.optim.Optimizer, Track]


class FirstNonFinite:
    """Tests one number per backward pass. `emit` receives the anomalies of the first loss that is not finite."""

    def __init__(self, emit: Callable[[Anomaly], None]) -> None:
        self._emit = emit
        self._last_finite: int | None = None
        self.found: NonFiniteLoss | None = None

    def value(self, loss: torch.Tensor) -> float | None:
        """The loss as a number; None on another device, where reading it would wait."""
        if type(loss) is not torch.Tensor or not loss.is_cpu:
            return None
        return float(loss.item())

    def test(self, value: float, step: int, parts: Callable[[], Iterable[Part]]) -> bool:
        """Test the loss of a step; `parts` gives the optimizers that have stepped. True for the first bad loss."""
        if self.found is not None:
            return False
        if math.isfinite(value):
            self._last_finite = step
            return False
        self.found = self._inspect(step, parts())
        self._report(value, self.found)
        return True

    def facts(self) -> dict[str, Any]:
        return {} if self.found is None else {"non_finite_loss": to_dict(self.found)}

    def _inspect(self, step: int, parts: Iterable[Part]) -> NonFiniteLoss:
        """Look at all trained weights, which the bad loss was computed with, and at the state of the optimizers."""
        bad, num_weights, has_bad_average, num_averages = [], 0, False, 0
        for optimizer, name, weight in _weights(parts):
            num_weights += 1
            if _is_finite(weight):
                continue
            bad.append(name)
            for average in _averages(optimizer, weight):
                num_averages += 1
                has_bad_average = has_bad_average or not _is_finite(average)
        return NonFiniteLoss(
            step=step, last_finite=self._last_finite, num_weights=num_weights, num_bad_weights=len(bad),
            bad_weights=tuple(bad[:MAX_NAMED]), was_gradient_finite=not has_bad_average if num_averages else None,
        )

    def _report(self, value: float, found: NonFiniteLoss) -> None:
        word = "NaN" if math.isnan(value) else "Inf"
        self._put("TT401", LOSS, value, f"the loss is {word}", found.step)
        for name in found.bad_weights:
            self._put("TT403", name, math.nan, f"values in the weight of {name} are not finite", found.step)
            if found.was_gradient_finite is False:
                text = f"the average of the gradients of {name} that the optimizer keeps is not finite"
                self._put("TT402", name, math.nan, text, found.step)

    def _put(self, code: str, subject: str, value: float, text: str, step: int) -> None:
        self._emit(Anomaly(
            code=code, subject=subject, value=value, threshold=math.inf, text=text, step=step, time=time.time(),
        ))


def _weights(parts: Iterable[Part]) -> Iterator[tuple[torch.optim.Optimizer, str, torch.Tensor]]:
    seen: set[int] = set()
    for optimizer, track in parts:
        for name, parameter in zip(track.names, track.parameters, strict=True):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield optimizer, name, parameter


def _averages(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> list[torch.Tensor]:
    state = optimizer.state.get(parameter, {})
    return [state[name] for name in STATES if isinstance(state.get(name), torch.Tensor)]


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor.detach()).all())

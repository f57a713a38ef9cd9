"""How far gradients have drifted from their own moving average."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchtriage.diagnosis.learning.rules.gradients import drift
from torchtriage.telemetry.config import check_state

STATE_VERSION = 1
# Relative to an average near zero the quotient is meaningless: it only shows that there is a gradient now.
MAX_DRIFT = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientDrift:
    """Distance of one update's norm and health from their averages, as a share of them, and the averages after it."""

    norm_drift: float
    health_drift: float
    ema_norm: float
    ema_health: float


class GradientEMATracker:
    """Moving averages of gradient norm and health. The drift is relative to the average before the update.

    The first sample becomes the average. Averages below `epsilon` count as `epsilon`, and no drift exceeds MAX_DRIFT.
    """

    def __init__(self, momentum: float = 0.99, epsilon: float = 1e-8) -> None:
        _check_settings(momentum, epsilon)
        self.momentum, self.epsilon = momentum, epsilon
        self.ema_norm = self.ema_health = 0.0
        self.initialized = False
        self.update_count = 0

    def update(self, norm: float, health: float) -> GradientDrift:
        """Add the gradient norm and health of an update. A non-finite value raises ValueError and changes nothing."""
        _check_value("norm", norm)
        _check_value("health", health)
        if not self.initialized:
            self.ema_norm, self.ema_health, self.initialized = norm, health, True
        norm_drift, health_drift = self._drift(norm, self.ema_norm), self._drift(health, self.ema_health)
        self.ema_norm += (1.0 - self.momentum) * (norm - self.ema_norm)
        self.ema_health += (1.0 - self.momentum) * (health - self.ema_health)
        self.update_count += 1
        return GradientDrift(
            norm_drift=norm_drift, health_drift=health_drift, ema_norm=self.ema_norm, ema_health=self.ema_health,
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "version": STATE_VERSION, "ema_norm": self.ema_norm, "ema_health": self.ema_health,
            "initialized": self.initialized, "update_count": self.update_count,
            "momentum": self.momentum, "epsilon": self.epsilon,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a saved state, with its momentum and epsilon; a state that does not fit changes
        nothing.
        """
        number = (float, int)
        check_state(self, state, STATE_VERSION, {
            "ema_norm": number, "ema_health": number, "initialized": bool, "update_count": int,
            "momentum": number, "epsilon": number,
        })
        _check_value("ema_norm", state["ema_norm"])
        _check_value("ema_health", state["ema_health"])
        _check_settings(state["momentum"], state["epsilon"])
        self.momentum, self.epsilon = state["momentum"], state["epsilon"]
        self.ema_norm, self.ema_health = state["ema_norm"], state["ema_health"]
        self.initialized, self.update_count = state["initialized"], state["update_count"]

    def _drift(self, value: float, average: float) -> float:
        return min(drift(value, average, self.epsilon), MAX_DRIFT)


def _check_settings(momentum: float, epsilon: float) -> None:
    if not (0 <= momentum < 1 and 0 < epsilon < math.inf):
        raise ValueError(f"momentum must be in [0, 1) and epsilon a number above 0, got {momentum} and {epsilon}")


def _check_value(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(
            f"{name} must be finite and not negative, got {value}; report it, and leave this update out of the average"
        )

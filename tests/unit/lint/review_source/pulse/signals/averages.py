"""Running averages of gradient numbers, to see when they drift."""

from dataclasses import dataclass


@dataclass
class SlopeAverages:
    """Exponential averages of norm and health."""

    momentum: float = 0.99
    epsilon: float = 1e-8
    ema_norm: float = 0.0
    ema_health: float = 1.0
    started: bool = False

    def push(self, norm: float, health: float) -> tuple[float, float]:
        """The drift of both numbers; the averages move afterwards."""
        if not self.started:
            self.ema_norm, self.ema_health, self.started = norm, health, True
            return 0.0, 0.0
        norm_drift = abs(norm - self.ema_norm) / (self.ema_norm + self.epsilon)
        health_drift = abs(health - self.ema_health) / (self.ema_health + self.epsilon)
        self.ema_norm = self.momentum * self.ema_norm + (1 - self.momentum) * norm
        self.ema_health = self.momentum * self.ema_health + (1 - self.momentum) * health
        return norm_drift, health_drift

    def state_dict(self) -> dict[str, float | bool]:
        return {"ema_norm": self.ema_norm, "ema_health": self.ema_health, "started": self.started}

    def load_state_dict(self, state: dict[str, float | bool]) -> None:
        self.ema_norm = float(state["ema_norm"])
        self.ema_health = float(state["ema_health"])
        self.started = bool(state["started"])

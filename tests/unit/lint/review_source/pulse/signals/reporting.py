"""Sends what an update measured to the hub."""

import logging
import math
from collections.abc import Callable
from typing import Any

from torch import nn

from pulse.signals.alarms import AlarmPanel
from pulse.signals.inspection import inspect_layers, inspect_soundness
from pulse.signals.settings import Detail, SignalConfig

logger = logging.getLogger(__name__)


class Reporter:
    """Reports updates of one group of environments."""

    def __init__(self, send: Callable[[str, dict[str, Any]], None], config: SignalConfig) -> None:
        self.send = send
        self.config = config
        self.panel = AlarmPanel()

    def after_update(self, network: nn.Module, numbers: dict[str, float], progress: float) -> None:
        if not self.config.wants("update"):
            return
        self.send("update", {**numbers, "grad_norm": surrogate_norm(network)})
        report = self.panel.check_everything(
            numbers["ratio_max"], numbers["ratio_min"], numbers["explained"], numbers["entropy"], numbers["kl"], progress,
        )
        if report.any_raised:
            self.config.raise_detail(steps=5)
            self.send("alarm", {"raised": report.raised})
        if self.config.current_detail is Detail.DEBUG:
            self._send_details(network)

    def _send_details(self, network: nn.Module) -> None:
        try:
            layers = inspect_layers(network)
            soundness = inspect_soundness(network)
            self.send("layers", {"layers": layers, "sound": soundness.is_sound})
        except Exception as problem:
            logger.warning("no layer report this time: %s", problem)


def surrogate_norm(network: nn.Module) -> float | None:
    """The length of the gradient, as one number for the chart."""
    total = None
    for weight in network.parameters():
        if weight.grad is None:
            continue
        g = weight.grad.detach()
        piece = (g.float() * g.float()).sum()
        total = piece if total is None else total + piece
    return None if total is None else math.sqrt(total.item())

"""How much is measured, and when that is raised for a while."""

from dataclasses import dataclass
from enum import IntEnum


class Detail(IntEnum):
    OFF = 0
    NORMAL = 1
    DEBUG = 2


@dataclass
class SignalConfig:
    """The level of detail; an alarm raises it for some steps."""

    detail: Detail = Detail.NORMAL
    every: int = 1
    layer_slopes: bool = False
    watch_activations: bool = False
    track_weights: bool = False
    track_weights_every: int = 100
    raised_steps: int = 0

    @property
    def current_detail(self) -> Detail:
        return Detail.DEBUG if self.raised_steps > 0 else self.detail

    def wants(self, kind: str) -> bool:
        if self.current_detail is Detail.OFF:
            return False
        return kind != "debug" or self.current_detail is Detail.DEBUG

    def due(self, step: int) -> bool:
        return step % self.every == 0

    def raise_detail(self, steps: int) -> None:
        self.raised_steps = max(self.raised_steps, steps)

    def tick(self) -> None:
        self.raised_steps = max(0, self.raised_steps - 1)

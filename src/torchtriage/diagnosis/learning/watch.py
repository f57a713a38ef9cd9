"""Feeds a training to all learning rules, one observation at a time, whether live or recorded."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from torchtriage.diagnosis.learning.limits import DEFAULT, LearningLimits
from torchtriage.diagnosis.learning.memory import Memory
from torchtriage.diagnosis.learning.rule import Breach
from torchtriage.diagnosis.learning.rules import (
    gradients,
    loss,
    optimizer,
    ppo,
    recurrent,
    tensors,
    value_clipping,
)
from torchtriage.recording.series import GRAD_NORM, PPO_PREFIX

# Quantities of an entire observation; those of a single tensor are in rules/tensors.py.
QUANTITIES = (
    loss.QUANTITIES | gradients.QUANTITIES | optimizer.QUANTITIES | recurrent.QUANTITIES | ppo.QUANTITIES
    | value_clipping.QUANTITIES
)
PREFIXES = optimizer.PREFIXES + ppo.PREFIXES


def is_quantity(name: str) -> bool:
    """Whether a rule reads the series of this name as a quantity of the entire observation, not of a tensor."""
    return name in QUANTITIES or name.startswith(PREFIXES)


class LearningWatch:
    """The rules with their memory. An observation maps the names of series to values; any of them may be missing."""

    def __init__(
        self, limits: LearningLimits = DEFAULT, *, is_half: bool = False, has_float16: bool = False,
        is_policy: bool = False,
    ) -> None:
        self.limits = limits
        self.is_half = is_half          # the model computes in 16 bits
        self.has_float16 = has_float16  # gradients themselves are float16, whose range is small
        self.is_policy = is_policy      # its data and targets change while it learns, and so may its loss and gradients
        self.memory = Memory()

    def observe(self, row: Mapping[str, float], step: int | None = None) -> list[Breach]:
        """The breaches of one observation, without its tensors."""
        memory, limits = self.memory, self.limits
        self.is_policy = self.is_policy or any(name.startswith(PPO_PREFIX) for name in row)
        return _at(step, [
            *loss.breaches(row, self.is_policy, memory, limits),
            *gradients.breaches(row, self.is_policy, memory, limits),
            *optimizer.breaches(row, step, memory, limits),
            *recurrent.breaches(row, limits),
            *ppo.breaches(row, self.is_half, memory, limits),
        ])

    def observe_tensors(self, rows: Mapping[str, Mapping[str, float]], step: int | None = None) -> list[Breach]:
        """The breaches of all tensors of one observation, side by side and one by one."""
        breaches = self.observe_norms({name: row[GRAD_NORM] for name, row in rows.items() if GRAD_NORM in row}, step)
        has_float16, memory, limits = self.has_float16, self.memory, self.limits
        for name, row in rows.items():
            of_tensor = tensors.breaches(name, row, has_float16, memory, limits)
            if of_tensor:       # there may be thousands of tensors at every step, nearly all of them healthy
                breaches += _at(step, of_tensor)
        return breaches

    def observe_tensor(self, name: str, row: Mapping[str, float], step: int | None = None) -> list[Breach]:
        """The breaches of one tensor of one observation."""
        return _at(step, tensors.breaches(name, row, self.has_float16, self.memory, self.limits))

    def observe_norms(self, norms: Mapping[str, float], step: int | None = None) -> list[Breach]:
        """The breaches of the gradient norms of all tensors of one observation, side by side."""
        return _at(step, gradients.side_by_side(norms, self.memory, self.limits))


def _at(step: int | None, breaches: Iterable[Breach]) -> list[Breach]:
    return [replace(breach, step=step) for breach in breaches]

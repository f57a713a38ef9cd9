"""The limits of all learning rules as one object, whose fields users change by name."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchtriage.diagnosis.learning.rules.gradients import GradientLimits
from torchtriage.diagnosis.learning.rules.loss import LossLimits
from torchtriage.diagnosis.learning.rules.optimizer import OptimizerLimits
from torchtriage.diagnosis.learning.rules.ppo import PPOLimits
from torchtriage.diagnosis.learning.rules.recurrent import RecurrentLimits
from torchtriage.diagnosis.learning.rules.tensors import TensorLimits


@dataclass(frozen=True, kw_only=True)
class LearningLimits(PPOLimits, RecurrentLimits, TensorLimits, OptimizerLimits, GradientLimits, LossLimits):
    """Every number that a TT4xx, TT5xx or TT6xx rule compares with; each is in the file of its rule, with its evidence.

    A patience counts consecutive observations, not steps: telemetry may sample only every twentieth step.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), field.metadata.get("at_least")
            if least is not None and value < least:
                raise ValueError(f"{field.name} must be at least {least} observations, got {value}; raise it")

    def changed(self) -> dict[str, Any]:
        """The fields that differ from the default. A recording stores them, so that a report repeats the verdicts."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value != getattr(DEFAULT, name)}


DEFAULT = LearningLimits()

# The numbers of SageMaker Debugger's built-in rules, for the rules that exist here. They are absolute and ignore the
# scale. Its VanishingGradient uses the mean of |g|; TT405 uses the norm of the tensor, which is larger.
SAGEMAKER = LearningLimits(**{
    field.name: field.metadata["sagemaker"] for field in dataclasses.fields(LearningLimits)
    if field.metadata.get("sagemaker") is not None
})
PRESETS: Mapping[str, LearningLimits] = {"default": DEFAULT, "sagemaker": SAGEMAKER}


def limits_for(preset: str = "default", **changes: Any) -> LearningLimits:
    """A preset with some of its fields changed; an unknown name is refused, with the nearest one that exists."""
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    names = {field.name for field in dataclasses.fields(LearningLimits)}
    for name in changes.keys() - names:
        near = difflib.get_close_matches(name, names, n=1)
        raise TypeError(f"there is no limit named {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return dataclasses.replace(PRESETS[preset], **changes)


def limits_from(recorded: Mapping[str, float]) -> LearningLimits:
    """The limits that a run was watched with: its recording stores those that were changed.

    Limits of a later version are ignored.
    """
    defaults = dataclasses.asdict(DEFAULT)
    changes: dict[str, Any] = {}
    for name, value in recorded.items():
        if name in defaults and _fits(value, defaults[name]):
            changes[name] = value
    try:
        return dataclasses.replace(DEFAULT, **changes)
    except ValueError:
        return DEFAULT


def _fits(value: object, default: object) -> bool:
    return isinstance(value, int if isinstance(default, int) else (int, float)) and not isinstance(value, bool)

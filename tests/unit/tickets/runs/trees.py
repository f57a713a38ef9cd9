"""Two source trees that the seed tickets are about: one with the flaws, one in which they are mended and tested."""

from pathlib import Path

TELEMETRY = "src/esper/simic/telemetry/debug_telemetry.py"
NORMALIZATION = "src/esper/simic/control/normalization.py"
STATE = "src/esper/simic/training/parallel_env_state.py"

SICK = {
    TELEMETRY: '''
import torch
from torch import nn


def collect_per_layer_gradients(model: nn.Module) -> list[list[float]]:
    """Collect per-layer gradient statistics."""
    stat_tensors = []
    for _name, param in model.named_parameters():
        if param.grad is not None:
            grad = param.grad
            stat_tensors.append(torch.stack([grad.norm(), grad.mean(), param.norm()]))
    return torch.stack(stat_tensors).tolist()
''',
    NORMALIZATION: '''
import torch


class RunningMeanStd:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean = torch.zeros(shape)
        self.var = torch.ones(shape)

    def to(self, device: torch.device) -> "RunningMeanStd":
        self.mean = self.mean.to(device)
        self.var = self.var.to(device)
        return self

    def update(self, x: torch.Tensor) -> None:
        if x.device != self.mean.device:
            self.to(x.device)
        self.mean = x.mean(0)

    def normalize(self, x: torch.Tensor) -> torch.Tensor:
        if x.device != self.mean.device:
            self.to(x.device)
        return (x - self.mean) / (self.var + 1e-8).sqrt()
''',
    STATE: '''
from dataclasses import dataclass, field

import torch


@dataclass
class ParallelEnvState:
    env_device: str = "cpu"
    counterfactual_pairs: list[tuple[int, int]] = field(default_factory=list)
    cf_pair_accums: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)

    def init_accumulators(self) -> None:
        self.cf_pair_accums = {
            pair: torch.zeros(1, device=self.env_device)
            for pair in self.counterfactual_pairs
        }

    def pair_total(self, i: int, j: int) -> torch.Tensor:
        return self.cf_pair_accums[(i, j)] + 1
''',
    # Near misses: the class in a test without a warning, a warning in a test without the class, re.compile.
    "tests/test_near.py": '''
import re

import pytest
from esper import ParallelEnvState, RunningMeanStd


def test_the_class_is_named():
    RunningMeanStd((3,)).update(None)


def test_another_warning():
    with pytest.warns(UserWarning):
        other()


def test_a_pattern():
    assert re.compile(ParallelEnvState.__name__)
''',
}
MENDED = {
    TELEMETRY: '''
import torch


@torch.no_grad()
@torch.compiler.disable
def collect_per_layer_gradients(model):
    """Collect per-layer gradient statistics.

    WARNING: Not torch.compile compatible. Only use outside compiled regions.
    """
    return [p.grad.norm() for p in model.parameters()]
''',
    NORMALIZATION: '''
import warnings


class RunningMeanStd:
    def update(self, x):
        self._follow(x)

    def normalize(self, x):
        if x.device != self.mean.device:
            warnings.warn(f"stats migrating to {x.device}", stacklevel=2)
            self.to(x.device)
        return x - self.mean

    def _follow(self, x):
        if x.device != self.mean.device:
            warnings.warn(f"stats migrating to {x.device}", stacklevel=2)
            self.to(x.device)
''',
    STATE: '''
from dataclasses import dataclass, field

import torch


@dataclass
class ParallelEnvState:
    cf_pair_accums: dict[int, torch.Tensor] = field(default_factory=dict)
''',
    "tests/test_all.py": '''
import pytest
import torch


def test_the_stats_say_that_they_move():
    with pytest.warns(UserWarning):
        RunningMeanStd((3,)).update(torch.ones(2, 3, device="meta"))


def test_the_state_compiles():
    state = ParallelEnvState()
    torch.compile(lambda: state.cf_pair_accums[0], fullgraph=True)()
''',
}


def write_tree(folder: Path, tree: dict[str, str]) -> Path:
    for name, text in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.lstrip("\n"))
    return folder

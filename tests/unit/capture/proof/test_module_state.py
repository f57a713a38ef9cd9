"""The state of modules: statistics and copies of a model, without the weights that an optimizer updates."""

import copy

import torch
from torch import nn

from torchtriage.capture.proof.module_state import ModuleState


class NormedNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)


def test_running_statistics_are_state_and_weights_are_not() -> None:
    net = NormedNet()
    compiled = torch.compile(net, backend="eager")
    found = ModuleState().tensors(0, list(compiled.parameters()))
    own = {name for name in found if name.startswith("NormedNet.")}
    assert own == {f"NormedNet.norm.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}


def test_a_copy_of_the_model_is_state() -> None:
    net = NormedNet()
    teacher = copy.deepcopy(net.linear)
    state = ModuleState()
    found = state.tensors(0, list(net.parameters()))
    assert found["Linear.weight"] is teacher.weight
    with torch.no_grad():
        teacher.weight.fill_(2.0)
    assert bool((state.tensors(0, list(net.parameters()))["Linear.weight"] == 2.0).all())

"""The state of modules: statistics and copies of a model, without the weights that an optimizer updates."""

import copy

import torch
from torch import nn

from torchtriage.capture.proof.module_state import ModuleState, tensors_in


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


def test_the_tensors_of_a_saved_object_are_named_by_their_path() -> None:
    net = nn.Linear(2, 1)
    saved = {"model": net.state_dict(), "steps": [torch.ones(1), 3], "net": net, "name": "run"}
    assert [name for name, _ in tensors_in(saved)] == [
        "model.weight", "model.bias", "steps.0", "net.weight", "net.bias"]
    assert [name for name, _ in tensors_in(torch.compile(net, backend="eager").state_dict())] == ["weight", "bias"]
    assert [name for name, _ in tensors_in(torch.ones(2))] == ["tensor"]

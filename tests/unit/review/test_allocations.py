"""Calls that allocate with the parameters of a model."""

import pytest
import torch

from torchtriage.lint.source import parse
from torchtriage.review.allocations import _OPTIMIZERS, allocations_in
from torchtriage.tickets.batches.source_facts import ModelAllocation

HEAD = """import copy
import torch
from torch import nn


def f(net, state):
    grads = [p.grad for p in net.parameters()]
"""


def allocations(line: str) -> list[ModelAllocation]:
    source = "".join(f"    {each}\n" for each in line.split("\n"))
    return list(allocations_in(parse("/p/a.py", f"{HEAD}{source}".encode()), "a.py"))


@pytest.mark.parametrize(("line", "num_copies", "element_bytes"), [
    ("x = torch.cat([g.view(-1) for g in grads])", 1, None),
    ("x = nn.utils.parameters_to_vector(net.parameters())", 1, None),
    ("x = [p.detach().clone() for p in net.parameters()]", 1, None),
    ("x = {k: v.clone() for k, v in net.state_dict().items()}", 1, None),
    ("x = [p.detach().double() for p in net.parameters()]", 1, 8),
    ("x = copy.deepcopy(net.state_dict())", 1, None),
    ("x = copy.deepcopy(net)", 1, None),
    ("x = torch._foreach_mul(grads, 2.0)", 1, None),
    ("x = torch.optim.AdamW(net.parameters(), amsgrad=True)", 3, None),
    ("x = torch.optim.SGD(net.parameters(), momentum=0.9)", 1, None),
    ("x = []\nfor p in net.parameters():\n    x.append(p.detach().clone())", 1, None),
])
def test_calls_that_copy_the_parameters(line: str, num_copies: int, element_bytes: int | None) -> None:
    found = allocations(line)
    assert [(each.num_copies, each.element_bytes) for each in found] == [(num_copies, element_bytes)]
    assert found[0].function == "f"


@pytest.mark.parametrize("line", [
    "x = torch.cat([state, state])",
    "x = [g.norm() for g in grads]",
    "x = [p.numel() for p in net.parameters()]",
    "x = torch._foreach_norm(grads)",
    "torch._foreach_mul_(grads, 2.0)",
    "x = net.state_dict()",
    "x = copy.deepcopy(state)",
    "x = torch.optim.SGD(net.parameters(), momentum=0.0)",
    "x = (p.clone() for p in net.parameters())",
    "x = []\nfor p in net.parameters():\n    x.append(p.sum())",
])
def test_calls_that_do_not(line: str) -> None:
    assert allocations(line) == []


@pytest.mark.parametrize("name", sorted(_OPTIMIZERS))
def test_optimizers_keep_as_much_state_as_the_table_says(name: str) -> None:
    """The state of a step, in tensors of the size of the parameter."""
    _, num_copies, options = _OPTIMIZERS[name]
    for chosen in ({}, {option: True for option in options}):
        weight = torch.zeros(7, 3, requires_grad=True)
        arguments = {option: 0.9 if option == "momentum" else True for option in chosen}
        optimizer = getattr(torch.optim, name)([weight], lr=0.1, **arguments)
        weight.sum().backward()
        optimizer.step()
        state = optimizer.state[weight].values()
        num_copies_kept = sum(isinstance(each, torch.Tensor) and each.numel() == weight.numel() for each in state)
        assert num_copies_kept == num_copies + sum(options[option] for option in chosen), chosen

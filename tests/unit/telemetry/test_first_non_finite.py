"""Every loss is tested, and upon the first one that is not finite the weights and the state of the optimizer."""

import math

import pytest
import torch

from tests.unit.telemetry.test_attach import Program
from torchtriage.recording.events import Anomaly
from torchtriage.recording.facts import read_process_facts

STEPS = 60      # with few samples, so that the bad step falls between two of them
BAD = 51


def trained(program: Program, fault: str, optimizer: str = "Adam") -> dict[str, object]:
    """The fact about the first bad loss of a training with a fault in step BAD."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 1)
    made = getattr(torch.optim, optimizer)(layer.parameters(), lr=1e-2)
    for step in range(1, STEPS + 1):
        made.zero_grad()
        loss = layer(torch.randn(8, 4)).square().mean()
        if step == BAD and fault == "forward":
            loss = loss * math.nan
        program.attached.backward((loss,))
        loss.backward()
        if step == BAD and fault == "gradient":
            layer.weight.grad.fill_(math.nan)
        if step == BAD and fault == "update":
            made.param_groups[0]["lr"] = math.inf
        program.step(made)
    return dict(program.attached.facts().get("non_finite_loss", {}))


@pytest.fixture
def program() -> Program:
    return Program()


def test_a_loss_that_is_bad_with_finite_weights_is_known_at_its_step(program: Program) -> None:
    found = trained(program, "forward")
    assert (found["step"], found["last_finite"], found["num_weights"], found["num_bad_weights"]) == (BAD, BAD - 1, 2, 0)
    anomalies = [event for event in program.events if isinstance(event, Anomaly) and event.step == BAD]
    assert [event.code for event in anomalies if event.code != "TT402"] == ["TT401"]


@pytest.mark.parametrize(("fault", "optimizer", "was_gradient_finite"), [
    ("gradient", "Adam", False), ("update", "Adam", True), ("gradient", "SGD", None),
])
def test_bad_weights_are_named_with_what_the_averages_of_their_gradients_show(
    program: Program, fault: str, optimizer: str, was_gradient_finite: bool | None,
) -> None:
    found = trained(program, fault, optimizer)
    assert found["step"] == BAD + 1
    assert len(found["bad_weights"]) == found["num_bad_weights"] > 0
    assert found["was_gradient_finite"] is was_gradient_finite


def test_the_fact_survives_storage(program: Program) -> None:
    facts = read_process_facts({"non_finite_loss": trained(program, "forward")})
    assert facts.learning.non_finite_loss is not None
    assert facts.learning.non_finite_loss.step == BAD
    assert not facts.damage


def test_a_healthy_training_has_no_such_fact(program: Program) -> None:
    assert trained(program, "") == {}


def test_a_loss_that_grad_scaler_multiplied_is_not_tested(program: Program) -> None:
    layer = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters())
    program.step(optimizer, 1.0)
    program.attached.unscaling(optimizer, torch.tensor(1.0), is_check=False)
    program.step(optimizer, math.inf)
    assert "non_finite_loss" not in program.attached.facts()

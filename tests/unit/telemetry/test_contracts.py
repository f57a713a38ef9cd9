"""What must hold in a training, with the taps called as torch would call them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchtriage.telemetry.contracts import Contracts

Model = torch.nn.Module


class Training:
    """A model and an optimizer that make steps under the eyes of the contracts."""

    def __init__(self, model: Model) -> None:
        self.model, self.contracts, self.step = model, Contracts(), 0

    def run(
        self, optimizer: torch.optim.Optimizer, steps: int, *, clear: bool = True,
        before_step: Callable[[], object] = lambda: None,
    ) -> "Training":
        for _ in range(steps):
            loss = self.model(torch.randn(8, 4)).square().mean()
            if clear:
                optimizer.zero_grad()
            self.backward(loss)
            before_step()
            self.step_of(optimizer)
        return self

    def backward(self, loss: torch.Tensor) -> None:
        self.contracts.backward(loss)
        loss.backward()

    def step_of(self, optimizer: torch.optim.Optimizer) -> None:
        self.step += 1
        self.contracts.step_begins(optimizer, self.step)
        optimizer.step()
        self.contracts.step_ended(optimizer, self.step)

    @property
    def broken(self) -> dict[str, dict[str, Any]]:
        return {one["code"]: one for one in self.contracts.facts().get("contracts", [])}


def a_model(*, modes: bool = False) -> torch.nn.Sequential:
    middle = [torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)] if modes else [torch.nn.Tanh()]
    return torch.nn.Sequential(torch.nn.Linear(4, 8), *middle, torch.nn.Linear(8, 1))


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD", "RMSprop"])
@pytest.mark.parametrize("modes", [True, False])
def test_a_healthy_training_breaks_nothing(kind: str, modes: bool) -> None:
    model = a_model(modes=modes)
    assert Training(model).run(getattr(torch.optim, kind)(model.parameters(), lr=1e-3), 30).broken == {}


def test_a_trained_tensor_without_optimizer_is_named() -> None:
    model = a_model()
    broken = Training(model).run(torch.optim.SGD(model[0].parameters(), lr=0.1), 15).broken["TT420"]
    assert sorted(broken["names"]) == ["2.bias", "2.weight"]
    assert (broken["count"], broken["total"], broken["is_deliberate"]) == (2, 4, False)


def test_a_backbone_without_optimizer_may_be_deliberate() -> None:
    model = a_model()
    broken = Training(model).run(torch.optim.SGD(model[2].parameters(), lr=0.1), 15).broken["TT420"]
    assert broken["is_deliberate"]


def test_a_frozen_backbone_breaks_nothing() -> None:
    model = a_model()
    model[0].requires_grad_(False)
    assert Training(model).run(torch.optim.SGD(model.parameters(), lr=0.1), 15).broken == {}


def test_the_optimizer_of_a_replaced_model_is_reported() -> None:
    old, model = a_model(), a_model()
    broken = Training(model).run(torch.optim.SGD(old.parameters(), lr=0.1), 15).broken
    assert broken["TT420"]["count"] == broken["TT421"]["count"] == 4
    assert not broken["TT421"]["is_deliberate"]


def test_an_optimizer_that_steps_rarely_holds_its_parameters() -> None:
    model = a_model()
    rare = torch.optim.SGD(model[2].parameters(), lr=0.1)
    assert Training(model).run(torch.optim.SGD(model[0].parameters(), lr=0.1), 15).broken == {}
    del rare


def test_gradients_that_are_never_cleared_are_reported() -> None:
    model = a_model()
    assert "TT422" in Training(model).run(torch.optim.SGD(model.parameters(), lr=1e-3), 5, clear=False).broken


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradient_accumulation_clears_its_gradients(set_to_none: bool) -> None:
    model = a_model()
    training, optimizer = Training(model), torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in range(40):
        training.backward(model(torch.randn(8, 4)).square().mean())
        if number % 4 == 3:
            training.step_of(optimizer)
            optimizer.zero_grad(set_to_none=set_to_none)
    assert training.broken == {}


@pytest.mark.parametrize("set_to_none", [True, False])
def test_the_generator_of_a_gan_may_leave_gradients_in_the_discriminator(set_to_none: bool) -> None:
    generator, critic = torch.nn.Linear(4, 4), a_model()
    training = Training(critic)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(15):
        of_critic.zero_grad(set_to_none=set_to_none)
        training.backward(critic(generator(torch.randn(8, 4)).detach()).mean() - critic(torch.randn(8, 4)).mean())
        training.step_of(of_critic)
        of_generator.zero_grad(set_to_none=set_to_none)
        training.backward(-critic(generator(torch.randn(8, 4))).mean())
        training.step_of(of_generator)
    assert training.broken == {}


def test_an_optimizer_that_is_made_in_every_step_is_reported() -> None:
    model = a_model()
    training = Training(model)
    for _ in range(10):
        training.run(torch.optim.Adam(model.parameters(), lr=1e-3), 1)
    assert training.broken["TT423"]["count"] == 5


def test_models_that_are_trained_one_after_the_other_have_optimizers_of_their_own() -> None:
    for _ in range(10):
        model = a_model()
        assert Training(model).run(torch.optim.Adam(model.parameters(), lr=1e-3), 2).broken == {}


def test_a_model_that_stays_in_eval_mode_is_reported() -> None:
    model = a_model(modes=True)
    training = Training(model).run(torch.optim.Adam(model.parameters(), lr=1e-3), 20)
    assert training.broken == {}
    model.eval()
    assert training.run(torch.optim.Adam(model.parameters(), lr=1e-3), 20).broken["TT424"]["names"] == ["Sequential"]


def test_eval_mode_is_no_problem_where_it_makes_no_difference_or_is_of_one_layer() -> None:
    plain, mixed = a_model().eval(), a_model(modes=True)
    mixed[1].eval()
    for model in (plain, mixed):
        assert Training(model).run(torch.optim.Adam(model.parameters(), lr=1e-3), 30).broken == {}


def test_a_learning_rate_that_stays_at_zero_is_reported() -> None:
    model = a_model()
    assert "TT425" in Training(model).run(torch.optim.Adam(model.parameters(), lr=0.0), 40).broken
    assert Training(model).run(torch.optim.Adam(model.parameters(), lr=0.0), 20).broken == {}


@pytest.mark.parametrize(("kind", "decay", "codes"), [
    ("AdamW", 10.0, ["TT426"]), ("AdamW", 0.1, []), ("Adam", 10.0, []),
])
def test_weight_decay_is_judged_by_what_it_does_in_a_step(kind: str, decay: float, codes: list[str]) -> None:
    model = a_model()
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-2, weight_decay=decay)
    assert list(Training(model).run(optimizer, 20).broken) == codes

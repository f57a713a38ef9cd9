"""What must hold in a training, with the taps called as torch would call them."""

import copy
import math
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


def test_a_tensor_that_compiled_code_detaches_gets_no_gradient_and_is_not_missing() -> None:
    """It is among the inputs of the compiled backward, which gives it none."""
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.scale = torch.nn.Linear(4, 1), torch.nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x) * self.scale.exp().detach()

    model = Scaled()
    training = Training(torch.compile(model, backend="aot_eager"))
    assert training.run(torch.optim.SGD(model.net.parameters(), lr=0.1), 15).broken == {}
    torch._dynamo.reset()


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


@pytest.mark.parametrize("which", [0, 1])
def test_the_rate_of_each_optimizer_of_a_program_with_two_is_looked_at(which: int) -> None:
    models = a_model(), a_model()
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in models]
    optimizers[which].param_groups[0]["lr"] = 0.0
    training = Training(models[0])
    for _ in range(40):
        for training.model, optimizer in zip(models, optimizers, strict=True):
            training.run(optimizer, 1)
    assert "TT425" in training.broken


def test_an_update_that_stops_before_its_backward_pass_leaves_no_unused_parameters() -> None:
    """The policy of a PPO whose KL divergence is too large: its gradients are cleared, and its critic trains next."""
    policy, critic = a_model(), a_model()
    of_policy, of_critic = (torch.optim.Adam(one.parameters(), lr=1e-3) for one in (policy, critic))
    training = Training(policy)
    for _ in range(3):
        training.run(of_policy, 3)
        of_policy.zero_grad()
        training.model = critic
        training.run(of_critic, 15)
        training.model = policy
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


@pytest.mark.parametrize(("is_trained", "is_found"), [(True, True), (False, False)])
def test_batch_norm_that_never_saw_a_batch_is_found_in_eval_mode_if_it_is_trained(
    is_trained: bool, is_found: bool,
) -> None:
    model = a_model(modes=True)
    model[1].eval().requires_grad_(is_trained)
    assert ("TT424" in Training(model).run(torch.optim.Adam(model.parameters(), lr=1e-3), 30).broken) == is_found


def test_no_optimizer_that_makes_a_step_is_found() -> None:
    model = a_model()
    training, optimizer = Training(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(130):
        training.backward(model(torch.randn(8, 4)).square().mean())
        optimizer.zero_grad()
    assert training.broken["TT444"]["count"] == 4


def test_a_program_that_changes_its_weights_itself_needs_no_step() -> None:
    model = a_model()
    training, optimizer = Training(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(130):
        training.backward(model(torch.randn(8, 4)).square().mean())
        for p in model.parameters():
            p.data -= 1e-3 * p.grad
        optimizer.zero_grad()
    assert training.broken == {}


@pytest.mark.parametrize(("is_changed", "is_found"), [(False, True), (True, False)])
def test_a_parameter_outside_of_modules_is_missing_if_it_never_changes(is_changed: bool, is_found: bool) -> None:
    model, scale = a_model(), torch.nn.Parameter(torch.ones(()))
    training, optimizer = Training(model), torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(14):
        optimizer.zero_grad()
        training.backward((model(torch.randn(8, 4)) * scale).square().mean())
        if is_changed:
            scale.data -= 1e-3
        training.step_of(optimizer)
    assert ("TT420" in training.broken) == is_found


def test_eval_mode_is_no_problem_where_it_makes_no_difference_or_is_of_one_layer() -> None:
    plain, mixed = a_model().eval(), a_model(modes=True)
    mixed(torch.randn(8, 4))    # its statistics, before it is frozen
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


# Order, effect, evaluation, target networks

@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_are_cleared_before_the_step_are_reported(set_to_none: bool) -> None:
    model = a_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    broken = Training(model).run(optimizer, 5, before_step=lambda: optimizer.zero_grad(set_to_none)).broken["TT427"]
    assert (broken["names"], broken["value"], broken["step"]) == (["none" if set_to_none else "zero"], 4.0, 3)


def test_an_optimizer_without_a_loss_of_its_own_may_step_without_gradients() -> None:
    model, other = a_model(), torch.nn.Linear(2, 2)
    training, idle = Training(model), torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(6):
        training.run(torch.optim.SGD(model.parameters(), lr=0.1), 1)
        training.step_of(idle)
    assert "TT427" not in training.broken


def clipped_training(order: str, *, scale: float = 0.0) -> Training:
    """Steps in which b is backward, c clips, u unscales, s steps."""
    model = a_model()
    training, optimizer = Training(model), torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(6):
        optimizer.zero_grad()
        for call in order:
            if call == "b":
                training.backward(model(torch.randn(8, 4)).square().mean())
            elif call == "c":
                training.contracts.clipping(list(model.parameters()))
            elif call == "u":
                training.contracts.unscaling(optimizer, scale, training.step + 1)
            else:
                training.step_of(optimizer)
    return training


@pytest.mark.parametrize(("order", "scale", "name"), [
    ("bcs", 0.0, ""), ("bs", 0.0, ""), ("bcbcs", 0.0, ""), ("bucs", 1024.0, ""), ("bcus", 1.0, ""), ("bus", 1024.0, ""),
    ("cbs", 0.0, "order"), ("bsc", 0.0, "order"), ("bcus", 1024.0, "scaled"),
])
def test_clipping_has_its_place_between_backward_and_step(order: str, scale: float, name: str) -> None:
    broken = clipped_training(order, scale=scale).broken
    assert [one["names"] for one in broken.values()] == ([[name]] if name else [])
    assert list(broken) == (["TT428"] if name else [])


def batch_norm_training(evaluations: int, *, extra: int = 0) -> Training:
    """40 steps, with evaluations of three batches in training mode; each step has `extra` more forward passes."""
    model = a_model(modes=True)
    training, optimizer = Training(model), torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in range(40):
        for _ in range(extra):
            model(torch.randn(8, 4))
        training.run(optimizer, 1)
        if 10 <= number < 10 + evaluations:
            for _ in range(3):
                model(torch.randn(8, 4))
    return training


@pytest.mark.parametrize(("evaluations", "extra", "codes"), [
    (2, 0, ["TT429"]), (2, 1, ["TT429"]), (1, 0, []), (0, 0, []), (0, 2, []),
])
def test_forward_passes_in_training_mode_that_no_backward_pass_follows(
    evaluations: int, extra: int, codes: list[str],
) -> None:
    assert list(batch_norm_training(evaluations, extra=extra).broken) == codes


def target_training(name: str, steps: int, *, moves_at: int = 0) -> Training:
    model = a_model()
    holder = {name: copy.deepcopy(model)}
    training, optimizer = Training(model), torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in range(steps):
        training.run(optimizer, 1)
        if number == moves_at - 1:
            holder[name].load_state_dict(model.state_dict())
    return training


@pytest.mark.parametrize(("name", "steps", "moves_at", "codes"), [
    ("target", 210, 0, ["TT430"]), ("ema_model", 210, 0, ["TT430"]), ("target", 180, 0, []), ("target", 210, 50, []),
    ("target", 250, 225, []), ("reference", 210, 0, []), ("best", 210, 0, []),
])
def test_a_target_network_that_never_moves_is_reported(name: str, steps: int, moves_at: int, codes: list[str]) -> None:
    assert list(target_training(name, steps, moves_at=moves_at).broken) == codes


def test_steps_that_are_lost_in_rounding_are_reported() -> None:
    model = a_model().bfloat16()
    training, optimizer = Training(model), torch.optim.SGD(model.parameters(), lr=1e-7)
    for _ in range(45):
        optimizer.zero_grad()
        training.backward(model(torch.randn(8, 4, dtype=torch.bfloat16)).square().mean())
        training.step_of(optimizer)
    assert training.broken["TT435"]["names"] == ["bfloat16"]


def test_a_step_counter_that_is_reset_is_reported() -> None:
    model = a_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def reset() -> None:
        for state in optimizer.state.values():
            state["step"].zero_()

    assert list(Training(model).run(optimizer, 50, before_step=reset).broken) == ["TT436"]


def test_a_learning_rate_that_falls_to_almost_nothing_is_reported_a_cosine_is_not() -> None:
    broken = {}
    schedules = {"per batch": lambda n: 0.1 ** (n // 5), "cosine": lambda n: 0.5 + 0.5 * math.cos(math.pi * n / 200)}
    for name, schedule in schedules.items():
        model = a_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        training = Training(model)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
        for _ in range(200):
            training.run(optimizer, 1)
            scheduler.step()
        broken[name] = "TT425" in training.broken
    assert broken == {"per batch": True, "cosine": False}


def test_sparse_gradients_are_left_alone() -> None:
    model = torch.nn.Embedding(8, 2, sparse=True)
    training, optimizer = Training(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        training.backward(model(torch.tensor([1, 3])).square().mean())
        training.step_of(optimizer)
    assert training.broken == {}


def test_two_optimizers_that_take_turns_are_not_created_again() -> None:
    model = a_model()
    training = Training(model)
    first, second = (torch.optim.Adam(model.parameters(), lr=1e-3) for _ in range(2))
    for _ in range(50):
        training.run(first, 1)
        training.run(second, 1)
    assert training.broken == {}


def test_gradients_of_one_of_two_optimizers_that_are_never_cleared_are_reported() -> None:
    generator, critic = torch.nn.Linear(4, 4), a_model()
    training = Training(critic)
    of_generator = torch.optim.SGD(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.SGD(critic.parameters(), lr=1e-3)
    for _ in range(8):
        training.backward(critic(generator(torch.randn(8, 4)).detach()).square().mean())
        training.step_of(of_critic)
        of_generator.zero_grad()
        training.backward((critic(generator(torch.randn(8, 4))) - 3).square().mean())
        training.step_of(of_generator)
    assert list(training.broken) == ["TT422"]


def test_gradients_that_are_not_cleared_in_a_closure_are_reported() -> None:
    for clear in (True, False):
        model = a_model()
        optimizer, training = torch.optim.SGD(model.parameters(), lr=0.01), Training(model)
        for step in range(1, 10):
            training.contracts.step_begins(optimizer, step)
            if clear:
                optimizer.zero_grad()
            training.backward(model(torch.randn(8, 4)).square().mean())
            optimizer.step()
            training.contracts.step_ended(optimizer, step)
        assert list(training.broken) == ([] if clear else ["TT422"])


def test_a_second_phase_of_a_program_is_looked_at_as_closely_as_the_first() -> None:
    first, second = a_model(), a_model()
    training = Training(first).run(torch.optim.SGD(first.parameters(), lr=0.01), 60)
    training.model = second
    training.run(torch.optim.SGD(second.parameters(), lr=0.01), 12, clear=False)
    assert list(training.broken) == ["TT422"]


def test_accumulation_whose_gradients_are_cleared_in_between_is_reported() -> None:
    for clears_each in (True, False):
        model = a_model()
        optimizer, training = torch.optim.SGD(model.parameters(), lr=0.01), Training(model)
        for _ in range(12):
            optimizer.zero_grad()
            for _ in range(3):
                if clears_each:
                    optimizer.zero_grad()
                training.backward(model(torch.randn(8, 4)).square().mean())
            training.step_of(optimizer)
        assert list(training.broken) == (["TT443"] if clears_each else [])


def test_two_losses_with_parameters_of_their_own_lose_no_gradient() -> None:
    one, other = a_model(), a_model()
    optimizer = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.01)
    training = Training(one)
    for _ in range(12):
        optimizer.zero_grad()
        for model in (one, other):
            training.backward(model(torch.randn(8, 4)).square().mean())
        training.step_of(optimizer)
    assert training.broken == {}


def test_an_optimizer_that_never_steps_is_named_until_it_does() -> None:
    body, head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
    of_body, of_head = torch.optim.SGD(body.parameters(), lr=0.01), torch.optim.SGD(head.parameters(), lr=0.01)
    model = torch.nn.Sequential(body, head)
    training = Training(model).run(of_head, 110)
    assert training.broken["TT444"]["count"] == 2
    for _ in range(8):
        training.backward(model(torch.randn(8, 4)).square().mean())
        training.step_of(of_body)
        training.step_of(of_head)
    assert "TT444" not in training.broken


def test_a_state_dict_with_another_prefix_is_reported_until_the_right_one_is_loaded() -> None:
    model = a_model()
    contracts = Contracts()
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    contracts.loaded(model, *model.load_state_dict(state, strict=False), 0)
    broken = contracts.facts()["contracts"][0]
    assert (broken["code"], broken["count"], broken["names"][1:]) == ("TT441", 4, ["0.weight", "module.0.weight"])
    contracts.loaded(model, *model.load_state_dict(model.state_dict()), 0)
    assert contracts.facts() == {}


def test_a_backbone_with_another_head_is_loaded_as_it_should_be() -> None:
    model, contracts = a_model(), Contracts()
    state = {name: value for name, value in model.state_dict().items() if name.startswith("0.")}
    contracts.loaded(model, *model.load_state_dict({**state, "head.weight": torch.zeros(1)}, strict=False), 0)
    assert contracts.facts() == {}

"""Telemetry of a program that does not use it: the methods of the taps, called directly."""

import gc
import math
import signal
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torchtriage.recording.events import Event, StepSkipped, Tap
from torchtriage.telemetry import Monitor
from torchtriage.telemetry.attach import Attached
from torchtriage.telemetry.sampling.parameters import Namer, from_modules, listed_parameters
from torchtriage.telemetry.sampling.sampler import is_busy


class Program:
    """A program under observation: does what the taps in torch would do."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.steps = 0
        self.attached = Attached(self.events.append, lambda: self.steps)

    def step(self, optimizer: torch.optim.Optimizer, loss: float | None = None, closure: Any = None) -> None:
        if loss is not None:
            self.attached.backward((torch.tensor(loss),))
        self.attached.step_begins(optimizer)
        optimizer.step(closure)
        self.steps += 1
        self.attached.step_ended(optimizer)

    def clip(self, parameters: Any, max_norm: float = 1e-3) -> None:
        self.attached.clipping(parameters)
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)

    def series(self, name: str) -> dict[int, float]:
        self.attached.close()
        found = {one.name: one for one in self.attached.series()}
        return (
            {int(step): value for step, value in zip(found[name].steps, found[name].values, strict=True)}
            if name in found
            else {}
        )


@pytest.fixture
def program() -> Iterator[Program]:
    torch.manual_seed(0)
    made = Program()
    yield made
    made.attached.close()


def linear(size: int = 4) -> torch.nn.Linear:
    layer = torch.nn.Linear(size, 1, bias=False)
    layer.weight.grad = torch.ones(1, size)
    return layer


def sgd(*modules: torch.nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.0)


def test_loss_of_a_step_is_the_sum_over_its_backward_calls(program: Program) -> None:
    layer = linear()
    opt = sgd(layer)
    program.attached.backward((torch.tensor(1.0),))
    program.attached.backward((torch.ones(3),))     # no loss: a vector
    program.step(opt, 2.0)
    program.step(opt, 5.0)
    assert program.series("loss") == {1: 3.0, 2: 5.0}


def test_separately_clipped_parts_are_measured_before_each_clipping(program: Program) -> None:
    actor, critic = linear(), linear(9)
    opt = sgd(actor, critic)
    program.step(opt)
    for layer in (actor, critic):
        layer.weight.grad = torch.ones_like(layer.weight)
    program.clip(actor.parameters())        # a generator stays the program's to consume
    program.clip([critic.weight])
    program.step(opt)
    assert program.series("grad_norm")[2] == pytest.approx(math.sqrt(13))
    assert program.series("grad_norm_after_clip")[2] == pytest.approx(1e-3 * math.sqrt(2), rel=1e-2)


def test_gradients_clipped_before_the_first_step_are_not_recorded_as_unclipped(program: Program) -> None:
    layer = linear()
    program.clip([layer.weight])
    opt = sgd(layer)
    program.step(opt)
    layer.weight.grad = torch.ones(1, 4)
    program.step(opt)
    assert program.series("grad_norm") == {2: 2.0}


def test_closure_with_backward_inside_the_step_is_measured(program: Program) -> None:
    layer = linear()
    opt = torch.optim.LBFGS(layer.parameters(), lr=0.0, max_iter=1)

    def closure() -> torch.Tensor:
        layer.weight.grad = torch.full((1, 4), 3.0)
        return torch.tensor(1.0)

    program.step(opt, closure=closure)
    assert program.series("grad_norm") == {1: 6.0}


def test_skipped_step_is_an_event_and_its_row_is_discarded(program: Program) -> None:
    layer = linear()
    opt = sgd(layer)
    for is_skipped in (False, True, False):
        program.attached.backward((torch.tensor(8.0),))
        program.attached.unscaling(opt, torch.tensor(0.5), False)
        if not is_skipped:
            program.step(opt)
    skipped = [event for event in program.events if isinstance(event, StepSkipped)]
    assert [(event.optimizer, event.total) for event in skipped] == [("SGD", 1)]
    assert program.series("loss") == {1: 4.0, 2: 4.0}
    assert program.series("scaler/skipped_total") == {1: 0.0, 2: 1.0}


@pytest.mark.parametrize(("scale_at_the_end", "num_skipped"), [(1.0, 1), (2.0, 0)])
def test_skip_of_the_last_step_is_detected_by_the_scale(
    program: Program, scale_at_the_end: float, num_skipped: int
) -> None:
    """No backward comes after it. Where the scale stayed, the program may have ended before the step."""
    opt, scale = sgd(linear()), torch.tensor(2.0)
    for is_last in (False, True):
        program.attached.backward((torch.tensor(8.0),))
        program.attached.unscaling(opt, scale.reciprocal(), False, scale)
        if not is_last:
            program.step(opt)
    scale.fill_(scale_at_the_end)
    program.attached.close()
    assert [event.total for event in program.events if isinstance(event, StepSkipped)] == [1] * num_skipped
    assert program.attached.facts()["telemetry"]["num_skipped_steps"] == num_skipped


def test_autocast_type_is_a_fact(program: Program) -> None:
    layer = linear()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = layer(torch.ones(2, 4)).float().sum()
    program.attached.backward((loss,))
    program.step(sgd(layer))
    program.attached.close()
    assert program.attached.facts()["autocast_dtype"] == "bfloat16"


def test_further_optimizers_have_separate_totals(program: Program) -> None:
    first, second = linear(), linear(9)
    for opt in (sgd(first), sgd(second)):
        program.step(opt, 1.0)
    assert program.series("grad_norm") == {1: 2.0}
    assert program.series("grad_norm/group:SGD 2") == {2: 3.0}
    assert program.series("loss/group:SGD 2") == {2: 1.0}


def test_groups_added_later_are_followed(program: Program) -> None:
    first, second = linear(), linear(9)
    opt = sgd(first)
    program.step(opt)
    opt.add_param_group({"params": second.parameters(), "name": "head"})
    program.step(opt)
    assert program.series("grad_norm") == pytest.approx({1: 2.0, 2: math.sqrt(13)})
    assert program.series("grad_norm/group:head") == {2: 3.0}


def test_too_many_optimizers_are_reported_once(program: Program) -> None:
    optimizers = [sgd(linear()) for _ in range(19)]
    for opt in optimizers:
        program.step(opt)
    gaps = [event.name for event in program.events if isinstance(event, Tap)]
    assert gaps == ["gradients of more optimizers"]
    assert program.series("grad_norm/group:SGD 16") == {16: 2.0}


def test_fused_step_is_measured_before_it_unscales(program: Program) -> None:
    layer = linear()
    opt = torch.optim.SGD(layer.parameters(), lr=0.0, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(3):
        scaler.scale(layer(torch.ones(1, 4)).sum()).backward()
        layer.weight.grad = torch.full((1, 4), 8.0)
        program.attached.unscaling(opt, torch.tensor(1.0), True)
        opt.grad_scale, opt.found_inf = torch.tensor(8.0), torch.tensor(0.0)
        program.step(opt, 16.0)
    assert program.series("grad_norm") == {1: 2.0, 2: 2.0, 3: 2.0}
    assert program.series("loss") == {1: 2.0, 2: 2.0, 3: 2.0}


def test_nothing_is_kept_alive(program: Program) -> None:
    layer = linear()
    opt = sgd(layer)
    program.step(opt, 1.0)
    program.step(opt, 1.0)
    alive = weakref.ref(layer.weight)
    opt.zero_grad()
    del layer, opt
    gc.collect()
    assert alive() is None
    assert program.series("loss") == {1: 1.0, 2: 1.0}


def test_parameter_without_statistics_is_reported_by_name(program: Program) -> None:
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    plain = linear()
    embedding(torch.tensor([1, 2])).sum().backward()
    opt = torch.optim.SGD([*embedding.parameters(), *plain.parameters()], lr=0.0)
    program.step(opt)
    program.step(opt)
    assert program.series("grad_norm")[1] == 2.0
    gaps = [event.detail for event in program.events if isinstance(event, Tap) and event.state == "absent"]
    assert len(gaps) == 1
    assert "sparse" in gaps[0]


def test_parameters_of_a_monitor_are_not_recorded_twice(program: Program) -> None:
    layer = linear()
    with Monitor(layer, sinks=[]):
        program.step(sgd(layer), 1.0)
    assert program.series("grad_norm") == {}


def test_dispatch_mode_sees_no_operation_of_telemetry(program: Program) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    names: list[str] = []
    opt = sgd(linear())
    with Count():
        assert is_busy()
        program.attached.backward((torch.tensor(1.0),))
        program.attached.step_begins(opt)
        program.attached.step_ended(opt)
    assert not [name for name in names if "lift" not in name and "detach" not in name]
    assert not is_busy()


def test_a_forked_child_starts_over(program: Program) -> None:
    opt = sgd(linear())
    program.step(opt, 1.0)
    program.attached.start_over()
    program.step(opt, 7.0)
    assert program.series("loss") == {2: 7.0}


def test_its_own_cost_is_a_fact(program: Program) -> None:
    opt = sgd(linear())
    for _ in range(5):
        program.step(opt, 1.0)
    program.attached.close()
    facts = program.attached.facts()
    assert facts["grad_dtypes"] == ["float32"]
    assert (facts["optimizer_lr"], facts["optimizers"]) == ([0.0], ["SGD"])
    own_facts = facts["telemetry"]
    assert own_facts["num_observed"] == 5
    assert 0 < own_facts["own_seconds"] < 5
    assert own_facts["num_dropped"] == 0


def test_parameters_given_to_clipping_are_listed() -> None:
    layer = linear()
    assert listed_parameters(layer.weight) == [layer.weight]
    generator = layer.parameters()
    assert [p is layer.weight for p in listed_parameters(generator) or ()] == [True]
    assert len(list(generator)) == 1
    assert listed_parameters(p for p in [layer.weight]) is None


def test_names_come_from_the_optimizer_or_from_a_module_of_the_program() -> None:
    model = torch.nn.Sequential(linear(), torch.nn.Sequential(linear()))
    named = torch.optim.SGD(model.named_parameters(), lr=0.1)
    assert Namer().names(named, list(model.parameters()), None) == ["0.weight", "1.0.weight"]
    assert Namer().names(sgd(model), list(model.parameters()), None) == ["0.weight", "1.0.weight"]
    loose = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))]
    assert Namer().names(torch.optim.SGD(loose, lr=0.1), loose, None) == ["group0.0", "group0.1"]


def test_two_models_of_one_optimizer_have_distinct_names() -> None:
    class Actor(torch.nn.Linear):
        pass

    class Critic(torch.nn.Linear):
        pass

    actor, critic = Actor(2, 2), Critic(2, 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    names = from_modules([actor, critic], {id(p) for p in parameters})
    assert sorted(names.values()) == ["Actor.bias", "Actor.weight", "Critic.bias", "Critic.weight"]


def test_names_do_not_include_wrappers() -> None:
    model = torch.nn.Sequential(linear())
    compiled = torch.compile(model, backend="eager")
    names = from_modules([compiled, model, model[0]], {id(p) for p in model.parameters()})
    assert list(names.values()) == ["0.weight"]


def test_a_timeout_inside_telemetry_reaches_the_program_and_stops_nothing(
    program: Program, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler of the program may raise at any line, also inside telemetry."""
    def ring(number: int, frame: object) -> None:
        raise TimeoutError("out of time")

    monkeypatch.setattr(program.attached._policy, "backward", lambda *_: signal.raise_signal(signal.SIGALRM))
    monkeypatch.setattr(program.attached._states, "rollout", lambda *_: signal.raise_signal(signal.SIGALRM))
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for call in (lambda: program.attached.backward((torch.tensor(1.0),)), lambda: program.attached.rollout(1, [])):
            with pytest.raises(TimeoutError):
                call()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [event for event in program.events if isinstance(event, Tap) and event.state == "absent"] == []

"""The operation that makes the first NaN or Inf of a step, and the fix that cures it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from torchtriage.capture.operations.origin.one_step import origin_of
from torchtriage.diagnosis.learning import operation_fixes
from torchtriage.diagnosis.learning.origin import explanation, fix
from torchtriage.recording.origins.origin import Origin, OriginState, SeenIn

Make = Callable[[torch.Tensor], torch.Tensor]
CAUSAL = torch.ones(3, 3, dtype=torch.bool).triu(1)
ROW = torch.zeros(3, 3, dtype=torch.bool)
ROW[1] = True


def origin(make: Make, *values: float) -> Origin:
    weights = torch.nn.Parameter(torch.tensor(values))
    return origin_of(lambda: make(weights).float().sum())


# The sick step with its values, the operation, a word of the fix, and the step with that fix.
CASES: dict[str, tuple[Make, tuple[float, ...], str, str, Make]] = {
    "log": (torch.log, (0.0, 1.0), "aten.log", "clamp the argument of the log", lambda w: w.clamp_min(1e-8).log()),
    "log of a negative": (torch.log, (-1.0, 1.0), "aten.log", "negative", lambda w: w.clamp_min(1e-8).log()),
    "sqrt": (torch.sqrt, (-1.0, 1.0), "aten.sqrt", "clamp it", lambda w: w.clamp_min(1e-12).sqrt()),
    "rsqrt": (torch.rsqrt, (0.0,), "aten.rsqrt", "rsqrt(", lambda w: (w.clamp_min(0) + 1e-8).rsqrt()),
    "division": (lambda w: 1 - w / w, (0.0, 1.0), "aten.div.Tensor", "denominator is 0", lambda w: w / (w + 1e-8)),
    "exp": (torch.exp, (100.0,), "aten.exp", "exp overflows", lambda w: w.clamp_max(20).exp()),
    "power": (lambda w: w.pow(0.3), (-1.0,), "aten.pow.Tensor_Scalar", "fractional power",
              lambda w: w.clamp_min(1e-12).pow(0.3)),
    "power of 0": (lambda w: w.pow(-1.5), (0.0,), "aten.pow.Tensor_Scalar", "no negative power",
                   lambda w: (w + 1e-8).pow(-1.5)),
    "acos": (torch.acos, (1.1,), "aten.acos", "outside -1 to 1", lambda w: w.clamp(-1 + 1e-6, 1 - 1e-6).acos()),
    "atanh": (torch.atanh, (1.0,), "aten.atanh", "atanh is infinite", lambda w: w.clamp(-1 + 1e-6, 1 - 1e-6).atanh()),
    "logit": (torch.logit, (1.0,), "aten.logit", "eps=1e-6", lambda w: torch.logit(w, eps=1e-6)),
    "log1p": (torch.log1p, (-1.0,), "aten.log1p", "log1p", lambda w: w.clamp_min(-1 + 1e-6).log1p()),
    "masked row": (
        lambda w: torch.outer(w, w).masked_fill(ROW, -torch.inf).softmax(-1)[1], (1.0, 2.0, 3.0), "aten._softmax",
        "only -Inf",
        lambda w: torch.outer(w, w).masked_fill(ROW, torch.finfo(w.dtype).min).softmax(-1)[1]),
    "mask that is added": (
        lambda w: (torch.outer(w, w) + torch.zeros(3, 3).masked_fill(ROW, -torch.inf)).softmax(-1)[1], (1.0, 2.0, 3.0),
        "aten._softmax", "only -Inf", lambda w: torch.outer(w, w).masked_fill(CAUSAL, -torch.inf).softmax(-1)[1]),
    "ignored targets": (
        lambda w: functional.cross_entropy(torch.outer(w, w), torch.full((3,), -100)), (1.0, 2.0, 3.0),
        "aten.nll_loss_forward", "ignored index",
        lambda w: functional.cross_entropy(torch.outer(w, w), torch.full((3,), -100), reduction="sum")),
    "empty mean": (lambda w: w[:0].mean(), (1.0,), "aten.mean", "over no element", lambda w: w[:0].sum() / 1),
    "deviation of one": (lambda w: w.std(), (1.0,), "aten.std.correction", "correction=0",
                         lambda w: (w.var(correction=0) + 1e-8).sqrt()),
    "grown": (lambda w: w.square(), (1e20,), "aten.pow.Tensor_Scalar", "the cause is before it", lambda w: w * 0.5),
    "float16": (lambda w: w.half() * 60000, (2.0,), "aten.mul.Tensor", "largest float16",
                lambda w: w.bfloat16() * 60000),
}
BACKWARD: dict[str, tuple[Make, tuple[float, ...], str, str, Make]] = {
    "Sqrt": (torch.sqrt, (0.0, 1.0), "aten.div.Tensor", "derivative of sqrt", lambda w: (w + 1e-12).sqrt()),
    "Log": (lambda w: torch.where(w > 0, w.log(), 0.0), (0.0, 1.0), "aten.div.Tensor", "before the log",
            lambda w: torch.where(w > 0, torch.where(w > 0, w, 1.0).log(), 0.0)),
    "Div": (lambda w: torch.where(w > 0, w / w, 0.0), (0.0, 1.0), "", "denominator",
            lambda w: torch.where(w > 0, w / torch.where(w > 0, w, 1.0), 0.0)),
    "Pow": (lambda w: w.pow(0.5), (0.0, 1.0), "", "power below 1", lambda w: (w + 1e-12).pow(0.5)),
    "Acos": (torch.acos, (1.0,), "", "derivative of acos", lambda w: w.clamp(-1 + 1e-6, 1 - 1e-6).acos()),
    "Asin": (torch.asin, (1.0,), "", "derivative of asin", lambda w: w.clamp(-1 + 1e-6, 1 - 1e-6).asin()),
}


@pytest.mark.parametrize("name", CASES)
def test_the_producer_of_the_forward_pass_is_named_and_its_fix_cures(name: str) -> None:
    sick, values, operation, words, cured = CASES[name]
    found = origin(sick, *values)
    assert found.operation is not None
    assert (found.state, found.seen_in, found.operation.name) == (OriginState.OPERATION, SeenIn.LOSS, operation)
    assert (found.operation.path, found.operation.is_backward) == (__file__, False)
    assert words in fix(found)
    assert origin(cured, *values).state == OriginState.CLEAN


@pytest.mark.parametrize("name", BACKWARD)
def test_the_producer_of_the_backward_pass_is_named_with_its_forward_line(name: str) -> None:
    sick, values, operation, words, cured = BACKWARD[name]
    found = origin(sick, *values)
    assert found.operation is not None
    assert (found.state, found.seen_in) == (OriginState.OPERATION, SeenIn.GRADIENT)
    assert found.operation.is_backward
    assert found.operation.node.startswith(f"{name}Backward")
    assert found.operation.path == __file__
    assert operation in found.operation.name
    assert words in fix(found)
    assert origin(cured, *values).state == OriginState.CLEAN


def test_the_gradient_of_the_log_of_a_tiny_number_overflows() -> None:
    found = origin(torch.log, 1e-44)
    assert found.operation is not None
    assert found.operation.is_backward
    assert "near 0 and overflows" in fix(found)
    assert origin(lambda w: w.clamp_min(1e-8).log(), 1e-44).state == OriginState.CLEAN


@pytest.mark.parametrize(("lost", "sick"), [
    (lambda w: w.half().clamp_min(1e-8).log(), lambda w: w.half().log()),
    (lambda w: (w.bfloat16() + 1).clamp(-1 + 1e-6, 1 - 1e-6).acos(), lambda w: (w.bfloat16() + 1).acos()),
])
def test_a_small_constant_in_16_bits_is_to_be_added_in_float32(lost: Make, sick: Make) -> None:
    assert "compute this in float32" in fix(origin(sick, 0.0))
    assert origin(lost, 0.0).state == OriginState.OPERATION
    assert origin(lambda w: w.half().float().clamp_min(1e-8).log(), 0.0).state == OriginState.CLEAN


def test_every_fix_of_a_backward_pass_has_been_applied() -> None:
    assert set(operation_fixes._BACKWARD) == set(BACKWARD)


def test_every_fix_of_a_forward_pass_has_been_applied() -> None:
    bases = {case[2].removeprefix("aten.").partition(".")[0] for case in CASES.values()}
    for names, _ in operation_fixes._FORWARD:
        assert bases & set(names), names


def test_a_mask_of_large_negative_numbers_is_not_taken_for_values_that_have_grown() -> None:
    lowest = torch.finfo(torch.float32).min
    found = origin(lambda w: torch.outer(w, w).masked_fill(CAUSAL, lowest) * 2, 1.0, 2.0, 3.0)
    assert (found.state, fix(found)) == (OriginState.OPERATION, "")


def test_a_finite_step_with_masked_scores_is_clean() -> None:
    found = origin(lambda w: torch.outer(w, w).masked_fill(CAUSAL, -torch.inf).softmax(-1), 1.0, 2.0, 3.0)
    assert (found.state, fix(found)) == (OriginState.CLEAN, "")
    assert found.num_operations > 5


def test_an_infinite_value_that_does_not_reach_the_loss_is_not_the_producer() -> None:
    def step(w: torch.Tensor) -> torch.Tensor:
        torch.log(w * 0)                                                # thrown away
        discarded = torch.where(w > 5, torch.log(w - w).detach(), 0.0)  # masked
        return discarded + (w * 1000).exp()

    found = origin(step, 1.0, 2.0)
    assert found.operation is not None
    assert found.operation.name == "aten.exp"


def test_a_forward_result_that_only_the_backward_pass_uses_is_the_producer() -> None:
    found = origin(lambda w: torch.where(w > 0, 1 / w, 0.0), 0.0, 1.0)
    assert found.operation is not None
    assert (found.seen_in, found.operation.name) == (SeenIn.GRADIENT, "aten.reciprocal")
    assert not found.operation.is_backward


def test_what_passes_it_on_is_told_from_the_producer() -> None:
    found = origin(lambda w: (w.log() * 2).tanh().sigmoid() * (w.log() * 0), 0.0)
    assert found.operation is not None
    assert found.nan_operation is not None
    assert (found.operation.name, found.nan_operation.name) == ("aten.log", "aten.mul.Tensor")
    assert found.num_passed_on >= 2


def test_an_operation_in_place_is_described_by_the_values_that_it_read() -> None:
    def step(w: torch.Tensor) -> torch.Tensor:
        values = w * 1
        return values.log_()

    found = origin(step, 0.0, 4.0)
    assert found.operation is not None
    assert found.operation.name == "aten.log_"
    read = found.operation.operands[0]
    assert (read.minimum, read.maximum, read.num_zero, read.is_finite) == (0.0, 4.0, 1, True)
    assert "read 2 float32 values from 0 to 4, 1 of them 0, and gave 1 Inf" in explanation(found)


def test_values_that_are_overwritten_are_not_followed() -> None:
    def step(w: torch.Tensor) -> torch.Tensor:
        values = (w * 0).log().detach()
        values.fill_(2.0)
        return values * w / (w - w)

    found = origin(step, 1.0)
    assert found.operation is not None
    assert found.operation.name == "aten.div.Tensor"


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_data_that_were_bad_before_the_step_are_told_from_an_operation(bad: float) -> None:
    data = torch.tensor([1.0, bad, 2.0])
    found = origin(lambda w: functional.layer_norm(data * w, (3,)), 1.0, 2.0, 3.0)
    assert found.operation is not None
    assert found.input is not None
    assert (found.state, found.operation.name, found.input.num_values) == (OriginState.INPUT, "aten.mul.Tensor", 3)
    assert "torch.isfinite(x)" in fix(found)


def test_a_parameter_that_was_bad_before_the_step_is_named() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.LayerNorm(2)))
    with torch.no_grad():
        model[1][0].weight[1] = torch.inf
    found = origin_of(lambda: model(torch.ones(1, 2)).sum(), model)
    assert found.input is not None
    assert found.operation is not None
    assert (found.state, found.input.name, found.operation.module_path) == (OriginState.INPUT, "1.0.weight", "1.0")
    assert "weight" in explanation(found)


def test_the_module_is_named_for_the_backward_pass_too() -> None:
    class Root(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sqrt()

    model = torch.nn.ModuleDict({"root": Root()})
    weights = torch.nn.Parameter(torch.zeros(2))

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self) -> torch.Tensor:
            return self.parts["root"](weights).sum()

    found = origin_of(Outer())
    assert found.operation is not None
    assert (found.operation.module, found.operation.module_path) == (Root.__qualname__, "parts.root")


def test_the_step_leaves_no_trace() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.5))
    before = [buffer.clone() for buffer in model.buffers()], torch.get_rng_state()
    origin_of(lambda: model(torch.randn(4, 2)).log().sum(), model)
    assert all(torch.equal(a, b) for a, b in zip(before[0], model.buffers(), strict=True))
    assert torch.equal(before[1], torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_compiler_is_named_if_only_compiled_code_is_bad() -> None:
    def divides_by_zero(graph: Any, _: Any) -> Callable[..., Any]:
        return lambda *inputs: tuple(value / 0 for value in graph(*inputs))

    torch._dynamo.reset()
    compiled = torch.compile(lambda w: (w * 2).sum(), backend=divides_by_zero)
    found = origin(lambda w: compiled(w), 1.0)
    assert (found.state, found.was_compiled) == (OriginState.COMPILED, True)
    assert "the compiled code makes it" in explanation(found)


def test_a_step_that_returns_no_loss_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got a tensor of shape \[2\]; return loss.mean\(\)"):
        origin_of(lambda: torch.ones(2))

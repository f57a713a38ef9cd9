"""Statistics of every layer: exact, each layer once, one read for all of them, no effect on compiled code."""

import dataclasses
import functools
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import torchtriage
from tests.unit.telemetry.counting import host_reads
from torchtriage.errors import TriageError
from torchtriage.telemetry import LayerGradientStats, collect_per_layer_gradients


def model_of(num_layers: int) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(num_layers)))
    model(torch.randn(3, 4)).square().sum().backward()
    return model


def one_weight(gradient: torch.Tensor, weight: torch.Tensor | None = None) -> nn.Module:
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones_like(gradient) if weight is None else weight)
    model.weight.grad = gradient
    return model


def test_every_number_equals_a_double_computation() -> None:
    model = model_of(2)
    layers = collect_per_layer_gradients(model, small=0.1, large=1.0)
    assert [layer.layer_name for layer in layers] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    for layer, parameter in zip(layers, model.parameters(), strict=True):
        gradient, weight = parameter.grad.double(), parameter.detach().double()
        expected = {
            "param_count": gradient.numel(),
            "grad_norm": gradient.norm(),
            "grad_mean": gradient.mean(),
            "grad_std": gradient.std(correction=0),
            "grad_min": gradient.min(),
            "grad_max": gradient.max(),
            "zero_fraction": 0.0,
            "small_fraction": (gradient.abs() < 0.1).double().mean(),
            "large_fraction": (gradient.abs() > 1.0).double().mean(),
            "nan_count": 0,
            "inf_count": 0,
            "weight_norm": weight.norm(),
            "weight_mean": weight.mean(),
            "weight_std": weight.std(correction=0),
            "weight_min": weight.min(),
            "weight_max": weight.max(),
        }
        seen = dataclasses.asdict(layer)
        assert {name: seen[name] for name in expected} == pytest.approx(
            {name: float(value) for name, value in expected.items()}, rel=1e-6
        )


def test_fractions_count_zero_small_and_large_values() -> None:
    layer = collect_per_layer_gradients(one_weight(torch.tensor([0.0, 1e-7, 1.0, 11.0])))[0]
    assert (layer.zero_fraction, layer.small_fraction, layer.large_fraction) == (0.25, 0.5, 0.25)


def test_non_finite_values_are_counted_and_excluded_elsewhere() -> None:
    layer = collect_per_layer_gradients(one_weight(torch.tensor([3.0, torch.nan, torch.inf, 4.0])))[0]
    assert (layer.nan_count, layer.inf_count, layer.grad_norm, layer.grad_max) == (1, 1, 5.0, 4.0)


def test_shared_parameter_is_listed_once_and_frozen_or_unused_ones_never() -> None:
    model = nn.ModuleDict(
        {
            "a": nn.Linear(3, 3, bias=False),
            "b": nn.Linear(3, 3, bias=False),
            "frozen": nn.Linear(3, 3, bias=False),
            "unused": nn.Linear(3, 3, bias=False),
        }
    )
    model["b"].weight = model["a"].weight
    model["frozen"].weight.requires_grad_(False)
    model["b"](model["frozen"](model["a"](torch.ones(2, 3)))).sum().backward()
    assert [layer.layer_name for layer in collect_per_layer_gradients(model)] == ["a.weight"]


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.ReLU()], ids=["no gradients", "no parameters"])
def test_without_gradients_the_result_is_empty(model: nn.Module) -> None:
    assert collect_per_layer_gradients(model) == []


def test_gradient_without_elements_is_all_zeros() -> None:
    layer = collect_per_layer_gradients(one_weight(torch.empty(0, 3)))[0]
    assert set(dataclasses.astuple(layer)) == {"weight", 0}


@pytest.mark.parametrize(
    "change",
    [lambda x: x.t(), lambda x: x[::2], lambda x: x[:, 1:3], lambda x: x[0:1].expand(4, 6)],
    ids=["transposed", "every other row", "columns", "expanded"],
)
def test_strides_do_not_matter(change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    gradient = change(torch.arange(24.0).reshape(4, 6))
    strided, plain = one_weight(gradient.clone()), one_weight(gradient.clone())
    strided.weight.grad = gradient
    a, b = (dataclasses.astuple(collect_per_layer_gradients(model)[0]) for model in (strided, plain))
    assert a[1:] == pytest.approx(b[1:], rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_floating_point_type_has_statistics(dtype: torch.dtype) -> None:
    layer = collect_per_layer_gradients(one_weight(torch.full((1000,), 1000.0, dtype=dtype)))[0]
    assert layer.grad_norm == pytest.approx(1000 * 1000**0.5)      # as float16 its square would be infinite


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_sparse_gradient_has_the_statistics_of_its_dense_form(tokens: list[int]) -> None:
    weight = torch.arange(18.0).reshape(6, 3)
    sparse, dense = (
        nn.Embedding.from_pretrained(weight.clone(), freeze=False, sparse=is_sparse) for is_sparse in (True, False)
    )
    for model in (sparse, dense):
        (model(torch.tensor(tokens)) * torch.tensor([1.0, -2.0, 0.0])).sum().backward()
    assert sparse.weight.grad.is_sparse
    for a, b in zip(collect_per_layer_gradients(sparse), collect_per_layer_gradients(dense), strict=True):
        assert dataclasses.astuple(a)[1:] == pytest.approx(dataclasses.astuple(b)[1:], rel=1e-6, abs=1e-9)


def test_gradient_without_statistics_is_refused_by_name() -> None:
    with pytest.raises(TriageError, match=r"the gradient of weight.*complex64.*view_as_real"):
        collect_per_layer_gradients(one_weight(torch.ones(2, dtype=torch.complex64)))


def test_number_of_reads_is_independent_of_the_number_of_layers() -> None:
    few, many = (host_reads(functools.partial(collect_per_layer_gradients, model_of(count))) for count in (2, 20))
    assert few == many
    assert few.count("numpy") <= 1


# Compiled code

@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


MODELS = [1, 2, 3, 4]   # layers


def run_with_changing_models(step: Callable[[torch.Tensor], object], holder: dict[str, nn.Module]) -> torchtriage.Seen:
    with torchtriage.watch() as seen:
        for num_layers in MODELS:
            holder["model"] = model_of(num_layers)
            step(torch.ones(3))
    return seen


def test_next_to_a_compiled_function_it_has_no_effect() -> None:
    holder: dict[str, nn.Module] = {}
    double = torch.compile(lambda x: x * 2, backend="eager")

    def step(x: torch.Tensor) -> None:
        double(x)
        assert collect_per_layer_gradients(holder["model"])

    seen = run_with_changing_models(step, holder)
    assert (seen.graph_breaks, seen.recompiles) == ([], [])


def test_inside_a_compiled_function_it_is_one_break_and_no_recompile() -> None:
    holder: dict[str, nn.Module] = {}
    sizes = []

    @torch.compile(backend="eager")
    def step(x: torch.Tensor) -> tuple[torch.Tensor, object]:
        y = x * 2
        layers = collect_per_layer_gradients(holder["model"])
        return y + 1, layers

    def call(x: torch.Tensor) -> None:
        y, layers = step(x)
        assert y.tolist() == [3.0, 3.0, 3.0]
        sizes.append(len(layers))

    seen = run_with_changing_models(call, holder)
    assert sizes == [2 * n for n in MODELS]
    assert seen.recompiles == []
    assert len(seen.graph_breaks) == 1
    assert "call it outside the compiled function" in seen.graph_breaks[0].reason


def test_plain_list_would_recompile_for_every_number_of_layers() -> None:
    holder: dict[str, nn.Module] = {}

    @torch.compiler.disable
    def as_list(model: nn.Module) -> list[LayerGradientStats]:
        return list(collect_per_layer_gradients(model))

    @torch.compile(backend="eager")
    def step(x: torch.Tensor) -> tuple[torch.Tensor, object]:
        y = x * 2
        layers = as_list(holder["model"])
        return y + 1, layers

    assert len(run_with_changing_models(step, holder).recompiles) == len(MODELS) - 1


def test_full_graph_refuses_it_with_the_reason() -> None:
    model = model_of(1)
    step = torch.compile(lambda x: (x * 2, collect_per_layer_gradients(model)), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="call it outside the compiled function"):
        step(torch.ones(3))


def test_result_behaves_like_a_list() -> None:
    layers = collect_per_layer_gradients(model_of(1))
    assert layers == list(layers) == layers[:]
    assert layers == collect_per_layer_gradients(model_of(1))
    assert layers != list(reversed(layers))
    assert repr(layers) == repr(list(layers))

"""Gradients of groups: the norm of clip_grad_norm_, health by the formula, no large temporary tensor, one read."""

import dataclasses
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import torchtriage
from tests.unit.telemetry.counting import allocated, host_reads, operations
from torchtriage.errors import TriageError
from torchtriage.telemetry import (
    GradientCollector,
    GradientHealthMetrics,
    GradientStats,
    GroupGradientCollector,
    collect_gradients,
    global_grad_norm,
    materialize_grad_stats,
)
from torchtriage.telemetry.gradients import collect as collectors
from torchtriage.telemetry.statistics import aten as aten_statistics


def parameters(*gradients: torch.Tensor | None) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.zeros_like(torch.ones(1) if g is None else g)) for g in gradients]
    for parameter, gradient in zip(made, gradients, strict=True):
        parameter.grad = gradient
    return made


def model_of(num_layers: int = 3, width: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(num_layers)))
    model(torch.randn(3, width)).square().sum().backward()
    return model


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are treated as those of a GPU: measured by torch operations, and read later."""
    monkeypatch.setattr(collectors, "_is_host", lambda device: False)


@pytest.fixture(params=["host", "device"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "device":
        monkeypatch.setattr(collectors, "_is_host", lambda device: False)
    return str(request.param)


# Norm and health

@pytest.mark.parametrize("enhanced", [False, True])
def test_norm_equals_that_of_clip_grad_norm(place: str, enhanced: bool) -> None:
    model = model_of()
    stats = collect_gradients(model, return_enhanced=enhanced)
    assert stats.gradient_norm == pytest.approx(float(nn.utils.clip_grad_norm_(model.parameters(), math.inf)), rel=1e-6)
    assert (stats.num_tensors, stats.param_count) == (6, 60)


@pytest.mark.parametrize("enhanced", [False, True])
def test_gradients_of_1e25_have_a_finite_norm(place: str, enhanced: bool) -> None:
    group = parameters(torch.full((1000,), 1e25), torch.full((24,), 1e25))
    gradients = [p.grad for p in group]
    # As was recommended.
    assert math.isinf(float(torch.stack(torch._foreach_norm(gradients, 2)).pow(2).sum().sqrt()))
    assert math.isinf(float(nn.utils.get_total_norm(gradients)))
    assert collect_gradients(group, return_enhanced=enhanced).gradient_norm == pytest.approx(32e25, rel=1e-6)
    assert global_grad_norm(group) == pytest.approx(32e25, rel=1e-6)


def test_global_norm_is_none_without_gradients_and_zero_for_zeros() -> None:
    assert global_grad_norm(nn.Linear(2, 2)) is None
    assert global_grad_norm(nn.ReLU()) is None
    assert global_grad_norm(parameters(torch.zeros(3))) == 0.0


@given(st.lists(st.sampled_from([0.0, 1e-8, 1.0, 4.9, 5.1, 1e30]), min_size=1, max_size=12))
def test_health_follows_the_formula(norms: list[float]) -> None:
    stats = collect_gradients(parameters(*(torch.tensor([norm]) for norm in norms)), clip_norm=0.5)
    vanishing, exploding = sum(norm < 1e-7 for norm in norms), sum(norm > 5.0 for norm in norms)
    assert (stats.num_vanishing, stats.num_exploding) == (vanishing, exploding)
    assert (stats.has_vanishing, stats.has_exploding) == (vanishing > 0, exploding > 0)
    assert stats.gradient_health == pytest.approx(max(1 - (0.5 * vanishing + 0.8 * exploding) / len(norms), 0))


@pytest.mark.parametrize("enhanced", [False, True])
@pytest.mark.parametrize(("bad", "norm"), [(math.nan, math.nan), (math.inf, math.inf), (-math.inf, math.inf)])
def test_non_finite_gradients_are_exploding_and_have_health_zero(
    place: str, enhanced: bool, bad: float, norm: float
) -> None:
    stats = collect_gradients(
        parameters(torch.tensor([1.0, bad]), torch.ones(2)), return_enhanced=enhanced, clip_norm=math.inf
    )
    assert stats.gradient_norm == pytest.approx(norm, nan_ok=True)
    assert (stats.gradient_health, stats.num_exploding) == (0.0, 1)


def test_nan_takes_precedence_over_infinity_as_in_clip_grad_norm() -> None:
    group = parameters(torch.tensor([math.inf]), torch.tensor([math.nan]))
    assert math.isnan(collect_gradients(group).gradient_norm)
    assert math.isnan(float(nn.utils.get_total_norm([p.grad for p in group])))


@pytest.mark.parametrize(
    "group", [[], parameters(None, None), parameters(torch.empty(0, 3))], ids=["nothing", "gradients", "elements"]
)
def test_without_gradients_the_norm_is_zero_and_the_health_one(group: list[nn.Parameter]) -> None:
    stats = collect_gradients(group, return_enhanced=True)
    assert (stats.gradient_norm, stats.gradient_health, stats.num_tensors, stats.norm_ratio) == (0.0, 1.0, 0, 0.0)
    assert stats.is_healthy


def test_enhanced_metrics_cover_all_tensors(place: str) -> None:
    group = parameters(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 0.0, 0.5]), torch.tensor([[1.0]]))
    stats = collect_gradients(group, return_enhanced=True)
    assert (stats.min_layer_norm, stats.max_layer_norm, stats.norm_ratio) == pytest.approx((0.5, 5.0, 10.0))
    assert (stats.zero_fraction, stats.nan_count, stats.inf_count) == (pytest.approx(2 / 6), 0, 0)
    assert stats.is_healthy


@pytest.mark.parametrize(
    "group",
    [
        parameters(torch.tensor([1.0]), torch.tensor([2e-4])),
        parameters(torch.tensor([0.0, 0.0, 1.0])),
        parameters(torch.tensor([1.0, math.nan])),
        parameters(torch.tensor([6.0])),
        parameters(torch.tensor([1.0]), torch.tensor([0.0])),
    ],
    ids=["ratio", "zeros", "nan", "exploding", "a gradient of zero"],
)
def test_group_is_unhealthy_when_one_of_its_signs_is(group: list[nn.Parameter]) -> None:
    healthy = parameters(torch.tensor([1.0]), torch.tensor([2e-3]))
    assert collect_gradients(healthy, return_enhanced=True).is_healthy
    assert not collect_gradients(group, return_enhanced=True, clip_norm=0.5).is_healthy


# One implementation

def test_every_way_to_collect_gives_the_same_result(place: str) -> None:
    model = model_of()
    for enhanced in (False, True):
        collector = GradientCollector(enhanced=enhanced)
        once = collect_gradients(model, return_enhanced=enhanced)
        assert type(once) is (GradientHealthMetrics if enhanced else GradientStats)
        assert collector.collect(model) == once
        assert materialize_grad_stats(collector.collect_async(model.named_parameters())) == once
        assert GroupGradientCollector({"all": model.parameters()}, enhanced=enhanced).collect()["all"] == once


def test_the_device_and_the_host_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    group = parameters(
        torch.randn(50, 7), torch.tensor(2.0), torch.empty(0), torch.randn(3).bfloat16(), torch.randn(5).double()
    )
    host = collect_gradients(group, return_enhanced=True)
    monkeypatch.setattr(collectors, "_is_host", lambda device: False)
    assert dataclasses.asdict(collect_gradients(group, return_enhanced=True)) == pytest.approx(
        dataclasses.asdict(host), rel=1e-6
    )


@pytest.mark.usefixtures("on_device")
def test_statistics_that_are_not_requested_are_not_computed() -> None:
    def num_operations(enhanced: bool) -> int:
        with operations() as seen:
            GradientCollector(enhanced=enhanced).collect_async(model)
        return len(seen.names)

    model = model_of()
    assert num_operations(enhanced=False) <= 20 < num_operations(enhanced=True)


@pytest.mark.usefixtures("place")
def test_norms_need_no_private_function(monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = collect_gradients(model_of())
    monkeypatch.delattr(torch, "_foreach_norm")
    assert dataclasses.asdict(collect_gradients(model_of())) == pytest.approx(
        dataclasses.asdict(with_it), rel=1e-12
    )


@pytest.mark.usefixtures("on_device")
def test_collecting_reads_nothing_and_materializing_reads_once() -> None:
    for enhanced in (False, True):
        collector = GradientCollector(enhanced=enhanced)
        model, pending = model_of(), []
        collector.collect(model)        # makes its buffers
        assert host_reads(lambda: pending.append(collector.collect_async(model))) == []     # noqa: B023
        assert host_reads(lambda: materialize_grad_stats(pending[0])) == ["numpy"]          # noqa: B023


@pytest.mark.usefixtures("on_device")
def test_pending_gradients_keep_their_values_after_the_next_collection() -> None:
    collector, group = GradientCollector(enhanced=True), parameters(torch.ones(4))
    first = collector.collect_async(group)
    group[0].grad.mul_(3)
    second = collector.collect_async(group)
    assert [materialize_grad_stats(pending).gradient_norm for pending in (first, second)] == [2.0, 6.0]


@pytest.mark.usefixtures("on_device")
def test_changed_model_gets_new_buffers() -> None:
    collector = GradientCollector(enhanced=True)
    for gradient in (torch.ones(4), torch.ones(9), torch.ones(9).double(), torch.ones(3, 3)):
        assert collector.collect(parameters(gradient)).gradient_norm == math.sqrt(gradient.numel())


@pytest.mark.parametrize("enhanced", [False, True])
def test_memory_does_not_grow_with_the_parameters(place: str, enhanced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where torch operations are used, their buffer is of a fixed size.
    monkeypatch.setattr(aten_statistics, "CHUNK", 1 << 17)

    def growth(collect: Callable[[list[nn.Parameter]], object]) -> float:
        """Bytes allocated more, for each byte of gradients more."""
        few, many = (parameters(*(torch.ones(1000, 250) for _ in range(count))) for count in (2, 6))
        return (allocated(lambda: collect(many)) - allocated(lambda: collect(few))) / 4e6

    # As it was.
    assert growth(lambda group: torch.cat([p.grad.view(-1) for p in group])) == pytest.approx(1.0, rel=0.01)
    assert growth(lambda group: collect_gradients(group, return_enhanced=enhanced)) < 0.05


# Groups

def test_groups_are_measured_together_and_compared_by_root_mean_square() -> None:
    critic = nn.ParameterList(parameters(torch.ones(100)))
    seen = GroupGradientCollector({"actor": parameters(torch.full((4,), 0.2)), "critic": critic}).collect()
    assert seen["actor"].gradient_norm == pytest.approx(0.4)
    assert seen["critic"].gradient_norm == pytest.approx(10.0)
    assert seen.overall.gradient_norm == pytest.approx(math.hypot(0.4, 10.0))
    assert seen.normalized_ratio("actor", "critic") == pytest.approx(0.2, rel=1e-6)
    dual = seen.dual(host="critic", seed="actor")
    assert (dual.normalized_ratio, dual.host_count, dual.seed_count) == (
        seen.normalized_ratio("actor", "critic"),
        100,
        4,
    )


def test_tensor_in_two_groups_counts_once_overall() -> None:
    shared = parameters(torch.tensor([3.0]))
    seen = GroupGradientCollector({"a": shared, "b": [*shared, *parameters(torch.tensor([4.0])), *shared]}).collect()
    assert [seen["a"].gradient_norm, seen["b"].gradient_norm, seen.overall.gradient_norm] == [3.0, 5.0, 5.0]


def test_module_is_listed_again_at_each_collection() -> None:
    model = model_of(1)
    collector = GroupGradientCollector({"model": model})
    assert collector.collect()["model"].num_tensors == 2
    model.append(model_of(1))
    assert collector.collect()["model"].num_tensors == 4
    model.zero_grad(set_to_none=True)
    assert collector.collect()["model"].num_tensors == 0


def test_unknown_group_is_refused_with_the_list_of_groups() -> None:
    with pytest.raises(KeyError, match=r"no group 'actor'; the groups are: policy, value"):
        GroupGradientCollector({"policy": [], "value": []}).collect().normalized_ratio("actor", "value")


# Kinds of gradients

def test_sparse_gradient_has_the_statistics_of_its_dense_form(place: str) -> None:
    def seen(is_sparse: bool, enhanced: bool) -> dict[str, float]:
        torch.manual_seed(0)
        model = nn.Embedding(50, 4, sparse=is_sparse)
        model(torch.tensor([3, 3, 7])).square().sum().backward()
        return dataclasses.asdict(collect_gradients(model, return_enhanced=enhanced))

    for enhanced in (True, False):
        assert seen(True, enhanced) == pytest.approx(seen(False, enhanced), rel=1e-6)
    assert seen(True, True)["zero_fraction"] == 48 / 50
    assert seen(True, False)["param_count"] == 200


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_gradient_without_statistics_is_refused_by_name(place: str) -> None:
    rows = nn.Parameter(torch.eye(2).to_sparse_csr())
    rows.grad = rows.detach().clone()
    with pytest.raises(TriageError, match=r"the gradient of phase.*complex64"):
        collect_gradients([("phase", parameters(torch.ones(2, dtype=torch.complex64))[0])])
    with pytest.raises(TriageError, match=r"the gradient of parameter 1.*sparse_csr"):
        collect_gradients([*parameters(torch.ones(1)), rows])


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"clip_norm must be above 0, got -1.0; give that of clip_grad_norm_"):
        GradientCollector(clip_norm=-1.0)
    with pytest.raises(TypeError, match=r"got str; give module.parameters\(\)"):
        collect_gradients(["weight"])      # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"got one tensor; give \[parameter\]"):
        collect_gradients(nn.Parameter(torch.ones(2)))


# Compiled code

@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("collect", [
    collect_gradients, GradientCollector(enhanced=True).collect, global_grad_norm,
], ids=["once", "collector", "surrogate"])
def test_collector_in_a_compiled_function_is_one_break_and_no_recompile(collect: Callable[[nn.Module], object]) -> None:
    holder = {}

    @torch.compile(backend="eager")
    def step(x: torch.Tensor) -> tuple[torch.Tensor, object]:
        y = x * 2
        stats = collect(holder["model"])
        return y + 1, stats

    with torchtriage.watch() as seen:
        for num_layers in (1, 2, 3):
            holder["model"] = model_of(num_layers)
            step(torch.ones(3))
    assert (len(seen.graph_breaks), len(seen.recompiles)) == (1, 0)

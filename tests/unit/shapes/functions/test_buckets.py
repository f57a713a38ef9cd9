"""A bucketed function returns the same results, compiles once per bucket, and detects padding that changes a result."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import torchtriage
from torchtriage.errors import TriageError
from torchtriage.findings.shape_study import STUDY_FILE, Advice, ShapeStudy, VaryingSize
from torchtriage.shapes.functions.buckets import Bucketed, bucketed
from torchtriage.shapes.functions.padding_check import PaddingChangesResultError

EDGES = (8, 16, 32)


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def make(fn: Any, **options: Any) -> Bucketed:
    return bucketed(fn, **{"dim": 1, "sizes": EDGES, "backend": "eager", **options})


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def normalised(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(dim=1, keepdim=True)


def masked_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


class Attention(nn.Module):
    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.is_causal = nn.Linear(8, 24), nn.Linear(8, 8), is_causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x)[:, None].chunk(3, dim=-1)
        return self.out(nn.functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)[:, 0])


def test_the_result_equals_that_of_the_function_at_every_size() -> None:
    wrapped = make(double)
    for size in (1, 7, 8, 9, 16, 30, 32):
        x = torch.randn(2, size, 3)
        assert torch.equal(wrapped(x), x * 2)


@pytest.mark.parametrize("has_regions", [True, False])
def test_each_bucket_compiles_once_and_nothing_recompiles(has_regions: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_regions:     # as before torch 2.13
        compile_ = torch.compile
        monkeypatch.setattr(
            torch, "compile", lambda fn, *, dynamic, **options: compile_(fn, dynamic=dynamic, **options)
        )
    wrapped = make(double, sizes=range(2, 26, 2))       # more buckets than torch's recompile limit
    with torchtriage.watch() as seen:
        for size in range(1, 25):
            x = torch.randn(2, size)
            assert torch.equal(wrapped(x), x * 2)
    assert seen.report.totals["compiles"] == 12
    assert not seen.recompiles
    assert not seen.limits


def test_a_size_at_an_edge_shares_the_graph_whatever_its_strides() -> None:
    wrapped = make(double)
    whole = torch.randn(4, 40, 3)
    with torchtriage.watch() as seen:
        for x in (whole[:1, :7], whole[:1, :8], torch.randn(8, 1, 3).transpose(0, 1), torch.randn(1, 8, 6)[..., ::2]):
            assert torch.equal(wrapped(x), x * 2)
    assert seen.report.totals["compiles"] == 1


def test_a_tensor_that_is_passed_twice_shares_the_graph() -> None:
    wrapped = make(torch.add)
    with torchtriage.watch() as seen:
        for size in (7, 8):
            x = torch.randn(2, size)
            wrapped(x, x)
    assert seen.report.totals["compiles"] == 1


def test_buckets_and_their_waste_are_counted() -> None:
    wrapped = make(double)
    assert wrapped.last_bucket is None
    for size in (6, 8, 20):
        wrapped(torch.randn(2, size))
    assert wrapped.last_bucket == 32
    assert [wrapped.bucket_of(size) for size in (1, 8, 9, 32)] == [8, 8, 16, 32]
    assert (wrapped.counts[8].num_calls, wrapped.counts[8].real, wrapped.counts[8].padded) == (2, 14, 2)
    assert repr(wrapped.counts).splitlines() == [
        "  bucket     calls   padding",
        "       8         2     12.5%",
        "      32         1     37.5%",
        "     all         3     29.2%",
    ]
    assert repr(wrapped) == "<bucketed double: 8, 16, 32>"


def test_a_size_above_the_last_bucket() -> None:
    x = torch.randn(2, 40)
    with pytest.raises(TriageError, match=r"size 40 is above the largest bucket, 32; .*above='grow'"):
        make(double)(x)
    eager = make(double, above="eager")
    assert torch.equal(eager(x), x * 2)
    assert (eager.last_bucket, eager.counts.num_eager) == (None, 1)
    assert "1 call above the last bucket ran eagerly" in repr(eager.counts)
    grown = make(double, above="grow")
    assert torch.equal(grown(x), x * 2)
    assert grown.last_bucket == 64


def test_by_default_all_tensors_of_the_same_size_are_padded() -> None:
    seen = []

    def note(x: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
        seen.append([tuple(t.shape) for t in (x, weight, mask)])
        return x

    wrapped = make(note)
    wrapped(torch.randn(2, 5, 3), torch.randn(3, 3), mask=torch.ones(2, 5, dtype=torch.bool), scale=0.5)
    assert seen[0] == [(2, 8, 3), (3, 3), (2, 8)]


def test_a_tensor_with_the_size_by_chance_is_not_padded() -> None:
    wrapped = make(torch.matmul)
    weight = torch.randn(5, 5)
    for size in (6, 5):
        x = torch.randn(2, size, 5)
        torch.testing.assert_close(wrapped(x, weight), x @ weight)


def test_a_tensor_with_the_size_by_chance_on_the_first_call_is_an_error() -> None:
    wrapped = make(lambda x, w: x)
    wrapped(torch.randn(2, 5), torch.randn(2, 5))
    with pytest.raises(
        TriageError, match=r"w is padded together with x, but has 5 in dim 1 where x has 6; .*args=\('x',\)"
    ):
        wrapped(torch.randn(2, 6), torch.randn(2, 5))


def test_named_arguments_dims_and_values() -> None:
    seen: list[Any] = []

    def note(ids: torch.Tensor, mask: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        seen.append((ids, mask, other))
        return ids

    wrapped = make(note, dim={"ids": 1, "mask": 0}, pad={"ids": -100, "mask": False})
    assert wrapped(
        torch.ones(2, 7, dtype=torch.int64), torch.ones(7, dtype=torch.bool), other=torch.ones(2, 7)
    ).shape == (2, 7)
    ids, mask, other = seen[0]
    assert (ids[:, 7].tolist(), mask.tolist(), tuple(other.shape)) == ([-100, -100], [True] * 7 + [False], (2, 7))
    named = make(note, args=("ids",), dim=-1)
    named(torch.ones(2, 7), torch.ones(7), torch.ones(2, 7))
    assert [tuple(t.shape) for t in seen[1]] == [(2, 8), (7,), (2, 7)]


def test_a_batch_in_a_dict_is_padded_and_named() -> None:
    wrapped = make(lambda batch: {"sum": batch["x"] + batch["mask"]}, pad={"batch['mask']": 1})
    batch = {"x": torch.randn(2, 5), "mask": torch.ones(2, 5), "label": torch.ones(2)}
    assert torch.equal(wrapped(batch)["sum"], batch["x"] + 1)


def test_a_callable_can_do_the_padding() -> None:
    def repeat_last(x: torch.Tensor, dim: int, length: int) -> torch.Tensor:
        return torch.cat([x, x.narrow(dim, -1, 1).expand(-1, length - x.shape[dim])], dim)

    wrapped = make(lambda x: x.max(1).values, pad=repeat_last)
    x = -torch.rand(2, 5) - 1
    assert torch.equal(wrapped(x), x.max(1).values)
    with pytest.raises(TriageError, match="pad= returned x with length 5 in dim 1, expected 8"):
        make(double, pad=lambda x, dim, length: x)(x)


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


def test_results_in_containers_are_cut_back() -> None:
    x = torch.randn(2, 5)
    pair = make(lambda x: Pair(x, x[:, :2]))(x)
    assert isinstance(pair, Pair)
    assert (pair.first.shape, pair.second.shape) == ((2, 5), (2, 2))
    output = make(lambda x: [Output(x, x.sum()), {"x": x, "n": 3}])(x)
    assert (output[0].logits.shape, output[0].loss.shape, output[1]["x"].shape, output[1]["n"]) == (
        (2, 5),
        (),
        (2, 5),
        3,
    )


def test_out_dim_selects_where_the_result_is_cut() -> None:
    x = torch.randn(2, 5, 3)
    assert make(lambda x: x.transpose(1, 2), out_dim=2)(x).shape == (2, 3, 5)
    assert make(lambda x: x @ x.transpose(1, 2), out_dim=(1, 2))(x).shape == (2, 5, 5)
    both = make(lambda x: (x, torch.ones(2, 8)), out_dim={"result[0]": 1})(x)
    assert (both[0].shape, both[1].shape) == ((2, 5, 3), (2, 8))
    with pytest.raises(
        TriageError, match=r"out_dim= names result\[7\], which the function did not return; it returned result$"
    ):
        make(double, out_dim={"result[7]": 1})(x)


def test_the_true_length_is_passed_without_a_recompile() -> None:
    def mean(x: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        return (x * (torch.arange(x.shape[1]) < length)).sum(1) / length

    wrapped = make(mean, length="length")
    with torchtriage.watch() as seen:
        for size in (5, 6, 8):
            x = torch.randn(2, size)
            torch.testing.assert_close(wrapped(x), x.mean(1))
    assert seen.report.totals["compiles"] == 1
    wrapped.check(torch.randn(2, 5))


def test_warmup_compiles_every_bucket_with_and_without_gradients() -> None:
    wrapped = make(nn.Linear(3, 3), sizes=(8, 16), backend="aot_eager")
    seconds = wrapped.warmup(torch.randn(2, 11, 3))
    assert list(seconds) == [8, 16]
    assert all(s > 0 for s in seconds.values())
    with torchtriage.watch() as seen:
        for size in (3, 8, 12):
            wrapped(torch.randn(2, size, 3)).sum().backward()
            with torch.no_grad():
                wrapped(torch.randn(2, size, 3))
    assert seen.report.totals["compiles"] == 0
    assert wrapped.counts.by_bucket.keys() == {8, 16}


def test_warmup_leaves_gradients_buffers_and_random_state_unchanged() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.BatchNorm1d(3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    wrapped = make(lambda x: model(x.flatten(0, 1)), out_dim=())
    wrapped.warmup(x := torch.randn(2, 5, 3))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    torch.set_rng_state(random)
    assert torch.equal(x, torch.randn(2, 5, 3))
    assert not wrapped.counts.by_bucket


def test_it_can_be_called_inside_a_full_graph() -> None:
    inner = make(double)

    @torch.compile(fullgraph=True, backend="eager", dynamic=True)
    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x + 1) - 1

    with torchtriage.watch() as seen:
        for size in (3, 5, 7, 12, 15):
            x = torch.randn(2, size)
            assert torch.equal(outer(x), (x + 1) * 2 - 1)
    assert seen.report.totals["compiles"] == 2       # one graph a bucket, here too
    x = torch.randn(2, 8)
    assert torch.equal(outer(x), (x + 1) * 2 - 1)
    assert not inner.counts.by_bucket


def test_the_length_is_also_passed_inside_a_full_graph() -> None:
    inner = make(lambda x, n: x / n, length="n")
    outer = torch.compile(lambda x: inner(x), fullgraph=True, backend="eager", dynamic=True)
    for size in (5, 6):
        x = torch.randn(2, size)
        torch.testing.assert_close(outer(x), x / size)


def test_two_dimensions_take_two_wrappers() -> None:
    wrapped = bucketed(make(double), dim=0, sizes=(2, 4))
    with torchtriage.watch() as seen:
        for rows, columns in ((1, 5), (2, 7), (3, 8), (4, 12)):
            x = torch.randn(rows, columns)
            assert torch.equal(wrapped(x), x * 2)
    assert seen.report.totals["compiles"] == 3       # 2x8, 4x8, 4x16


def test_a_compiled_function_is_called_unchanged() -> None:
    compiled = torch.compile(double, backend="eager", dynamic=False)
    wrapped = bucketed(compiled, dim=1, sizes=EDGES)
    with torchtriage.watch() as seen:
        wrapped(torch.randn(2, 5))
        wrapped(torch.randn(2, 6))
    assert seen.report.totals["compiles"] == 1
    with pytest.raises(TriageError, match="fullgraph was given for a function that is already compiled"):
        bucketed(compiled, dim=1, sizes=EDGES, fullgraph=True)


def test_gradients_flow_to_the_inputs_and_weights() -> None:
    model = Attention(is_causal=True)
    x = torch.randn(2, 5, 8, requires_grad=True)
    expected = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    found = torch.autograd.grad(make(model)(x).square().sum(), [x, *model.parameters()])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("fn", "arguments", "named"),
    [
        (normalised, (torch.randn(2, 5),), "result: greatest difference"),
        (Attention(is_causal=False), (torch.randn(2, 5, 8),), "gradient of qkv.weight"),
        (nn.BatchNorm1d(3), (torch.randn(5, 3),), "result: greatest difference"),
        (lambda x: x.sum() / x.shape[1], (torch.randn(2, 5),), "result: greatest difference"),
        (lambda x: x.mul_(2).sum(1), (torch.randn(2, 5),), "x after the call: greatest difference"),
        (
            lambda x: torch.ones(2, x.shape[1] + 1),
            (torch.randn(2, 5),),
            r"result: has the shape \(2, 9\), unpadded \(2, 6\)",
        ),
    ],
)
def test_padding_that_changes_the_result_is_detected(fn: Any, arguments: tuple[Any, ...], named: str) -> None:
    wrapped = make(fn, dim=0 if isinstance(fn, nn.BatchNorm1d) else 1)
    with pytest.raises(PaddingChangesResultError, match=named) as error:
        wrapped.check(*arguments)
    assert "padding 5 to 8 changes" in str(error.value)


@pytest.mark.parametrize(("fn", "arguments"), [
    (double, (torch.randn(2, 5),)),
    (Attention(is_causal=True), (torch.randn(2, 5, 8, requires_grad=True),)),
    (masked_mean, (torch.randn(2, 5, 3), torch.ones(2, 5))),
    (lambda x: x.masked_fill(x > 0, -torch.inf), (torch.randn(2, 5),)),
    (double, (torch.randn(2, 32),)),
])
def test_padding_that_changes_nothing_passes(fn: Any, arguments: tuple[Any, ...]) -> None:
    checked = make(fn).check(*arguments)
    assert "changes nothing: greatest difference" in repr(checked)
    assert checked.length > checked.size


def test_padding_that_changes_a_gradient_is_detected() -> None:
    """The result is right, but sqrt has no gradient at the 0 that was padded, and 0 * inf is NaN."""
    weight = torch.ones(1, requires_grad=True)
    wrapped = make(lambda x: (x * weight).sqrt())
    with pytest.raises(PaddingChangesResultError, match=r"gradient of tensor 0, \(1,\): greatest difference inf"):
        wrapped.check(torch.rand(2, 5) + 1)
    with torch.no_grad():
        wrapped.check(torch.rand(2, 5) + 1)


def test_random_numbers_are_named_as_the_cause() -> None:
    with pytest.raises(PaddingChangesResultError, match="also depends on the seed"):
        make(nn.Dropout()).check(torch.ones(2, 5))
    make(nn.Dropout().eval()).check(torch.ones(2, 5))


def test_tolerances_can_be_given() -> None:
    wrapped = make(lambda x: x + 1e-3 * x.shape[1])
    with pytest.raises(PaddingChangesResultError):
        wrapped.check(torch.ones(2, 5))
    wrapped.check(torch.ones(2, 5), atol=0.01)
    wrapped.check(torch.ones(2, 5), rtol=0.01)


def test_the_check_can_be_made_on_the_first_padded_call_of_a_bucket() -> None:
    calls = []

    def count(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape[1])
        return x

    wrapped = make(torch.compiler.disable(count), check="first")
    for size in (5, 6, 12):
        wrapped(torch.randn(2, size))
    assert calls == [5, 8, 8, 8, 12, 16, 16]
    with pytest.raises(PaddingChangesResultError):
        make(normalised, check="first")(torch.randn(2, 5))


def study_of(path: str, line: int, function: str) -> ShapeStudy:
    size = VaryingSize(path=path, line=line, function=function, source="L['x']", dim=1,
                       values={"5": 90, "6": 9, "30": 1}, num_values=3, num_calls=100)
    return ShapeStudy(
        command=("m.py",), unit="call", num_units=5, num_planned=5, policies=(), advice=Advice(), sizes=[size]
    )


def test_edges_come_from_a_histogram_or_a_recording(tmp_path: Path) -> None:
    assert make(double, sizes={5: 90, 6: 9, 30: 1}, num_buckets=2).edges == (6, 30)
    code = double.__code__
    (tmp_path / STUDY_FILE).write_text(json.dumps(study_of(code.co_filename, code.co_firstlineno, "double").to_dict()))
    assert make(double, sizes=str(tmp_path), num_buckets=2).edges == (6, 30)
    assert make(double, sizes=tmp_path, num_buckets=3, dim={"x": 1}).edges == (5, 6, 30)
    with pytest.raises(TriageError, match="counts from the end"):
        make(double, sizes=tmp_path, num_buckets=3, dim=-1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sizes": {5: 1}}, "num_buckets=4"),
        ({"sizes": ()}, "sizes="),
        ({"sizes": (0, 4)}, "sizes="),
        ({"num_buckets": 2}, "num_buckets=2"),
        ({"above": "pad"}, "above='pad'"),
        ({"check": "always"}, "check='always'"),
        ({"dynamic": True}, "dynamic=True was given"),
    ],
)
def test_invalid_arguments_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TriageError, match=said):
        make(double, **options)


def test_a_call_without_anything_to_pad_is_refused() -> None:
    with pytest.raises(TriageError, match=r"nothing to pad in dim=1: the call has x \(3,\)"):
        make(double)(torch.randn(3))
    with pytest.raises(TriageError, match=r"x is to be padded in dim 1, but has the shape \(3,\)"):
        make(double, args=("x",))(torch.randn(3))

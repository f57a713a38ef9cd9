"""Every path gives the same statistics, to 1e-6 of float64, on every kind of data."""

import math
import subprocess
import sys
import threading

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.unit.telemetry.counting import allocated, operations
from tests.unit.telemetry.reference import KINDS, SIZES, assert_exact, errors, sample, true_row
from torchtriage.errors import TriageError
from torchtriage.telemetry.statistics import aten as aten_statistics
from torchtriage.telemetry.statistics import native as kernel
from torchtriage.telemetry.statistics import plan as plans
from torchtriage.telemetry.statistics.aten import AtenPlan
from torchtriage.telemetry.statistics.columns import NUM_STATS, Stat, total, true_norm
from torchtriage.telemetry.statistics.plan import statistics

KERNEL = kernel.load()
PATHS = ["aten", *(KERNEL.isas if KERNEL else [])]
BITS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16, torch.float16: torch.int16}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_equal_those_of_float64(kind: str, path: str) -> None:
    tensors = [sample(kind, size) for size in SIZES]
    for tensor, row in zip(tensors, statistics(tensors, path=path), strict=True):
        assert_exact(row, true_row(tensor))


@pytest.mark.parametrize("path", PATHS)
def test_a_million_elements_are_as_exact_as_a_few(path: str) -> None:
    tensors = [sample(kind, 1_000_003) for kind in ("normal", "bf16", "mean 1e4", "NaN and Inf", "heavy tails")]
    for tensor, row in zip(tensors, statistics(tensors, path=path), strict=True):
        assert_exact(row, true_row(tensor))


@pytest.mark.parametrize("path", PATHS)
@given(data=st.data())
def test_statistics_of_arbitrary_bits_equal_those_of_float64(path: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(list(BITS)))
    width = torch.iinfo(BITS[dtype]).bits
    # Few distinct patterns, repeated and cut: chunks that are equal, mixed, odd, and of every length.
    patterns = data.draw(st.lists(st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1), min_size=1, max_size=20))
    length = data.draw(st.integers(0, 300) | st.sampled_from([4096, 8192, 8200, 16_384, 20_000, 40_000]))
    tensor = torch.tensor(patterns, dtype=BITS[dtype]).repeat(length // len(patterns) + 1)[:length].view(dtype)
    [row] = statistics([tensor], path=path)
    assert_exact(row, true_row(tensor))


@pytest.mark.parametrize("path", PATHS)
@given(limits=st.tuples(st.floats(0, 1e-3), st.floats(1e-3, 1e6)), dtype=st.sampled_from(list(BITS)))
def test_elements_at_a_limit_are_counted_as_in_double(
    path: str, limits: tuple[float, float], dtype: torch.dtype
) -> None:
    small, large = limits
    near = torch.tensor([small, large], dtype=torch.float64).to(dtype).view(BITS[dtype])
    tensor = torch.cat([near, near + 1, (near - 1).clamp(min=0)]).view(dtype)
    [row] = statistics([tensor], small=small, large=large, path=path)
    assert_exact(row, true_row(tensor, small, large))


@pytest.mark.parametrize("path", PATHS)
def test_counts_can_be_left_out(path: str) -> None:
    [row] = statistics([torch.tensor([0.0, 1e-9, 1e9])], small=0.0, large=math.inf, path=path)
    assert (row[Stat.NUM_SMALL], row[Stat.NUM_LARGE], row[Stat.NUM_ZERO]) == (0, 0, 1)


@pytest.mark.parametrize("path", PATHS)
def test_flush_to_zero_changes_nothing_and_is_restored(path: str) -> None:
    tensor = torch.tensor([0.0, 1e-40, -1e-42, 1e-39])
    truth = true_row(tensor)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    try:
        [row] = statistics([tensor], path=path)
        still_flushed = bool((torch.tensor([1e-40]) * 1.0 == 0).all())
    finally:
        torch.set_flush_denormal(False)
    assert still_flushed
    if path != "aten":      # torch's own operations do as they were told
        assert_exact(row, truth)


@pytest.mark.parametrize("path", PATHS)
def test_shapes_and_strides_do_not_matter(path: str) -> None:
    base = torch.randn(6, 8, 10)
    tensors = [
        base.transpose(0, 2), base[:, ::2], base[1:, :, 3], base[0, 0, 0], base[:0],
        base.permute(1, 2, 0)[:, :1], torch.randn(1).expand(7, 5),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.tensor(2.0), base[:, None, :, :1],
    ]
    for tensor, row in zip(tensors, statistics(tensors, path=path), strict=True):
        assert_exact(row, true_row(tensor))


@pytest.mark.parametrize("path", PATHS)
def test_parameters_that_require_gradients_are_read_and_unchanged(path: str) -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    [row] = statistics([parameter], path=path)
    assert row[Stat.MEAN] == 1
    assert parameter.requires_grad
    assert parameter.grad is None


def test_float8_uses_the_aten_path() -> None:
    tensor = torch.randn(300).to(torch.float8_e4m3fn)
    [row] = statistics([tensor])
    assert_exact(row, true_row(tensor))


def test_no_tensors_give_an_empty_table() -> None:
    assert statistics([]).shape == (0, NUM_STATS)


@pytest.mark.parametrize("path", PATHS)
def test_call_leaves_nothing_that_affects_the_next(path: str) -> None:
    first = statistics([torch.ones(3), torch.ones(4)], path=path)
    kept = first.copy()
    for tensors in (
        [torch.randn(9), torch.randn(2).half()],
        [torch.randn(4, 5).t(), torch.zeros(0)],
        [torch.randn(3), torch.randn(4)],
    ):
        for tensor, row in zip(tensors, statistics(tensors, path=path), strict=True):
            assert_exact(row, true_row(tensor))
    assert (first == kept).all()
    for name in ("encoder", "decoder"):
        with pytest.raises(TriageError, match=f"no statistics of {name}.bias"):
            statistics([torch.ones(1), torch.arange(2)], names=["weight", f"{name}.bias"], path=path)
    with pytest.raises(TriageError, match="expected 1 tensor, one per name, got 2"):
        statistics([torch.ones(1), torch.ones(1)], names=["weight"], path=path)


def test_threads_do_not_see_each_others_tensors() -> None:
    wrong = []

    def repeat(value: float) -> None:
        # While the first is read, others take their turn.
        tensors = [torch.full((1_000_000,), value), torch.full((3,), -value)]
        for _ in range(30):
            table = statistics(tensors)
            if table[:, Stat.MEAN].tolist() != [value, -value]:
                wrong.append(table)

    threads = [threading.Thread(target=repeat, args=(float(value),)) for value in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_few_plans_are_cached_and_none_with_buffers() -> None:
    for num in range(3 * plans.MAX_PLANS):
        statistics([torch.ones(2)] * num)
        statistics([torch.ones(2)] * num, path="aten")
    kept = plans._plans.values()
    assert 0 < len(kept) <= plans.MAX_PLANS
    assert not any(plan.holds_buffers for plan in kept)


REFUSED = {
    "sparse": (lambda: torch.eye(3).to_sparse(), "coalesce"),
    "complex": (lambda: torch.zeros(2, dtype=torch.complex64), "view_as_real"),
    "integers": (lambda: torch.arange(3), "floating-point"),
    "meta": (lambda: torch.zeros(3, device="meta"), "to_empty"),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", REFUSED)
def test_tensor_without_statistics_is_refused_by_name(kind: str, path: str) -> None:
    make, cure = REFUSED[kind]
    with pytest.raises(TriageError, match=f"no statistics of decoder.bias: it .*{cure}"):
        statistics([torch.ones(1), make()], names=["encoder.bias", "decoder.bias"], path=path)


def test_a_dtensor_is_refused_before_its_address_is_read() -> None:
    program = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torchtriage.telemetry.statistics.plan import statistics
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
full = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (1,)), [Shard(0)])
assert full.data_ptr() == 0
try:
    statistics([full], names=["head.weight"])
except Exception as error:
    print(error)
print(statistics([full.to_local()])[0, 1])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.stdout.splitlines() == [
        "no statistics of head.weight: it is a DTensor, of which this process holds a part; "
        "give to_local(), or use Monitor for the full tensor",
        "1.0",
    ], done.stderr


def test_true_norm_includes_non_finite_elements() -> None:
    nan, inf, plain = statistics(
        [torch.tensor([3.0, math.nan, math.inf]), torch.tensor([3.0, -math.inf]), torch.tensor([3.0, 4.0])]
    )
    assert math.isnan(true_norm(nan))
    assert true_norm(inf) == math.inf
    assert nan[Stat.NORM] == inf[Stat.NORM] == 3
    assert true_norm(plain) == 5


@given(
    values=st.lists(st.floats(width=32), max_size=60), cuts=st.lists(st.integers(0, 60), max_size=4),
)
def test_total_of_parts_equals_the_row_of_the_full_tensor(values: list[float], cuts: list[int]) -> None:
    full = torch.tensor(values, dtype=torch.float32)
    parts = full.tensor_split(sorted(min(cut, len(values)) for cut in cuts))
    assert_exact(total(statistics(parts)), true_row(full), limit=2e-6)


def test_the_total_of_huge_doubles_does_not_overflow() -> None:
    parts = [torch.full((3,), 1e200, dtype=torch.float64), torch.full((1,), -1e200, dtype=torch.float64)]
    assert_exact(total(statistics(parts)), true_row(torch.cat(parts)))
    assert total(np.zeros((0, NUM_STATS))).tolist() == [0.0] * NUM_STATS


# The ATen path, which is what a GPU runs.


@pytest.mark.parametrize(
    "sizes", [[64] * 148, [64] * 1000, [1, 300, 0, 5000] * 37], ids=["148 tensors", "1000 tensors", "unequal"]
)
def test_number_of_operations_is_independent_of_the_number_of_tensors(sizes: list[int]) -> None:
    few, many = [torch.randn(64)], [torch.randn(size) for size in sizes]
    names = []
    for tensors in (few, many):
        plan = AtenPlan(tensors)
        plan.run(tensors)
        with operations() as seen:
            plan.run(tensors)
        names.append(seen.names)
        assert seen.num_bytes < 1000, "a buffer is made at every step"
    assert names[0] == names[1]
    assert len(names[0]) < 150
    assert not any("_local_scalar_dense" in name or "item" in name for name in names[1])


def test_each_dtype_adds_a_fixed_number_of_operations() -> None:
    def count(tensors: list[torch.Tensor]) -> int:
        plan = AtenPlan(tensors)
        with operations() as seen:
            plan.run(tensors)
        return len(seen.names)

    one, other = [torch.randn(9)] * 20, [torch.randn(9).half()] * 20
    assert count(one + other) == count(one) + count(other)


def test_tensor_larger_than_the_buffer_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aten_statistics, "CPU_CHUNK", 1024)
    tensors = [torch.randn(size) * 10.0**i for i, size in enumerate((5000, 3, 1024, 1025))]
    tensors += [torch.randn(60, 50).t(), torch.randn(100, 100)[:, ::2]]
    table = AtenPlan(tensors).run(tensors).numpy()
    for tensor, row in zip(tensors, table, strict=True):
        assert_exact(row, true_row(tensor))
    assert allocated(lambda: AtenPlan([tensors[0]])) < 200_000      # 12 bytes an element would be more than the buffers


@pytest.mark.parametrize("kind", ["normal", "bf16", "fp16 x 1000", "1e25", "mean 1e4", "NaN and Inf", "one outlier"])
def test_device_without_double_is_close(kind: str) -> None:
    tensors = [sample(kind, size) for size in SIZES]
    table = AtenPlan(tensors, sums=torch.float32).run(tensors).numpy()
    for tensor, row in zip(tensors, table, strict=True):
        truth = true_row(tensor)
        assert (row[Stat.MIN :] == truth[Stat.MIN :].astype(np.float32)).all()
        assert max(errors(row, truth).values()) < 1e-5

"""A plan follows gradients that appear, disappear, move and change, and never reads foreign memory."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.unit.telemetry.reference import assert_exact, true_row
from torchtriage.errors import TriageError
from torchtriage.telemetry.statistics import native as kernel
from torchtriage.telemetry.statistics.columns import NUM_STATS, Stat
from torchtriage.telemetry.statistics.plan import ParameterPlan, TensorPlan, statistics

KERNEL = kernel.load()
PATHS = ["aten", *(KERNEL.isas if KERNEL else [])]


def parameters(*sizes: int) -> list[torch.nn.Parameter]:
    made = [torch.nn.Parameter(torch.randn(size)) for size in sizes]
    for parameter in made:
        parameter.grad = torch.randn_like(parameter)
    return made


def assert_follows(plan: ParameterPlan, tensors: list[torch.Tensor | None]) -> None:
    table = plan.step()
    assert len(table) == len(tensors)
    for row, tensor in zip(table, tensors, strict=True):
        if tensor is None:
            assert not row.any()
        else:
            assert_exact(row, true_row(tensor))


@pytest.mark.parametrize("path", PATHS)
def test_rows_of_gradients_come_before_rows_of_weights(path: str) -> None:
    ps = parameters(3, 50)
    assert_follows(ParameterPlan(ps, weights=True, path=path), [ps[0].grad, ps[1].grad, *ps])
    assert_follows(ParameterPlan(ps, path=path), [p.grad for p in ps])
    assert_follows(ParameterPlan(ps, gradients=False, weights=True, path=path), list(ps))


@pytest.mark.parametrize("path", PATHS)
def test_plan_follows_changes_of_gradients(path: str) -> None:
    ps = parameters(3, 50, 8)
    plan = ParameterPlan(ps, path=path)
    assert_follows(plan, [p.grad for p in ps])
    for p in ps:
        p.grad = torch.randn_like(p)                     # allocated again
    assert_follows(plan, [p.grad for p in ps])
    ps[1].grad = None                                    # set to None
    assert_follows(plan, [ps[0].grad, None, ps[2].grad])
    ps[0].grad.mul_(7)                                   # changed in place
    assert_follows(plan, [ps[0].grad, None, ps[2].grad])
    ps[1].grad = torch.ones(50)                          # back again
    assert_follows(plan, [p.grad for p in ps])
    for p in ps:
        p.grad = None
    assert_follows(plan, [None, None, None])


@pytest.mark.parametrize("path", PATHS)
def test_a_plan_follows_a_model_that_changes_dtype_and_shape(path: str) -> None:
    model = torch.nn.Linear(4, 5)
    ps = list(model.parameters())
    plan = ParameterPlan(ps, weights=True, path=path)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        model.to(dtype)
        model.zero_grad()
        model(torch.randn(2, 4, dtype=dtype)).sum().backward()
        assert_follows(plan, [*(p.grad for p in ps), *ps])
    for size in (9, 4):                                  # resized in place
        ps[0].data, ps[0].grad = torch.randn(size, 9), None
        ps[0].grad = torch.randn(size, 9)
        assert_follows(plan, [*(p.grad for p in ps), *ps])


@pytest.mark.parametrize("path", PATHS)
def test_a_plan_follows_strides(path: str) -> None:
    p = torch.nn.Parameter(torch.randn(20, 30))
    plan = ParameterPlan([p], path=path)
    for gradient in (
        torch.randn(30, 20).t(),
        torch.randn(40, 30)[::2],
        torch.randn(20, 1).expand(20, 30),
        torch.randn(1).expand(20, 30),
    ):
        p.grad = gradient                                # each is as little contiguous as the one before
        assert_follows(plan, [gradient])


@pytest.mark.parametrize("path", PATHS)
def test_lazily_negated_gradient_is_read_with_its_own_sign(path: str) -> None:
    ps = parameters(3, 50)
    plan = ParameterPlan(ps, path=path)
    assert_follows(plan, [p.grad for p in ps])
    # As the imaginary part of a conjugate is: same size, dtype and stride.
    ps[1].grad = torch._neg_view(torch.rand(50) + 1)
    assert_follows(plan, [p.grad for p in ps])
    assert plan.step()[1, Stat.MAX] < 0
    ps[1].grad = torch.rand(50)
    assert_follows(plan, [p.grad for p in ps])


@pytest.mark.skipif(KERNEL is None, reason="the native library was not built")
def test_fill_by_address_works_only_if_no_tensor_has_changed() -> None:
    tensors, plan, out_PS = [torch.randn(3), torch.randn(50)], TensorPlan(["a", "b"]), np.zeros((2, NUM_STATS))
    address = out_PS.ctypes.data
    assert not plan.fill(tensors, address)              # nothing is known of them yet
    plan.run(tensors)
    assert plan.fill(tensors, address)
    for row, tensor in zip(out_PS, tensors, strict=True):
        assert_exact(row, true_row(tensor))
    assert plan.fill(tensors, address, limits=False)    # all but what is small or large
    for row, tensor in zip(out_PS, tensors, strict=True):
        true = true_row(tensor)
        true[[Stat.NUM_SMALL, Stat.NUM_LARGE]] = 0
        assert_exact(row, true)
    out_PS[:] = 7
    for changed in (None, tensors[1].double(), torch.randn(51), torch.randn(100)[::2]):
        assert not plan.fill([tensors[0], changed], address)
    assert (out_PS == 7).all()


@pytest.mark.parametrize("path", PATHS)
def test_gradient_that_becomes_sparse_is_refused_until_it_is_dense_again(path: str) -> None:
    p = torch.nn.Parameter(torch.randn(5, 2))
    plan, lenient = (
        ParameterPlan([p], names=["embedding.weight"], path=path),
        ParameterPlan([p], names=["embedding.weight"], path=path, strict=False),
    )
    p.grad = torch.randn(5, 2)
    assert_follows(plan, [p.grad])
    assert_follows(lenient, [p.grad])
    p.grad = torch.randn(5, 2).to_sparse()
    for _ in range(2):
        with pytest.raises(
            TriageError, match=r"no statistics of the gradient of embedding.weight: it has layout torch.sparse_coo"
        ):
            plan.step()
        assert_follows(lenient, [None])
        assert "sparse" in lenient.refused["the gradient of embedding.weight"]
    p.grad = torch.randn(5, 2)
    assert_follows(plan, [p.grad])
    assert_follows(lenient, [p.grad])
    assert not lenient.refused


def test_freed_memory_is_refused_by_name() -> None:
    ps = parameters(3, 4)
    plan = ParameterPlan(ps, names=["a", "b"], weights=True)
    plan.step()
    ps[1].grad.untyped_storage().resize_(0)              # as FSDP frees what it does not need
    with pytest.raises(TriageError, match="no statistics of the gradient of b: its memory was freed"):
        plan.step()


def test_run_overwrites_its_own_array_or_the_given_one() -> None:
    ps = parameters(3, 4)
    plan = ParameterPlan(ps)
    first = plan.step()
    kept = first.copy()
    ps[0].grad.zero_()
    assert plan.step() is first
    assert first[0, Stat.NORM] == 0 != kept[0, Stat.NORM]
    ring = np.full((5, 2, NUM_STATS), -1.0)
    given = plan.step(ring[3])
    assert given is not first
    assert (ring[3] == first).all()
    assert (ring[[0, 1, 2, 4]] == -1).all()
    ps[0].grad = None
    plan.step(ring[2])
    assert not ring[2, 0].any()
    assert (ring[2, 1] == first[1]).all()


@pytest.mark.parametrize(
    "out", [np.zeros((3, NUM_STATS)), np.zeros((2, NUM_STATS), dtype=np.float32), np.zeros((2, 2 * NUM_STATS))[:, ::2]],
    ids=["shape", "dtype", "strides"],
)
def test_array_that_does_not_fit_is_refused(out: np.ndarray) -> None:
    with pytest.raises(TriageError, match=r"expected a contiguous float64 array of shape \(2, 12\), got"):
        ParameterPlan(parameters(3, 4)).step(out)


def test_numbers_of_names_and_tensors_must_agree() -> None:
    with pytest.raises(TriageError, match="got 1 name for 2 parameters"):
        ParameterPlan(parameters(3, 4), names=["a"])
    with pytest.raises(TriageError, match="expected 2 tensors, one per name, got 1"):
        TensorPlan(["a", "b"]).run([torch.ones(1)])


def test_no_parameters_give_an_empty_table() -> None:
    assert ParameterPlan([], weights=True).step().shape == (0, NUM_STATS)


def test_unknown_path_is_refused_with_the_list_of_paths() -> None:
    with pytest.raises(TriageError, match="no path 'sse9' on this machine; it has: aten"):
        ParameterPlan([], path="sse9")


def test_without_the_native_library_the_aten_path_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "load", lambda: None)
    tensor = torch.randn(100)
    assert_exact(statistics([tensor])[0], true_row(tensor))
    assert kernel.described() == {"kernel": "", "why_not": "the native library was not built (no C compiler)"}


def test_tensor_subclass_without_own_memory_is_refused_by_name() -> None:
    class Elsewhere(torch.Tensor):
        @classmethod
        def __torch_dispatch__(
            cls, function: object, types: object, args: object = (), kwargs: object = None
        ) -> object:
            return NotImplemented

    tensor = torch.Tensor._make_wrapper_subclass(Elsewhere, (3,))
    assert tensor.data_ptr() == 0
    with pytest.raises(
        TriageError, match="no statistics of w: it is a Elsewhere, whose elements only its own operations can read"
    ):
        statistics([tensor], names=["w"])


@pytest.mark.skipif(KERNEL is None or sys.platform != "linux", reason="needs the kernel and mprotect")
def test_no_byte_beyond_a_tensor_is_read() -> None:
    program = """
import ctypes, mmap, sys, torch
from torchtriage.telemetry.statistics.plan import statistics
page = mmap.PAGESIZE
memory = mmap.mmap(-1, 3 * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None)
for beyond in (start, start + 2 * page):
    assert libc.mprotect(ctypes.c_void_p(beyond), page, 0) == 0
for path in sys.argv[1:]:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        size = torch.empty((), dtype=dtype).element_size()
        for n in [*range(1, 140), page // size]:
            for offset in (page, 2 * page - n * size):
                tensor = torch.frombuffer(memory, dtype=dtype, count=n, offset=offset)
                for value in (1.0, float("nan"), 1e-40, -3.0):
                    tensor.fill_(value)
                    tensor[n // 2] = 2.0
                    assert statistics([tensor], path=path)[0, -1] == n
print("ok")
"""
    done = subprocess.run([sys.executable, "-c", program, *PATHS[1:]], capture_output=True, text=True, timeout=600)
    assert done.stdout == "ok\n", f"status {done.returncode}: {done.stderr[-2000:]}"


# Three threads share tensors of several sizes, in this process and in a child of it, where torch's own threads are not.
TEAM_PROGRAM = """
import os
import torch
from torchtriage.telemetry.statistics import native as kernel
from torchtriage.telemetry.statistics.plan import TEAM_BYTES, TensorPlan

torch.set_num_threads(3)
tensors = [torch.randn(n) for n in (TEAM_BYTES // 4, 3, 0, 70_000, 500_001, 1)]
names = [str(i) for i in range(len(tensors))]
alone, team = TensorPlan(names), TensorPlan(names, in_team=True)
sizes = []
size, found = kernel.load().team_size, kernel.load()
found.team_size = lambda: sizes.append(size()) or sizes[-1]
for _ in range(20):
    assert (alone.run(tensors) == team.run(tensors)).all()
small = TensorPlan(names[1:4], in_team=True)
small.run(tensors[1:4])
assert sizes == [3 if found.team else 1] * 20, sizes
child = os.fork()
if not child:
    same = (alone.run(tensors) == team.run(tensors)).all()
    os._exit(0 if same and sizes[-1] == 1 else 1)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(KERNEL is None or not hasattr(os, "fork"), reason="needs the kernel and fork")
def test_threads_do_not_change_results_and_a_forked_child_uses_none() -> None:
    done = subprocess.run([sys.executable, "-c", TEAM_PROGRAM], capture_output=True, text=True, timeout=600)
    assert done.stdout == "0\n", f"status {done.returncode}: {done.stderr[-2000:]}"

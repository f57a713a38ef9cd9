"""Statistics inside a compiled function: one operator that writes a row of a ring.   L rows, P tensors, S statistics.

    ring_LPS = new_ring(parameters, length=64)
    step = torch.zeros((), dtype=torch.int64, device=ring_LPS.device)

    @torch.compile(fullgraph=True)
    def train_step(...):
        ...
        record(gradients, ring_LPS, step)       # row step % 64
        step.add_(1)

The step is a tensor, so that a new step is not a new graph; it is never read back from a device other than the CPU.
"""

from collections.abc import Sequence

import torch

from torchtriage.errors import TriageError
from torchtriage.telemetry.statistics.aten import AtenPlan, accumulator
from torchtriage.telemetry.statistics.columns import LARGE, NUM_STATS, SMALL
from torchtriage.telemetry.statistics.plan import TensorPlan

MAX_PLANS = 32      # plans that are kept: one a ring, and on a device one a ring and kinds of tensors
_plans: dict[tuple[object, ...], TensorPlan | AtenPlan] = {}


def new_ring(tensors: Sequence[torch.Tensor], *, length: int) -> torch.Tensor:
    """[L, P, S], zeros, on the device of the tensors."""
    if length < 1:
        raise TriageError(f"a ring has at least one row, got length={length}")
    device = tensors[0].device if tensors else torch.device("cpu")
    return torch.zeros(length, len(tensors), NUM_STATS, dtype=accumulator(device), device=device)


def record(
    tensors: Sequence[torch.Tensor], ring_LPS: torch.Tensor, step: torch.Tensor, *, small: float = SMALL, large: float = LARGE,
) -> None:
    """Write the statistics of the tensors to row `step % L`. Works the same in a compiled function and outside."""
    tensor_statistics(list(tensors), ring_LPS, step, small, large)


def _tensor_statistics(tensors: Sequence[torch.Tensor], ring: torch.Tensor, step: torch.Tensor, small: float, large: float) -> None:
    _check(tensors, ring, step, small, large)
    if not tensors:
        return
    if ring.is_cpu:
        ring_LPS = ring.numpy()
        out_PS = ring_LPS[int(step) % len(ring_LPS)]      # a CPU tensor: there is nothing to wait for
        _tensor_plan(tensors, ring, small, large).run(list(tensors), out_PS)
    else:
        write_on_device(tensors, ring, step, small, large)


def write_on_device(tensors: Sequence[torch.Tensor], ring_LPS: torch.Tensor, step: torch.Tensor, small: float, large: float) -> None:
    """The row is chosen by the device itself."""
    table_PS = _aten_plan(tensors, ring_LPS, small, large).run(tensors)
    ring_LPS.index_copy_(0, torch.remainder(step, len(ring_LPS)).reshape(1), table_PS.unsqueeze(0))


def _tensor_plan(tensors: Sequence[torch.Tensor], ring: torch.Tensor, small: float, large: float) -> TensorPlan:
    key = (ring.data_ptr(), len(tensors), small, large)
    plan = _plans.get(key)
    if not isinstance(plan, TensorPlan):
        plan = TensorPlan([f"tensor {i}" for i in range(len(tensors))], small=small, large=large)
        _keep(key, plan)
    return plan


def _aten_plan(tensors: Sequence[torch.Tensor], ring: torch.Tensor, small: float, large: float) -> AtenPlan:
    key = (ring.data_ptr(), ring.device, small, large, *((t.shape, t.dtype) for t in tensors))
    plan = _plans.get(key)
    if not isinstance(plan, AtenPlan):
        plan = AtenPlan(tensors, small=small, large=large)
        _keep(key, plan)
    return plan


def _keep(key: tuple[object, ...], plan: TensorPlan | AtenPlan) -> None:
    while len(_plans) >= MAX_PLANS:
        del _plans[next(iter(_plans))]
    _plans[key] = plan


def _check(tensors: Sequence[torch.Tensor], ring: torch.Tensor, step: torch.Tensor, small: float, large: float) -> None:
    """What can be known without data: also the fake implementation, so that a mistake is told while compiling."""
    shape, dtype = (len(tensors), NUM_STATS), accumulator(ring.device)
    if ring.dim() != 3 or ring.shape[1:] != shape or ring.dtype != dtype or not ring.is_contiguous() or not len(ring):
        raise TriageError(
            f"a contiguous ring of shape (length, {shape[0]}, {shape[1]}) and {dtype} is expected for {shape[0]} tensors, "
            f"found {tuple(ring.shape)} and {ring.dtype}; make it with new_ring(tensors, length=...)"
        )
    if step.numel() != 1 or step.is_floating_point() or step.device != ring.device:
        raise TriageError(
            f"the step is expected as an integer tensor of one element on {ring.device}, found shape {tuple(step.shape)}, {step.dtype} on "
            f"{step.device}; make it with torch.zeros((), dtype=torch.int64, device={str(ring.device)!r})"
        )
    for index, tensor in enumerate(tensors):
        if tensor.device != ring.device:
            raise TriageError(f"tensor {index} is on {tensor.device}, the ring on {ring.device}; make one ring a device")


tensor_statistics = torch.library.custom_op("torchtriage::tensor_statistics", _tensor_statistics, mutates_args=("ring",))
tensor_statistics.register_fake(_check)

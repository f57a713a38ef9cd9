"""Statistics inside a compiled function: one operator writes a row of a ring.   L rows, P tensors, S statistics.

    from torchtriage.telemetry import Stat, new_statistics_ring, record_statistics

    ring_LPS = new_statistics_ring(list(weights.values()), length=64)
    step = torch.zeros((), dtype=torch.int64, device=ring_LPS.device)

    @torch.compile(fullgraph=True)
    def train_step(weights, x, y):
        gradients = torch.func.grad(loss_of)(weights, x, y)
        record_statistics(list(gradients.values()), ring_LPS, step)     # row step % 64
        step.add_(1)
        ...

    norms_LP = ring_LPS[:, :, Stat.NORM]        # read it whenever it suits the program

The call is part of the graph: no graph break, no recompile, no host read. The step is a tensor, because a Python number
that changes would compile a new graph. examples/statistics_in_graph.py is a complete program.
"""

from collections.abc import Sequence

import torch

from torchtriage.errors import TriageError
from torchtriage.telemetry.statistics.aten import AtenPlan, accumulator
from torchtriage.telemetry.statistics.columns import LARGE, NUM_STATS, SMALL
from torchtriage.telemetry.statistics.plan import TensorPlan
from torchtriage.text import counted

MAX_PLANS = 32      # one per ring on the CPU; one per ring and kinds of tensors on a device
_plans: dict[tuple[object, ...], TensorPlan | AtenPlan] = {}


def new_statistics_ring(tensors: Sequence[torch.Tensor], *, length: int) -> torch.Tensor:
    """A ring for `record_statistics`: zeros [length, number of tensors, len(Stat)] on the device of the tensors.

    It is float64, or float32 on MPS, which has no double.
    """
    if length < 1:
        raise TriageError(f"a ring must have at least one row, got length={length}")
    device = tensors[0].device if tensors else torch.device("cpu")
    return torch.zeros(length, len(tensors), NUM_STATS, dtype=accumulator(device), device=device)


def record_statistics(
    tensors: Sequence[torch.Tensor], ring_LPS: torch.Tensor, step: torch.Tensor, *,
    small: float = SMALL, large: float = LARGE,
) -> None:
    """Write the statistics of the tensors, columns as in `Stat`, to row `step % length` of a ring.

    Works in a function compiled with fullgraph=True, without a graph break, and equally outside of one. `ring_LPS` is
    made by `new_statistics_ring`; `step` is an integer tensor with one element on the same device. Elements below
    `small` and above `large` in magnitude are counted.
    """
    tensor_statistics(list(tensors), ring_LPS, step, small, large)


def _tensor_statistics(
    tensors: Sequence[torch.Tensor], ring: torch.Tensor, step: torch.Tensor, small: float, large: float,
) -> None:
    _check(tensors, ring, step, small, large)
    if not tensors:
        return
    if ring.is_cpu:
        ring_LPS = ring.numpy()
        out_PS = ring_LPS[int(step) % len(ring_LPS)]      # a CPU tensor, so this does not wait
        _tensor_plan(tensors, ring, small, large).run(list(tensors), out_PS)
    else:
        write_on_device(tensors, ring, step, small, large)


def write_on_device(
    tensors: Sequence[torch.Tensor], ring_LPS: torch.Tensor, step: torch.Tensor, small: float, large: float,
) -> None:
    """Write the row without reading the step back: the device selects it."""
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


def _check(
    tensors: Sequence[torch.Tensor], ring: torch.Tensor, step: torch.Tensor, small: float, large: float,
) -> None:
    """Checks that need no data. Also the fake implementation, so that a mistake is reported during compilation."""
    shape, dtype = (len(tensors), NUM_STATS), accumulator(ring.device)
    if ring.dim() != 3 or ring.shape[1:] != shape or ring.dtype != dtype or not ring.is_contiguous() or not len(ring):
        raise TriageError(
            f"the ring for {counted(shape[0], 'tensor')} must be contiguous, of shape (length, {shape[0]}, {shape[1]}) "
            f"and {dtype}, got {tuple(ring.shape)} and {ring.dtype}; "
            "make it with new_statistics_ring(tensors, length=...)"
        )
    if step.numel() != 1 or step.is_floating_point() or step.device != ring.device:
        raise TriageError(
            f"the step must be an integer tensor with one element on {ring.device}, got shape {tuple(step.shape)}, "
            f"{step.dtype} on {step.device}; make it with "
            f"torch.zeros((), dtype=torch.int64, device={str(ring.device)!r})"
        )
    for index, tensor in enumerate(tensors):
        if tensor.device != ring.device:
            raise TriageError(
                f"tensor {index} is on {tensor.device}, the ring on {ring.device}; make one ring per device"
            )


tensor_statistics = torch.library.custom_op(
    "torchtriage::tensor_statistics", _tensor_statistics, mutates_args=("ring",),
)
tensor_statistics.register_fake(_check)

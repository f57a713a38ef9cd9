"""The steps of an LSTM in native code, as operators with gradients that torch.compile does not decompose.

Shape suffixes: T steps, B sequences, H hidden units, 4H the gates i, f, g, o. Arguments of operators are, in the order
of native/lstm.cpp:

    z_TB4H      input contributions to the gates            gates_TB4H  after their sigmoid or tanh  } kept for
    keep_TB     factor of the state                         cells_TBH   every c                      } the backward
    h_BH, c_BH  the state before the first step             w_4HH       recurrent weights
"""

import ctypes
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchtriage.telemetry.statistics.native import shared_library


class LSTMKernel:
    """The functions of the shared library, and the instruction sets that this machine supports."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._forward, self._backward = library.lstm_forward, library.lstm_backward
        for function in (self._forward, self._backward):
            function.argtypes = [ctypes.c_int, *[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 9]
        library.lstm_isa.restype = ctypes.c_char_p
        self.isas = [library.lstm_isa(i).decode() for i in range(library.lstm_widest() + 1)]  # the widest last
        self.isa = len(self.isas) - 1

    def forward(self, sizes: Sequence[int], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self._run(self._forward, sizes, inputs, outputs)

    def backward(self, sizes: Sequence[int], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self._run(self._backward, sizes, inputs, outputs)

    def _run(self, function: Any, sizes: Sequence[int], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        contiguous = [tensor.contiguous() for tensor in inputs]  # keeps copies alive until the call is over
        if function(self.isa, *sizes, *[tensor.data_ptr() for tensor in (*contiguous, *outputs)]):
            raise MemoryError(f"no memory for the packed weights of an LSTM of {sizes[2]} hidden units")


def _load() -> LSTMKernel | None:
    try:
        return LSTMKernel(shared_library("_lstm"))
    except (OSError, AttributeError):
        return None


KERNEL = _load()  # None if it was not built, or not for this machine


def _forward(z: Tensor, keep: Tensor, h: Tensor, c: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    assert KERNEL is not None
    outputs = _forward_outputs(z, keep, h, c, w)
    KERNEL.forward(outputs[0].shape, (z, keep, h, c, w), outputs)
    return outputs


def _forward_outputs(z: Tensor, keep: Tensor, h: Tensor, c: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(y_TBH, the last c_BH, gates_TB4H, cells_TBH), uninitialized.

    The inputs are checked, since native code would read past the end of one with a wrong shape.
    """
    T, (B, H), inputs = len(z), h.shape, (z, keep, h, c, w)
    fits = T > 0 and [t.shape for t in inputs] == [(T, B, 4 * H), (T, B), (B, H), (B, H), (4 * H, H)]
    if not fits or any(t.dtype != torch.float32 for t in inputs):
        raise ValueError(
            "lstm_forward expects float32 of [T, B, 4H], [T, B], [B, H], [B, H] and [4H, H] with T > 0, found "
            f"{[(tuple(t.shape), t.dtype) for t in inputs]}; call torchtriage.rl.policy.lstm.lstm, which prepares them"
        )
    return z.new_empty(T, B, H), z.new_empty(B, H), z.new_empty(T, B, 4 * H), z.new_empty(T, B, H)


def _backward(
    grad_y: Tensor,
    grad_c: Tensor,
    keep: Tensor,
    c: Tensor,
    w: Tensor,
    gates: Tensor,
    cells: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    assert KERNEL is not None
    _, grad_h_first, grad_c_first = outputs = _backward_outputs(grad_y, grad_c, keep, c, w, gates, cells)
    grad_h_first.zero_()  # the kernel carries these two from the last step to the first
    grad_c_first.copy_(grad_c)
    KERNEL.backward(grad_y.shape, (grad_y, keep, c, w, gates, cells), outputs)
    return outputs


def _backward_outputs(
    grad_y: Tensor,
    grad_c: Tensor,
    keep: Tensor,
    c: Tensor,
    w: Tensor,
    gates: Tensor,
    cells: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_z_TB4H, grad_h_BH, grad_c_BH), uninitialized."""
    return gates.new_empty(gates.shape), c.new_empty(c.shape), c.new_empty(c.shape)


_OPS = torch.library.Library("torchtriage", "FRAGMENT")
for _schema, _native, _outputs in (
    (
        "lstm_forward(Tensor z, Tensor keep, Tensor h, Tensor c, Tensor w) -> (Tensor, Tensor, Tensor, Tensor)",
        _forward,
        _forward_outputs,
    ),
    (
        (
            "lstm_backward(Tensor grad_y, Tensor grad_c, Tensor keep, Tensor c, Tensor w, Tensor gates, Tensor cells)"
            " -> (Tensor, Tensor, Tensor)"
        ),
        _backward,
        _backward_outputs,
    ),
):
    _name = _OPS.define(_schema)
    _OPS.impl(_name, _native, "CPU")
    torch.library.register_fake(f"torchtriage::{_name}", _outputs, lib=_OPS)


class RecurrenceBackward(torch.autograd.Function):  # type: ignore[misc]
    """The gradients of a Recurrence, which cannot be differentiated again."""

    @staticmethod
    def forward(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor, Tensor] = torch.ops.torchtriage.lstm_backward(*inputs)
        return outputs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(_ctx: Any, *_: Tensor) -> tuple[Tensor, ...]:
        raise RuntimeError(
            "the native LSTM has only first derivatives, but a second one was requested; use float64, which torch"
            " computes"
        )


class Recurrence(torch.autograd.Function):  # type: ignore[misc]
    """(z_TB4H, keep_TB, h_BH, c_BH, w_4HH) -> (y_TBH, the last c_BH, and two tensors for the backward).

    It works with torch.autograd.grad and torch.func.grad, eager and compiled. A custom_op with `register_autograd` does
    not: torch.func.grad refuses it (torch 2.13). A second derivative is an error, but within a compiled function it is
    silently 0.
    """

    @staticmethod
    def forward(z: Tensor, keep: Tensor, h: Tensor, c: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor, Tensor, Tensor] = torch.ops.torchtriage.lstm_forward(z, keep, h, c, w)
        return outputs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        _, keep, h, c, w = inputs
        y, _, gates, cells = output
        ctx.save_for_backward(keep, h, c, w, y, gates, cells)
        ctx.mark_non_differentiable(gates, cells)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor | None, grad_c: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        keep, h, c, w, y, gates, cells = ctx.saved_tensors
        grad_y = torch.zeros_like(y) if grad_y is None else grad_y
        grad_c = torch.zeros_like(c) if grad_c is None else grad_c
        # Dynamo cannot trace a Function within the backward of another.
        backward = torch.ops.torchtriage.lstm_backward if torch.compiler.is_compiling() else RecurrenceBackward.apply
        grad_z_TB4H, grad_h, grad_c = backward(grad_y, grad_c, keep, c, w, gates, cells)
        h_before_TBH = torch.cat([h.unsqueeze(0), y[:-1]]) * keep.unsqueeze(2)
        grad_w = grad_z_TB4H.flatten(0, 1).t() @ h_before_TBH.flatten(0, 1)
        return grad_z_TB4H, None, grad_h, grad_c, grad_w


for _function in (Recurrence, RecurrenceBackward):
    # Otherwise `apply` computes the signature in every call, which takes 40 us.
    _function.forward.__signature__ = inspect.signature(_function.forward)  # type: ignore[union-attr]

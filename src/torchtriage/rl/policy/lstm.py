"""A one-layer LSTM over sequences in which episodes may begin; compiles to one operator for any sequence length.

    y_TBH, h_BH, c_BH = lstm(x_TBI, keep_TB, h_BH, c_BH, w_ih_4HI, w_hh_4HH, b_4H)

Shape suffixes: T steps, B sequences, I inputs, H hidden units, 4H the gates i, f, g, o in the order of nn.LSTM.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchtriage.rl.policy import lstm_native


def lstm(
    x_TBI: Tensor,
    keep_TB: Tensor,
    h_BH: Tensor,
    c_BH: Tensor,
    w_ih_4HI: Tensor,
    w_hh_4HH: Tensor,
    b_4H: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """All outputs, and the state after the last step.

    The state is multiplied by keep_TB[t] before step t: 0 where an episode begins. All inputs but `keep` have
    gradients, by torch.autograd.grad and torch.func.grad, eager and compiled. In float32 on a CPU there are no second
    derivatives: asking for one is an error, and in a compiled function it is silently 0.
    """
    _check(x_TBI, keep_TB, h_BH, c_BH, w_ih_4HI, w_hh_4HH, b_4H)
    # A single step is faster without the operator: the call alone costs more than torch's operations, which are fused
    # when compiled.
    is_native = (
        len(x_TBI) > 1
        and lstm_native.KERNEL is not None
        and x_TBI.dtype == torch.float32
        and x_TBI.device.type == "cpu"
    )
    recur = _by_native if is_native else _by_torch
    return recur(x_TBI, keep_TB.detach().to(x_TBI.dtype), h_BH, c_BH, w_ih_4HI, w_hh_4HH, b_4H)


class Lstm(nn.Module):  # type: ignore[misc]  # torch is untyped for mypy here
    """`lstm` with its own parameters.

    They are named and initialized as those of nn.LSTM(input_size, hidden_size), so state dicts are interchangeable.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_ih_l0 = nn.Parameter(torch.empty(4 * hidden_size, input_size))
        self.weight_hh_l0 = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        self.bias_ih_l0 = nn.Parameter(torch.empty(4 * hidden_size))
        self.bias_hh_l0 = nn.Parameter(torch.empty(4 * hidden_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x_TBI: Tensor, keep_TB: Tensor, h_BH: Tensor, c_BH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b_4H = self.bias_ih_l0 + self.bias_hh_l0
        return lstm(x_TBI, keep_TB, h_BH, c_BH, self.weight_ih_l0, self.weight_hh_l0, b_4H)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


def _by_native(
    x_TBI: Tensor,
    keep_TB: Tensor,
    h_BH: Tensor,
    c_BH: Tensor,
    w_ih_4HI: Tensor,
    w_hh_4HH: Tensor,
    b_4H: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The inputs' contribution to the gates is one product for all steps; the steps themselves are one operator."""
    z_TB4H = functional.linear(x_TBI, w_ih_4HI, b_4H).to(h_BH.dtype)  # autocast may have lowered the precision
    y_TBH, c_BH, _, _ = _recurrence(z_TB4H, keep_TB, h_BH, c_BH, w_hh_4HH)
    return y_TBH, y_TBH[-1], c_BH


# allow_in_graph, since torch 2.9 cannot trace a Function within torch.func.grad.
@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def _recurrence(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    outputs: tuple[Tensor, Tensor, Tensor, Tensor] = lstm_native.Recurrence.apply(*inputs)
    return outputs


def _by_torch(
    x_TBI: Tensor,
    keep_TB: Tensor,
    h_BH: Tensor,
    c_BH: Tensor,
    w_ih_4HI: Tensor,
    w_hh_4HH: Tensor,
    b_4H: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Step by step, for any dtype and device.

    The loop is unrolled when compiled, so the compile time grows with the number of steps.
    """
    y = []
    for x_BI, keep_B1 in zip(x_TBI.unbind(), keep_TB.unsqueeze(2).unbind(), strict=True):
        h_BH, c_BH = torch.lstm_cell(x_BI, (h_BH * keep_B1, c_BH * keep_B1), w_ih_4HI, w_hh_4HH, b_4H)
        y.append(h_BH)
    return torch.stack(y), h_BH, c_BH


def _check(
    x_TBI: Tensor,
    keep_TB: Tensor,
    h_BH: Tensor,
    c_BH: Tensor,
    w_ih_4HI: Tensor,
    w_hh_4HH: Tensor,
    b_4H: Tensor,
) -> None:
    if x_TBI.dim() != 3 or not x_TBI.shape[0] or w_hh_4HH.dim() != 2:
        raise ValueError(
            "an LSTM expects x of [steps, sequences, inputs] with at least one step and recurrent weights of [4"
            f" hidden, hidden], found {tuple(x_TBI.shape)} and {tuple(w_hh_4HH.shape)}; for one step: x.unsqueeze(0)"
        )
    (T, B, num_inputs), H = x_TBI.shape, w_hh_4HH.shape[1]
    for name, tensor, shape in (
        ("keep", keep_TB, (T, B)),
        ("h", h_BH, (B, H)),
        ("c", c_BH, (B, H)),
        ("w_ih", w_ih_4HI, (4 * H, num_inputs)),
        ("w_hh", w_hh_4HH, (4 * H, H)),
        ("b", b_4H, (4 * H,)),
    ):
        if tensor.shape != shape:
            raise ValueError(
                f"for x of {tuple(x_TBI.shape)} and {H} hidden units an LSTM expects {name} of {shape}, found"
                f" {tuple(tensor.shape)}; x is [steps, sequences, inputs], and a state is [sequences, hidden]"
            )
        if tensor.device != x_TBI.device or (tensor.dtype != x_TBI.dtype and tensor is not keep_TB):
            raise ValueError(
                f"an LSTM expects one dtype and device, x is {x_TBI.dtype} on {x_TBI.device} and {name} is"
                f" {tensor.dtype} on {tensor.device}; convert with {name}.to(x)"
            )

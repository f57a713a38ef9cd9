"""The LSTM with episodes inside a sequence agrees with nn.LSTM, in native code and in torch, eager and compiled."""

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch._dynamo
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional

from torchtriage.rl.policy import lstm as lstm_module
from torchtriage.rl.policy import lstm_native
from torchtriage.rl.policy.lstm import Lstm, lstm

KERNEL = lstm_native.KERNEL
ISAS = KERNEL.isas if KERNEL else []
OPS = torch.ops.torchtriage
F32 = torch.float32
NAMES = ("x", "h", "c", "w_ih", "w_hh", "b")
needs_kernel = pytest.mark.skipif(KERNEL is None, reason="the native part was not built")


@pytest.fixture(params=[*ISAS, "torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every instruction set of this machine, and torch alone."""
    if request.param == "torch":
        monkeypatch.setattr(lstm_native, "KERNEL", None)
    else:
        monkeypatch.setattr(KERNEL, "isa", ISAS.index(request.param))
    return request.param


def arguments(T: int, B: int, I: int, H: int, seed: int = 0, dtype: torch.dtype = F32) -> list[Tensor]:  # noqa: E741
    """(x, keep, h, c, w_ih, w_hh, b); about one step in four starts an episode, and all but keep require a gradient."""
    generator = torch.Generator().manual_seed(seed)
    x, h, c, w_ih, w_hh, b = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in ((T, B, I), (B, H), (B, H), (4 * H, I), (4 * H, H), (4 * H,))
    )
    with torch.no_grad():
        w_hh /= math.sqrt(H)
    keep = (torch.rand(T, B, generator=generator) > 0.25).to(dtype)
    return [x, keep, h, c, w_ih, w_hh, b]


def on_pieces(
    x: Tensor, keep: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """nn.LSTM on each stretch between two starts, one sequence after the other."""
    net = nn.LSTM(x.shape[2], h.shape[1], dtype=x.dtype)
    names = dict(weight_ih_l0=w_ih, weight_hh_l0=w_hh, bias_ih_l0=b, bias_hh_l0=torch.zeros_like(b))
    sequences = []
    for s in range(x.shape[1]):
        state, outputs, begin = (h[None, s], c[None, s]), [], 0
        for end in [*(t for t in range(len(x)) if not keep[t, s]), len(x)]:
            if end > begin:
                y, state = torch.func.functional_call(net, names, (x[begin:end, s], state))
                outputs.append(y)
            state, begin = (torch.zeros_like(state[0]), torch.zeros_like(state[1])) if end < len(x) else state, end
        sequences.append((torch.cat(outputs), state[0][0], state[1][0]))
    y, h, c = zip(*sequences, strict=True)
    return torch.stack(y, 1), torch.stack(h), torch.stack(c)


def with_gradients(function: Callable[..., tuple[Tensor, Tensor, Tensor]], args: list[Tensor]) -> dict[str, Tensor]:
    """Results, and gradients of a sum that weighs every result differently."""
    results = function(*args)
    loss = sum((r * torch.linspace(-1, 2, r.numel(), dtype=r.dtype).view(r.shape)).sum() for r in results)
    wanted = [a for i, a in enumerate(args) if i != 1]
    gradients = torch.autograd.grad(loss, wanted, materialize_grads=True)
    return dict(zip(("y", "h", "c", *(f"grad {n}" for n in NAMES)), (*results, *gradients), strict=True))


def assert_alike(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    """Compare relative to the largest element: a sum of many terms is only as accurate as its largest."""
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name],
            value,
            rtol=0,
            atol=tolerance * max(1.0, float(value.detach().abs().max()) if value.numel() else 1.0),
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.parametrize(
    ("T", "B", "I", "H"), [(1, 1, 1, 1), (1, 8, 4, 64), (5, 3, 7, 13), (32, 8, 5, 64), (9, 7, 3, 70)]
)
def test_values_and_gradients_agree_with_nn_lstm(path: str, T: int, B: int, I: int, H: int) -> None:  # noqa: E741
    args = arguments(T, B, I, H)
    assert_alike(with_gradients(lstm, args), with_gradients(on_pieces, args))


def test_a_sequence_without_episode_starts_equals_nn_lstm(path: str) -> None:
    net = nn.LSTM(5, 12)
    mine = Lstm(5, 12)
    mine.load_state_dict(net.state_dict())
    x, h, c = torch.randn(20, 6, 5), torch.randn(6, 12), torch.randn(6, 12)
    y, (h_last, c_last) = net(x, (h[None], c[None]))
    found = mine(x, torch.ones(20, 6), h, c)
    for value, expected in zip(found, (y, h_last[0], c_last[0]), strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)


@needs_kernel
@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 14),
    st.integers(1, 70),
    st.integers(0, 99),
    st.booleans(),
    st.integers(0, len(ISAS) - 1),
)
def test_native_code_agrees_with_torch_for_all_shapes(
    T: int, B: int, H: int, seed: int, contiguous: bool, isa: int
) -> None:
    args = arguments(T, B, 4, H, seed)
    args[1] *= 0.5
    if not contiguous:
        args = [
            *(
                a.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_(a.requires_grad)
                for a in args[:-1]
            ),
            args[-1],
        ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KERNEL, "isa", isa)
        assert_alike(with_gradients(lstm_module._by_native, args), with_gradients(lstm_module._by_torch, args))


def test_gradients_of_the_torch_path_are_exact_in_float64() -> None:
    x, keep, *others = arguments(3, 2, 2, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x, *rest: lstm(x, keep, *rest), (x, *others))


@needs_kernel
def test_the_operator_passes_opcheck() -> None:
    x, keep, h, c, w_ih, w_hh, b = (a.detach() for a in arguments(4, 3, 2, 5))
    z = functional.linear(x, w_ih, b)
    torch.library.opcheck(OPS.lstm_forward.default, (z, keep, h, c, w_hh))
    _, _, gates, cells = OPS.lstm_forward(z, keep, h, c, w_hh)
    torch.library.opcheck(
        OPS.lstm_backward.default, (torch.randn(4, 3, 5), torch.randn(3, 5), keep, c, w_hh, gates, cells)
    )


@needs_kernel
@pytest.mark.parametrize("isa", range(len(ISAS)), ids=ISAS)
def test_sigmoid_and_tanh_are_accurate_to_two_ulp(isa: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KERNEL, "isa", isa)
    large_and_small = torch.logspace(-30, 3, 4000)
    points = torch.cat(
        [torch.linspace(-12, 12, 20001), large_and_small, -large_and_small, torch.tensor([math.inf, -math.inf, 0.0])]
    )
    z = points.view(1, -1, 1).expand(1, -1, 4).contiguous()
    zero = torch.zeros(len(points), 1)
    _, _, gates, _ = OPS.lstm_forward(z, torch.ones(1, len(points)), zero, zero, torch.zeros(4, 1))
    exact = points.double()
    in_reach = points > -85  # below this, a sigmoid is under 1e-37, and only its order of magnitude matters
    for gate, expected in ((0, exact.sigmoid()), (2, exact.tanh())):
        found = gates[0, :, gate].double()
        torch.testing.assert_close(found[in_reach], expected[in_reach], rtol=2.5e-7, atol=0)
        torch.testing.assert_close(found, expected, rtol=2.5e-7, atol=2e-38)


def test_nan_spreads_to_the_end_of_its_sequence_only(path: str) -> None:
    args = arguments(6, 9, 4, 20)
    with torch.no_grad():
        args[0][2, 3, 1] = math.nan
    found, clean = lstm(*args)[0], lstm(*arguments(6, 9, 4, 20))[0]
    assert found[2:, 3].isnan().all()
    others = [i for i in range(9) if i != 3]
    torch.testing.assert_close(found[:, others], clean[:, others], rtol=0, atol=0)
    gradients = torch.autograd.grad(found.sum(), [args[0], args[5]])
    assert gradients[1].isnan().any()
    assert gradients[0][:, others].isfinite().all()


@needs_kernel
def test_a_call_leaves_the_subnormal_mode_unchanged() -> None:
    tiny = torch.tensor([1e-39])
    lstm(*arguments(3, 2, 2, 5))[0].sum().backward()
    assert float(tiny * 1.0) != 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_another_dtype_uses_the_torch_path(dtype: torch.dtype) -> None:
    args = arguments(4, 3, 2, 5, dtype=dtype)
    y, h, c = lstm(*args)
    assert {t.dtype for t in (y, h, c)} == {dtype}
    expected = lstm(*(a.float() for a in args))[0]
    torch.testing.assert_close(y.float(), expected, rtol=0, atol=0.05 if dtype == torch.bfloat16 else 1e-6)


def test_autocast_lowers_the_precision_only(path: str) -> None:
    args = arguments(4, 3, 2, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, h, c = lstm(*args)
    torch.testing.assert_close((y.float(), h.float(), c.float()), lstm(*args), rtol=0, atol=0.05)
    y.float().sum().backward()


@needs_kernel
def test_the_operator_refuses_wrong_shapes_and_dtypes() -> None:
    x, keep, h, c, w_ih, w_hh, b = arguments(4, 3, 2, 5)
    z = functional.linear(x, w_ih, b)
    no_steps = (z[:0], keep[:0], h, c, w_hh)
    for wrong in ((z, keep.t(), h, c, w_hh), (z.bfloat16(), keep, h, c, w_hh), (z, keep, h, c, w_hh[:4]), no_steps):
        with pytest.raises(ValueError, match="lstm_forward expects float32"):
            OPS.lstm_forward(*wrong)


def test_a_boolean_mask_is_accepted(path: str) -> None:
    x, keep, *others = arguments(4, 3, 2, 5)
    torch.testing.assert_close(lstm(x, keep.bool(), *others), lstm(x, keep, *others), rtol=0, atol=0)


@needs_kernel
def test_a_second_derivative_is_refused() -> None:
    args = arguments(4, 3, 2, 5)
    (gradient,) = torch.autograd.grad(lstm(*args)[0].square().sum(), args[5], create_graph=True)
    with pytest.raises(RuntimeError, match="only first derivatives"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (0, lambda x: x[0], r"found \(3, 2\).*x.unsqueeze\(0\)"),
        (0, lambda x: x[:0], r"at least one step.*found \(0, 3, 2\)"),
        (1, lambda keep: keep.t(), r"expects keep of \(4, 3\), found \(3, 4\)"),
        (2, lambda h: h[None], r"expects h of \(3, 5\), found \(1, 3, 5\)"),
        (3, lambda c: c[:, :4], r"expects c of \(3, 5\), found \(3, 4\)"),
        (4, lambda w: w[:, :1], r"expects w_ih of \(20, 2\), found \(20, 1\)"),
        (5, lambda w: w[:15], r"expects w_hh of \(20, 5\), found \(15, 5\)"),
        (6, lambda b: b[:3], r"expects b of \(20,\), found \(3,\)"),
        (2, lambda h: h.double(), r"one dtype and device.*h is torch.float64"),
    ],
)
def test_an_error_says_what_was_expected_and_found(
    index: int, change: Callable[[Tensor], Tensor], message: str
) -> None:
    args = arguments(4, 3, 2, 5)
    args[index] = change(args[index])
    with pytest.raises(ValueError, match=message):
        lstm(*args)


def test_state_dicts_and_initial_weights_equal_those_of_nn_lstm() -> None:
    torch.manual_seed(3)
    theirs = nn.LSTM(5, 12)
    torch.manual_seed(3)
    mine = Lstm(5, 12)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(mine.state_dict()[name], value, rtol=0, atol=0)
    nn.LSTM(5, 12).load_state_dict(mine.state_dict())
    Lstm(5, 12).load_state_dict(theirs.state_dict())


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def loss_of(net: dict[str, Tensor], x: Tensor, keep: Tensor, h: Tensor, c: Tensor) -> Tensor:
    y, h, c = lstm(x, keep, h, c, net["w_ih"], net["w_hh"], net["b"])
    return y.square().mean() + h.mean() + c.square().mean()


def by_func_grad(net: dict[str, Tensor], *data: Tensor) -> list[Tensor]:
    gradients, loss = torch.func.grad_and_value(loss_of)(net, *data)
    return [loss, *gradients.values()]


def by_autograd_grad(net: dict[str, Tensor], *data: Tensor) -> list[Tensor]:
    loss = loss_of(net, *data)
    return [loss.detach(), *torch.autograd.grad(loss, list(net.values()))]


def inputs_of(T: int, B: int, I: int, H: int) -> tuple[dict[str, Tensor], list[Tensor]]:  # noqa: E741
    x, keep, h, c, w_ih, w_hh, b = arguments(T, B, I, H)
    return dict(w_ih=w_ih, w_hh=w_hh, b=b), [x.detach(), keep, h.detach(), c.detach()]


@pytest.mark.thorough
@needs_kernel
@pytest.mark.parametrize("step", [by_func_grad, by_autograd_grad])
def test_the_graph_does_not_grow_with_the_number_of_steps(
    fresh_dynamo: None, step: Callable[..., list[Tensor]]
) -> None:
    sizes = []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        sizes.append(len(graph.graph.nodes))
        return graph

    with torch._dynamo.config.patch(trace_autograd_ops=True):
        for T in (8, 64):
            torch._dynamo.reset()
            net, data = inputs_of(T, 3, 2, 5)
            found = torch.compile(step, backend=aot_autograd(fw_compiler=count), fullgraph=True)(net, *data)
            torch.testing.assert_close(found, step(net, *data))
    assert len(sizes) == 2
    assert sizes[0] == sizes[1]


@pytest.mark.thorough
@needs_kernel
@pytest.mark.parametrize("step", [by_func_grad, by_autograd_grad])
def test_inductor_gradients_agree_with_eager(fresh_dynamo: None, step: Callable[..., list[Tensor]]) -> None:
    net, data = inputs_of(6, 3, 2, 5)
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        found = torch.compile(step, fullgraph=True)(net, *data)
    torch.testing.assert_close(found, step(net, *data), rtol=1e-5, atol=1e-6)

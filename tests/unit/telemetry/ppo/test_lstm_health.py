"""Recurrent-state health: its numbers, one transfer, and no effect on compiled code."""

import inspect
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from torch.utils._python_dispatch import TorchDispatchMode

import torchtriage
from torchtriage.telemetry.ppo import lstm_health
from torchtriage.telemetry.ppo.lstm_health import LSTMHealthMetrics, compute_lstm_health, lstm_health_tensor


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def state(layers: int = 2, environments: int = 4, hidden: int = 8, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    h, c = (torch.randn(layers, environments, hidden, generator=generator) for _ in range(2))
    return h * 0.3, c * torch.arange(1, environments + 1).view(1, -1, 1)


def test_numbers_equal_those_of_float64() -> None:
    h, c = state()
    health = compute_lstm_health((h, c))
    for name, tensor in (("h", h), ("c", c)):
        x = tensor.double().numpy()
        by_environment = np.sqrt((x ** 2).mean((0, 2)))
        expected = {
            "rms": np.sqrt((x ** 2).mean()), "rms_mean": by_environment.mean(), "rms_max": by_environment.max(),
            "rms_min": by_environment.min(), "max_abs": np.abs(x).max(), "l2": np.linalg.norm(x),
        }
        for statistic, value in expected.items():
            assert getattr(health, f"{name}_{statistic}") == pytest.approx(value, rel=1e-12), f"{name}_{statistic}"
    assert (health.has_nan, health.has_inf) == (False, False)
    assert health.is_healthy()


def test_rms_does_not_grow_with_the_state_as_l2_does() -> None:
    small, large = (compute_lstm_health((torch.ones(1, n, 8), torch.ones(1, n, 8))) for n in (1, 100))
    assert (small.h_rms, large.h_rms) == pytest.approx((1.0, 1.0))
    assert large.h_l2 == pytest.approx(10 * small.h_l2)


def test_one_bad_environment_shows_in_the_maximum() -> None:
    h, c = state(environments=64)
    c[:, 7] = 100.0
    health = compute_lstm_health((h, c / 64))
    assert health.c_rms_max == pytest.approx(100 / 64)
    health = compute_lstm_health((h, c))
    assert not health.is_healthy()


@pytest.mark.parametrize(
    ("h", "c", "healthy"), [(0.1, 0.1, True), (0.1, 1e-7, False), (0.0, 0.1, False), (0.1, 11.0, False)]
)
def test_health_is_an_rms_in_range(h: float, c: float, healthy: bool) -> None:
    assert compute_lstm_health((torch.full((1, 2, 3), h), torch.full((1, 2, 3), c))).is_healthy() == healthy


@pytest.mark.parametrize(
    ("bad", "flags"), [(math.nan, (True, False)), (math.inf, (False, True)), (-math.inf, (False, True))]
)
@pytest.mark.parametrize("where", [0, 1])
def test_non_finite_values_are_reported_and_the_rest_is_measured(
    bad: float, flags: tuple[bool, bool], where: int
) -> None:
    pair = (torch.ones(1, 2, 4), torch.ones(1, 2, 4))
    pair[where][0, 1, 2] = bad
    health = compute_lstm_health(pair)
    assert (health.has_nan, health.has_inf) == flags
    assert (health.h_rms, health.c_rms, health.h_max_abs, health.c_max_abs) == pytest.approx((1.0, 1.0, 1.0, 1.0))
    assert not health.is_healthy()


def test_a_state_that_is_nan_throughout_gives_numbers() -> None:
    health = compute_lstm_health((torch.full((1, 2, 3), math.nan), torch.full((1, 2, 3), math.inf)))
    assert (health.has_nan, health.has_inf, health.h_rms, health.c_max_abs) == (True, True, 0.0, 0.0)


def test_no_state_and_an_empty_state_have_no_health() -> None:
    assert compute_lstm_health(None) is None
    for shape in ((1, 0, 4), (0, 3, 4), (2, 3, 0)):
        assert compute_lstm_health((torch.ones(shape), torch.ones(shape))) is None
        assert lstm_health_tensor(torch.ones(shape), torch.ones(shape)).count_nonzero() == 0


def test_half_types_huge_values_and_strides_are_exact() -> None:
    h, c = state()
    for dtype in (torch.bfloat16, torch.float16):
        health = compute_lstm_health((h.to(dtype), c.to(dtype)))
        assert health.h_rms == pytest.approx(h.to(dtype).double().square().mean().sqrt().item(), rel=1e-12)
    strided = h.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert not strided.is_contiguous()
    assert compute_lstm_health((strided, c)) == compute_lstm_health((h, c))
    assert compute_lstm_health((torch.full((1, 1, 2), 1e25), c)).h_rms == pytest.approx(1e25)


def test_a_projected_lstm_may_have_h_narrower_than_c() -> None:
    _, pair = torch.nn.LSTM(3, 8, proj_size=2)(torch.randn(5, 4, 3))
    health = compute_lstm_health(pair)
    assert health.h_rms > 0
    assert pair[0].requires_grad


class CountTransfers(TorchDispatchMode):
    num_scalar_reads = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.num_scalar_reads += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_one_transfer_includes_the_booleans(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[torch.Size] = []
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: (read.append(self.shape), tolist(self))[1])
    with CountTransfers() as counted:
        health = compute_lstm_health(state())
    assert read == [torch.Size([14])]
    assert counted.num_scalar_reads == 0
    assert health.has_nan is False
    assert "Booleans become numbers" in inspect.getsource(lstm_health)


def test_no_gradient_is_recorded_and_the_mode_is_unchanged() -> None:
    h, c = (x.requires_grad_() for x in state())
    assert compute_lstm_health((h, c)) is not None
    assert not lstm_health_tensor(h, c).requires_grad
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (torch.ones(1, 2, 3), r"a pair \(h, c\), got a Tensor"),
        ((torch.ones(1, 2, 3),), r"a pair \(h, c\), got a tuple of 1"),
        (
            (torch.ones(2, 3), torch.ones(2, 3)),
            r"h must be \[layers, environments, hidden\], got \(2, 3\); for an LSTMCell give h.unsqueeze",
        ),
    ],
)
def test_value_that_is_not_an_lstm_state_is_refused(bad: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        compute_lstm_health(bad)


def test_metric_names_are_those_of_the_rules() -> None:
    metrics = compute_lstm_health(state()).to_dict()
    assert {
        "lstm/h_rms",
        "lstm/c_rms",
        "lstm/h_rms_max",
        "lstm/c_rms_max",
        "lstm/has_nan",
        "lstm/has_inf",
    } <= metrics.keys()
    assert all(type(value) is float for value in metrics.values())


# torch.compile

def test_call_between_compiled_calls_has_no_effect_on_them() -> None:
    def run(check: bool) -> tuple[int, int, int]:
        torch._dynamo.reset()
        cell = torch.compile(torch.nn.LSTMCell(3, 8), backend="eager", fullgraph=True)
        with torchtriage.watch() as seen, torch.no_grad():
            pair = (torch.zeros(4, 8), torch.zeros(4, 8))
            for _ in range(10):
                pair = cell(torch.ones(4, 3), pair)
                if check:
                    compute_lstm_health((pair[0].unsqueeze(0), pair[1].unsqueeze(0)))
        totals = seen.report.totals
        return totals["compiles"], totals["graph_breaks"], totals["recompiles"]

    assert run(check=True) == run(check=False) == (1, 0, 0)


def test_call_in_a_compiled_function_is_one_break_with_a_remedy() -> None:
    def step(h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        h = h * 2
        compute_lstm_health((h, c))
        return h + 1

    with torchtriage.watch() as seen:
        compiled = torch.compile(step, backend="eager")
        for _ in range(5):
            compiled(*state())
    assert len(seen.graph_breaks) == 1
    assert "use lstm_health_tensor" in seen.graph_breaks[0].reason
    assert not seen.recompiles


def test_tensor_form_works_in_one_graph_with_the_same_result() -> None:
    def step(h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = h * 2
        return h, lstm_health_tensor(h, c)

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    with torchtriage.watch() as seen, torch._dynamo.error_on_graph_break(True):
        for i in range(50):
            h, c = state(seed=i)
            _, health = compiled(h, c)
            assert LSTMHealthMetrics.from_tensor(health) == compute_lstm_health((h * 2, c))
    totals = seen.report.totals
    assert (totals["compiles"], totals["graph_breaks"], totals["recompiles"]) == (1, 0, 0)

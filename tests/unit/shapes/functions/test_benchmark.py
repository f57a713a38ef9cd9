"""A benchmark tells compiling from running, takes turns, and says what it could not show."""

import time
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.errors import TriageError
from torchtriage.findings.shape_study import Interval
from torchtriage.proof.statistics import median_interval
from torchtriage.shapes.functions import benchmark as benchmarking
from torchtriage.shapes.functions.benchmark import CallTiming, Timing, benchmark


def row(name: str = "f", **changed: Any) -> CallTiming:
    return CallTiming(
        **{
            "name": name,
            "first_call_seconds": 2.5,
            "num_compiles": 1,
            "compile_seconds": 2.25,
            "num_warm_calls": 1200,
            "is_steady": True,
            "seconds": Interval(middle=3e-6, low=2.9e-6, high=3.2e-6),
            "ratio": None,
            "num_blocks": 40,
            "block_calls": 8000,
            **changed,
        }
    )


@given(st.lists(st.floats(0.1, 10), min_size=6, max_size=60))
def test_the_interval_encloses_the_median(values: list[float]) -> None:
    found = median_interval(values)
    assert found.low is not None
    assert found.high is not None
    assert min(values) <= found.low <= found.middle <= found.high <= max(values)


def test_the_interval_is_that_of_order_statistics() -> None:
    assert median_interval(range(1, 7)) == Interval(middle=3.5, low=1, high=6)
    assert median_interval(range(1, 41)) == Interval(middle=20.5, low=14, high=27)      # the tables' ranks for 40
    assert median_interval([3, 1, 2]) == Interval(middle=2)


def test_the_table_is_aligned() -> None:
    quick = row("compiled", ratio=Interval(middle=0.25, low=0.24, high=0.26))
    steady = Interval(middle=1.2e-5, low=1.1e-5, high=1.3e-5)
    slow = row("eager", num_compiles=0, compile_seconds=0.0, first_call_seconds=2e-5, seconds=steady)
    assert repr(Timing(functions=(slow, quick))).splitlines() == [
        "          first call   compiling  one call                95 %  / eager            95 %",
        "eager        20.0 us           -   12.0 us  11.0 us to 13.0 us        -               -",
        "compiled      2.50 s  2.25 s (1)   3.00 us  2.90 us to 3.20 us    0.25x  0.24x to 0.26x",
        "cpu; measured calls: 40 x 8,000, 40 x 8,000, interleaved",
    ]
    assert "/ eager" not in repr(Timing(functions=(slow,)))


def test_doubtful_figures_are_explained() -> None:
    shown = repr(
        Timing(functions=(row(is_steady=False, num_late_compiles=3, num_blocks=2, seconds=Interval(middle=9.0)),))
    )
    assert "f did not become steady in 1,200 warm-up calls" in shown
    assert "f compiled 3 times during the measurement" in shown
    assert "too few for a confidence interval (2 blocks)" in shown


def test_compile_time_is_separate() -> None:
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = torch.compile(plain, backend="eager")
    x = torch.ones(3)
    compiled(x)                                             # forgotten by the reset
    timing = benchmark(plain, x, against={"compiled": compiled}, seconds=0.05)
    assert [f.name for f in timing.functions] == ["plain", "compiled"]
    assert timing["plain"].num_compiles == 0
    assert timing["compiled"].num_compiles == 1
    assert 0 < timing["compiled"].compile_seconds < timing["compiled"].first_call_seconds
    assert timing["compiled"].num_late_compiles == 0
    ratio = timing["compiled"].ratio
    assert ratio is not None
    assert ratio.middle > 0
    assert timing.seconds == timing["plain"].seconds
    with pytest.raises(KeyError, match="available: plain, compiled"):
        timing["other"]


def test_compiled_code_can_be_kept() -> None:
    compiled = torch.compile(torch.sin, backend="eager")
    compiled(torch.ones(3))
    assert benchmark(compiled, torch.ones(3), seconds=0.01, reset=False).functions[0].num_compiles == 0


def test_functions_take_turns_in_rotating_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarking, "NUM_BLOCKS", 4)
    order: list[str] = []
    subjects = [benchmarking._Subject(name, lambda name=name: order.append(name), (), {}) for name in "abc"]
    benchmarking._measure(subjects, 10.0)
    assert "".join(order) == "abcbcacababc"


def test_every_block_waits_for_the_accelerator_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarking, "NUM_BLOCKS", 3)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    order: list[str] = []
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: order.append("|"))
    benchmarking._measure([benchmarking._Subject("f", lambda: order.append("f"), (), {})], 10.0)
    assert "".join(order) == "|f|" * 3


def test_a_slow_function_is_called_at_least_once_and_never_for_long() -> None:
    calls = []

    def slow() -> None:
        calls.append(1)
        time.sleep(0.05)

    timing = benchmark(slow, seconds=0.01)
    assert len(calls) == 3      # the first, the warm-up, the measured
    assert timing.functions[0].num_blocks == 1
    assert timing.seconds.low is None
    assert not timing.functions[0].is_steady


def test_a_function_that_always_compiles_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarking, "WINDOW", 1)
    monkeypatch.setattr(benchmarking, "STEADY", 1e9)        # by its times alone it would count as steady

    class Counter:
        n = 0

    counter = Counter()

    @torch.compile(backend="eager", dynamic=False)
    def count(x: torch.Tensor) -> torch.Tensor:
        counter.n += 1
        return x * counter.n

    with torch._dynamo.config.patch(recompile_limit=10_000, accumulated_recompile_limit=10_000):
        timing = benchmark(count, torch.ones(3), seconds=0.2)
    assert timing.functions[0].num_late_compiles > 0
    assert not timing.functions[0].is_steady


def test_steady_is_when_two_windows_agree() -> None:
    assert not benchmarking._agree([1.0] * 9)
    assert benchmarking._agree([5.0] + [1.0] * 10)
    assert benchmarking._agree([1.0, 1.0, 1.0, 9.0, 1.0] + [1.04] * 5)      # one odd block is not a change
    assert not benchmarking._agree([1.0] * 5 + [1.06] * 5)


def test_names_never_collide() -> None:
    def f() -> None: ...

    named = benchmarking._named(f, {"f": f, "g": f})
    assert list(named) == ["f", "f (2)", "g"]
    assert list(benchmarking._named(torch.nn.ReLU(), torch.compile(torch.nn.ReLU()))) == ["ReLU", "ReLU (2)"]


def test_a_function_that_fails_is_named() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such size")

    with pytest.raises(TriageError, match="fails failed at the first call: ValueError: no such size"):
        benchmark(torch.sin, torch.ones(2), against=fails, seconds=0.01)
    with pytest.raises(TriageError, match="x is a int, which cannot be called"):
        benchmark(torch.sin, torch.ones(2), against={"x": 3})       # type: ignore[dict-item]
    with pytest.raises(TriageError, match="seconds=0"):
        benchmark(torch.sin, torch.ones(2), seconds=0)

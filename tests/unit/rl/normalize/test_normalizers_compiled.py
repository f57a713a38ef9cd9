"""In a full-graph compiled region the normalizers are one graph and agree with eager."""

import math
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
import torch._dynamo

import torchtriage
from torchtriage.rl import RewardNormalizer, RunningMeanStd, ValueNormalizer
from torchtriage.rl.normalize.running_moments import RunningMoments

pytestmark = pytest.mark.thorough

STEPS = 50


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def observations(step: int) -> torch.Tensor:
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(step)) * 3 + 100
    if step % 10 == 5:
        x[3, 1] = math.nan
    return x


def step_of(stats: RunningMoments) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def step(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        stats.update(x, mask=mask if stats.shape else None)
        return stats.normalize(x * 1.0) + 1

    return step


def compare(make: Callable[[], RunningMoments], backend: str, rtol: float) -> None:
    eager, compiled = make(), make()
    run_eager, run_compiled = step_of(eager), torch.compile(step_of(compiled), backend=backend, fullgraph=True)
    with torchtriage.watch() as seen, torch._dynamo.error_on_graph_break(True):
        for step in range(STEPS):
            x, mask = observations(step), torch.arange(32) % 4 != step % 4
            torch.testing.assert_close(
                run_compiled(x, mask), run_eager(x, mask), rtol=max(rtol, 1e-6), atol=1e-5, equal_nan=True
            )
            for (name, expected), found in zip(eager.state_dict().items(), compiled.state_dict().values(), strict=True):
                torch.testing.assert_close(
                    found, expected, rtol=rtol, atol=0, equal_nan=True, msg=f"{name} at step {step}"
                )
    totals = seen.report.totals
    assert (totals["compiles"], totals["graph_breaks"], totals["recompiles"]) == (1, 0, 0)
    assert int(compiled.num_rejected) > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: RunningMeanStd((4,)),
        lambda: RunningMeanStd((4,), momentum=0.9),
        RewardNormalizer,
        ValueNormalizer,
    ],
    ids=["running", "running-ema", "reward", "value"],
)
def test_50_steps_are_one_graph_and_bitwise_equal_to_eager(make: Callable[[], RunningMoments]) -> None:
    compare(make, "eager", rtol=0)


@pytest.mark.parametrize("make", [lambda: RunningMeanStd((4,)), ValueNormalizer], ids=["running", "value"])
def test_inductor_writes_every_buffer_back(make: Callable[[], RunningMoments]) -> None:
    compare(make, "inductor", rtol=1e-12)


def test_freezing_compiles_exactly_once_more() -> None:
    stats = RunningMeanStd((4,))
    run = torch.compile(stats.update, backend="eager", fullgraph=True)
    with torchtriage.watch() as seen:
        for step in range(8):
            (stats.freeze if step % 2 else stats.unfreeze)()
            run(observations(step))
    assert len(seen.recompiles) == 1
    assert round(stats.count.item()) == 4 * 32


def test_a_device_mismatch_breaks_the_graph_once_with_its_reason() -> None:
    stats = RunningMeanStd((4,))
    run = torch.compile(lambda x: stats.normalize(x * 2) + 1, backend="eager")
    x = torch.ones(2, 4, device="meta")
    with warnings.catch_warnings(record=True) as warned, torchtriage.watch() as seen:
        warnings.simplefilter("always")
        run(x)
    assert ["RunningMeanStd moves its statistics from cpu to meta" in str(w.message) for w in warned] == [True]
    assert any("normalizer and input are on different devices" in b.reason for b in seen.graph_breaks)
    torch._dynamo.reset()
    with torchtriage.watch() as after:
        torch.compile(lambda x: stats.normalize(x * 2) + 1, backend="eager", fullgraph=True)(x)
    assert not after.graph_breaks


def test_a_device_mismatch_under_fullgraph_is_an_error_with_the_reason() -> None:
    stats = RunningMeanStd((4,))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="normalizer and input are on different devices"):
        torch.compile(stats.update, backend="eager", fullgraph=True)(torch.ones(2, 4, device="meta"))

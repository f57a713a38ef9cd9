"""Down-sampling keeps extremes, non-finite values and marked points."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.recording.events import Anomaly
from torchtriage.recording.store import Writer, read_process
from torchtriage.telemetry import Monitor, TelemetryConfig
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sinks.curves import MAX_BUCKETS, CurveBuckets, Curves
from torchtriage.telemetry.sinks.recording import RecordingSink
from torchtriage.telemetry.statistics.columns import NUM_STATS, Stat

ALL = np.ones((1, 1), dtype=bool)


def down_sampled(values: list[float], max_buckets: int = 8) -> tuple[CurveBuckets, list[tuple[float, float]]]:
    buckets = CurveBuckets(1, max_buckets)
    for step, value in enumerate(values):
        buckets.add([step], np.array([[value]]), ALL)
    ((steps, points),) = buckets.points()
    return buckets, list(zip(steps, points, strict=True))


def test_short_curve_is_kept_unchanged() -> None:
    values = [3.0, math.nan, -1.0, math.inf, 3.0]
    _, points = down_sampled(values)
    assert [step for step, _ in points] == [0, 1, 2, 3, 4]
    assert [value for _, value in points] == pytest.approx(values, nan_ok=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=300))
def test_extremes_and_non_finite_values_survive(values: list[float]) -> None:
    _, points = down_sampled(values)
    assert len(points) <= 3 * 8
    assert all(value == values[int(step)] or math.isnan(values[int(step)]) for step, value in points)
    assert [step for step, _ in points] == sorted({step for step, _ in points})
    finite = [value for value in values if math.isfinite(value)]
    finite_points = [value for _, value in points if math.isfinite(value)]
    if finite:
        assert (min(finite_points), max(finite_points)) == (min(finite), max(finite))
    bad = [step for step, value in enumerate(values) if not math.isfinite(value)]
    assert [step for step, value in points if not math.isfinite(value)][:1] == bad[:1]


def test_points_of_a_long_curve_are_spread_over_it() -> None:
    _, points = down_sampled([math.sin(i) for i in range(5000)], max_buckets=64)
    steps = [step for step, _ in points]
    assert max(b - a for a, b in pairwise(steps)) < 5000 / 32 * 2


def test_marked_point_survives_even_if_it_is_not_an_extreme() -> None:
    buckets = CurveBuckets(1, 4)
    for step in range(1000):
        buckets.add([step], np.array([[float(step % 10)]]), ALL)
        if step == 5:
            buckets.mark_last(0)
    ((steps, values),) = buckets.points()
    assert (5.0, 5.0) in set(zip(steps, values, strict=True))


def test_curve_has_no_point_where_it_has_no_value() -> None:
    buckets = CurveBuckets(2, 4)
    buckets.add([1, 2], np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[True, False], [True, True]]))
    assert [list(steps) for steps, _ in buckets.points()] == [[1.0, 2.0], [2.0]]


def observation(step: int, rng: np.random.Generator, num_tensors: int) -> Observation:
    """With something in every quantity there is."""
    tables = []
    for _ in range(2):
        table = rng.random((num_tensors, NUM_STATS))
        table[:, Stat.NUM_ELEMENTS] = 100
        table[:, [Stat.NUM_NAN, Stat.NUM_INF]] = rng.integers(0, 2, (num_tensors, 2))
        tables.append(table)
    names = tuple(f"layer{i}.weight" for i in range(num_tensors))
    return Observation(
        step=step,
        time=0.0,
        values={"loss": rng.random()},
        names=names,
        grad_PS=tables[0],
        weight_PS=tables[1],
        is_detailed=True,
    )


def test_a_million_steps_of_300_tensors_stay_below_50_mb(tmp_path: Path) -> None:
    """The worst case: every quantity of every tensor in every sample, with NaN in all, until every bucket is
    full.
    """
    rng = np.random.default_rng(0)
    curves = Curves()
    for step in range(1, 1_000_001, 666):
        curves.write(observation(step, rng, 300))
    curves.close()
    series = curves.series()
    writer = Writer(tmp_path / "run.sqlite")
    writer.put(series=series)
    writer.close()
    assert (tmp_path / "run.sqlite").stat().st_size < 35e6
    assert len(series) > 300 * 12
    assert max(len(one.steps) for one in series if "/" in one.name) <= 3 * MAX_BUCKETS
    assert 3 * 8 * 300 * (2 * MAX_BUCKETS + 10 * MAX_BUCKETS // 4) < 50e6       # if every bucket of every curve is full
    steps = read_process(tmp_path / "run.sqlite").series["grad_norm/layer7.weight"].steps
    assert len(steps) > 256
    assert steps[-1] > 999_000


def test_extremes_and_anomalies_of_a_million_samples_survive() -> None:
    """Spikes at two steps, a NaN, and a point that only a rule found worth keeping."""
    rng = np.random.default_rng(0)
    buckets = CurveBuckets(4)
    for first in range(0, 1_000_000, 2000):
        values_NC = rng.standard_normal((2000, 4))
        if first == 700_000:
            values_NC[123, 0], values_NC[1234, 1], values_NC[777, 2] = 1e6, -1e6, math.nan
            values_NC[-1, 3] = 0.5
        buckets.add(np.arange(first, first + 2000), values_NC, np.ones((2000, 4), dtype=bool))
        if first == 700_000:
            buckets.mark_last(3)
    high, low, bad, marked = (dict(zip(steps, values, strict=True)) for steps, values in buckets.points())
    assert (high[700_123], low[701_234], marked[701_999]) == (1e6, -1e6, 0.5)
    assert math.isnan(bad[700_777])
    assert all(len(curve) <= 3 * MAX_BUCKETS + 1 for curve in (high, low, bad, marked))


@pytest.mark.parametrize("block", [1, 3, 64, 1000])
def test_result_does_not_depend_on_the_number_of_observations_per_call(block: int) -> None:
    rng = np.random.default_rng(0)
    values_NC, valid_NC = rng.standard_normal((1000, 3)), rng.random((1000, 3)) < 0.8
    values_NC[rng.random((1000, 3)) < 0.05] = math.inf
    one_by_one, at_once = CurveBuckets(3, 16), CurveBuckets(3, 16)
    for step in range(1000):
        one_by_one.add([step], values_NC[[step]], valid_NC[[step]])
    for first in range(0, 1000, block):
        part = slice(first, first + block)
        at_once.add(range(1000)[part], values_NC[part], valid_NC[part])
    assert list(at_once.points()) == list(one_by_one.points())


def test_steps_that_restart_are_sorted() -> None:
    buckets = CurveBuckets(1)
    for step in (5, 6, 5, 7):       # a checkpoint was loaded
        buckets.add([step], np.array([[float(step)]]), ALL)
    ((steps, values),) = buckets.points()
    assert list(steps) == list(values) == [5.0, 6.0, 7.0]


@pytest.mark.thorough
def test_a_monitor_of_300_tensors_over_a_million_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Steps that do nothing leave no budget.
    monkeypatch.setattr("torchtriage.telemetry.sampling.pace.GRACE_SECONDS", math.inf)
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2)) for _ in range(300)])
    for p in model:
        p.grad = torch.ones(2)
    weights, config = [p.detach() for p in model], TelemetryConfig(normal_interval=50)
    with Monitor(model, sinks=[RecordingSink(tmp_path / "long.triage")], config=config) as monitor:
        for step in range(1, 1_000_001):
            if step == 500_000:
                model[7].grad.fill_(math.nan)
            elif step == 500_100:
                model[7].grad.fill_(1.0)
            monitor.after_backward(1.0)
            monitor.step()
            if step % 25 == 0:
                # Weights that stay as they are would be a finding of all of them.
                torch._foreach_add_(weights, 1e-3)
            if step % 500 == 0:
                monitor.writer.flush()      # such steps would be over before they are read
    (path,) = (tmp_path / "long.triage").glob("*.sqlite")
    assert path.stat().st_size < 50e6
    recorded = read_process(path)
    assert any(500_000 <= step <= 500_100 for step in recorded.series["grad_nan/7"].steps)
    assert recorded.facts["telemetry"]["num_observed"] > 19_900
    assert recorded.facts["telemetry"]["num_dropped"] == 0


def test_curves_are_written_periodically_and_at_the_end() -> None:
    now = [0.0]
    curves = Curves(clock=lambda: now[0], work=lambda: 0.0)
    curves.write(Observation(step=1, time=0.0, values={"loss": 2.0}))
    assert [one.name for one in curves.series()] == ["loss"]
    curves.write(Observation(step=2, time=0.0, values={"loss": 1.0}))
    assert curves.series() == []
    now[0] = 5.5
    assert [list(one.values) for one in curves.series()] == [[2.0, 1.0]]
    curves.close()
    assert len(curves.series()) == 1


def test_curve_keeps_the_step_at_which_a_rule_fired() -> None:
    curves = Curves()
    for step in range(1, 20_000):
        curves.write(Observation(step=step, time=0.0, values={"grad_norm": 1.0 + step % 100 / 100}))
        if step == 4321:
            curves.event(Anomaly(code="TT410", subject="grad_norm", step=step, value=0.7))
    curves.close()
    (series,) = curves.series()
    assert dict(zip(series.steps, series.values, strict=True))[4321] == pytest.approx(1.21)


def test_number_of_names_is_bounded() -> None:
    curves = Curves()
    for step in range(2000):
        curves.write(Observation(step=step, time=0.0, values={f"metric {step}": 1.0}))
    assert len(curves.series()) == 1024
    assert curves.num_left_out == 2000 - 1024


def test_number_of_values_left_out_is_a_fact_of_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchtriage.telemetry.sinks.curves.MAX_TOTALS", 8)
    model = torch.nn.Linear(2, 1)
    monitor = Monitor(model, sinks=[RecordingSink(tmp_path / "run.triage")])
    model(torch.ones(2)).sum().backward()
    for step in range(20):
        monitor.step({f"metric {step}": 1.0})
    monitor.close()
    (path,) = (tmp_path / "run.triage").glob("*.sqlite")
    recorded = read_process(path)
    names = [name for name in recorded.series if "/" not in name or name.startswith("telemetry/")]
    assert (len(names), recorded.facts["telemetry"]["num_left_out"]) == (
        8,
        20 - sum(name.startswith("metric") for name in names),
    )

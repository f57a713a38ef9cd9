"""Every field of TelemetryConfig changes the recording, of a Monitor and of a program that does not use telemetry."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.unit.telemetry.test_monitor import MemorySink
from torchtriage.recording.events import Event, Tap
from torchtriage.telemetry import Monitor, TelemetryConfig, TelemetryLevel
from torchtriage.telemetry.attach import Attached

NUM_STEPS = 90
BAD_STEPS = {*range(25, 36), *range(50, 61), *range(75, 86)}      # long enough for a sample in each
# Another value for each field, with the settings under which it has an effect.
OTHER_VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "level": (TelemetryLevel.MINIMAL, {}),
    "minimal_interval": (7, {"level": TelemetryLevel.MINIMAL}),
    "normal_interval": (7, {}),
    "debug_interval": (3, {"level": TelemetryLevel.DEBUG}),
    "per_layer_gradients": (False, {}),
    "activation_monitoring": (True, {"level": TelemetryLevel.DEBUG}),
    "weight_tracking": (False, {}),
    "weight_track_interval": (30, {}),
    "auto_escalate": (False, {}),
    "escalation_updates": (9, {}),
    "escalation_cooldown": (5, {"normal_interval": 10}),
    "overhead_budget": (0.001, {}),
}
FIELDS = [field.name for field in dataclasses.fields(TelemetryConfig) if field.init]
Quantities = dict[int, frozenset[str]]


def loss_of(model: torch.nn.Module, step: int) -> torch.Tensor:
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    return loss.detach() * math.nan if step in BAD_STEPS else loss.detach()


def quantities(row: dict[str, float]) -> frozenset[str]:
    """The quantities recorded at a step, without those of the clock, which differ from run to run."""
    return frozenset(name.partition("/")[0] for name in row if not name.startswith("telemetry/"))


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))


def monitored(**settings: Any) -> Quantities:
    torch._dynamo.utils.counters.clear()    # activations are not measured in a program with compiled functions
    net, sink, ticks = model(), MemorySink(), itertools.count()
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    with Monitor(net, opt, sinks=[sink], config=TelemetryConfig(**settings)) as monitor:
        monitor._pace.clock = lambda: next(ticks) * 0.01       # telemetry takes about 20 % of a step by this clock
        for step in range(1, NUM_STEPS + 1):
            monitor.after_backward(loss_of(net, step))
            opt.step()
            monitor.step()
            opt.zero_grad()
            monitor.writer.flush()
    return {step: quantities(row) for step, row in sink.rows.items()}


def attached(**settings: Any) -> Quantities:
    net, sink, steps, ticks, events = model(), MemorySink(), itertools.count(1), itertools.count(), list[Event]()
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    now = 0
    telemetry = Attached(events.append, lambda: now, TelemetryConfig(**settings))
    telemetry.writer._direct_sinks.append(sink)
    telemetry._optimizers.find(opt).pace.clock = lambda: next(ticks) * 0.01
    for now in itertools.islice(steps, NUM_STEPS):
        telemetry.backward((loss_of(net, now),))
        telemetry.step_begins(opt)
        opt.step()
        telemetry.step_ended(opt)
        opt.zero_grad()
        telemetry.writer.flush()
    telemetry.close()
    absent = frozenset(f"absent {event.name}" for event in events if isinstance(event, Tap) and event.state == "absent")
    return {0: absent} | {step: quantities(row) for step, row in sink.rows.items()}


@pytest.mark.parametrize("way", [monitored, attached])
@pytest.mark.parametrize("name", FIELDS)
def test_every_field_changes_the_recording(name: str, way: Callable[..., Quantities]) -> None:
    other, rest = OTHER_VALUES[name]
    rest = {"overhead_budget": 1.0} | rest
    assert way(**rest) != way(**rest | {name: other})


@pytest.mark.parametrize("way", [monitored, attached])
def test_each_level_records_its_series(way: Callable[..., Quantities]) -> None:
    by_level = {
        level: way(level=level, overhead_budget=1.0, auto_escalate=False)[11] for level in list(TelemetryLevel)[1:]
    }
    assert by_level[TelemetryLevel.MINIMAL] == {"loss", "grad_norm"}
    assert by_level[TelemetryLevel.NORMAL] == {"loss", "grad_norm", "weight_norm", "grad_zero_fraction", "update_ratio"}
    assert by_level[TelemetryLevel.DEBUG] - by_level[TelemetryLevel.NORMAL] == {
        "grad_mean", "grad_std", "grad_max_abs", "grad_small_fraction", "grad_large_fraction",
    }


def test_weights_follow_their_own_interval() -> None:
    recorded = monitored(normal_interval=5, weight_track_interval=20, auto_escalate=False, overhead_budget=1.0)
    assert [step for step in recorded if step > 20] == [25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90]
    assert [step for step, names in recorded.items() if step > 20 and "weight_norm" in names] == [40, 60, 80]

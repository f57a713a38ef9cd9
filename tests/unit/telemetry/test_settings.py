"""Every field of TelemetryConfig changes what is recorded, by a Monitor and of a program that knows nothing of telemetry."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.unit.telemetry.test_monitor import Kept
from torchtriage.recording.events import Event, Tap
from torchtriage.telemetry import Monitor, TelemetryConfig, TelemetryLevel
from torchtriage.telemetry.attach import Attached

NUM_STEPS = 90
BAD_STEPS = {*range(25, 36), *range(50, 61), *range(75, 86)}      # long enough for a look to fall into each
# One other value a field, and the settings beside it under which it must show.
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
Seen = dict[int, frozenset[str]]


def loss_of(model: torch.nn.Module, step: int) -> torch.Tensor:
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    return loss.detach() * math.nan if step in BAD_STEPS else loss.detach()


def quantities(row: dict[str, float]) -> frozenset[str]:
    """What was recorded at a step; numbers of the clock differ from run to run."""
    return frozenset(name.partition("/")[0] for name in row if not name.startswith("telemetry/"))


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))


def monitored(**settings: Any) -> Seen:
    torch._dynamo.utils.counters.clear()    # activations are not looked at in a program with compiled functions
    net, kept, ticks = model(), Kept(), itertools.count()
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    with Monitor(net, opt, sinks=[kept], config=TelemetryConfig(**settings)) as monitor:
        monitor._pace.clock = lambda: next(ticks) * 0.01       # our part of a step is some 20 % by this clock
        for step in range(1, NUM_STEPS + 1):
            monitor.after_backward(loss_of(net, step))
            opt.step()
            monitor.step()
            opt.zero_grad()
            monitor.writer.flush()
    return {step: quantities(row) for step, row in kept.rows.items()}


def attached(**settings: Any) -> Seen:
    net, kept, steps, ticks, events = model(), Kept(), itertools.count(1), itertools.count(), list[Event]()
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    now = 0
    seen = Attached(events.append, lambda: now, TelemetryConfig(**settings))
    seen.writer._kept.append(kept)
    seen._optimizers.find(opt).pace.clock = lambda: next(ticks) * 0.01
    for now in itertools.islice(steps, NUM_STEPS):
        seen.backward((loss_of(net, now),))
        seen.step_begins(opt)
        opt.step()
        seen.step_ended(opt)
        opt.zero_grad()
        seen.writer.flush()
    seen.close()
    absent = frozenset(f"absent {event.name}" for event in events if isinstance(event, Tap) and event.state == "absent")
    return {0: absent} | {step: quantities(row) for step, row in kept.rows.items()}


@pytest.mark.parametrize("way", [monitored, attached])
@pytest.mark.parametrize("name", FIELDS)
def test_every_field_changes_what_is_recorded(name: str, way: Callable[..., Seen]) -> None:
    other, rest = OTHER_VALUES[name]
    rest = {"overhead_budget": 1.0} | rest
    assert way(**rest) != way(**rest | {name: other})


@pytest.mark.parametrize("way", [monitored, attached])
def test_what_a_level_records(way: Callable[..., Seen]) -> None:
    by_level = {level: way(level=level, overhead_budget=1.0, auto_escalate=False)[11] for level in list(TelemetryLevel)[1:]}
    assert by_level[TelemetryLevel.MINIMAL] == {"loss", "grad_norm"}
    assert by_level[TelemetryLevel.NORMAL] == {"loss", "grad_norm", "weight_norm", "grad_zero_fraction", "update_ratio"}
    assert by_level[TelemetryLevel.DEBUG] - by_level[TelemetryLevel.NORMAL] == {
        "grad_mean", "grad_std", "grad_max_abs", "grad_small_fraction", "grad_large_fraction",
    }


def test_weights_follow_their_own_interval() -> None:
    seen = monitored(normal_interval=5, weight_track_interval=20, auto_escalate=False, overhead_budget=1.0)
    assert [step for step in seen if step > 20] == [25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90]
    assert [step for step, names in seen.items() if step > 20 and "weight_norm" in names] == [40, 60, 80]

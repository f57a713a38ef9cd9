"""The alarms, the collectors and the settings."""

import torch
from pulse.control.scaling import RunningScale
from pulse.learner.slots import SlotState
from pulse.signals import (
    AlarmPanel,
    RatioReport,
    Reporter,
    SignalConfig,
    SlopeCollector,
    gather_slopes,
    inspect_layers,
    inspect_soundness,
)


def test_a_high_ratio_is_an_alarm():
    assert AlarmPanel().check_ratios(9.0, 1.0).raised == ["ratio explosion"]


def test_slopes_of_a_linear_layer():
    layer = torch.nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    assert SlopeCollector().finish(SlopeCollector().start(layer.parameters()))["norm"] > 0
    assert gather_slopes(layer.parameters())["health"] == 1.0
    assert len(inspect_layers(layer)) == 2 and inspect_soundness(layer).is_sound


def test_ratios_outside_of_the_limits():
    assert RatioReport.of_batch(torch.tensor([1.0, 9.0]), torch.zeros(2)).worst == [1]


def test_the_reporter_sends_nothing_when_it_is_off():
    sent = []
    Reporter(lambda *a: sent.append(a), SignalConfig(detail=0)).after_update(torch.nn.Linear(1, 1), {}, 0.0)
    assert sent == []


def test_scaling_and_slots():
    scale = RunningScale(2)
    scale.update(torch.ones(4, 2))
    slot = SlotState(pairs=[(0, 1)])
    slot.reset()
    assert scale.normalize(torch.ones(1, 2)).shape == (1, 2) and slot.reward_sum is not None

"""Settings of a training as series."""

from typing import Any

import torch

from torchtriage.telemetry.training_settings import MAX_GROUPS, TrainingSettings

P = torch.nn.Parameter


def sgd(*rates: Any) -> torch.optim.Optimizer:
    groups = [{"params": [P(torch.zeros(2))], "lr": rate} for rate in rates]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def series(settings: TrainingSettings) -> dict[str, list[tuple[float, float]]]:
    settings.close()
    return {
        one.name: list(zip(one.steps, (round(value, 6) for value in one.values), strict=True))
        for one in settings.series()
    }


def test_a_setting_is_recorded_when_it_changes_and_at_the_end() -> None:
    settings, optimizer = TrainingSettings(), sgd(0.1)
    for step in range(1, 11):
        if step == 4:
            optimizer.param_groups[0]["lr"] = 0.01
        settings.step_ended(optimizer, "", step)
    found = series(settings)
    assert found["train/learning_rate"] == [(1, 0.1), (4, 0.01), (10, 0.01)]
    assert found["train/momentum"] == [(1, 0.9), (10, 0.9)]
    assert found["train/weight_decay"] == [(1, 0.0), (10, 0.0)]


def test_a_learning_rate_that_is_a_tensor_is_read_at_every_step() -> None:
    settings, rate = TrainingSettings(), torch.tensor(0.1)
    optimizer = sgd(rate)
    for step in range(1, 4):
        settings.step_ended(optimizer, "", step)
        optimizer.param_groups[0]["lr"].mul_(0.1)
    assert [value for _, value in series(settings)["train/learning_rate"]][:3] == [0.1, 0.01, 0.001]


def test_further_groups_and_optimizers_have_their_own_series() -> None:
    settings = TrainingSettings()
    optimizer = sgd(0.1, 0.2)
    optimizer.param_groups[1]["name"] = "head"
    settings.step_ended(optimizer, "", 1)
    settings.step_ended(sgd(*[0.3] * 20), "SGD 2", 1)
    found = series(settings)
    assert found["train/learning_rate"][0] == (1, 0.1)
    assert found["train/learning_rate/head"][0] == (1, 0.2)
    assert found["train/learning_rate/SGD 2"][0] == (1, 0.3)
    assert sum(name.startswith("train/learning_rate") for name in found) == 2 + MAX_GROUPS


def test_backward_passes_and_the_clipping_threshold_are_those_of_a_step() -> None:
    settings, optimizer = TrainingSettings(), sgd(0.1)
    for step, num in ((1, 2), (2, 2), (3, 4)):
        for _ in range(num):
            settings.backward()
        settings.clipping(1.0 if step < 3 else torch.tensor(0.5))
        settings.step_ended(optimizer, "", step)
    found = series(settings)
    assert found["train/backward_passes"] == [(1, 2), (3, 4)]
    assert found["train/clip_threshold"] == [(1, 1.0), (3, 0.5)]

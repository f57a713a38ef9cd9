"""Which optimizers of a program are one and the same."""

import gc
from collections.abc import Callable

import torch

from torchtriage.telemetry.config import TelemetryConfig
from torchtriage.telemetry.sampling.parameters import Namer
from torchtriage.telemetry.sampling.sampler import Sampling
from torchtriage.telemetry.sampling.watched_optimizers import WatchedOptimizers
from torchtriage.telemetry.writer import TelemetryWriter

NUM = 20        # more than are followed


def watched_optimizers() -> tuple[WatchedOptimizers, list[str]]:
    absent: list[str] = []
    sampling = Sampling(TelemetryConfig(), TelemetryWriter(), [], step=lambda: 1, on_refused=lambda _: None)
    return WatchedOptimizers(sampling, Namer(), lambda name, _: absent.append(name)), absent


def adam(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters())


def test_an_optimizer_that_is_made_at_every_step_is_one() -> None:
    model, (optimizers, absent) = torch.nn.Linear(2, 2), watched_optimizers()
    known = {id(optimizers.find(adam(model))) for _ in range(NUM)}
    gc.collect()
    assert len(known) == 1
    assert absent == []
    latest = adam(model)
    watched = optimizers.find(latest)
    assert watched is not None
    assert watched.optimizer() is latest
    assert optimizers.alive() == [watched]


def test_the_end_of_an_optimizer_does_not_release_parameters_of_its_successor() -> None:
    model, (optimizers, _) = torch.nn.Linear(2, 2), watched_optimizers()
    first = adam(model)
    watched = optimizers.find(first)
    assert watched is not None
    optimizers.prepare(watched, first, False)
    second = adam(model)
    assert optimizers.find(second) is watched
    del first
    gc.collect()
    assert watched.track is not None
    assert optimizers.find(second) is watched


def test_optimizers_of_other_parameters_or_of_another_class_are_apart() -> None:
    model, (optimizers, absent) = torch.nn.Linear(2, 2), watched_optimizers()
    makers: list[Callable[[], torch.optim.Optimizer]] = [
        lambda: adam(model), lambda: adam(torch.nn.Linear(2, 2)), lambda: torch.optim.SGD(model.parameters()),
    ]
    made = [make() for make in makers]
    assert len({id(optimizers.find(one)) for one in made}) == 3
    assert absent == []

"""Series of the scalars that a program logs itself."""

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from torchtriage.telemetry import logged_scalars
from torchtriage.telemetry.logged_scalars import LoggedScalars


class Logger:
    pass


LOGGER = Logger()


@pytest.fixture(autouse=True)
def no_monitors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other tests in this process may not have been closed."""
    monkeypatch.setattr(logged_scalars, "claims", weakref.WeakSet())


def series(logged: LoggedScalars, measured: frozenset[str] = frozenset()) -> dict[str, list[tuple[float, float]]]:
    logged.close()
    return {
        one.name: list(zip(one.steps, (round(value, 6) for value in one.values), strict=True))
        for one in logged.series(set(measured))
    }


def add(
    logged: LoggedScalars, scalars: Mapping[str, Any], step: int = 1, logger: Any = LOGGER, name: str = "name",
) -> None:
    named = {series: (name, value) for series, value in scalars.items()}
    logged.add("SummaryWriter", logger, named, step, True)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.array([0.5]), torch.tensor(0.5), torch.tensor([0.5])])
def test_any_number_is_a_value(value: Any) -> None:
    logged = LoggedScalars()
    add(logged, {"ppo/kl": value})
    assert series(logged) == {"ppo/kl": [(1.0, 0.5)]}


@pytest.mark.parametrize("value", ["0.5", True, np.zeros(3), torch.zeros(3), object(), 1j])
def test_anything_else_is_left_out(value: Any) -> None:
    logged = LoggedScalars()
    add(logged, {"ppo/kl": value})
    assert series(logged) == {}
    assert logged.labels(set()) == {}


def test_a_tensor_that_the_logger_did_not_read_is_not_read_from_its_device() -> None:
    logged = LoggedScalars()
    logged.add("Stable-Baselines3 Logger", LOGGER, {"ppo/kl": ("kl", torch.zeros((), device="meta"))}, 1, False)
    assert series(logged) == {}


def test_what_taps_measure_is_preferred() -> None:
    logged = LoggedScalars()
    add(logged, {"ppo/kl": 0.1, "loss": 2.0})
    assert series(logged, frozenset({"loss"})).keys() == {"ppo/kl"}
    assert logged.labels({"loss"}) == {"ppo/kl": "SummaryWriter"}


def test_a_second_logger_of_the_same_name_is_left_out_while_the_first_exists() -> None:
    logged, first, second = LoggedScalars(), Logger(), Logger()
    add(logged, {"ppo/kl": 0.1}, 1, first)
    add(logged, {"ppo/kl": 0.9}, 2, second)
    del first
    add(logged, {"ppo/kl": 0.3}, 3, second)
    assert series(logged)["ppo/kl"] == [(1.0, 0.1), (3.0, 0.3)]


def test_a_second_name_of_the_same_series_is_left_out() -> None:
    logged = LoggedScalars()
    add(logged, {"loss": 0.1}, 1, name="train/loss")
    add(logged, {"loss": 0.5}, 2, name="train/train_loss")
    assert series(logged)["loss"] == [(1.0, 0.1)]


def test_a_program_with_a_monitor_reports_itself() -> None:
    class Monitor:
        def holds(self, parameters: Any) -> bool:
            return False

    logged, monitor = LoggedScalars(), Monitor()
    add(logged, {"ppo/kl": 0.1})
    logged_scalars.claims.add(monitor)
    assert series(logged) == logged.labels(set()) == {}

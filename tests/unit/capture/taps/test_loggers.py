"""The scalars that programs pass to their loggers, as the tap sees them."""

import inspect
import pickle
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from torchtriage import background
from torchtriage.capture.taps import loggers
from torchtriage.capture.taps.loggers import LOGGERS, Logged, LoggerClass, known_scalars
from torchtriage.findings import tap_state

KINDS = {kind.label: kind for kind in LOGGERS}


class Writer:
    """A logger of a library."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> str:
        """Write one scalar."""
        if scalar_value == "bad":
            raise ValueError(tag)
        self.written.append((tag, scalar_value, global_step))
        return tag


class Tapped:
    def __init__(self) -> None:
        self.seen: list[Logged] = []
        library = ModuleType("library")
        vars(library)["Writer"] = Writer
        kind = LoggerClass(
            label="Writer", module="library", name="Writer", method="add_scalar", parameters=("tag", "scalar_value"))
        self.undo = loggers.arm(kind, library, self.seen.append)

    @property
    def scalars(self) -> list[Any]:
        return [{series: value for series, (_, value) in logged.scalars.items()} for logged in self.seen]


@pytest.fixture
def tapped() -> Iterator[Tapped]:
    tapped = Tapped()
    yield tapped
    assert tapped.undo is not None
    tapped.undo()


def test_known_names_are_seen_and_unknown_ones_are_not(tapped: Tapped) -> None:
    writer = Writer()
    assert writer.add_scalar("losses/approx_kl", 0.02, 7) == "losses/approx_kl"
    writer.add_scalar(tag="charts/learning_rate", scalar_value=1e-3)
    writer.add_scalar("my/accuracy", 0.9)
    assert writer.written == [
        ("losses/approx_kl", 0.02, 7), ("charts/learning_rate", 1e-3, None), ("my/accuracy", 0.9, None)]
    assert tapped.scalars == [{"ppo/kl": 0.02}, {"train/learning_rate": 1e-3}]
    assert tapped.seen[0].logger is writer


def test_the_method_looks_as_before(tapped: Tapped) -> None:
    method = Writer.add_scalar
    assert list(inspect.signature(method).parameters) == ["self", "tag", "scalar_value", "global_step"]
    assert (method.__name__, method.__doc__) == ("add_scalar", "Write one scalar.")
    assert pickle.loads(pickle.dumps(method)) is method
    assert inspect.getsource(method).lstrip().startswith("def add_scalar")


def test_errors_are_those_of_the_library_without_our_frame(tapped: Tapped) -> None:
    with pytest.raises(ValueError, match="losses/approx_kl") as caught:
        Writer().add_scalar("losses/approx_kl", "bad")  # type: ignore[arg-type]
    names = [entry.name for entry in caught.traceback]
    assert names == ["test_errors_are_those_of_the_library_without_our_frame", "add_scalar"]
    with pytest.raises(TypeError, match=r"add_scalar\(\) missing 2 required positional arguments"):
        Writer().add_scalar()  # type: ignore[call-arg]
    assert tapped.seen == []


def test_a_failing_observer_does_not_reach_the_program() -> None:
    library = ModuleType("library")
    vars(library)["Writer"] = Writer

    def fail(_: Logged) -> None:
        raise RuntimeError("ours")

    undo = loggers.arm(
        LoggerClass(label="", module="", name="Writer", method="add_scalar", parameters=("tag", "scalar_value")),
        library, fail)
    assert undo is not None
    try:
        assert Writer().add_scalar("losses/approx_kl", 0.02) == "losses/approx_kl"
    finally:
        undo()
    assert not hasattr(Writer.add_scalar, "torchtriage_original")


def test_calls_of_our_own_sinks_are_not_seen(tapped: Tapped) -> None:
    def log_as_a_sink() -> None:
        background.own_threads.add(threading.get_ident())
        Writer().add_scalar("ppo/kl", 0.02)
        background.own_threads.discard(threading.get_ident())

    thread = threading.Thread(target=log_as_a_sink)
    thread.start()
    thread.join()
    assert tapped.seen == []


def test_a_library_without_the_method_is_reported_as_such() -> None:
    assert loggers.arm(LOGGERS[0], ModuleType("other"), lambda _: None) is None


def test_a_report_without_names_of_the_program_names_the_taps() -> None:
    assert tuple(KINDS) == tap_state.LOGGERS


def test_scalars_of_a_dict_are_read_by_name() -> None:
    data = {"train/loss": 1.0, "reward": 3.0, 7: 2.0, "losses/clipfrac": None, "grad_norm/fc.weight": 1.0}
    assert known_scalars(("data",), [data], {}) == {"loss": ("train/loss", 1.0)}
    given = {"metrics": {"train/approx_kl": 0.1, "losses/approx_kl": 0.2}}
    assert known_scalars(("metrics",), [], given) == {"ppo/kl": ("train/approx_kl", 0.1)}
    assert known_scalars(("data",), [], {}) == known_scalars(("data",), ["text"], {}) == {}


def test_the_real_libraries_have_these_methods() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.logger import Logger
    from torch.utils.tensorboard import SummaryWriter

    for kind, cls in ((KINDS["Stable-Baselines3 Logger"], Logger), (KINDS["SummaryWriter"], SummaryWriter)):
        method = getattr(cls, kind.method)
        assert list(inspect.signature(method).parameters)[1:3] == list(kind.parameters)
        assert method.__qualname__ == f"{kind.name}.{kind.method}"
        assert cls.__module__ == kind.module

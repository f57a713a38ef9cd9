"""The state of an object becomes data and comes back; what is not data, and data that does not fit, is refused."""

import collections
import enum
import random
import sys
import threading
from typing import Any

import numpy as np
import pytest

from torchtriage.rl.envs.state_data import NotDataError, from_data, to_data


class Phase(enum.Enum):
    DAY = 1
    NIGHT = 2


class Inner:
    def __init__(self) -> None:
        self.number = 0

    def method(self) -> int:
        return self.number


class Outer:
    def __init__(self) -> None:
        self.inner = Inner()
        self.phase = Phase.DAY
        self.module: Any = sys
        self.items: list[Any] = [Inner(), 1]


class Slotted:
    __slots__ = ("x",)


VALUES = [
    None, True, 2**200, -1.5, float("inf"), "text", b"\0\xff", [], (1, (2, "x")), {1, 2}, frozenset("ab"),
    {"a": [1], 2: None, (1, 2): "key"}, np.arange(6, dtype=np.float32).reshape(2, 3), np.array("text"),
    np.zeros((0, 3)), np.bool_(True), np.float32(0.1), np.int64(7), np.array([1 + 2j]),
    collections.deque([1, 2], maxlen=2),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_with_its_type(value: Any) -> None:
    found = from_data(to_data(value, "x"), None, "x")
    assert type(found) is type(value)
    if isinstance(value, np.ndarray):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert found.tolist() == value.tolist()
    else:
        assert found == value


@pytest.mark.parametrize("name", ["PCG64", "MT19937", "Philox", "SFC64"])
def test_a_generator_continues(name: str) -> None:
    generator = np.random.Generator(getattr(np.random, name)(3))
    generator.normal(size=5)
    found = from_data(to_data(generator, "x"), None, "x")
    assert found.normal(size=5).tolist() == generator.normal(size=5).tolist()
    python = random.Random(3)
    python.random()
    assert from_data(to_data(python, "x"), None, "x").random() == python.random()


def test_an_object_gets_its_attributes_back() -> None:
    saved, present = Outer(), Outer()
    saved.inner.number, saved.phase, saved.items[0].number = 7, Phase.NIGHT, 8
    saved.items.append("more")
    saved.later = saved.inner      # type: ignore[attr-defined]  # one object with two names
    present.gone = 1               # type: ignore[attr-defined]
    inner, item = present.inner, present.items[0]
    assert from_data(to_data(saved, "env"), present, "env") is present
    assert (present.inner, present.items[0]) == (inner, item)
    assert (inner.number, item.number, present.items[1:], present.phase) == (7, 8, [1, "more"], Phase.NIGHT)
    assert (vars(present)["later"], hasattr(present, "gone"), present.module) == (inner, False, sys)


def test_a_list_that_contains_itself_comes_back() -> None:
    value: list[Any] = [1]
    value.append(value)
    found = from_data(to_data(value, "x"), None, "x")
    assert found[1] is found


@pytest.mark.parametrize("value", [
    threading.Lock(), lambda: 1, Slotted(), object(), np.array([None]), (i for i in ()), Inner().method, {1: [open]},
], ids=lambda value: type(value).__name__)
def test_what_is_not_data_is_refused_by_name(value: Any) -> None:
    class Env:
        pass

    env = Env()
    env.part = value        # type: ignore[attr-defined]
    if isinstance(value, dict):
        assert to_data(env, "env")      # a function under its name in a module is the same after a new start
        return
    with pytest.raises(NotDataError, match=r"^env\.part"):
        to_data(env, "env")


def test_two_arrays_in_one_memory_are_refused() -> None:
    whole = np.zeros(4)
    with pytest.raises(NotDataError, match=r"x\[1\] shares its memory with another array"):
        to_data([whole, whole[:2]], "x")
    assert to_data([whole, whole], "x")     # one array with two names


@pytest.mark.parametrize("data", [
    ["object", "builtins.module", [["path", "x"]]],
    ["object", "tests.unit.rl.envs.test_state_data.Inner", [["method", 1]]],
    ["object", "tests.unit.rl.envs.test_state_data.Inner", [["number"]]],
    ["object", "builtins.type", []],
    ["constant", "os.system"],
    ["array", "|O", [1], b"12345678"],
    ["array", "<f8", [2], b"12345678"],
    ["array", "<f8", [-1, -1], b"12345678"],
    ["generator", "__builtins__", {}],
    ["generator", "PCG64", 7],
    ["member", "builtins.int", "x"],
    ["same", 5],
    ["pickle", b"cos\nsystem\n."],
    [],
    {"a": 1},
    [["list"]],
], ids=str)
def test_data_that_does_not_fit_changes_nothing(data: Any) -> None:
    present = Inner()
    for now in (present, sys, None, Inner):
        with pytest.raises(NotDataError):
            from_data(data, now, "env")
    assert vars(present) == {"number": 0}
    assert present.method() == 0


def test_data_nested_too_deeply_is_refused() -> None:
    data: Any = 1
    for _ in range(100_000):
        data = ["tuple", [data]]
    with pytest.raises(NotDataError):
        from_data(data, None, "env")
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotDataError):
        to_data(value, "env")

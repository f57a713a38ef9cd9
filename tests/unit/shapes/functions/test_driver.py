"""The program that calls one function with inputs of several sizes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.programs import write
from torchtriage.errors import CommandError
from torchtriage.shapes.functions import driver
from torchtriage.shapes.functions.driver import REFUSED, call, main, parse_sizes, shuffled


def test_sizes_may_be_weighted() -> None:
    assert parse_sizes("16, 32,57x3") == [16, 32, 57, 57, 57]


@pytest.mark.parametrize("text", ["", "16,,32", "16x", "big", "16,-3", "1.5"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(CommandError, match="give numbers such as"):
        parse_sizes(text)


def test_the_order_is_mixed_and_the_same_in_every_run() -> None:
    order = shuffled([1, 2, 3], 10)
    assert order == shuffled([1, 2, 3], 10)
    assert sorted(order) == [1] * 10 + [2] * 10 + [3] * 10
    assert order != [1, 2, 3] * 10


@pytest.mark.parametrize(("maker", "expected"), [
    (lambda size: (size, 2), ((5, 2), {})), (lambda size: {"x": size}, ((), {"x": 5})), (lambda size: size, ((5,), {})),
])
def test_inputs_may_be_a_tuple_a_dict_or_a_single_value(maker: Callable[[int], Any], expected: object) -> None:
    calls: list[object] = []
    call(lambda *args, **kwargs: calls.append((args, kwargs)), maker, [5, 5])
    assert calls == [expected, expected]


@pytest.mark.parametrize(("source", "name", "inputs", "made_by"), [
    ("def f(x): ...\ndef f_inputs(n): ...\ndef make_inputs(n): ...", "f", "", "f_inputs"),
    ("def f(x): ...\ndef make_inputs(n): ...", "f", "", "make_inputs"),
    ("def f(x): ...\ndef mine(n): ...", "f", "mine", "mine"),
    ("class A:\n    def f(self): ...\na = A()\ndef make_inputs(n): ...", "a.f", "", "make_inputs"),
])
def test_the_function_that_makes_the_inputs_is_chosen_by_name(
    source: str, name: str, inputs: str, made_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    def call(function: Any, maker: Any, sizes: list[int]) -> None:
        calls.append((function.__name__, maker.__name__, len(sizes)))

    calls: list[tuple[str, str, int]] = []
    monkeypatch.setattr(driver, "compiled", lambda function: function)
    monkeypatch.setattr(driver, "call", call)
    main([str(write(tmp_path, source, "m.py")), name, "4,8", inputs, "3"])
    assert calls == [("f", made_by, 6)]


@pytest.mark.parametrize(("source", "name", "inputs", "message"), [
    ("def f(x): ...\ndef g(x): ...", "h", "", "has no function h; it has: f, g"),
    ("def f(x): ...", "f", "", "has no f_inputs or make_inputs that makes the inputs for a size"),
    ("def f(x): ...\ndef make_inputs(n): ...", "f", "mine", "has no mine that makes"),
    ("x = 1", "f", "", "it has: no function"),
])
def test_a_missing_function_is_reported_with_those_that_exist(
    source: str, name: str, inputs: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(write(tmp_path, source, "m.py")), name, "4", inputs, "1"])
    assert caught.value.code == REFUSED
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_python_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(write(tmp_path, "x", "m.txt")), "f", "4", "", "1"])
    assert "is not a Python file" in capsys.readouterr().err

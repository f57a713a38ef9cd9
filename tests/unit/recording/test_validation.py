"""A value from a file is converted to its declared type, or refused with what was expected and what was found."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from torchtriage.recording.validation import AnyFloat, Time, WrongTypeError, checked

YEAR_10000 = 253_402_300_800


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: int
    label: str = ""


@pytest.mark.parametrize(("value", "hint", "converted"), [
    ("a", str, "a"), (3, int, 3), (3, float, 3), (1.5, float, 1.5), (True, bool, True), (None, int | None, None),
    (math.inf, AnyFloat, math.inf), (0, Time, 0), (1.7e9, Time, 1.7e9),
    ([1, 2], tuple[int, ...], (1, 2)), ([1, "a"], tuple[int, str], (1, "a")),
    ({"a": [1]}, Mapping[str, tuple[int, ...]], {"a": (1,)}),
    ({"x": 1}, Point, Point(x=1)), ({"x": 1, "later": 2}, Point, Point(x=1)), ({"any": [None]}, Any, {"any": [None]}),
])
def test_a_value_that_fits_is_converted(value: Any, hint: Any, converted: Any) -> None:
    assert checked(value, hint) == converted


@pytest.mark.parametrize(("value", "hint", "message"), [
    (True, int, "expected a whole number, found true or false"),
    (1.5, int, "expected a whole number, found a number"),
    (2**63, int, "expected a whole number, found a whole number that is too large"),
    (10**400, float, "expected a finite number, found a whole number that is too large"),
    (1e308, float, "expected a finite number, found a number that is too large"),
    (math.nan, float, "expected a finite number, found nan"),
    (-math.inf, float | None, "expected a finite number or null, found -inf"),
    (10**400, AnyFloat, "expected a number, found a whole number that is too large"),
    (-1, Time, "expected a time in seconds since 1970, found a whole number"),
    (YEAR_10000, Time, "expected a time in seconds since 1970, found a whole number"),
    (math.nan, Time | None, "expected a time in seconds since 1970 or null, found nan"),
    ("1", Time, "expected a time in seconds since 1970, found text"),
    ([1, "a"], tuple[int, ...], "expected a list, found a list with other content"),
    ([1], tuple[int, str], "expected a list, found a list with other content"),
    ({"a": None}, Mapping[str, int], "expected an object, found an object with other content"),
    ({"label": "a"}, Point, "expected an object, found an object with other content"),
    ([], Point, "expected an object, found a list with other content"),
])
def test_a_value_that_does_not_fit_is_refused(value: Any, hint: Any, message: str) -> None:
    with pytest.raises(WrongTypeError) as caught:
        checked(value, hint)
    assert str(caught.value) == message


def test_a_type_without_a_check_is_an_error_of_the_code() -> None:
    with pytest.raises(TypeError, match="no check for values of type"):
        checked(b"", bytes)

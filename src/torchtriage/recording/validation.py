"""Checks a value read from a file against the type that the code declares for it."""

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

AnyFloat = Annotated[float, "may be infinite or NaN"]   # a measured value; every other float is finite
Time = Annotated[float, "seconds since the epoch"]
LARGEST = 2**63     # JSON holds any number of digits, but no number in a recording reaches this
MAX_DEPTH = 50      # lists in lists; the deepest of ours have seven levels
YEAR_10000 = 253_402_300_800    # seconds since the epoch; later times have no date
_NAMES: Mapping[Any, str] = {
    str: "text", int: "a whole number", float: "a finite number", bool: "true or false", type(None): "null",
    AnyFloat: "a number", Time: "a time in seconds since 1970",
}
_NAMES_OF_VALUES: Mapping[type, str] = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null",
    list: "a list", dict: "an object",
}
T = TypeVar("T")


class WrongTypeError(ValueError):
    """The value is not of the declared type; the text says what was expected and what was found."""


def checked(value: object, hint: Any) -> Any:
    """The value in its declared form: a JSON array becomes a tuple, an object a mapping or a dataclass.

    Raises WrongTypeError if any part of the value does not fit.
    """
    fits, converted = _converter(hint)(value)
    if not fits:
        raise WrongTypeError(f"expected {_expected(hint)}, found {_found(value)}")
    return converted


def parsed_json(text: str | bytes) -> Any:
    """The value of a JSON text from a file; raises ValueError if it is none, or is nested more deeply than any of ours.

    A value that is nested almost as deeply as Python allows could be read, but no longer written.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [value]
    for _ in range(MAX_DEPTH):
        if not level:
            return value
        below: list[Any] = []
        for outer in level:
            if isinstance(outer, dict):
                below += outer.values()
            elif isinstance(outer, list):
                below += outer
        level = below
    raise ValueError("it is nested too deeply")


def field_types(cls: type) -> Mapping[str, Any]:
    """The type hint of every field of a dataclass that comes from a file, by name."""
    if cls not in _FIELD_TYPES:
        hints = typing.get_type_hints(cls, include_extras=True)
        _FIELD_TYPES[cls] = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    return _FIELD_TYPES[cls]


_FIELD_TYPES: dict[type, Mapping[str, Any]] = {}


Converted = tuple[bool, Any]    # (whether the value fits, its declared form)
_MISFIT: Converted = (False, None)


@functools.cache
def _converter(hint: Any) -> Callable[[Any], Converted]:
    """A function that converts values to one type; made once per type, as a recording holds many values."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value: (True, value)
    if hint in (str, bool, type(None)):
        return lambda value: (isinstance(value, hint), value)
    if hint is int:
        return lambda value: (_is_int(value), value)
    if hint is float:
        return lambda value: (_is_number(value) and -LARGEST < value < LARGEST, value)
    if hint == Time:
        return lambda value: (_is_number(value) and 0 <= value < YEAR_10000, value)
    if hint == AnyFloat:
        return lambda value: (_is_number(value), value)
    if origin in (types.UnionType, typing.Union):
        return _union(args)
    if origin is tuple:
        return _array(args[0]) if args[1:] == (...,) else _fixed_array(args)
    if origin is Mapping:
        return _mapping(*args)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass(hint)
    raise TypeError(f"no check for values of type {hint!r}; use a plain type, a tuple, a Mapping or a dataclass")


def _is_int(value: object) -> bool:
    return type(value) is int and -LARGEST < value < LARGEST


def _is_number(value: object) -> bool:
    """Whether the value is any float, NaN and infinity included, or an int in bounds."""
    return type(value) is float or _is_int(value)


def _union(hints: tuple[Any, ...]) -> Callable[[Any], Converted]:
    converters = [_converter(hint) for hint in hints]

    def convert(value: Any) -> Converted:
        for converter in converters:
            converted = converter(value)
            if converted[0]:
                return converted
        return _MISFIT

    return convert


def _array(hint: Any) -> Callable[[Any], Converted]:
    converter = _converter(hint)

    def convert(value: Any) -> Converted:
        if not isinstance(value, list | tuple):
            return _MISFIT
        items = [converter(item) for item in value]
        return all(fits for fits, _ in items), tuple(item for _, item in items)

    return convert


def _fixed_array(hints: tuple[Any, ...]) -> Callable[[Any], Converted]:
    converters = [_converter(hint) for hint in hints]

    def convert(value: Any) -> Converted:
        if not isinstance(value, list | tuple) or len(value) != len(converters):
            return _MISFIT
        items = [converter(item) for converter, item in zip(converters, value, strict=True)]
        return all(fits for fits, _ in items), tuple(item for _, item in items)

    return convert


def _mapping(key_hint: Any, value_hint: Any) -> Callable[[Any], Converted]:
    key_converter, value_converter = _converter(key_hint), _converter(value_hint)

    def convert(value: Any) -> Converted:
        if not isinstance(value, Mapping):
            return _MISFIT
        items = {}
        for key, item in value.items():
            fits, converted = value_converter(item)
            if not fits or not key_converter(key)[0]:
                return _MISFIT
            items[key] = converted
        return True, items

    return convert


def _dataclass(cls: type) -> Callable[[Any], Converted]:
    converters = {name: _converter(hint) for name, hint in field_types(cls).items()}

    def convert(value: Any) -> Converted:
        if not isinstance(value, Mapping):
            return _MISFIT
        fields = {}
        for name, converter in converters.items():
            if name in value:
                fits, fields[name] = converter(value[name])
                if not fits:
                    return _MISFIT
        try:
            return True, cls(**fields)
        except TypeError:       # a field without a default is missing
            return _MISFIT

    return convert


def _expected(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in _NAMES:
        return _NAMES[hint]
    if origin in (types.UnionType, typing.Union):
        return " or ".join(map(_expected, args))
    if origin is tuple:
        return "a list"
    return "an object"


def _found(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    name = _NAMES_OF_VALUES.get(type(value), type(value).__name__)
    if isinstance(value, list | dict):
        return f"{name} with other content"
    if isinstance(value, int | float) and abs(value) >= LARGEST:
        return f"{name} that is too large"
    return name

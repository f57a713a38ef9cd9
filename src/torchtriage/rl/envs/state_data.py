"""The state of an object as plain data, from which a new object is filled: nothing in a file names code.

Data has numbers, text, bytes and lists only. An object is stored as its attributes, which are later set on the object
of the same class at the same place. So an environment that is constructed again gets its state back. What cannot be
data, such as the handle of a simulator, is refused by its name.
"""

from __future__ import annotations

import collections
import enum
import math
import random
import re
import sys
from typing import Any, Never

import numpy as np
from gymnasium.envs.registration import EnvSpec

_SCALARS = (type(None), bool, int, float, str, bytes)
_DTYPE = re.compile(r"[<>|=][biufcSU]\d{1,9}")
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


class _Plain:
    """The state of an instance is its attributes. An instance of a class with slots, or of C, has another size."""


class NotDataError(ValueError):
    """A part of a state cannot be data, or data does not fit its object; the text names the part."""


def to_data(value: Any, name: str) -> Any:
    """The state of a value as data; raises NotDataError if a part of it cannot be data."""
    try:
        return _Writer().data_of(value, name)
    except RecursionError:
        raise NotDataError(f"{name} is nested too deeply") from None


def from_data(data: Any, present: Any, name: str) -> Any:
    """The value with this state; if it is an object, that is `present`, whose attributes are set.

    Raises NotDataError, and changes nothing, if the data is damaged or of another object.
    """
    reader = _Reader()
    try:
        value = reader.value_of(data, present, name)
    except NotDataError:
        raise
    except Exception as error:      # data from a file may have any form
        raise NotDataError(f"the state of {name} is damaged ({type(error).__name__}: {error})") from error
    for found, attributes in reader.attributes:
        vars(found).clear()
        vars(found).update(attributes)
    return value


class _Writer:
    """Values that can change are numbered in the order of their first use, so that one with two names stays one."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []      # alive, so that no id is used twice
        self._owners: set[int] = set()  # of the memory of arrays

    def data_of(self, value: Any, name: str) -> Any:
        kind = type(value)
        if kind in _SCALARS:
            return value
        if isinstance(value, np.generic):
            return ["number", *_bytes_of(np.asarray(value), name)]
        if isinstance(value, enum.Enum):
            return ["member", _name_of(kind), value.name]
        if isinstance(value, EnvSpec) or _is_global(value):
            return ["constant", _name_of(value)]
        if kind in (tuple, frozenset):
            return [kind.__name__, self._items(value, name)]
        if id(value) in self._numbers:
            return ["same", self._numbers[id(value)]]
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        return self._changeable(value, kind, name)

    def _changeable(self, value: Any, kind: type, name: str) -> Any:
        if kind in (list, set):
            return [kind.__name__, self._items(value, name)]
        if kind is collections.deque:
            return ["deque", self._items(value, name), value.maxlen]
        if kind is dict:
            return ["dict", self._items(value, f"the keys of {name}"), self._items(value.values(), name)]
        if kind is np.ndarray:
            return ["array", *self._array(value, name)]
        if kind is np.random.Generator:
            bits = value.bit_generator
            if type(bits).__name__ in _BIT_GENERATORS:
                return ["generator", type(bits).__name__, self.data_of(bits.state, name)]
        if kind is random.Random:
            return ["random", self.data_of(value.getstate(), name)]
        _check_plain(value, name)
        attributes = [[key, self.data_of(item, f"{name}.{key}")] for key, item in vars(value).items()]
        return ["object", _name_of(kind), attributes]

    def _items(self, values: Any, name: str) -> list[Any]:
        return [self.data_of(item, f"{name}[{index}]") for index, item in enumerate(values)]

    def _array(self, array: Any, name: str) -> list[Any]:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if id(owner) in self._owners:
            raise NotDataError(f"{name} shares its memory with another array")
        self._owners.add(id(owner))
        self._kept.append(owner)
        return _bytes_of(array, name)


class _Reader:
    """Objects keep their attributes until all data was read; `attributes` are those to set."""

    def __init__(self) -> None:
        self._values: list[Any] = []    # by their number
        self.attributes: list[tuple[Any, dict[str, Any]]] = []

    def value_of(self, data: Any, present: Any, name: str) -> Any:
        if type(data) in _SCALARS:
            return data
        kind, *content = data
        if kind == "number":
            return _array_of(content, name)[()]
        if kind == "member":
            _check_same(_name_of(type(present)), content[0], name)
            return type(present)[content[1]]
        if kind == "constant":
            _check_same(_name_of(present), content[0], name)
            return present
        if kind in ("tuple", "frozenset"):
            items = self._items(content[0], present, name)
            return tuple(items) if kind == "tuple" else frozenset(items)
        if kind == "same":
            return self._values[content[0]]
        return self._changeable(kind, content, present, name)

    def _changeable(self, kind: str, content: list[Any], present: Any, name: str) -> Any:
        value = _empty(kind, content, present, name)
        self._values.append(value)      # before its content, which may refer to it
        if kind in ("list", "deque"):
            value.extend(self._items(content[0], present, name))
        elif kind == "set":
            value.update(self._items(content[0], None, name))
        elif kind == "dict":
            keys = self._items(content[0], None, name)
            inner = [present.get(key) if isinstance(present, dict) else None for key in keys]
            value.update(zip(keys, self._items(content[1], inner, name), strict=True))
        elif kind == "generator":
            value.bit_generator.state = self.value_of(content[1], None, name)
        elif kind == "random":
            value.setstate(self.value_of(content[0], None, name))
        elif kind == "object":
            self.attributes.append((value, self._attributes(value, content[1], name)))
        return value

    def _items(self, items: list[Any], present: Any, name: str) -> list[Any]:
        known = list(present) if isinstance(present, list | tuple | collections.deque) else []
        known += [None] * (len(items) - len(known))
        return [self.value_of(item, known[index], f"{name}[{index}]") for index, item in enumerate(items)]

    def _attributes(self, value: Any, items: list[list[Any]], name: str) -> dict[str, Any]:
        attributes = {}
        for key, item in items:
            present = vars(value).get(key)
            attributes[key] = self.value_of(item, present, f"{name}.{key}")
            if callable(getattr(type(value), key, None)) and attributes[key] is not present:
                raise NotDataError(f"{name}.{key} is a function of its class, not a state")
        return attributes


def _empty(kind: str, content: list[Any], present: Any, name: str) -> Any:
    """The value of this kind, still without its content."""
    if kind == "array":
        return _array_of(content, name)
    if kind == "generator":
        if content[0] not in _BIT_GENERATORS:
            raise NotDataError(f"{name} has an unknown generator")
        return np.random.Generator(getattr(np.random, content[0])())
    if kind == "deque":
        return collections.deque(maxlen=content[1])
    if kind == "object":
        _check_same(_name_of(type(present)), content[0], name)
        _check_plain(present, name)
        return present
    return {"list": list, "set": set, "dict": dict, "random": random.Random}[kind]()


def _bytes_of(array: Any, name: str) -> list[Any]:
    if not _DTYPE.fullmatch(array.dtype.str):
        _refuse(array, name)
    return [array.dtype.str, list(array.shape), array.tobytes()]


def _array_of(content: list[Any], name: str) -> Any:
    dtype, shape, data = content
    if not _DTYPE.fullmatch(dtype) or math.prod(shape) * np.dtype(dtype).itemsize != len(data):
        raise NotDataError(f"the array {name} is damaged")
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _is_global(value: Any) -> bool:
    """Whether this is a module, or a function, class or type that its module has under its name."""
    if isinstance(value, type(sys) | np.dtype):
        return True
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return callable(value) and name is not None and getattr(sys.modules.get(str(module)), name, None) is value


def _name_of(value: Any) -> str:
    if isinstance(value, EnvSpec):
        return str(value.id)
    if isinstance(value, np.dtype):
        return str(value.str)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "")
    return f"{getattr(value, '__module__', '')}.{name}"


def _check_same(present: str, saved: object, name: str) -> None:
    if present != saved:
        raise NotDataError(f"{name} was {saved} when it was saved, and is {present} now")


def _check_plain(value: Any, name: str) -> None:
    if type(value).__basicsize__ != _Plain.__basicsize__ or not hasattr(value, "__dict__"):
        _refuse(value, name)


def _refuse(value: Any, name: str) -> Never:
    raise NotDataError(f"{name} is of type {type(value).__qualname__}")

"""Lazy public names of a package: they load on first use, so that importing the package costs next to nothing."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]],
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package; `homes` maps each of its modules to the names in it."""
    home_of = {name: home for home, names in homes.items() for name in names}
    public = sorted(home_of)

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has: {', '.join(public)}")
        value = getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return public, get, lambda: list(public)

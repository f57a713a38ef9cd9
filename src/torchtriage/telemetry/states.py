"""Checks a saved state before anything of it is taken: what was expected, what was found, what to do."""

from collections.abc import Mapping
from typing import Any


def check_state(owner: object, state: Mapping[str, Any], version: int, expected: Mapping[str, type | tuple[type, ...]]) -> None:
    """`expected`: the keys beside the version, each with the types its value may have; True and False are no numbers here."""
    name = type(owner).__name__
    do = f"take it from {name}.state_dict() of this release, or start without it"
    if not isinstance(state, Mapping):
        raise ValueError(f"{name} expects a state of version {version}, found a {type(state).__name__}; {do}")
    if state.get("version") != version:
        raise ValueError(f"{name} expects a state of version {version}, found {state.get('version', 'none')}; {do}")
    if missing := [key for key in expected if key not in state]:
        raise ValueError(f"{name} expects a state with {', '.join(expected)}, found none of: {', '.join(missing)}; {do}")
    for key, kind in expected.items():
        value = state[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{name} expects {key} to be {_names(kind)}, found {value!r}; {do}")


def _names(kind: type | tuple[type, ...]) -> str:
    return " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))

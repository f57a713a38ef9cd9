"""The request in TORCHTRIAGE_OPERATIONS: what a process does, where it leaves the result."""

import json
from dataclasses import dataclass
from typing import Any

GRAPHS, EAGER_STREAM, TRACED_STREAM = "graphs", "eager stream", "traced stream"
ORIGIN, UNCHANGED = "origin", "unchanged"
_MODES = (GRAPHS, EAGER_STREAM, TRACED_STREAM, ORIGIN, UNCHANGED)
MAX_STEP = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsRequest:
    """`graphs` compares each compiled graph with its operations run singly.

    `eager stream` records the operations of one step that runs eagerly, `traced stream` those that Dynamo traced.
    `origin` follows NaN and Inf through steps that run eagerly, `unchanged` only looks whether they appear.
    """

    mode: str
    folder: str                 # of the result, which must exist
    step: int | None = None     # the first bad step, counted from 1; None: not known
    first_step: int = 1         # the first step in which NaN and Inf are followed
    save_state: str = ""        # the file for the weights and random state with which the step begins
    load_state: str = ""        # the file from which the step begins instead


def parse_request(text: str) -> OperationsRequest:
    """The request in this JSON; ValueError names the first problem."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise ValueError("it must be a JSON object")
    for key, value in data.items():
        problem = _problem(key, value)
        if problem:
            raise ValueError(problem)
    missing = {"mode", "folder"} - data.keys()
    if missing:
        raise ValueError(f'"{min(missing)}" is missing')
    return OperationsRequest(**data)


def _problem(key: str, value: Any) -> str:
    if key == "mode":
        return "" if value in _MODES else f'"mode" must be one of {", ".join(_MODES)}, got {value!r}'
    if key == "step":
        is_step = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_STEP
        return "" if value is None or is_step else f'"step" must be an integer above 0, got {value!r}'
    if key == "first_step":
        is_step = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_STEP
        return "" if is_step else f'"first_step" must be an integer above 0, got {value!r}'
    if key in ("folder", "save_state", "load_state"):
        return "" if isinstance(value, str) else f'"{key}" must be a path, got {value!r}'
    return f'"{key}" is not a field of a request'

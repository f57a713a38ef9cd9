"""The shape policy that TORCHTRIAGE_POLICY asks for, and how it is forced on every torch.compile call of an unchanged program."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchtriage.capture.torch_private import shapes as torch_private_shapes
from torchtriage.recording.events import CompileCall

DYNAMIC: Mapping[str, bool | None] = {"true": True, "false": False, "none": None}
_WORDS = {value: word for word, value in DYNAMIC.items()}
MAX_OVERRIDES = 1000    # distinct calls that are listed; a program that makes its compile calls from generated code may have any number


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a run is to be forced to and what it shall note; what is left out stays as the program wrote it."""

    name: str = ""
    dynamic: str | None = None
    at: Mapping[str, str] = field(default_factory=dict)     # "path:line" of a torch.compile call -> its own, which goes before `dynamic`
    recompile_limit: int | None = None
    backend: str | None = None
    sizes: bool = False
    paused: str = ""        # the file with the seconds that the process stood still, where it takes turns with others
    received: Mapping[str, Any] = field(default_factory=dict)


def parse_policy(text: str) -> Policy:
    """The policy in this JSON; ValueError says what is wrong with it."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise ValueError(f"it must be a JSON object, got {_shown(data)}")
    for key, value in data.items():
        expected = _problem(key, value)
        if expected:
            raise ValueError(f"{expected}, got {_shown(value)}")
    return Policy(**data, received=data)


def _problem(key: str, value: Any) -> str:
    """What a value must be that is not; "" if it is well."""
    names = ", ".join(f'"{word}"' for word in DYNAMIC)
    if key == "dynamic":
        return "" if _is_dynamic(value) else f'"dynamic" must be one of {names}'
    if key == "at":
        is_well = isinstance(value, dict) and all(map(_is_dynamic, value.values()))
        return "" if is_well else f'"at" must give each "path:line" one of {names}'
    if key == "recompile_limit":
        is_well = isinstance(value, int) and not isinstance(value, bool) and value > 0
        return "" if is_well else '"recompile_limit" must be a whole number above 0'
    if key in ("name", "backend", "paused"):
        return "" if isinstance(value, str) and value else f'"{key}" must be a name'
    if key == "sizes":
        return "" if isinstance(value, bool) else '"sizes" must be true or false'
    return f'"{key}" is no part of a policy'


def _is_dynamic(value: Any) -> bool:
    return isinstance(value, str) and value in DYNAMIC


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class Forcing:
    """Changes the arguments of the program's torch.compile calls, and remembers which of them it changed."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._overrides: dict[tuple[str, int | None, str, str, str], None] = {}

    def apply(self, call: CompileCall, arguments: dict[str, Any]) -> None:
        """Force the policy on one call, given as it was written and as the arguments of torch._dynamo.optimize."""
        self.raise_limit()
        if call.disabled:
            return
        wanted = self._policy.at.get(f"{call.path}:{call.line}", self._policy.dynamic)
        if wanted is not None:
            self._force_dynamic(call, arguments, wanted)
        if self._policy.backend is not None:
            arguments["backend"] = self._policy.backend
        limit = arguments.get("recompile_limit")
        if limit is not None and self._policy.recompile_limit is not None:
            arguments["recompile_limit"] = max(limit, self._policy.recompile_limit)

    def raise_limit(self) -> None:
        """Again and again: the program may set the limit itself at any time."""
        if self._policy.recompile_limit is not None:
            torch_private_shapes.raise_recompile_limit(self._policy.recompile_limit)

    def facts(self) -> dict[str, Any]:
        keys = ("path", "line", "target", "written", "forced")
        return {"policy": self._policy.received, "overrides": [dict(zip(keys, row, strict=True)) for row in list(self._overrides)]}

    def _force_dynamic(self, call: CompileCall, arguments: dict[str, Any], wanted: str) -> None:
        dynamic = arguments.get("dynamic")
        written = _WORDS.get(dynamic, str(dynamic))
        if arguments.get("shapes_spec") is not None:    # torch refuses it together with dynamic=
            arguments["shapes_spec"] = None
            written = "shapes_spec"
        if written == wanted:
            return
        arguments["dynamic"] = DYNAMIC[wanted]
        torch_private_shapes.tell_backend(arguments.get("backend"), DYNAMIC[wanted])
        if len(self._overrides) < MAX_OVERRIDES:
            self._overrides[call.path, call.line, call.target, written, wanted] = None

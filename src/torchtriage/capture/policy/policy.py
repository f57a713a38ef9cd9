"""The shape policy in TORCHTRIAGE_POLICY, forced on every torch.compile call of an unmodified program."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torchtriage.capture.torch_private import shapes as torch_private_shapes
from torchtriage.recording.events import CompileCall

DYNAMIC: Mapping[str, bool | None] = {"true": True, "false": False, "none": None}
_WORDS = {value: word for word, value in DYNAMIC.items()}
# Distinct calls that are listed. A program that compiles generated code may make any number of them.
MAX_OVERRIDES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedPolicy:
    """What a run is forced to do and what it records; a field that is not set leaves the program's own choice."""

    name: str = ""
    dynamic: str | None = None
    # "path:line" of a torch.compile call -> its own value, which takes precedence over `dynamic`
    at: Mapping[str, str] = field(default_factory=dict)
    recompile_limit: int | None = None
    backend: str | None = None
    sizes: bool = False     # record the sizes of every call
    paused: str = ""        # the file with the seconds the process was paused, if it takes turns with others

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set: the JSON object that `parse_policy` reads."""
        return {name: value for name, value in asdict(self).items() if value}


def parse_policy(text: str) -> ForcedPolicy:
    """The policy in this JSON; ValueError names the first problem."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise ValueError(f"it must be a JSON object, got {_shortened(data)}")
    for key, value in data.items():
        problem = _problem(key, value)
        if problem:
            raise ValueError(f"{problem}, got {_shortened(value)}")
    return ForcedPolicy(**data)


def _problem(key: str, value: Any) -> str:
    """What this field must be, if the value is not that; else empty."""
    names = ", ".join(f'"{word}"' for word in DYNAMIC)
    if key == "dynamic":
        return "" if _is_dynamic(value) else f'"dynamic" must be one of {names}'
    if key == "at":
        is_valid = isinstance(value, dict) and all(map(_is_dynamic, value.values()))
        return "" if is_valid else f'"at" must map each "path:line" to one of {names}'
    if key == "recompile_limit":
        is_valid = isinstance(value, int) and not isinstance(value, bool) and value > 0
        return "" if is_valid else '"recompile_limit" must be an integer above 0'
    if key in ("name", "backend", "paused"):
        return "" if isinstance(value, str) and value else f'"{key}" must be a name'
    if key == "sizes":
        return "" if isinstance(value, bool) else '"sizes" must be true or false'
    return f'"{key}" is not a field of a policy'


def _is_dynamic(value: Any) -> bool:
    return isinstance(value, str) and value in DYNAMIC


def _shortened(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class Forcing:
    """Changes the arguments of the program's torch.compile calls and remembers which calls it changed."""

    def __init__(self, policy: ForcedPolicy) -> None:
        self._policy = policy
        self._overrides: dict[tuple[str, int | None, str, str, str], None] = {}

    def apply(self, call: CompileCall, arguments: dict[str, Any]) -> None:
        """Force the policy on one call: `call` is the call in the source, `arguments` go to torch._dynamo.optimize."""
        self.raise_limit()
        if call.disabled:
            return
        dynamic = self._policy.at.get(f"{call.path}:{call.line}", self._policy.dynamic)
        if dynamic is not None:
            self._force_dynamic(call, arguments, dynamic)
        if self._policy.backend is not None:
            arguments["backend"] = self._policy.backend
        limit = arguments.get("recompile_limit")
        if limit is not None and self._policy.recompile_limit is not None:
            arguments["recompile_limit"] = max(limit, self._policy.recompile_limit)

    def raise_limit(self) -> None:
        """Called repeatedly, because the program may set the limit itself at any time."""
        if self._policy.recompile_limit is not None:
            torch_private_shapes.raise_recompile_limit(self._policy.recompile_limit)

    def facts(self) -> dict[str, Any]:
        keys = ("path", "line", "target", "written", "forced")
        overrides = [dict(zip(keys, row, strict=True)) for row in list(self._overrides)]
        return {"policy": self._policy.to_dict(), "overrides": overrides}

    def _force_dynamic(self, call: CompileCall, arguments: dict[str, Any], forced: str) -> None:
        dynamic = arguments.get("dynamic")
        written = _WORDS.get(dynamic, str(dynamic))
        for name in ("dynamic_shapes", "shapes_spec"):      # its name before 2.14
            if arguments.get(name) is not None:     # torch refuses it together with dynamic=
                arguments[name] = None
                written = name
        if written == forced:
            return
        arguments["dynamic"] = DYNAMIC[forced]
        torch_private_shapes.tell_backend(arguments.get("backend"), DYNAMIC[forced])
        if len(self._overrides) < MAX_OVERRIDES:
            self._overrides[call.path, call.line, call.target, written, forced] = None

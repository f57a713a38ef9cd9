"""The shape policies that a study tries."""

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchtriage.capture.policy.policy import ForcedPolicy
from torchtriage.findings.shape_study import BASELINE
from torchtriage.launch import environment
from torchtriage.recording.events import CompileCall
from torchtriage.shapes.functions import driver
from torchtriage.text import counted, path_from_here

MARKED = "marked"
MIXED = "mixed"
SOURCES = "TORCH_COMPILE_DYNAMIC_SOURCES"
FORCED = {"dynamic=False": "false", "dynamic=None": "none", "dynamic=True": "true"}
_WRITTEN = {False: "dynamic=False", None: "dynamic=None", True: "dynamic=True"}
MIN_LIMIT = 64          # of recompiles, when it is raised; torch's default is 8
MAX_LIMIT = 1024        # more graphs than this per function are not a sensible policy


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePolicy:
    """A policy of a study: what is forced on the child process, and how a user would select it."""

    name: str
    forced: ForcedPolicy = field(default_factory=ForcedPolicy)
    environment: Mapping[str, str] = field(default_factory=dict)    # variables of the child process
    setting: Sequence[str] = ()     # the exact lines or environment variable that select it

    @property
    def by_site(self) -> dict[str, str]:
        """path:line of a torch.compile call -> the policy that is forced on this call alone."""
        names = {value: name for name, value in FORCED.items()}
        return {site: names[value] for site, value in self.forced.at.items()}

    def variables(self, forced: Mapping[str, Any], paused: str) -> dict[str, str]:
        """The environment variables of a run; `forced` are fields of ForcedPolicy that every run of a study has."""
        fields = {**forced, "paused": paused} if paused else forced
        policy = replace(self.forced, name=self.name, **fields)
        return {**self.environment, environment.POLICY: json.dumps(policy.to_dict())}


def baseline_policy() -> ShapePolicy:
    return ShapePolicy(name=BASELINE)


def forced_policies(calls: Sequence[CompileCall], is_static: bool) -> tuple[list[ShapePolicy], dict[str, str]]:
    """(the policies that force one `dynamic=` on every call, why the others are not worth a run).

    `is_static`: no size varied over a complete run and nothing recompiled, so dynamic shapes cannot save anything.
    """
    written = {_WRITTEN[call.dynamic] for call in calls if not call.disabled}
    same: dict[str, str] = {}
    for name in FORCED:
        if written == {name}:
            same[name] = "the program already uses it"
        elif is_static and name == "dynamic=True":
            same[name] = "no size varies, so it cannot save anything"
        elif is_static and (name == "dynamic=None" or written == {"dynamic=None"}):
            same[name] = "no size varies, so dynamic=False and dynamic=None compile the same graphs"
    policies = []
    for name, value in FORCED.items():
        if name not in same:
            setting = dynamic_setting(calls, name.partition("=")[2])
            policies.append(ShapePolicy(name=name, forced=ForcedPolicy(dynamic=value), setting=setting))
    return policies, same


def raised_limit(base: ShapePolicy, num_graphs: int) -> ShapePolicy:
    """The same policy with room for at least `num_graphs` graphs per function."""
    limit = MIN_LIMIT
    while limit < min(num_graphs, MAX_LIMIT):
        limit *= 2
    name = f"recompile_limit={limit}"
    return ShapePolicy(
        name=name if base.name == BASELINE else f"{base.name}, {name}", environment=base.environment,
        forced=replace(base.forced, recompile_limit=limit),
        setting=(*base.setting, f"torch._dynamo.config.recompile_limit = {limit}"),
    )


def marked(sources: str, users: str) -> ShapePolicy:
    """Only these dimensions are dynamic, process-wide; the user's own entries come first."""
    value = ",".join(filter(None, (users, sources)))
    return ShapePolicy(name=MARKED, environment={SOURCES: value}, setting=(f"export {SOURCES}={quoted(value)}",))


def mixed(choice: Mapping[str, str], calls: Sequence[CompileCall]) -> ShapePolicy:
    """Each torch.compile call with its best policy; `choice`: path:line -> a name of FORCED."""
    at = {site: FORCED[name] for site, name in choice.items()}
    setting: list[str] = []
    for name in FORCED:
        own_calls = [call for call in calls if choice.get(f"{call.path}:{call.line}") == name]
        setting += dynamic_setting(own_calls, name.partition("=")[2])
    return ShapePolicy(name=MIXED, forced=ForcedPolicy(at=at), setting=setting)


def quoted(value: str) -> str:
    """For a shell: in single quotes, with single quotes escaped."""
    return "'" + value.replace("'", "'\\''") + "'"


def by_simplicity(names: Sequence[str]) -> list[str]:
    """The baseline first, then policies of one argument, then those with more to set."""
    def effort(name: str) -> tuple[int, int]:
        order = [BASELINE, "dynamic=None", "dynamic=True", "dynamic=False"]
        efforts = {name: number for number, name in enumerate(order)} | {MIXED: 6, MARKED: 7}
        return efforts.get(name, 5 if "," in name else 4), len(name)

    return sorted(names, key=effort)


MAX_LINES = 6


def dynamic_setting(calls: Sequence[CompileCall], value: str) -> list[str]:
    """`train.py:31  torch.compile(model, dynamic=True)` for every call with another value.

    `value` is True, False or None.
    """
    differing = {(c.path, c.line): c for c in calls if not c.disabled and str(c.dynamic) != value}
    lines = [_line(c, value) for c in differing.values()]
    if len(lines) <= MAX_LINES:
        return lines
    more = counted(len(lines) - MAX_LINES, "more torch.compile call")
    return [*lines[:MAX_LINES], f"and likewise in {more}"]


def _line(call: CompileCall, value: str) -> str:
    if call.path == driver.__file__:        # the driver compiles a function that the user has not compiled
        return f"torch.compile({call.target}{'' if value == 'None' else f', dynamic={value}'})"
    edit = _edited(call, value) or f"dynamic={value} for {call.target or 'the function compiled here'}"
    return f"{path_from_here(call.path)}:{call.line}  {edit}"


def _edited(call: CompileCall, value: str) -> str:
    """The call in the source with its `dynamic=` changed; empty if it cannot be found there."""
    try:
        tree = ast.parse(Path(call.path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""
    node = _compile_at(tree, call.line)
    if node is None:
        return ""
    is_decorator = any(node in getattr(other, "decorator_list", ()) for other in ast.walk(tree))
    edited = node if isinstance(node, ast.Call) else ast.Call(func=node, args=[], keywords=[])
    edited.keywords = [keyword for keyword in edited.keywords if keyword.arg != "dynamic"]
    if value != "None":
        edited.keywords.append(ast.keyword(arg="dynamic", value=ast.Constant(value == "True")))
    return f"{'@' * is_decorator}{ast.unparse(edited)}"


def _compile_at(tree: ast.Module, line: int | None) -> ast.expr | None:
    """The only call of a `compile` on this line, or the only bare name, as in a decorator."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and _is_compile(node) and _spans(node, line)]
    nodes = [node for node in names if isinstance(node, ast.Call)] or names
    return nodes[0] if len(nodes) == 1 else None


def _is_compile(node: ast.expr) -> bool:
    """`torch.compile`, `model.compile`, a bare `compile`, or a call of one of them."""
    name = node.func if isinstance(node, ast.Call) else node
    return "compile" in (getattr(name, "attr", ""), getattr(name, "id", ""))


def _spans(node: ast.expr, line: int | None) -> bool:
    return line is not None and node.lineno <= line <= (node.end_lineno or node.lineno)

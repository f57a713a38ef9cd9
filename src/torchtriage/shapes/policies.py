"""The shape policies that are worth a try, and what each forces on the program."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchtriage.findings.shape_study import BASELINE
from torchtriage.recording.events import CompileCall
from torchtriage.shapes.functions import driver as one_function
from torchtriage.text import path_from_here

MARKED = "marked"
MIXED = "mixed"
SOURCES = "TORCH_COMPILE_DYNAMIC_SOURCES"
FORCED = {"dynamic=False": "false", "dynamic=None": "none", "dynamic=True": "true"}
_WRITTEN = {False: "dynamic=False", None: "dynamic=None", True: "dynamic=True"}
MIN_LIMIT = 64          # of recompiles, when it is raised; torch's default is 8
MAX_LIMIT = 1024        # more graphs than this of one function are no policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A name, what the child is told to force, what its environment gets, and how the user would set it."""

    name: str
    forced: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    setting: Sequence[str] = ()

    @property
    def by_site(self) -> dict[str, str]:
        """path:line of a torch.compile call -> the policy that it alone is given."""
        names = {value: name for name, value in FORCED.items()}
        return {site: names[value] for site, value in self.forced.get("at", {}).items()}


def as_written() -> Policy:
    return Policy(name=BASELINE)


def forced_policies(calls: Sequence[CompileCall], is_static: bool) -> tuple[list[Policy], dict[str, str]]:
    """The policies that force one `dynamic=` on every call, and why the others are not worth a run.

    `is_static`: no size varied over the whole run and nothing was recompiled, so dynamic shapes have nothing to spare.
    """
    written = {_WRITTEN[call.dynamic] for call in calls if not call.disabled}
    same: dict[str, str] = {}
    for name in FORCED:
        if written == {name}:
            same[name] = "this is what is written"
        elif is_static and name == "dynamic=True":
            same[name] = "no size varies, so there is nothing that it could spare"
        elif is_static and (name == "dynamic=None" or written == {"dynamic=None"}):
            same[name] = "no size varies, so dynamic=False and dynamic=None compile the same graphs"
    return [
        Policy(name=name, forced={"dynamic": value}, setting=dynamic_setting(calls, name.partition("=")[2]))
        for name, value in FORCED.items() if name not in same
    ], same


def raised_limit(base: Policy, num_graphs: int) -> Policy:
    """The same policy with room for at least so many graphs of a function."""
    limit = MIN_LIMIT
    while limit < min(num_graphs, MAX_LIMIT):
        limit *= 2
    name = f"recompile_limit={limit}"
    return Policy(
        name=name if base.name == BASELINE else f"{base.name}, {name}", environment=base.environment,
        forced={**base.forced, "recompile_limit": limit}, setting=(*base.setting, f"torch._dynamo.config.recompile_limit = {limit}"),
    )


def marked(sources: str, users: str) -> Policy:
    """Only these dimensions dynamic, everywhere in the process; what the user marks this way already stays in front."""
    value = ",".join(filter(None, (users, sources)))
    return Policy(name=MARKED, environment={SOURCES: value}, setting=(f"export {SOURCES}={quoted(value)}",))


def mixed(chosen: Mapping[str, str], calls: Sequence[CompileCall]) -> Policy:
    """Each torch.compile call with the policy that suited it best; `chosen`: path:line -> a name of FORCED."""
    at = {site: FORCED[name] for site, name in chosen.items()}
    settings = [
        line for name in FORCED
        for line in dynamic_setting([c for c in calls if chosen.get(f"{c.path}:{c.line}") == name], name.partition("=")[2])
    ]
    return Policy(name=MIXED, forced={"at": at}, setting=settings)


def quoted(value: str) -> str:
    """For a shell: in single quotes, which hold everything but themselves."""
    return "'" + value.replace("'", "'\\''") + "'"


def by_simplicity(names: Sequence[str]) -> list[str]:
    """As written first, then one argument, then more to set."""
    def effort(name: str) -> tuple[int, int]:
        order = [BASELINE, "dynamic=None", "dynamic=True", "dynamic=False"]
        known = {name: number for number, name in enumerate(order)} | {MIXED: 6, MARKED: 7}
        return known.get(name, 5 if "," in name else 4), len(name)

    return sorted(names, key=effort)


MAX_LINES = 6


def dynamic_setting(calls: Sequence[CompileCall], value: str) -> list[str]:
    """`train.py:31  torch.compile(model, dynamic=True)` for every call that says something else; `value` is True, False or None."""
    differing = {(c.path, c.line): c for c in calls if not c.disabled and str(c.dynamic) != value}
    lines = [_line(c, value) for c in differing.values()]
    more = [f"and so in {len(lines) - MAX_LINES} more torch.compile calls"] if len(lines) > MAX_LINES else []
    return lines[:MAX_LINES] + more


def _line(call: CompileCall, value: str) -> str:
    if call.path == one_function.__file__:      # the driver compiles what the user has not
        return f"torch.compile({call.target}{'' if value == 'None' else f', dynamic={value}'})"
    return f"{path_from_here(call.path)}:{call.line}  {_edited(call, value) or _told(call, value)}"


def _told(call: CompileCall, value: str) -> str:
    return f"dynamic={value} for {call.target or 'what is compiled here'}"


def _edited(call: CompileCall, value: str) -> str:
    """The call as it stands in the source with its `dynamic=` changed; empty if it cannot be found there."""
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
    """The one call of a `compile` on this line, or the one bare name, as a decorator has it."""
    here = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and _is_compile(node) and _spans(node, line)]
    found = [node for node in here if isinstance(node, ast.Call)] or here
    return found[0] if len(found) == 1 else None


def _is_compile(node: ast.expr) -> bool:
    """`torch.compile`, `model.compile`, a bare `compile`, or a call of one of them."""
    name = node.func if isinstance(node, ast.Call) else node
    return "compile" in (getattr(name, "attr", ""), getattr(name, "id", ""))


def _spans(node: ast.expr, line: int | None) -> bool:
    return line is not None and node.lineno <= line <= (node.end_lineno or node.lineno)

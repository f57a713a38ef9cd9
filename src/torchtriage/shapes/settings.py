"""The exact call to write for a policy: the user's own torch.compile call with another `dynamic=`."""

import ast
import os
from collections.abc import Sequence
from pathlib import Path

from torchtriage.recording.events import CompileCall
from torchtriage.shapes import one_function

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
    return f"{short(call.path)}:{call.line}  {_edited(call, value) or _told(call, value)}"


def short(path: str) -> str:
    """Relative to the working folder, if it lies below."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


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

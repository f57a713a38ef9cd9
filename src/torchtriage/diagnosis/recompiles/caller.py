"""The user's line that calls a recompiled function, with what it passes for a guarded value."""

import ast
import re
from dataclasses import dataclass

from torchtriage.diagnosis.places import owner_of
from torchtriage.diagnosis.recompiles.groups import RecompileGroup
from torchtriage.diagnosis.recompiles.patterns import function_lines
from torchtriage.diagnosis.statement import Statement, called_name, code, own_nodes, statement_at
from torchtriage.findings.fingerprint import portable_path
from torchtriage.findings.model import YOU, OwnerKind
from torchtriage.recording.events import StackEntry
from torchtriage.recording.recording import Process

_ROOT = re.compile(r"(\w+)(.*)", re.DOTALL)
_WRAPPED = re.compile(r"args\[(\d)\](.*)", re.DOTALL)       # torch calls a wrapped module by *args
_NEW_TENSORS = frozenset({"T", "mT", "H", "mH", "data", "real", "imag"})    # attributes that are not the same object


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The user's innermost line above a recompiled function."""

    line: StackEntry
    is_direct: bool         # it holds the call itself: only torch is between it and the function

    def place(self, roots: tuple[str, ...]) -> str:
        """`before the call at train.py:140`."""
        link = "at" if self.is_direct else "reached from"
        return f"before the call {link} {portable_path(self.line.path, roots)}:{self.line.line}"


def caller_of(group: RecompileGroup, process: Process) -> Caller | None:
    """The line from which the user reaches the function; None if the stack holds no line of the user above it."""
    event = group.recompiles[0]
    above = [entry for entry in event.stack if (entry.path, entry.function) != (event.path, event.function)]
    owners = [owner_of(entry.path, process.program) for entry in above]
    if YOU not in owners:
        return None
    last = len(owners) - 1 - owners[::-1].index(YOU)
    below = owners[last + 1:]
    # Without the tap that adds them, torch omits the two innermost callers: if both were its own, the call is known.
    knows_call = bool(below) or event.knows_caller
    return Caller(line=above[last], is_direct=knows_call and all(owner.kind is OwnerKind.TORCH for owner in below))


def passed_value(group: RecompileGroup, caller: Caller | None, process: Process) -> str:
    """The guarded value as the caller's line writes it; empty if that line does not show it.

    Without a caller no line is named, and the value has the name that the function gives it.
    """
    if caller is None:
        return "" if _WRAPPED.match(group.source) or group.source.startswith("kwargs") else group.source
    statement = statement_at(process, caller.line.path, caller.line.line) if caller.is_direct else None
    if statement is None:
        return ""
    call = _call_in(statement, group, process)
    if call is None:
        return ""
    position, name, rest = _parameter(group, process)
    if name == "self":      # the caller has the same self if it calls a method of it
        return group.source if code(call.func).startswith("self.") else ""
    value = _argument(call, position, name)
    return f"{code(value)}{rest}" if value is not None and _is_kept(value) else ""


def passed_arguments(group: RecompileGroup, caller: Caller | None, process: Process) -> list[tuple[ast.Call, ast.expr]]:
    """Each call of the compiled function in the caller's line, and what it passes for the guarded value itself."""
    statement = statement_at(process, caller.line.path, caller.line.line) if caller and caller.is_direct else None
    if statement is None:
        return []
    calls = [node for node in own_nodes(statement.node) if isinstance(node, ast.Call) and (node.args or node.keywords)]
    names = {group.frame.key[1], *_compiled_names(group, process)}
    named = [call for call in calls if names & {code(call.func), called_name(call)}]
    position, name, rest = _parameter(group, process)
    if rest or name == "self":
        return []
    alone = _call_in(statement, group, process)
    found = named or ([alone] if alone is not None else [])
    passed = [(call, _argument(call, position, name)) for call in found]
    return [(call, value) for call, value in passed if value is not None]


def _call_in(statement: Statement, group: RecompileGroup, process: Process) -> ast.Call | None:
    """The call of the compiled function in a statement: by its name, or the only call that has arguments."""
    calls = [node for node in own_nodes(statement.node) if isinstance(node, ast.Call) and (node.args or node.keywords)]
    names = {group.frame.key[1], *_compiled_names(group, process)}
    named = [call for call in calls if names & {code(call.func), called_name(call)}]
    found = named or calls
    return found[0] if len(found) == 1 else None


def _compiled_names(group: RecompileGroup, process: Process) -> list[str]:
    """The names that the program gives to the result of torch.compile: `net` of `net = torch.compile(Net())`."""
    compiled = group.call
    made = statement_at(process, compiled.path, compiled.line or 0) if compiled is not None else None
    return [code(target) for target in made.node.targets] if made and isinstance(made.node, ast.Assign) else []


def _parameter(group: RecompileGroup, process: Process) -> tuple[int | None, str, str]:
    """Position and name of the argument that a guarded value comes from, and the path from there to the value."""
    wrapped = _WRAPPED.fullmatch(group.source)
    if wrapped:
        return int(wrapped[1]), "", wrapped[2]
    root = _ROOT.match(group.source)
    if root is None:
        return None, "", ""
    names = _parameters("\n".join(function_lines(group.frame, process)), group.frame.key[1])
    return names.index(root[1]) if root[1] in names else None, root[1], root[2]


def _parameters(source: str, function: str) -> list[str]:
    """The positional parameters of a function, without self; the source may be cut off within the signature."""
    head = re.search(rf"\bdef {re.escape(function)}\s*\(", source)
    names: list[str] = []
    depth, is_name_due = 1, True
    for token in re.findall(r"\w+|[^\w\s]", source[head.end():]) if head else ():
        depth += (token in "([{") - (token in ")]}")
        if depth == 0 or (token == "*" and depth == 1):
            break
        if is_name_due and token.isidentifier():
            names.append(token)
        is_name_due = depth == 1 and token == ","
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def _argument(call: ast.Call, position: int | None, name: str) -> ast.expr | None:
    """What a call passes for a parameter; None if the call does not show it."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    is_unpacked = any(isinstance(argument, ast.Starred) for argument in call.args)
    if position is None or position >= len(call.args) or is_unpacked:
        return None
    return call.args[position]


def _is_kept(value: ast.expr) -> bool:
    """Whether the expression is the same object each time it is evaluated: a name, an attribute, or a key of a dict."""
    if isinstance(value, ast.Attribute):
        return value.attr not in _NEW_TENSORS and _is_kept(value.value)
    if isinstance(value, ast.Subscript):
        is_key = isinstance(value.slice, ast.Constant) and isinstance(value.slice.value, str)
        return is_key and _is_kept(value.value)
    return isinstance(value, ast.Name)

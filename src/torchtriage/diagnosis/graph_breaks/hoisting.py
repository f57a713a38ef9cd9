"""The edit that computes a value before the compiled call and passes it in as an argument."""

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.eager import EagerFrames
from torchtriage.diagnosis.places import owner_at
from torchtriage.diagnosis.statement import Function, Statement, called_name, code, own_nodes, statement_at
from torchtriage.findings.model import YOU, Change, ChangeKind, Edit, EditLabel
from torchtriage.recording.events import GraphBreak, StackEntry
from torchtriage.recording.recording import Process
from torchtriage.text import original_function, short_place


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """The line at which the user calls the compiled function."""

    line: StackEntry
    node: ast.Call
    receiver: ast.expr | None       # what `self` is there


def hoisted(process: Process, event: GraphBreak, value: ast.expr | None = None, wrap: str = "") -> Edit | None:
    """The edit for a break in the compiled function, or in a function that it calls.

    `value` is the expression that breaks; without it, and in a called function, it is the call that leads to the break.
    `wrap` is a function of torch to put around it. None if a part of the value is known only within the function.
    """
    path, root = EagerFrames.of(process).root(event)
    position = _position(event, path, original_function(root))
    if position is None:
        return None
    line = event.stack[position]
    statement = statement_at(process, line.path, line.line)
    function = statement.function if statement is not None else None
    if statement is None or function is None or statement.loop is not None:
        return None
    if position < len(event.stack) - 1:
        value = _call_of(statement, event.stack[position + 1].function)
    call = _call_site(process, event.stack[:position], function, path)
    if value is None or call is None or _is_repeated(statement.node, value):
        return None
    outside = _outside(value, function, call)
    return None if outside is None else _edit(process, line, statement, value, wrap, outside, call)


def _position(event: GraphBreak, path: str, root: str) -> int | None:
    """The position of the compiled function in the stack."""
    for number in range(len(event.stack) - 1, -1, -1):
        entry = event.stack[number]
        if entry.path == path and original_function(entry.function) == root:
            return number
    return None


def _call_of(statement: Statement, name: str) -> ast.expr | None:
    calls = [n for n in own_nodes(statement.node) if isinstance(n, ast.Call) and called_name(n) == name]
    return calls[0] if len(calls) == 1 else None


def _is_repeated(node: ast.stmt, value: ast.expr) -> bool:
    """Whether the statement computes the value in a comprehension or a lambda."""
    inner = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
    return any(value in ast.walk(part) for part in ast.walk(node) if isinstance(part, inner))


def _call_site(process: Process, above: Sequence[StackEntry], function: Function, path: str) -> _Call | None:
    yours = [entry for entry in above if owner_at(entry, process.program) == YOU]
    if not yours:
        return None
    line = yours[-1]
    statement = statement_at(process, line.path, line.line)
    if statement is None:
        return None
    is_method = bool(function.args.args) and function.args.args[0].arg == "self"
    calls = [n for n in own_nodes(statement.node) if isinstance(n, ast.Call)]
    named = [n for n in calls if called_name(n) == function.name]
    if named:
        call = named[0] if len(named) == 1 else None
        receiver = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    else:       # a compiled object has another name than its function
        plain = [n for n in calls if _is_name(n.func) and (n.args or not calls[1:]) and called_name(n) in
                 _compiled_names(process)]
        call = plain[0] if len(plain) == 1 else None
        receiver = call.func if call is not None and function.name in ("forward", "__call__") else None
        if call is not None and is_method and receiver is None:     # self.score = torch.compile(self._score)
            receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if call is None or (is_method and receiver is None):
        return None
    return _Call(line=line, node=call, receiver=receiver if is_method else None)


def _compiled_names(process: Process) -> set[str]:
    """The last parts of the names that the program gives to results of torch.compile."""
    from torchtriage.recording.events import CompileCall

    names = set()
    for compiled in process.of(CompileCall):
        made = statement_at(process, compiled.path, compiled.line or 0)
        if made is not None and isinstance(made.node, ast.Assign):
            for target in made.node.targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                names |= {code(part).rpartition(".")[2] for part in parts}
    return names


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_name(node.value))


def _outside(value: ast.expr, function: Function, call: _Call) -> ast.expr | None:
    """The value as the line of the call can write it; None if it uses a local variable, or an argument twice."""
    replaced: dict[str, ast.expr] = {}
    parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if parameters[:1] == ["self"]:
        if call.receiver is not None:
            replaced["self"] = call.receiver
        parameters = parameters[1:]
    for number, argument in enumerate(call.node.args):
        if number < len(parameters) and (_is_name(argument) or isinstance(argument, ast.Constant)):
            replaced[parameters[number]] = argument
    for keyword in call.node.keywords:
        if keyword.arg and (_is_name(keyword.value) or isinstance(keyword.value, ast.Constant)):
            replaced[keyword.arg] = keyword.value
    own = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    own |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and node.id in own and node.id not in replaced:
            return None

    class Outside(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return copy.deepcopy(replaced.get(node.id, node))

    result: ast.expr = Outside().visit(copy.deepcopy(value))
    return result


def _edit(
    process: Process, line: StackEntry, statement: Statement, value: ast.expr, wrap: str, outside: ast.expr,
    call: _Call,
) -> Edit | None:
    node, function = statement.node, statement.function
    assigned = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    is_whole = isinstance(assigned, ast.Name) and isinstance(node, ast.Assign) and code(node.value) == code(value)
    name = assigned.id if isinstance(assigned, ast.Name) and is_whole else _free_name(value, function)
    source = process.sources.get((line.path, line.line))
    first = _definition_line(source.lines, source.first_line, line.line, function.name) if source and function else None
    if first is None:
        return None
    passed = f"{wrap}({code(outside)})" if wrap else code(outside)
    removal = Change(kind=ChangeKind.REMOVE, path=line.path, line=line.line, old=code(node))
    replacement = Change(kind=ChangeKind.REPLACE, path=line.path, line=line.line, old=code(value), new=name)
    where = short_place(call.line.path, call.line.line)
    return Edit(
        label=EditLabel.REVIEW,
        text=f"compute `{passed}` in the call at {where} and pass it in as {name}",
        changes=(
            Change(kind=ChangeKind.ADD_PARAMETER, path=line.path, line=first, new=name),
            removal if is_whole else replacement,
            Change(
                kind=ChangeKind.ADD_ARGUMENT, path=call.line.path, line=call.line.line, old=code(call.node),
                new=f"{name}={passed}",
            ),
        ),
    )


def _free_name(value: ast.expr, function: Function | None) -> str:
    """A name for the parameter that the function does not use."""
    used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} if function is not None else set()
    base = called_name(value).strip("_") if isinstance(value, ast.Call) else "condition"
    name = f"{base or 'computed'}_value" if isinstance(value, ast.Call) else base
    while name in used:
        name = f"{name}_in"
    return name


def _definition_line(lines: Sequence[str], first: int, line: int, name: str) -> int | None:
    """The line of the `def` above a line; None if the recording does not show it."""
    for number in range(min(line - first, len(lines) - 1), -1, -1):
        if lines[number].lstrip().startswith((f"def {name}(", f"async def {name}(")):
            return first + number
    return None

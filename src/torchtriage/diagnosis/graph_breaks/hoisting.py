"""The edit that turns a value computed inside a compiled function into an argument of its call."""

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.eager import EagerFrames
from torchtriage.diagnosis.places import owner_at
from torchtriage.diagnosis.rewrites.model_calls import compiled_function, inner_compiled
from torchtriage.diagnosis.statement import (
    Function,
    Statement,
    called_name,
    code,
    module_at,
    own_nodes,
    recorded_statements,
    statement_at,
)
from torchtriage.findings.model import YOU, Change, ChangeKind, Edit, EditLabel
from torchtriage.recording.events import CompileCall, GraphBreak, StackEntry
from torchtriage.recording.recording import Process
from torchtriage.text import original_function, short_place

_REPEATED = (
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.IfExp, ast.BoolOp,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """The line at which the user calls the compiled function."""

    line: StackEntry
    node: ast.Call
    receiver: ast.expr | None       # what `self` is there
    taken: frozenset[str]           # the names that mean something there


def hoisted(process: Process, event: GraphBreak, value: ast.expr | None = None, wrap: str = "") -> Edit | None:
    """The edit for a break in the compiled function, or in a function that it calls.

    `value` is the expression that breaks; without it, and in a called function, it is the call that leads to the break.
    `wrap` is a function of torch to put around it. None if a part of the value is known only within the function.
    """
    frame = _frame(process, event)
    if frame is None or frame.statement.loop is not None:
        return None
    if frame.below is not None:
        value = _call_of(frame.statement, frame.below.function)
    if value is None or _is_repeated(frame.statement.node, value) or _is_skipped(frame.statement, value):
        return None
    outside, bound = _outside([value], frame.function, frame.call)
    if not outside:
        return None
    return _edit(process, frame.line, frame.statement, value, wrap, outside[0], bound, frame.call)


def _is_skipped(statement: Statement, value: ast.expr) -> bool:
    """Whether a call of the function may leave the value out, so that computing it before is another program."""
    name = _default_filled_by(statement)
    blocks = [parent for parent in statement.parents[statement.depth:] if not isinstance(parent, ast.With)]
    if blocks and not (name and len(blocks) == 1):
        return True
    for part in own_nodes(statement.node):
        later = part.values[1:] if isinstance(part, ast.BoolOp) else (
            [part.body, part.orelse] if isinstance(part, ast.IfExp) else [])
        if any(_holds(operand, value) for operand in later):
            return True
    return False


def _holds(node: ast.AST, value: ast.expr) -> bool:
    """Whether an expression has this value as a part; it may be parsed from another copy of the source."""
    return any(isinstance(part, type(value)) and code(part) == code(value) for part in ast.walk(node))


def _default_filled_by(statement: Statement) -> str:
    """`mask` of `if mask is None: mask = made()`; empty if the statement does not fill in a default."""
    node, outer = statement.node, statement.parents[-1] if statement.parents else None
    if not isinstance(node, ast.Assign) or not isinstance(outer, ast.If) or outer.body != [node] or outer.orelse:
        return ""
    name = code(node.targets[0])
    return name if len(node.targets) == 1 and code(outer.test) == f"{name} is None" else ""


def moved(process: Process, event: GraphBreak) -> Edit | None:
    """The edit that takes the first or the last statement out of the compiled function, to before or after the call."""
    frame = _frame(process, event)
    node = frame.statement.node if frame is not None else None
    if frame is None or not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return None
    body = [n for n in frame.function.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    is_first, is_last = body[0] is node, body[-1] is node
    outside, bound = _outside([node.value], frame.function, frame.call)
    if not (is_first or is_last) or len(body) < 2 or not outside or bound:
        return None
    if any(_is_bookkeeping(other) for other in body if other is not node):
        return None     # what would be left breaks too: a step of a scheduler or of an optimizer
    caller = statement_at(process, frame.call.line.path, frame.call.line.line)
    if caller is None or not _runs_once(caller.node, frame.call.node) or (not is_first and not _goes_on(caller.node)):
        return None
    if _is_called_elsewhere(process, frame.call):
        return None
    kind, word = (ChangeKind.INSERT, "before") if is_first else (ChangeKind.APPEND, "after")
    where = short_place(frame.call.line.path, frame.call.line.line)
    return Edit(
        label=EditLabel.REVIEW, text=f"`{code(outside[0])}` {word} the call at {where}",
        changes=(
            Change(kind=ChangeKind.REMOVE, path=frame.line.path, line=frame.line.line, old=code(node)),
            Change(kind=kind, path=frame.call.line.path, line=frame.call.line.line, new=code(outside[0])),
        ),
    )


def timed_outside(process: Process, event: GraphBreak, timed: Sequence[ast.stmt]) -> Edit | None:
    """The edit that reads the clock before the call, and makes of it after the call what the function made of it."""
    frame = _frame(process, event)
    caller = statement_at(process, frame.call.line.path, frame.call.line.line) if frame is not None else None
    if frame is None or caller is None or frame.below is not None:
        return None
    if not _goes_on(caller.node) or not _runs_once(caller.node, frame.call.node):
        return None
    if _is_called_elsewhere(process, frame.call):
        return None
    first, *others = timed
    names = [n for node in timed for n in ast.walk(node) if isinstance(n, ast.Name)]
    stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    started = code(first.targets[0]) if isinstance(first, ast.Assign) and len(first.targets) == 1 else ""
    own = _own_names(frame.function) - {"self"}
    used = {n.id for n in names}
    if stored != {started} or not others or used & own - stored or stored & frame.call.taken:
        return None
    if "self" in used and frame.call.receiver is None:
        return None
    receiver = code(frame.call.receiver) if frame.call.receiver is not None else "self"
    texts = [re.sub(r"\bself\b", receiver, code(node)) for node in timed]
    line = frame.call.line
    return Edit(
        label=EditLabel.REVIEW, text=f"`{texts[0]}` before the call at {short_place(line.path, line.line)}, and "
        f"`{texts[-1]}` after it",
        changes=(
            *(Change(
                kind=ChangeKind.REMOVE, path=frame.line.path,
                line=frame.line.line - frame.statement.node.lineno + node.lineno, old=code(node),
            ) for node in timed),
            Change(kind=ChangeKind.INSERT, path=line.path, line=line.line, new=texts[0]),
            *(Change(kind=ChangeKind.APPEND, path=line.path, line=line.line, new=text) for text in texts[1:]),
        ),
    )


def _is_called_elsewhere(process: Process, call: _Call) -> bool:
    """Whether another recorded statement of the file calls the function, and would lack what one caller does."""
    path, place, name = call.line.path, call.line.line, code(call.node.func)
    for line, node in recorded_statements(process, path):
        if any(isinstance(part, ast.Call) and code(part.func) == name for part in own_nodes(node)):
            last = line + (node.end_lineno or node.lineno) - node.lineno
            if not line <= place <= last:
                return True
    return False


def _goes_on(statement: ast.stmt) -> bool:
    """Whether what stands behind a statement runs after it: it neither returns nor holds a block."""
    return isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr))


def _runs_once(statement: ast.stmt, call: ast.Call) -> bool:
    """Whether a call runs exactly once when its statement does: not in a comprehension, a lambda or a condition."""
    text = code(call)
    parts = [node for node in own_nodes(statement) if isinstance(node, _REPEATED)]
    inner = [other for part in parts for other in ast.walk(part) if isinstance(other, ast.Call)]
    return not isinstance(statement, ast.While) and all(code(other) != text for other in inner)


def _is_bookkeeping(node: ast.stmt) -> bool:
    """Whether a statement is a call of `.step()`, `.zero_grad()` or `.backward()`, whose result nothing uses."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called_name(node.value) in (
        "step", "zero_grad", "backward")


def entered_outside(process: Process, event: GraphBreak) -> Edit | None:
    """The edit that enters a context manager around the compiled call, and not within it."""
    frame = _frame(process, event)
    node = frame.statement.node if frame is not None else None
    around = node if isinstance(node, ast.With) else frame.statement.parents[-1] if frame is not None else None
    if frame is None or not isinstance(around, ast.With) or len(around.items) != 1:
        return None
    manager = around.items[0]
    outside, bound = _outside([manager.context_expr], frame.function, frame.call)
    caller = statement_at(process, frame.call.line.path, frame.call.line.line)
    if manager.optional_vars is not None or not outside or bound or caller is None:
        return None
    line = frame.line.line - (frame.statement.node.lineno - around.lineno)
    where = short_place(frame.call.line.path, frame.call.line.line)
    header = f"with {code(outside[0])}"
    return Edit(
        label=EditLabel.REVIEW, text=f"`{header}:` around the call at {where}",
        changes=(
            Change(kind=ChangeKind.UNWRAP, path=frame.line.path, line=line, old=f"with {code(manager)}"),
            Change(
                kind=ChangeKind.WRAP, path=frame.call.line.path, line=frame.call.line.line, old=code(caller.node),
                new=header,
            ),
        ),
    )


def listed_outside(process: Process, event: GraphBreak, iterated: ast.expr) -> Edit | None:
    """The edit that passes a list instead of an iterator over which the function loops."""
    frame = _frame(process, event)
    if frame is None or not isinstance(iterated, ast.Name):
        return None
    names = [argument.arg for argument in frame.function.args.args if argument.arg != "self"]
    arguments = dict(zip(names, frame.call.node.args, strict=False))
    passed = arguments.get(iterated.id)
    if passed is None:
        return None
    where = short_place(frame.call.line.path, frame.call.line.line)
    return Edit(
        label=EditLabel.REVIEW, text=f"`list({code(passed)})` in the call at {where}",
        changes=(Change(
            kind=ChangeKind.REPLACE, path=frame.call.line.path, line=frame.call.line.line, old=code(passed),
            new=f"list({code(passed)})", within=code(frame.call.node),
        ),),
    )


def model_compiled(process: Process, event: GraphBreak) -> Iterator[Edit]:
    """The edit that compiles the model which the compiled function calls, and not the function."""
    frame = _frame(process, event)
    if frame is not None:
        yield from inner_compiled(compiled_function(process, frame.line, frame.call.node, frame.call.line))
        return
    path, root = EagerFrames.of(process).root(event)
    position = _position(event, path, original_function(root))
    if position is not None:
        yield from inner_compiled(compiled_function(process, event.stack[position], None, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """The compiled function of a break, its line that leads to the break, and the line that calls the function."""

    line: StackEntry
    statement: Statement
    function: Function
    call: _Call
    below: StackEntry | None        # the function that the line calls; None if the line itself breaks


def _frame(process: Process, event: GraphBreak) -> _Frame | None:
    path, root = EagerFrames.of(process).root(event)
    position = _position(event, path, original_function(root))
    if position is None:
        return None
    line = event.stack[position]
    statement = statement_at(process, line.path, line.line)
    function = statement.function if statement is not None else None
    call = _call_site(process, event.stack[:position], function) if function is not None else None
    if statement is None or function is None or call is None:
        return None
    below = event.stack[position + 1] if position < len(event.stack) - 1 else None
    is_torch = below is not None and owner_at(below, process.program) != YOU
    return _Frame(line=line, statement=statement, function=function, call=call, below=None if is_torch else below)


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
    return any(_holds(part, value) for part in ast.walk(node) if isinstance(part, inner))


def _call_site(process: Process, above: Sequence[StackEntry], function: Function) -> _Call | None:
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
        if receiver is None and is_method:      # update = torch.compile(average.update)
            receiver = _bound_object(process, function.name, line)
    else:       # a compiled object has another name than its function
        plain = [n for n in calls if _is_name(n.func) and (n.args or not calls[1:]) and called_name(n) in
                 _compiled_names(process)]
        call = plain[0] if len(plain) == 1 else None
        receiver = call.func if call is not None and function.name in ("forward", "__call__") else None
        if call is not None and is_method and receiver is None:
            receiver = _bound_object(process, function.name, line)
    if call is None or (is_method and receiver is None):
        return None
    taken = _names_around(process, line, statement)
    return _Call(line=line, node=call, receiver=receiver if is_method else None, taken=taken)


def _names_around(process: Process, line: StackEntry, statement: Statement) -> frozenset[str]:
    """The names of the function that holds the statement, or of the module without its functions."""
    tree = statement.function or module_at(process, line.path, line.line)[0]
    names: set[str] = set()
    waiting: list[ast.AST] = [tree] if tree is not None else []
    while waiting:
        node = waiting.pop()
        names |= {getattr(node, field) for field in ("id", "arg", "name", "asname") if getattr(node, field, None)}
        if node is statement.function or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            waiting += ast.iter_child_nodes(node)
    return frozenset(names)


def _bound_object(process: Process, method: str, line: StackEntry) -> ast.expr | None:
    """`average` of `update = torch.compile(average.update)`, where it means the same in the line of the call."""
    for compiled in process.of(CompileCall):
        made = statement_at(process, compiled.path, compiled.line or 0)
        for node in own_nodes(made.node) if made is not None else ():
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Attribute):
                owner = node.args[0].value
                both_global = compiled.function == line.function == "<module>" and compiled.path == line.path
                if node.args[0].attr == method and (both_global or code(owner) == "self"):
                    return owner
    return None


def _compiled_names(process: Process) -> set[str]:
    """The last parts of the names that the program gives to results of torch.compile."""
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


def _outside(
    values: list[ast.expr], function: Function, call: _Call,
) -> tuple[list[ast.expr], dict[str, ast.expr]]:
    """The values as the line of the call can write them, and the arguments that the call must give a name for that.

    Nothing if one of them uses a local variable.
    """
    replaced: dict[str, ast.expr] = {}
    named: dict[str, ast.expr] = {}
    parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if parameters[:1] == ["self"]:
        if call.receiver is not None:
            replaced["self"] = call.receiver
        parameters = parameters[1:]
    for number, argument in enumerate(call.node.args):
        if number >= len(parameters) or isinstance(argument, ast.Starred):
            break
        if _is_name(argument) or isinstance(argument, ast.Constant):
            replaced[parameters[number]] = argument
        else:
            named[parameters[number]] = argument
    for keyword in call.node.keywords:
        if keyword.arg and (_is_name(keyword.value) or isinstance(keyword.value, ast.Constant)):
            replaced[keyword.arg] = keyword.value
    own = _own_names(function)
    used = {node.id for value in values for node in ast.walk(value) if isinstance(node, ast.Name)} & own
    if used - set(replaced) - set(named) or _assigned_before(values, function):
        return [], {}

    given = {name: f"{name}_passed" if name in call.taken else name for name in named if name in used}

    class Outside(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return copy.deepcopy(replaced.get(node.id, ast.Name(given.get(node.id, node.id), node.ctx)))

    results: list[ast.expr] = [Outside().visit(copy.deepcopy(value)) for value in values]
    return results, {given[name]: named[name] for name in given}


def _own_names(function: Function) -> set[str]:
    """The parameters of a function and the names that it assigns."""
    own = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    return own | {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _assigned_before(values: list[ast.expr], function: Function) -> bool:
    """Whether the function gives a part of the values another value first: the caller has only the one before."""
    first = min(value.lineno for value in values)
    read = {code(n) for value in values for n in ast.walk(value) if isinstance(n, (ast.Name, ast.Attribute))}
    return any(
        isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store) and n.lineno < first
        and code(n) in read for n in ast.walk(function))


def _edit(
    process: Process, line: StackEntry, statement: Statement, value: ast.expr, wrap: str, outside: ast.expr,
    bound: dict[str, ast.expr], call: _Call,
) -> Edit | None:
    node, function = statement.node, statement.function
    assigned = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    is_whole = (
        isinstance(assigned, ast.Name) and isinstance(node, ast.Assign) and code(node.value) == code(value)
        and _num_assigned(assigned.id, function) == 1
    )
    name = assigned.id if isinstance(assigned, ast.Name) and is_whole else _free_name(value, function)
    source = process.sources.get((line.path, line.line))
    first = _definition_line(source.lines, source.first_line, line.line, function.name) if source and function else None
    if first is None:
        return None
    passed = f"{wrap}({code(outside)})" if wrap else code(outside)
    filled = _default_filled_by(statement)
    if filled:      # the function takes it already
        name = filled
    removal = Change(kind=ChangeKind.REMOVE, path=line.path, line=line.line, old=code(node))
    replacement = Change(kind=ChangeKind.REPLACE, path=line.path, line=line.line, old=code(value), new=name)
    where = short_place(call.line.path, call.line.line)
    return Edit(
        label=EditLabel.REVIEW,
        text=f"compute `{passed}` in the call at {where} and pass it in as {name}",
        changes=(
            *(() if filled else (
                Change(kind=ChangeKind.ADD_PARAMETER, path=line.path, line=first, new=name),
                removal if is_whole else replacement,
            )),
            Change(
                kind=ChangeKind.ADD_ARGUMENT, path=call.line.path, line=call.line.line, old=code(call.node),
                new=f"{name}={passed}",
            ),
            *(Change(
                kind=ChangeKind.REPLACE, path=call.line.path, line=call.line.line, old=code(argument),
                new=f"({own} := {code(argument)})", within=code(call.node),
            ) for own, argument in bound.items()),
        ),
    )


def _num_assigned(name: str, function: Function | None) -> int:
    """How often a function gives a name a value, as a parameter too."""
    nodes = list(ast.walk(function)) if function is not None else []
    stored = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == name]
    return len(stored) + len([n for n in nodes if isinstance(n, ast.arg) and n.arg == name])


def _free_name(value: ast.expr, function: Function | None) -> str:
    """A name for the parameter that the function does not use."""
    nodes = list(ast.walk(function)) if function is not None else []
    used = {n.id for n in nodes if isinstance(n, ast.Name)} | {n.arg for n in nodes if isinstance(n, ast.arg)}
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

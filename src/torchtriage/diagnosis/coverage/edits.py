"""Edits for torch.compile calls: a result that is kept, an object that is called, a call that is made once."""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from torchtriage.diagnosis.places import owner_at
from torchtriage.diagnosis.statement import Statement, called_name, code, own_nodes, recorded_statements, statement_at
from torchtriage.findings.model import YOU, Change, ChangeKind, Edit, EditLabel
from torchtriage.recording.events import CompileCall, StackEntry
from torchtriage.recording.recording import Process
from torchtriage.text import short_place


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileUse:
    """What the recorded source shows of a torch.compile call: the names of its result and of its argument."""

    where: str
    is_decorator: bool = False
    is_dropped: bool = False        # the result is assigned to nothing
    is_in_place: bool = False       # module.compile()
    result: str = ""                # `compiled` of compiled = torch.compile(model)
    original: str = ""              # `model` of the same
    method: str = ""                # a method of the result that the source calls, with its place
    method_at: str = ""
    original_at: str = ""           # where the source calls the original
    made: str = ""                  # `Net()` of torch.compile(Net())
    options: str = ""               # `backend="eager"` of torch.compile(model, backend="eager")

    def compiling(self, target: str) -> str:
        """A torch.compile call with the options of this one."""
        return f"torch.compile({', '.join(part for part in (target, self.options) if part)})"


def is_of_torch(call: CompileCall) -> bool:
    """Whether the target is one of torch's own modules, such as nn.Sequential, which .compile() does not compile."""
    return "/torch/nn/" in call.target_path


def unused_edits(process: Process, call: CompileCall, use: CompileUse) -> Iterator[Edit]:
    """The edits for a torch.compile call that compiled nothing."""
    statement = statement_at(process, call.path, call.line or 0)
    if statement is None or use.is_decorator:
        return
    if call.disabled:
        yield _edit(f"drop disable=True at {use.where}", _change(call, ChangeKind.DROP_ARGUMENT, old="disable"))
    elif use.method:
        yield from _method_edit(call, use, statement)
    elif use.is_dropped and use.original:
        text = f"{use.original} = {code(statement.node)}"
        yield _edit(f"`{text}` at {use.where}", _rewrite(call, statement, text))
    elif use.original_at and use.result:
        yield from callee_edits(process, call, use.original, use.result)
    elif use.is_in_place and is_of_torch(call) and use.original:
        made = statement.node.value if isinstance(statement.node, ast.Expr) else None
        if isinstance(made, ast.Call) and not made.args:
            compiled = ast.Call(
                func=ast.parse("torch.compile", mode="eval").body, args=[ast.parse(use.original, mode="eval").body],
                keywords=made.keywords,
            )
            text = f"{use.original} = {code(compiled)}"
            yield _edit(f"`{text}` at {use.where}", _rewrite(call, statement, text))


def _method_edit(call: CompileCall, use: CompileUse, statement: Statement) -> Iterator[Edit]:
    """The method that the program calls is compiled instead of the module."""
    made = statement.node.value if isinstance(statement.node, ast.Assign) else None
    if not isinstance(made, ast.Call) or not made.args or not use.result:
        return
    method = f"{use.result}.{use.method}"
    compiled = ast.Call(func=made.func, args=[ast.parse(method, mode="eval").body], keywords=made.keywords)
    text = f"{use.result} = {code(made.args[0])}\n{method} = {code(compiled)}"
    yield _edit(f"`{method} = {code(compiled)}` at {use.where}", _rewrite(call, statement, text))


def callee_edits(process: Process, call: CompileCall, original: str, result: str) -> Iterator[Edit]:
    """The compiled object called wherever the recorded source of the file calls the original."""
    changes = []
    for line, node in recorded_statements(process, call.path):
        for part in own_nodes(node):
            if isinstance(part, ast.Call) and code(part.func) == original:
                changes.append(Change(
                    kind=ChangeKind.REPLACE, path=call.path, line=line, old=original, new=result, within=code(part)))
    if changes:
        where = short_place(call.path, changes[0].line)
        yield _edit(f"call {result} instead of {original} at {where}", *changes)


def hoisted_compile_edits(process: Process, call: CompileCall) -> Iterator[Edit]:
    """torch.compile, or the call that leads to it, made once before the loop; or once for the file."""
    own = StackEntry(path=call.path, line=call.line or 0, function=call.function)
    for entry in reversed((*call.stack, own) if own not in call.stack else call.stack):
        statement = statement_at(process, entry.path, entry.line)
        if owner_at(entry, process.program) == YOU and statement is not None:
            loop_line = _loop_line(statement, entry)
            if loop_line is not None:
                yield _edit(
                    f"`{code(statement.node)}` once, before the loop at {short_place(entry.path, loop_line)}",
                    Change(kind=ChangeKind.REMOVE, path=entry.path, line=entry.line, old=code(statement.node)),
                    Change(kind=ChangeKind.INSERT, path=entry.path, line=loop_line, new=code(statement.node)),
                )
                return
    yield from _caller_before_loop(process, call)
    yield from _once_per_file(process, call)


def _caller_before_loop(process: Process, call: CompileCall) -> Iterator[Edit]:
    """The call of the function that compiles, moved before the loop that repeats it."""
    for line, loop in recorded_statements(process, call.path):
        for node in loop.body if isinstance(loop, (ast.For, ast.While)) else ():
            is_call = isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if is_call and isinstance(node, ast.Assign) and called_name(node.value) == call.function:  # type: ignore[arg-type]
                own = line + node.lineno - loop.lineno
                statement = Statement(node=node, parents=(loop,))
                if _loop_line(statement, StackEntry(path=call.path, line=own, function="")) is not None:
                    yield _edit(
                        f"`{code(node)}` once, before the loop at {short_place(call.path, line)}",
                        Change(kind=ChangeKind.REMOVE, path=call.path, line=own, old=code(node)),
                        Change(kind=ChangeKind.INSERT, path=call.path, line=line, new=code(node)),
                    )
                    return


def _loop_line(statement: Statement, entry: StackEntry) -> int | None:
    """The line of the loop around an assignment that has the same value in every round; None if there is none."""
    node, loop = statement.node, statement.loop
    if loop is None or not isinstance(node, ast.Assign) or loop is not statement.parents[-1]:
        return None
    changed = {part.id for part in ast.walk(loop) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    used = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
    return None if changed & used else entry.line - (node.lineno - loop.lineno)


def _once_per_file(process: Process, call: CompileCall) -> Iterator[Edit]:
    """`f = torch.compile(function)` in a function that runs again and again, made where the file is loaded."""
    statement = statement_at(process, call.path, call.line or 0)
    source = process.sources.get((call.path, call.line or 0))
    if statement is None or source is None or not isinstance(statement.node, ast.Assign) or not statement.parents:
        return
    made, target = statement.node.value, statement.node.targets[0]
    is_plain = isinstance(made, ast.Call) and called_name(made) == "compile" and len(made.args) == 1
    if not is_plain or not isinstance(made, ast.Call) or not isinstance(target, ast.Name):
        return
    first = statement.parents[0]
    line = (call.line or 0) - (statement.node.lineno - first.lineno)
    line -= len(getattr(first, "decorator_list", ()))
    is_top = source.line(line)[:1] not in ("", " ", "\t")
    stored = [n for n in ast.walk(first) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    is_once = [n.id for n in stored].count(target.id) == 1
    if is_top and is_once and _means_the_same(process, call, made, first, line):
        yield _edit(
            f"`{code(statement.node)}` once, before line {line} of the file",
            Change(kind=ChangeKind.REMOVE, path=call.path, line=call.line or 0, old=code(statement.node)),
            Change(kind=ChangeKind.INSERT, path=call.path, line=line, new=code(statement.node)),
        )


_OF_TORCH = frozenset({"torch", "F", "nn", "functional"})      # how programs import it; the head may not be recorded


def _means_the_same(process: Process, call: CompileCall, made: ast.Call, function: ast.stmt, line: int) -> bool:
    """Whether every name of an expression is bound once, at the top level of the file, above a line."""
    own = {n.arg for n in ast.walk(made) if isinstance(n, ast.arg)}
    used = {n.id for n in ast.walk(made) if isinstance(n, ast.Name)} - own
    local = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local |= {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)} - own
    bound: dict[str, list[int]] = {}
    for own_line, node in recorded_statements(process, call.path):
        if _is_top(process, call.path, own_line):
            for name in _names_bound(node):
                bound.setdefault(name, []).append(own_line)
    return not used & local and all(
        name in _OF_TORCH or hasattr(builtins, name) or (len(bound.get(name, ())) == 1 and bound[name][0] < line)
        for name in used)


def _is_top(process: Process, path: str, line: int) -> bool:
    texts = [source.line(line) for (own, _), source in process.sources.items() if own == path]
    return any(text[:1] not in ("", " ", "\t") for text in texts)


def _names_bound(node: ast.stmt) -> set[str]:
    """The names that a statement gives a value: a definition, an import, an assignment."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _change(call: CompileCall, kind: ChangeKind, **fields: str) -> Change:
    return Change(kind=kind, path=call.path, line=call.line or 0, **fields)


def _rewrite(call: CompileCall, statement: Statement, new: str) -> Change:
    return _change(call, ChangeKind.REWRITE, old=code(statement.node), new=new)


def _edit(text: str, *changes: Change) -> Edit:
    return Edit(label=EditLabel.REVIEW, text=text, changes=changes)

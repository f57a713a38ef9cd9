"""The edit that compiles the model which a function calls, instead of the function around it."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torchtriage.diagnosis.statement import Function, Statement, called_name, code, recorded_statements, statement_at
from torchtriage.findings.model import Change, ChangeKind, Edit, EditLabel
from torchtriage.recording.events import CompileCall, StackEntry
from torchtriage.recording.recording import Process
from torchtriage.text import short_place

_IS_COMPILE = re.compile(r"torch\.compile\b|compile\(")
_NO_MODEL = re.compile(r"loss|criterion|entropy|optim|schedul|distribution|dataset|loader", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSource:
    """A compiled function, with the place of its `def` and the line that calls it, where they are recorded."""

    process: Process
    path: str
    line: int                       # of the `def`
    function: Function
    enclosing: Function | None = None
    call: ast.Call | None = None
    call_line: StackEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """A model that the function calls, and the change that compiles it; `{}` in its code are the options."""

    name: str
    is_trained: bool        # the source asks for its parameters
    change: Change


def compiled_function(
    process: Process, line: StackEntry, call: ast.Call | None, call_line: StackEntry | None,
) -> FunctionSource | None:
    """The function that holds a line; None if its source is not recorded."""
    statement = statement_at(process, line.path, line.line)
    function = statement.function if statement is not None else None
    source = process.sources.get((line.path, line.line))
    if statement is None or function is None or source is None:
        return None
    for number in range(min(line.line - source.first_line, len(source.lines) - 1), -1, -1):
        if re.match(rf"\s*(?:async )?def {re.escape(function.name)}\b", source.lines[number]):
            return FunctionSource(
                process=process, path=line.path, line=source.first_line + number, function=function,
                enclosing=_enclosing(statement, process, line, source.first_line + number), call=call,
                call_line=call_line,
            )
    return None


def _enclosing(statement: Statement, process: Process, line: StackEntry, first: int) -> Function | None:
    functions = [parent for parent in statement.parents if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef))]
    if len(functions) > 1:
        return functions[-2]
    for own, node in recorded_statements(process, line.path):
        is_around = isinstance(node, ast.FunctionDef) and own < first <= own + (node.end_lineno or 0) - node.lineno
        if is_around and isinstance(node, ast.FunctionDef):
            return node
    return None


def inner_compiled(compiled: FunctionSource | None) -> Iterator[Edit]:
    """The edit, if the recorded source shows one model that the function calls, and where it is made."""
    if compiled is None:
        return
    dropped = _dropped(compiled)
    models = list(_models(compiled))
    trained = [model for model in models if model.is_trained]
    chosen = trained if len(trained) == 1 else models
    if dropped is None or len(chosen) != 1:
        return
    drop, options = dropped
    model = chosen[0]
    new = model.change.new.replace("{}", options)
    change = replace(model.change, new=new)
    shown = new if new.startswith(f"{model.name} =") else f"{model.name} = {new}"
    where = short_place(change.path, change.line)
    yield Edit(
        label=EditLabel.REVIEW, text=f"`{shown}` at {where} instead of compiling {compiled.function.name}",
        changes=(drop, change),
    )


def _dropped(compiled: FunctionSource) -> tuple[Change, str] | None:
    """The change that leaves the function uncompiled, and the options of its torch.compile as arguments behind one."""
    for decorator in compiled.function.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        if code(call.func if call is not None else decorator) == "torch.compile":
            drop = Change(
                kind=ChangeKind.DROP_DECORATOR, path=compiled.path, line=compiled.line, old=code(decorator))
            return drop, _options(call)
    first = compiled.line - len(compiled.function.decorator_list)
    for event in compiled.process.of(CompileCall):
        is_target = event.target_path == compiled.path and first <= (event.target_line or 0) <= compiled.line
        made = statement_at(compiled.process, event.path, event.line or 0) if is_target else None
        for node in ast.walk(made.node) if made is not None else ():
            is_call = isinstance(node, ast.Call) and code(node.func) == "torch.compile" and len(node.args) == 1
            if is_call and isinstance(node, ast.Call):
                drop = Change(
                    kind=ChangeKind.REPLACE, path=event.path, line=event.line or 0, old=code(node),
                    new=code(node.args[0]))
                return drop, _options(node)
    return None


def _options(call: ast.Call | None) -> str:
    """`, backend="eager"`; without fullgraph, as the model may break where nothing was said about it."""
    keywords = call.keywords if call is not None else []
    return "".join(f", {code(keyword)}" for keyword in keywords if keyword.arg != "fullgraph")


def _models(compiled: FunctionSource) -> Iterator[_Model]:
    parameters = [argument.arg for argument in compiled.function.args.args if argument.arg != "self"]
    passed = dict(zip(parameters, compiled.call.args, strict=False)) if compiled.call is not None else {}
    stored = {n.id for n in ast.walk(compiled.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    around = compiled.enclosing
    given = [argument.arg for argument in around.args.args] if around is not None else []
    for name in dict.fromkeys(_called(compiled.function)):
        if _NO_MODEL.search(name) or name in stored:
            continue
        if name in parameters:
            argument, line = passed.get(name), compiled.call_line
            if isinstance(argument, ast.Name) and line is not None:
                called = statement_at(compiled.process, line.path, line.line)
                yield from _made(compiled, argument.id, line.path, called.function if called is not None else None)
        elif name in given:
            first = compiled.line - len(compiled.function.decorator_list)
            yield _Model(name=name, is_trained=_is_trained(compiled, name), change=Change(
                kind=ChangeKind.INSERT, path=compiled.path, line=first, new=f"{name} = torch.compile({name}{{}})"))
        else:
            yield from _made(compiled, name, compiled.path, around)


def _called(function: Function) -> Iterator[str]:
    """`model` and `self.model` of the calls in a function."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            name = code(node.func)
            if isinstance(node.func, ast.Name) or re.fullmatch(r"self\.\w+", name):
                yield name


def _made(compiled: FunctionSource, name: str, path: str, around: Function | None) -> Iterator[_Model]:
    """The model of this name, if the source shows the one place where it is made, in this function or outside any."""
    scopes = {None, around.name if around is not None else None}
    assigned = [
        (line, node) for line, node in recorded_statements(compiled.process, path)
        if isinstance(node, ast.Assign) and name in [code(target) for target in node.targets]
        and (name.startswith("self.") or _scope(compiled.process, path, line) in scopes)
    ]
    made = [(line, node) for line, node in assigned if not _is_moved(node, name)]
    if len(made) != 1 or any(len(node.targets) != 1 for _, node in assigned):
        return
    line, node = max(assigned, key=lambda pair: pair[0])
    is_trained = _is_trained(compiled, name)
    if (is_trained or _is_class(made[0][1].value)) and not _IS_COMPILE.search(code(node.value)):
        yield _Model(name=name, is_trained=is_trained, change=Change(
            kind=ChangeKind.REPLACE, path=path, line=line, old=code(node.value),
            new=f"torch.compile({code(node.value)}{{}})"))


def _is_moved(node: ast.Assign, name: str) -> bool:
    """`model = model.to(device)`: another value of the same object."""
    called = node.value.func if isinstance(node.value, ast.Call) else None
    return isinstance(called, ast.Attribute) and code(called.value) == name


def _scope(process: Process, path: str, line: int) -> str | None:
    """The name of the function that holds a line."""
    for own_path, place in process.sources:
        source = process.sources[own_path, place]
        if own_path == path and source.line(line):
            found = statement_at(Process(sources={(path, line): source}), path, line)
            return found.function.name if found is not None and found.function is not None else None
    return None


def _is_trained(compiled: FunctionSource, name: str) -> bool:
    """Whether the source asks for the parameters of a model, under this name."""
    lines = (line for source in compiled.process.sources.values() for line in source.lines)
    return any(f"{name}.parameters()" in line for line in lines)


def _is_class(value: ast.expr) -> bool:
    """Whether a value is made by calling a class, which by its name is not a loss or an optimizer."""
    if not isinstance(value, ast.Call) or _NO_MODEL.search(code(value.func)):
        return False
    return called_name(value)[:1].isupper()

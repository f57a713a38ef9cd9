"""TT303, TT309, TT310: torch.compile calls that compile nothing, are repeated, or are bypassed."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from torchtriage.diagnosis.coverage.edits import (
    CompileUse,
    callee_edits,
    hoisted_compile_edits,
    is_of_torch,
    unused_edits,
)
from torchtriage.diagnosis.places import Place, is_wrapped, locate
from torchtriage.diagnosis.rules import finding, placed_fields, rule
from torchtriage.diagnosis.statement import Statement, called_name, code, fits, module_at, statement_at
from torchtriage.findings.model import Check, CheckKind, Evidence, Finding, Fix, OwnerKind, Severity
from torchtriage.recording.events import CompileCall, CompileStart, FrameSkipped, GraphBreak, LimitHit
from torchtriage.recording.recording import Process
from torchtriage.text import counted, short_place

OF_TORCH = ("", None)
MIN_REPEATS = 3     # calls of torch.compile after its target was first compiled; a warm-up may make one or two

# Methods of every module that do not compute: calling them on a compiled module bypasses nothing.
_BOOKKEEPING = frozenset({
    "train", "eval", "to", "cpu", "cuda", "half", "float", "double", "bfloat16", "parameters",
    "named_parameters", "buffers", "named_buffers", "modules", "state_dict", "named_modules", "children",
    "named_children", "load_state_dict", "zero_grad", "requires_grad_", "compile", "apply", "register_buffer",
    "register_forward_hook", "register_parameter", "add_module", "get_parameter", "get_buffer",
    "get_submodule", "share_memory", "type",
})


@rule
def compile_did_nothing(process: Process) -> Iterator[Finding]:
    """torch.compile was called and none of its target's code was ever compiled."""
    if not process.recorder.end:
        return  # the run continues, or was cut off before it could call the target
    starts = list(process.of(CompileStart))
    touched = {(e.path, e.line) for kind in (CompileStart, FrameSkipped, LimitHit) for e in process.of(kind)}
    inlined = {(entry.path, entry.function) for e in (*starts, *process.of(GraphBreak)) for entry in e.stack}
    # A module with hooks, or with torch's own forward, is compiled through a wrapper of torch's.
    through_wrapper = any(is_wrapped(e) for e in starts)
    for call in process.of(CompileCall):
        place = locate(process, call)
        name = call.target.rsplit(".", 1)[-1]
        is_used = (call.target_path, call.target_line) in touched or (call.target_path, name) in inlined
        is_used = is_used or (through_wrapper and name == "forward")
        # A scheduler wraps the optimizer's step; the graph break at this wrapper has a separate finding.
        is_used = is_used or (through_wrapper and call.target_path.endswith("torch/optim/lr_scheduler.py"))
        if is_used or not call.target_path or place.owner.kind is not OwnerKind.YOU:
            continue
        yield _nothing_compiled(process, call, place)


def _nothing_compiled(process: Process, call: CompileCall, place: Place) -> Finding:
    use = _use_of(process, call)
    return finding(
        "TT303", title=_title(call, use), cause=_cause(call, use),
        fix=Fix(text=_fix(call, use), edits=tuple(unused_edits(process, call, use))),
        severity=Severity.P4 if use.is_decorator else Severity.P1, evidence=Evidence(num_events=1),
        verification=(Check(CheckKind.IS_COMPILED, call.target),),
        **placed_fields(place, "TT303", call.target, process, call),
    )


def _use_of(process: Process, call: CompileCall) -> CompileUse:
    where = short_place(call.path, call.line)
    statement = statement_at(process, call.path, call.line or 0)
    if statement is None:
        return CompileUse(where=where)
    node = statement.node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return CompileUse(where=where, is_decorator=True)
    made = _compile_call(node)
    if made is None:
        return CompileUse(where=where)
    is_in_place = isinstance(made.func, ast.Attribute) and code(made.func.value) not in ("torch", "torch._dynamo")
    argument: ast.expr | None = made.args[0] if made.args else None
    if is_in_place and isinstance(made.func, ast.Attribute):
        argument = made.func.value
    original = code(argument) if isinstance(argument, (ast.Name, ast.Attribute)) else ""
    result = ""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and node.value is made:
        result = code(node.targets[0])
    is_dropped = isinstance(node, ast.Expr) and not is_in_place
    if is_dropped and original:
        original = _name_in_use(statement, original)
    method, method_at = _method_called(process, call, result)
    return CompileUse(
        where=where, is_dropped=is_dropped, is_in_place=is_in_place, result=result,
        original=original, method=method, method_at=method_at,
        options=", ".join(code(keyword) for keyword in made.keywords),
        made=code(argument) if isinstance(argument, ast.Call) and fits(code(argument)) else "",
        original_at=_called_at(process, call, original) if original != result else "",
    )


def _name_in_use(statement: Statement, name: str) -> str:
    """The name by which the function uses an object from then on: `self.net` after `self.net = net`; empty if none."""
    function, line = statement.function, statement.node.lineno
    if function is None or name not in {argument.arg for argument in function.args.args}:
        return name
    for part in ast.walk(function):
        if isinstance(part, ast.Name) and part.id == name and part.lineno > line:
            return name
    for part in ast.walk(function):
        if isinstance(part, ast.Assign) and part.lineno < line:
            targets, value = part.targets[0], part.value
            pairs = [(targets, value)]
            if isinstance(targets, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(targets.elts, value.elts, strict=False))
            kept = [code(target) for target, own in pairs if code(own) == name]
            if kept:
                return kept[0]
    return ""


def _compile_call(node: ast.stmt) -> ast.Call | None:
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call) and called_name(part) == "compile"]
    return calls[0] if calls else None


def _calls_after(process: Process, call: CompileCall) -> Iterator[tuple[ast.Call, int]]:
    """The calls in the recorded source around a torch.compile call, with their lines."""
    tree, first_line = module_at(process, call.path, call.line or 0)
    for part in ast.walk(tree) if tree is not None else ():
        if isinstance(part, ast.Call):
            yield part, part.lineno + first_line - 1


def _method_called(process: Process, call: CompileCall, result: str) -> tuple[str, str]:
    """A method that the source calls on the compiled object, and where; empty if it shows none."""
    for part, line in _calls_after(process, call):
        if not result or not isinstance(part.func, ast.Attribute) or code(part.func.value) != result:
            continue
        if part.func.attr not in _BOOKKEEPING and not part.func.attr.startswith("_"):
            return part.func.attr, short_place(call.path, line)
    return "", ""


def _called_at(process: Process, call: CompileCall, name: str) -> str:
    for part, line in _calls_after(process, call):
        if name and code(part.func) == name:
            return short_place(call.path, line)
    return ""


def _title(call: CompileCall, use: CompileUse) -> str:
    if use.is_decorator:
        return f"{call.target} is decorated with torch.compile and was not called in this run"
    return f"torch.compile({call.target}) compiled nothing"


def _cause(call: CompileCall, use: CompileUse) -> str:
    if call.disabled:
        return f"no frame of {call.target} was compiled: disable=True"
    if use.is_decorator:
        return f"no frame of {call.target} was compiled, and a decorated function cannot be called uncompiled"
    if use.method:
        return (f"no frame of {call.target} was compiled: {use.result}.{use.method}() at {use.method_at} is a method "
                "that torch.compile does not wrap, so it runs on the original module")
    if use.is_dropped:
        return f"no frame of {call.target} was compiled: the result of torch.compile at {use.where} is not kept"
    if use.original_at:
        return f"no frame of {call.target} was compiled: {use.original_at} calls {use.original}, the original"
    if use.is_in_place and is_of_torch(call):
        return f"no frame of {call.target} was compiled: compile() in place does not compile torch.nn's own modules"
    return f"no frame of {call.target} was compiled: the compiled object was not called, or the original was instead"


def _fix(call: CompileCall, use: CompileUse) -> str:
    if call.disabled:
        return f"drop disable=True at {use.where}"
    if use.is_decorator:
        return f"nothing to do if {call.target} is not meant to run here; else check TORCHDYNAMO_DISABLE and set_stance"
    if use.method:
        owner = use.original or use.result
        method = f"{owner}.{use.method}"
        first = f"`{use.result} = {use.made}`, then " if use.made and not use.original else ""
        return (f"compile the method: {first}`{method} = {use.compiling(method)}` instead of "
                f"compiling the module at {use.where}")
    if use.is_dropped and use.original:
        in_place = "" if is_of_torch(call) else f", or `{use.original}.compile({use.options})` in place"
        return f"`{use.original} = {use.compiling(use.original)}` at {use.where}{in_place}"
    if use.original_at and use.result:
        return f"call {use.result} instead of {use.original} at {use.original_at}"
    if use.is_in_place and is_of_torch(call):
        module = use.original or "module"
        around = "compile the module that holds it, or " if module.startswith("self.") else ""
        return f"{around}`{module} = {use.compiling(module)}` instead of `{module}.compile()` at {use.where}"
    return (
        f"call the object that torch.compile returned at {use.where}, not the original; only a call of the object "
        "itself is compiled: for another method write model.method = torch.compile(model.method); check "
        "TORCHDYNAMO_DISABLE and torch.compiler.set_stance"
    )


@rule
def compiled_bypassed(process: Process) -> Iterator[Finding]:
    """A loop of the source calls the compiled object and, beside it, the original module, which runs eager."""
    starts = list(process.of(CompileStart))
    compiled = {(start.path, start.line) for start in starts}
    through_wrapper = any(is_wrapped(start) for start in starts)
    reported: set[tuple[str, int | None]] = set()
    for call in process.of(CompileCall):
        place = locate(process, call)
        is_forward = call.target.endswith(".forward")
        is_compiled = (call.target_path, call.target_line) in compiled or (through_wrapper and is_forward)
        if not is_compiled or (call.path, call.line) in reported or place.owner.kind is not OwnerKind.YOU:
            continue
        use = _use_of(process, call)
        if use.is_in_place or not use.result or not use.original or use.result == use.original:
            continue
        original, line = _original_in_loop(process, call, use)
        if line is None or _called_in_loop(process, call, use.result) is None:
            continue
        reported.add((call.path, call.line))
        at = short_place(call.path, line)
        in_place = f", or `{original}.compile({use.options})` in place instead of torch.compile at {use.where}"
        yield finding(
            "TT310", title=f"{use.result} is compiled, and {original}(...) at {at} calls the original module",
            cause=f"torch.compile at {use.where} returns {use.result}; {original} stays uncompiled, so {at} runs eager",
            fix=Fix(text=f"call {use.result} instead of {original} at {at}{'' if is_of_torch(call) else in_place}",
                    edits=tuple(callee_edits(process, call, original, use.result))),
            evidence=Evidence(
                num_events=1, notes=("read from the source; calls of an uncompiled module are not observed",),
            ),
            verification=(Check(CheckKind.NO_FINDING, call.target, code="TT310"),),
            **placed_fields(place, "TT310", call.target, process, call),
        )


def _original_in_loop(process: Process, call: CompileCall, use: CompileUse) -> tuple[str, int | None]:
    """The name under which a loop calls the original, and where: its own, or one that it was assigned to."""
    tree, _ = module_at(process, call.path, call.line or 0)
    names = [use.original]
    for part in ast.walk(tree) if tree is not None else ():
        if isinstance(part, ast.Assign) and len(part.targets) == 1 and code(part.value) == use.original:
            names.append(code(part.targets[0]))
    for name in names:
        line = _called_in_loop(process, call, name) if name != use.result else None
        if line is not None:
            return name, line
    return use.original, None


_REPEATED = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _called_in_loop(process: Process, call: CompileCall, name: str) -> int | None:
    """The first line that calls the name in a loop, or, for an attribute of self, in any method; None if none does."""
    tree, first_line = module_at(process, call.path, call.line or 0)
    scopes: list[ast.AST] = [part for part in ast.walk(tree) if isinstance(part, _REPEATED)] if tree is not None else []
    if name.startswith("self.") and tree is not None:
        scopes.append(tree)
    for scope in scopes:
        for part in ast.walk(scope):
            if isinstance(part, ast.Call) and code(part.func) == name:
                return part.lineno + first_line - 1
    return None


@rule
def compiled_repeatedly(process: Process) -> Iterator[Finding]:
    """One line calls torch.compile again and again on code that is compiled already."""
    first_starts: dict[tuple[str, int | None], float] = {}
    for start in process.of(CompileStart):
        first_starts.setdefault((start.path, start.line), start.time)
        if is_wrapped(start):       # what torch compiles so does not name its target: a module of torch itself
            first_starts.setdefault(OF_TORCH, start.time)
    repeats: dict[tuple[str, int | None, str], list[CompileCall]] = defaultdict(list)
    for call in process.of(CompileCall):
        compiled = first_starts.get((call.target_path, call.target_line))
        if compiled is None and is_of_torch(call):
            compiled = first_starts.get(OF_TORCH)
        if compiled is not None and call.time > compiled:
            repeats[call.path, call.line, call.target].append(call)
    for calls in repeats.values():
        place = locate(process, calls[0])
        number = sum(call.num_calls for call in calls)
        statement = statement_at(process, calls[0].path, calls[0].line or 0)
        if number < MIN_REPEATS or place.owner.kind is not OwnerKind.YOU or _is_of_new_module(statement):
            continue
        steps = sorted({call.step for call in calls if call.step is not None})
        yield finding(
            "TT309",
            title=f"torch.compile({calls[0].target}) is called again and again: {number:,} times after the first",
            cause=(f"{short_place(calls[0].path, calls[0].line)} calls torch.compile each time it runs; every call "
                   "makes a new wrapper and looks the cache up from the start, which takes longer than a small graph"),
            fix=Fix(
                text=_once(calls[0], statement),
                edits=tuple(hoisted_compile_edits(process, calls[0])),
            ),
            evidence=Evidence(num_events=number, notes=(counted(number, "call"),)),
            verification=(Check(CheckKind.NO_FINDING, calls[0].target, code="TT309"),),
            **{**placed_fields(place, "TT309", calls[0].target, process, calls[0]), "steps": tuple(steps[:50])},
        )


def _is_of_new_module(statement: Statement | None) -> bool:
    """Whether the source makes a new module for each call of torch.compile, as one for each fold."""
    made = _compile_call(statement.node) if statement is not None else None
    if statement is None or made is None or not made.args:
        return False
    argument, around = made.args[0], statement.loop or statement.function
    if isinstance(argument, ast.Call):
        return _makes_object(argument)
    return any(
        isinstance(node, ast.Assign) and code(argument) in map(code, node.targets) and _makes_object(node.value)
        for node in (ast.walk(around) if around is not None else ())
    )


def _makes_object(value: ast.expr) -> bool:
    """Whether an expression calls a class, by its capital letter, or copies an object."""
    return isinstance(value, ast.Call) and (called_name(value)[:1].isupper() or called_name(value) == "deepcopy")


def _once(call: CompileCall, statement: Statement | None) -> str:
    where = short_place(call.path, call.line)
    function = statement.function if statement is not None else None
    is_local = function is not None and any(
        isinstance(part, (ast.FunctionDef, ast.Lambda)) and getattr(part, "name", "") == call.target.rpartition(".")[2]
        for part in ast.walk(function) if part is not function
    )
    move = f"; define {call.target.rpartition('.')[2]} outside {function.name} too" if is_local and function else ""
    if function is not None and function.args.args and function.args.args[0].arg == "self":
        return f"call torch.compile once, in __init__, keep the result on self and call that instead of {where}{move}"
    return f"call torch.compile once, outside the loop or function at {where}, and call its result there{move}"

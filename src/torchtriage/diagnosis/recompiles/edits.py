"""The options of a recompile's remedy as edits: of the compile call, of the line that calls, of the function."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torchtriage.diagnosis.places import owner_of
from torchtriage.diagnosis.recompiles.caller import Caller, passed_arguments
from torchtriage.diagnosis.recompiles.guard_text import Kind
from torchtriage.diagnosis.recompiles.patterns import function_lines
from torchtriage.diagnosis.recompiles.remedies import MAX_FLAGS
from torchtriage.diagnosis.recompiles.scene import Scene
from torchtriage.diagnosis.recompiles.size_remedies import may_be_of_a_layer
from torchtriage.diagnosis.rewrites.model_calls import FunctionSource, inner_compiled
from torchtriage.diagnosis.statement import code, own_nodes, recorded_statements, statement_at
from torchtriage.findings.model import YOU, Change, ChangeKind, Edit, EditLabel
from torchtriage.recording.recording import Process
from torchtriage.text import short_place

UNSPEC = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecompileSite:
    """A group of recompiles with the line that calls the function."""

    process: Process
    scene: Scene
    caller: Caller | None

    @property
    def path(self) -> str:
        return self.scene.group.frame.key[0]

    @property
    def where(self) -> str:
        return short_place(self.caller.line.path, self.caller.line.line) if self.caller is not None else ""


def recompile_edits(rule: str, site: RecompileSite) -> tuple[Edit, ...]:
    """The edits for a group of this rule, the best first."""
    if site.scene.inside or site.scene.batches:
        return ()
    if site.scene.group.flags and site.scene.group.limit:
        return tuple(_limit_of_combinations(site))
    return tuple(edit for make in _BY_CODE.get(rule, ()) for edit in make(site))


def _limit_of_combinations(site: RecompileSite) -> Iterator[Edit]:
    """The limit that leaves room for every combination of a few flags."""
    hit, flags = site.scene.group.limit, site.scene.group.flags
    if hit is not None and len(flags) <= MAX_FLAGS and _is_yours(site, hit.path):
        setting = f"torch._dynamo.config.recompile_limit = {2 ** len(flags)}"
        change = Change(kind=ChangeKind.SET, path=hit.path, line=hit.line or 1, new=setting)
        yield Edit(label=EditLabel.SETTING, text=setting, changes=(change,))


def _is_yours(site: RecompileSite, path: str) -> bool:
    return owner_of(path, site.process.program) == YOU


def drop_static(site: RecompileSite) -> Iterator[Edit]:
    """dynamic=False dropped where torch.compile is called."""
    call = site.scene.group.call
    if call is None or call.dynamic is not False or not _is_yours(site, call.path):
        return
    if may_be_of_a_layer(site.scene):
        return      # the sizes may be those of the layers, and then it cures nothing
    statement = statement_at(site.process, call.path, call.line or 0)
    line, text = call.line, site.scene.not_static
    if statement is not None and not _has_keyword(statement.node, "dynamic"):
        line = _line_of_settings(site, call.path, statement.node)
        text = f"drop dynamic=False at {short_place(call.path, line)}" if line is not None else ""
    if line is not None and "drop dynamic=False" in site.scene.not_static:
        yield Edit(
            label=EditLabel.SETTING, text=text,
            changes=(Change(kind=ChangeKind.DROP_ARGUMENT, path=call.path, line=line, old="dynamic"),),
        )


def _line_of_settings(site: RecompileSite, path: str, node: ast.stmt) -> int | None:
    """The line of `NAME = dict(dynamic=False)` for a call with `**NAME`; None unless there is exactly one."""
    names = {code(part.value) for part in own_nodes(node) if isinstance(part, ast.keyword) and part.arg is None}
    assigned = [
        (line, made) for line, made in recorded_statements(site.process, path)
        if isinstance(made, ast.Assign) and names & {code(target) for target in made.targets}
    ]
    if len(assigned) != 1:
        return None
    [(line, made)] = assigned
    is_dict = isinstance(made.value, ast.Call) and code(made.value.func) == "dict"
    return line if is_dict and _has_keyword(made, "dynamic") else None


def _has_keyword(node: ast.stmt, name: str) -> bool:
    return any(isinstance(part, ast.keyword) and part.arg == name for part in ast.walk(node))


def mark_dynamic(site: RecompileSite) -> Iterator[Edit]:
    """The call that makes a dimension dynamic, before the line that calls the function."""
    scene, caller = site.scene, site.caller
    if not scene.value or caller is None or not caller.is_direct or not _is_yours(site, caller.line.path):
        return
    statement = statement_at(site.process, caller.line.path, caller.line.line)
    if statement is None or isinstance(statement.node, ast.While):
        return
    inner = {
        name.id for node in own_nodes(statement.node) if isinstance(node, ast.comprehension)
        for name in ast.walk(node.target) if isinstance(name, ast.Name)
    }
    if scene.value.partition(".")[0].partition("[")[0] in inner:
        return      # the tensor exists only within the statement
    dims = scene.group.dims
    mark = f"torch._dynamo.maybe_mark_dynamic({scene.value}, {dims[0] if len(dims) == 1 else list(dims)})"
    yield Edit(
        label=EditLabel.SETTING, text=f"{mark} {scene.before_call}",
        changes=(Change(kind=ChangeKind.INSERT, path=caller.line.path, line=caller.line.line, new=mark),),
    )


def _wrapped(site: RecompileSite, form: str, why: str = "") -> Iterator[Edit]:
    """The passed value in another form; `{}` in the form is the value."""
    caller = site.caller
    if caller is None or not _is_yours(site, caller.line.path):
        return
    changes = tuple(
        Change(
            kind=ChangeKind.REPLACE, path=caller.line.path, line=caller.line.line, old=code(value),
            new=form.format(code(value) if _is_primary(value) or form.endswith("({})") else f"({code(value)})"),
            within=code(call),
        )
        for call, value in passed_arguments(site.scene.group, caller, site.process)
    )
    if changes:
        yield Edit(label=EditLabel.REVIEW, text=f"`{changes[0].new}` in the call at {site.where}{why}", changes=changes)


def _is_primary(value: ast.expr) -> bool:
    return isinstance(value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))


def as_tensor(site: RecompileSite) -> Iterator[Edit]:
    """A number passed as a tensor, with torch's functions where the code uses those of math."""
    reason = site.scene.group.reasons[0]
    is_index = re.search(rf"\[\s*{re.escape(reason.source)}\s*\]", reason.code)
    if "nn.Module" in reason.hint or is_index or re.search(r"\brange\(|dropout", reason.code):
        return      # a constant of the module; a number that must stay one
    maths = list(_of_math(site))
    for edit in _wrapped(site, "torch.tensor({})"):
        yield Edit(label=edit.label, text=edit.text, changes=(*edit.changes, *maths))


def _of_math(site: RecompileSite) -> Iterator[Change]:
    reason = site.scene.group.reasons[0]
    line = reason.place.rpartition(":")[2]
    used = re.search(r"\bmath\.(\w+)\(", reason.code)
    if used and line.isdigit():
        yield Change(
            kind=ChangeKind.REPLACE, path=site.path, line=int(line), old=f"math.{used[1]}", new=f"torch.{used[1]}")


def model_instead(site: RecompileSite) -> Iterator[Edit]:
    """The model compiled instead of the function whose loop calls it a varying number of times."""
    reason, line = site.scene.group.reasons[0], _definition(site)
    statement = statement_at(site.process, site.path, site.scene.group.frame.key[2] or 0)
    if line is None or statement is None or not isinstance(statement.node, ast.FunctionDef):
        return
    calls = [part for part in ast.walk(statement.node) if isinstance(part, ast.Call)]
    if not any(code(part.func) == "range" and reason.source in map(code, part.args) for part in calls):
        return
    caller = site.caller
    called = statement_at(site.process, caller.line.path, caller.line.line) if caller is not None else None
    calls = called.calls(site.scene.group.frame.key[1]) if called is not None else []
    yield from inner_compiled(FunctionSource(
        process=site.process, path=site.path, line=line, function=statement.node,
        call=calls[0] if len(calls) == 1 else None, call_line=caller.line if caller is not None else None,
    ))


def unspecialized(site: RecompileSite) -> Iterator[Edit]:
    """The setting that makes an int attribute of a module dynamic."""
    reason = site.scene.group.reasons[0]
    if reason.kind is Kind.EQUALS and reason.value_type == "int" and "nn.Module" in reason.hint:
        yield _setting(site, UNSPEC)


def _setting(site: RecompileSite, setting: str) -> Edit:
    call = site.scene.group.call
    path = call.path if call is not None and _is_yours(site, call.path) else site.path
    return Edit(
        label=EditLabel.SETTING, text=setting,
        changes=(Change(kind=ChangeKind.SET, path=path, line=site.scene.group.frame.key[2] or 1, new=setting),),
    )


def table_in_tensor(site: RecompileSite) -> Iterator[Edit]:
    """A list of numbers that an int selects from becomes one tensor, where it is assigned."""
    source, text = site.scene.group.source, site.scene.group.reasons[0].code
    selected = re.search(rf"([A-Za-z_][\w.]*)\[\s*{re.escape(source)}\s*\](?!\()", text)
    name = selected[1] if selected else ""
    assigned = [
        (line, node.value) for line, node in recorded_statements(site.process, site.path)
        if isinstance(node, ast.Assign) and name in [code(target) for target in node.targets]
    ]
    if len(assigned) == 1 and _holds_numbers(assigned[0][1]):
        line, value = assigned[0]
        new = f"torch.tensor({code(value)})"
        yield Edit(
            label=EditLabel.REVIEW, text=f"`{name} = {new}` at {short_place(site.path, line)}",
            changes=(Change(kind=ChangeKind.REPLACE, path=site.path, line=line, old=code(value), new=new),),
        )


def _holds_numbers(value: ast.expr) -> bool:
    """Whether an expression is a list of numbers: constants, or arithmetic in a comprehension over a range."""
    if isinstance(value, (ast.List, ast.Tuple)):
        return bool(value.elts) and all(_is_arithmetic(item, frozenset()) for item in value.elts)
    if not isinstance(value, ast.ListComp) or len(value.generators) != 1:
        return False
    [loop] = value.generators
    is_range = isinstance(loop.iter, ast.Call) and code(loop.iter.func) == "range"
    names = frozenset({loop.target.id}) if isinstance(loop.target, ast.Name) else frozenset[str]()
    return is_range and not loop.ifs and _is_arithmetic(value.elt, names)


def _is_arithmetic(value: ast.expr, names: frozenset[str]) -> bool:
    """Whether an expression has only numbers, these names, and functions of math."""
    for part in ast.walk(value):
        if isinstance(part, ast.Constant) and type(part.value) not in (int, float):
            return False
        if isinstance(part, ast.Call) and not code(part.func).startswith("math."):
            return False
        if isinstance(part, ast.Name) and part.id not in {*names, "math"}:
            return False
        if not isinstance(part, (ast.Constant, ast.Call, ast.Name, ast.BinOp, ast.UnaryOp, ast.Attribute, ast.operator,
                                 ast.unaryop, ast.expr_context)):
            return False
    return True


def stacked_values(site: RecompileSite) -> Iterator[Edit]:
    """The values of a dict as one tensor, in the call and where the function reads them."""
    return _made_by_caller(site, read="{}.values()", passed="torch.stack(list({}.values()))")


def counter_of_object(site: RecompileSite) -> Iterator[Edit]:
    """A number of a global object that only grows in place begins as a tensor."""
    source = site.scene.group.source
    owner, _, name = source.rpartition(".")
    if not owner.isidentifier():
        return
    statements = list(recorded_statements(site.process, site.path))
    first = [
        (line, node, number) for line, node in statements if isinstance(node, ast.Assign)
        for number in _assigned_numbers(node, f"self.{name}")
    ]
    targets = [code(target) for _, node in statements if isinstance(node, ast.Assign) for target in node.targets]
    if len(first) == 1 and source not in targets and targets.count(f"self.{name}") == 1:
        line, node, number = first[0]
        yield _begun_as_tensor(site, f"self.{name}", line, node.value, number)


def counted_in_tensor(site: RecompileSite) -> Iterator[Edit]:
    """A counter of an object that begins as a tensor."""
    source = site.scene.group.source
    for line, node in recorded_statements(site.process, site.path):
        if not isinstance(node, ast.Assign):
            continue
        for number in _assigned_numbers(node, source):
            yield _begun_as_tensor(site, source, line, node.value, number)
            return


def _begun_as_tensor(site: RecompileSite, name: str, line: int, value: ast.expr, number: ast.expr) -> Edit:
    return Edit(
        label=EditLabel.REVIEW, text=f"`{name} = torch.tensor({code(number)})` at {short_place(site.path, line)}",
        changes=(Change(
            kind=ChangeKind.REPLACE, path=site.path, line=line, old=code(value), new=_with_tensor(value, number)),),
    )


def _assigned_numbers(node: ast.Assign, name: str) -> Iterator[ast.expr]:
    """The number that an assignment gives to this name, also as one of several."""
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        for own, value in pairs:
            if code(own) == name and isinstance(value, ast.Constant) and type(value.value) in (int, float):
                yield value


def _with_tensor(value: ast.expr, number: ast.expr) -> str:
    if value is number:
        return f"torch.tensor({code(number)})"
    assert isinstance(value, ast.Tuple)
    return ", ".join(f"torch.tensor({code(number)})" if part is number else code(part) for part in value.elts)


def cast(site: RecompileSite) -> Iterator[Edit]:
    yield from _wrapped(site, f"{{}}.to({site.scene.group.reasons[0].old})")


def contiguous(site: RecompileSite) -> Iterator[Edit]:
    yield from _wrapped(site, "{}.contiguous()")


def always_tensor(site: RecompileSite) -> Iterator[Edit]:
    reason = site.scene.group.reasons[0]
    if reason.kind is Kind.TYPE and not {"Tensor", "int", "float", "bool"} & {reason.old, reason.new}:
        return
    yield from _wrapped(site, "torch.as_tensor({}, dtype=torch.float32)")


def enum_value(site: RecompileSite) -> Iterator[Edit]:
    """The value of an enum member as a tensor, in the call and where the function reads it."""
    source = site.scene.group.source
    reads = list(_reads(site, f"{source}.value", source))
    if re.search(rf"\[[^\]]*\b{re.escape(source)}\.value\b", _body(site)):
        return      # a tensor as an index without dimensions is read as a number
    for edit in _wrapped(site, "torch.tensor({}.value)") if reads else ():
        yield Edit(label=edit.label, text=edit.text, changes=(*edit.changes, *reads))


def stacked(site: RecompileSite) -> Iterator[Edit]:
    """A list that is stacked by the caller and not in the function."""
    return _made_by_caller(site, read="torch.stack({})", passed="torch.stack({})")


def _made_by_caller(site: RecompileSite, *, read: str, passed: str) -> Iterator[Edit]:
    """The caller passes what the function makes of an argument, where that is the only use of the argument."""
    source = site.scene.group.source
    reads = list(_reads(site, read.format(source), source))
    if len(reads) == 1 and len(re.findall(rf"\b{re.escape(source)}\b", _body(site))) == 2:    # and the parameter
        for edit in _wrapped(site, passed):
            yield Edit(label=edit.label, text=edit.text, changes=(*edit.changes, *reads))


def global_as_argument(site: RecompileSite) -> Iterator[Edit]:
    """A global number that the caller passes in."""
    reason, caller = site.scene.group.reasons[0], site.caller
    source, name = reason.source, reason.source.lower()
    if reason.value_type not in ("int", "float") or not source.isidentifier() or caller is None:
        return
    name = name if name != source else f"{source}_value"
    statement = statement_at(site.process, caller.line.path, caller.line.line) if caller.is_direct else None
    calls = statement.calls(site.scene.group.frame.key[1]) if statement is not None else []
    reads = list(_reads(site, source, name))
    line = _definition(site)
    if len(calls) != 1 or not reads or line is None or caller.line.path != site.path:
        return
    passed = f"torch.tensor({source})" if reason.value_type == "float" else source
    yield Edit(
        label=EditLabel.REVIEW, text=f"pass {source} as an argument in the call at {site.where}",
        changes=(
            Change(kind=ChangeKind.ADD_PARAMETER, path=site.path, line=line, new=name), *reads,
            Change(
                kind=ChangeKind.ADD_ARGUMENT, path=caller.line.path, line=caller.line.line, old=code(calls[0]),
                new=f"{name}={passed}",
            ),
        ),
    )


def _body(site: RecompileSite) -> str:
    line = _definition(site)
    lines = function_lines(site.scene.group.frame, site.process)
    source = site.process.sources.get((site.path, site.scene.group.frame.key[2] or 0))
    if line is None or source is None:
        return ""
    statement = statement_at(site.process, site.path, site.scene.group.frame.key[2] or 0)
    node = statement.node if statement is not None else None
    num_lines = (node.end_lineno or 0) - node.lineno + 1 if isinstance(node, ast.FunctionDef) else len(lines)
    return "\n".join(lines[line - source.first_line:][:num_lines])


def _definition(site: RecompileSite) -> int | None:
    """The line of the function's `def`."""
    path, name, first = site.scene.group.frame.key
    source = site.process.sources.get((path, first or 0))
    for number, text in enumerate(source.lines if source is not None else ()):
        is_definition = re.match(rf"\s*(?:async )?def {re.escape(name)}\(", text)
        if is_definition and source is not None and source.first_line + number >= (first or 0):
            return source.first_line + number
    return None


def _reads(site: RecompileSite, old: str, new: str) -> Iterator[Change]:
    """The replacement of an expression in each statement of the function that has it."""
    first = _definition(site)
    body = _body(site)
    if first is None or not body:
        return
    for line, node in recorded_statements(site.process, site.path):
        if first < line < first + body.count("\n") + 1 and any(
            isinstance(part, ast.expr) and code(part) == old for part in own_nodes(node)
        ):
            yield Change(kind=ChangeKind.REPLACE, path=site.path, line=line, old=old, new=new)


_BY_CODE: dict[str, tuple[Callable[[RecompileSite], Iterator[Edit]], ...]] = {
    "TT201": (mark_dynamic,),
    "TT202": (drop_static, mark_dynamic),
    "TT203": (mark_dynamic,),
    "TT204": (drop_static, unspecialized, table_in_tensor, as_tensor, model_instead),
    "TT205": (drop_static, as_tensor),
    "TT206": (unspecialized, counted_in_tensor),
    "TT207": (unspecialized,),
    "TT211": (cast,),
    "TT213": (contiguous,),
    "TT216": (stacked_values,),
    "TT217": (stacked,),
    "TT219": (enum_value,),
    "TT220": (global_as_argument, counter_of_object),
    "TT223": (always_tensor,),
}

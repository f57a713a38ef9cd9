"""TT202 to TT205, TT211 to TT224: arguments of compiled functions that change from call to call."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.findings.model import Finding, Severity
from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.interpreter import reach_of
from torchtriage.lint.reach.model import SiteCall, TargetSite
from torchtriage.lint.rule import source_finding, tree_rule
from torchtriage.lint.rules.places import NO_GRAD, frame_place, is_under
from torchtriage.lint.types.values import (
    ContainerValue,
    FunctionValue,
    LibraryName,
    ObjectValue,
    PythonValue,
    Value,
    is_none,
    options,
)
from torchtriage.lint.variation.bindings import BindingKind, bindings, repeats_around
from torchtriage.lint.variation.describe import Describer
from torchtriage.lint.variation.kinds import NUMBERS, ValueKind
from torchtriage.lint.variation.specialised import needs_float, needs_int

_SETTLES = Severity.P4      # each of two variants is compiled once, as at run time
MAX_SETTLED = 3             # known values: the report of a run calls two recompiles settled
_INT_WHY = "it is used as an index or a bound"
_FLOAT_WHY = "it is a constant of the operator that receives it"
_STATIC_WHY = "with dynamic=False each value is compiled"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of one call of a compiled function, with the parameter that receives it."""

    call: SiteCall
    node: ast.expr
    parameter: str
    kinds: tuple[ValueKind, ...]


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """One way in which the values of an argument differ; `what` differs, and `why` it is compiled."""

    code: str
    what: str
    why: str
    severity: Severity | None = None


@tree_rule
def changing_arguments(tree: SourceTree) -> Iterator[Finding]:
    """Arguments that differ from call to call, where the compiled code holds for one of them."""
    reach = reach_of(tree)
    describer = Describer(tree, reach)
    for site in reach.sites:
        functions = compiled_functions(site)
        by_parameter: dict[str, list[Argument]] = {}
        for call in site.calls:
            for argument in _arguments(call, functions[0] if functions else None, describer):
                by_parameter.setdefault(argument.parameter, []).append(argument)
                if describer.is_repeated(call.file, call.node):
                    for change in _changes(argument, functions, site):
                        if change.code != "TT215" or _is_recorded(argument):
                            yield _found(functions, change, argument, site, tree)
        for arguments in by_parameter.values():
            if len(arguments) > 1:
                for change in _differences([kind for argument in arguments for kind in argument.kinds]):
                    if change.code != "TT218":      # absent_arguments finds it, also where the default is None
                        yield _found(functions, change, arguments[0], site, tree)


def compiled_functions(site: TargetSite) -> list[FunctionValue]:
    """The functions that a site compiles: itself, or the forward of a module of the project."""
    found = []
    for target in (*site.bound, *options(site.target)):
        if isinstance(target, FunctionValue):
            found.append(target)
        if isinstance(target, ObjectValue):
            member = target.instance.of.members.get("forward")
            if isinstance(member, FunctionValue):
                found.append(FunctionValue(member.file, member.node, member.outer, target, member.owner))
    return found


def _arguments(call: SiteCall, function: FunctionValue | None, describer: Describer) -> Iterator[Argument]:
    if call.attribute or any(isinstance(a, ast.Starred) for a in call.node.args):
        return
    names = _parameters(function) if function is not None else [f"input {n}" for n in range(len(call.node.args))]
    for name, node in zip(names, call.node.args, strict=False):
        yield Argument(call, node, name, describer.of(node, call.file))
    for keyword in call.node.keywords:
        name = keyword.arg or "the keyword arguments"
        yield Argument(call, keyword.value, name, describer.of(keyword.value, call.file))


def _parameters(function: FunctionValue) -> list[str]:
    spec = function.node.args
    names = [parameter.arg for parameter in (*spec.posonlyargs, *spec.args)]
    skipped = 1 if function.bound is not None or function.owner is not None else 0
    return names[skipped + len(function.preset):]


def _changes(argument: Argument, functions: Sequence[FunctionValue], site: TargetSite) -> Iterator[ArgumentChange]:
    """What differs between the passes of the loop around one call."""
    is_static = site.is_set("dynamic", False) and "mark_dynamic" not in argument.call.file.text
    for kind in argument.kinds:
        if kind.varies:
            yield from _changing_value(kind, argument.parameter, functions, is_static)
        if kind.length_varies:
            yield ArgumentChange("TT217", "length", "its length is a guard")
        if kind.keys_vary:
            yield ArgumentChange("TT216", "keys", "its keys are a guard")
        if kind.type == "fresh":
            yield ArgumentChange("TT219", "object", "each call gets new code or a new class, which is a guard")
    if is_static and (any(kind.has_varying_size for kind in argument.kinds) or _sizes_differ(argument.kinds)):
        yield ArgumentChange("TT202", "size", "with dynamic=False each size is compiled")
    elif not is_static and len(argument.kinds) == 1 and any(map(_crosses_one, argument.kinds[0].sizes or ())):
        yield ArgumentChange("TT221", "size", "a size of 0 or 1 is compiled apart from all others")
    functions_given = {kind.values for kind in argument.kinds if kind.type == "function" and kind.values}
    if len(functions_given) > 1:
        settles = _SETTLES if len(functions_given) <= MAX_SETTLED else None
        yield ArgumentChange("TT219", "function", "its identity is a guard", settles)
    yield from _differences(argument.kinds)


def _changing_value(
    kind: ValueKind, name: str, functions: Sequence[FunctionValue], is_static: bool,
) -> Iterator[ArgumentChange]:
    settles = _SETTLES if 0 < len(kind.values) <= MAX_SETTLED else None
    if kind.type == "int" and (is_static or any(needs_int(function, name) for function in functions)):
        yield ArgumentChange("TT204", "int", _INT_WHY if not is_static else _STATIC_WHY, settles)
    elif kind.type == "float" and (is_static or any(needs_float(function, name) for function in functions)):
        yield ArgumentChange("TT205", "float", _FLOAT_WHY if not is_static else _STATIC_WHY, settles)
    elif kind.type in ("str", "enum", "bool"):
        what = {"str": "text", "enum": "enum member", "bool": "flag"}[kind.type]
        settles = _SETTLES if kind.type == "bool" else settles
        yield ArgumentChange("TT224", what, "it is a constant to the compiler", settles)


def _sizes_differ(kinds: Sequence[ValueKind]) -> bool:
    known = {kind.sizes for kind in kinds if kind.type == "tensor" and kind.sizes is not None}
    ranks = {len(sizes) for sizes in known}
    return len(known) > 1 and len(ranks) == 1 and all(size.values for sizes in known for size in sizes)


def _crosses_one(size: ValueKind) -> bool:
    """Whether a size takes the value 0 or 1 and at least two others."""
    values = {value for value in size.values if isinstance(value, int)}
    return size.varies and bool(values & {0, 1}) and len(values - {0, 1}) > 1


def _is_recorded(argument: Argument) -> bool:
    """Whether autograd records at the call itself; a function that is given its tensors may run under no_grad."""
    file, node = argument.call.file, argument.node
    reaching = bindings(file, node, node.id) if isinstance(node, ast.Name) else []
    if any(binding.kind is BindingKind.PARAMETER for binding in reaching):
        return False
    return not is_under(argument.call, NO_GRAD) and "set_grad_enabled(False)" not in file.text


def _differences(kinds: Sequence[ValueKind]) -> Iterator[ArgumentChange]:
    """What differs between alternatives: of one argument in several passes, or of several calls."""
    tensors = [kind for kind in kinds if kind.type == "tensor"]
    values = [kind for kind in kinds if kind.type not in ("", "None", "earlier")]
    if values and any(kind.type == "None" for kind in kinds):
        yield ArgumentChange("TT218", "", "whether it is None is a guard", _SETTLES)
    if tensors and any(kind.type in NUMBERS for kind in kinds):
        yield ArgumentChange("TT223", "type", "it is a number in one call and a tensor in another", _SETTLES)
    if len({len(kind.sizes) for kind in tensors if kind.sizes is not None}) > 1:
        yield ArgumentChange("TT214", "number of dimensions", "the number of dimensions is a guard", _SETTLES)
    if _dtypes_differ(kinds):
        yield ArgumentChange("TT211", "dtype", "the dtype is a guard", _SETTLES)
    if len({kind.is_transposed for kind in tensors}) > 1:
        yield ArgumentChange("TT213", "memory layout", "it is transposed in one call and not in another", _SETTLES)
    containers = {kind.values for kind in kinds if kind.type == "list" and kind.parts}
    if len(containers) > 1:
        yield ArgumentChange("TT223", "type", "it is a list in one call and a tuple in another", _SETTLES)
    if {kind.has_grad for kind in tensors} >= {True, False}:
        yield ArgumentChange("TT215", "requires_grad", "it requires grad in one call and not in another", _SETTLES)


def _dtypes_differ(kinds: Sequence[ValueKind]) -> bool:
    """Two known dtypes; or one that a conversion made, beside the value without the conversion."""
    dtypes = {kind.dtype for kind in kinds if kind.type == "tensor"}
    return len(dtypes - {""}) > 1 or (len(dtypes) > 1 and len({kind.sizes for kind in kinds}) == 1)


def _found(
    functions: Sequence[FunctionValue], change: ArgumentChange, argument: Argument, site: TargetSite, tree: SourceTree,
) -> Finding:
    file, name = argument.call.file, argument.parameter
    fields: dict[str, Any] = {} if change.severity is None else {"severity": change.severity}
    if functions:
        fields["raised_at"] = frame_place(functions[0])
    is_none = change.code == "TT218"
    differs = "is None in some calls and not in others" if is_none else f"has another {change.what} in other calls"
    return source_finding(
        change.code, file, argument.call.node, tree,
        title=_title(file.segment(argument.call.node.func), change, name),
        cause=f"`{file.segment(argument.node)}` {differs}; {change.why}; compiled at {site.place}",
        fix=_FIXES[change.code].format(name=name), reason=name, **fields,
    )


def _title(called: str, change: ArgumentChange, name: str) -> str:
    if change.code == "TT216":
        return f"{called} is compiled again when the keys of {name} change"
    if change.code == "TT218":
        return f"{called} is compiled twice: {name} is sometimes None"
    if change.severity is _SETTLES:
        return f"{called} is compiled twice: {name} changes its {change.what}"
    return f"{called} is compiled again for each {change.what} of {name}"


_FIXES = {
    "TT202": "drop dynamic=False, or torch._dynamo.maybe_mark_dynamic({name}, dim) before the call, or pad to a few "
             "sizes",
    "TT204": "pass {name} as a tensor (torch.tensor(value)) and index a tensor with it, or index before the call",
    "TT205": "pass {name} as a 0-dimensional tensor, or apply the operator outside the compiled function",
    "TT211": "convert {name} to one dtype before the compiled call",
    "TT213": "{name}.contiguous() before the compiled call",
    "TT214": "add the missing dimension before the call: {name}[None]",
    "TT215": "nothing if one extra compile is fine; else {name}.detach() where the gradient is not needed",
    "TT216": "stack the values into one tensor with a fixed size, and keep the keys outside the compiled function",
    "TT217": "pad to a fixed number of items, or stack the tensors into one before the compiled call",
    "TT218": "pass a tensor in every call (a mask of ones instead of None), or compile one function for each case",
    "TT219": "define it once, at the top of the module, and pass the same object in every call",
    "TT221": "pad to at least two, or call the original function for a size of 0 or 1",
    "TT223": "pass {name} as a tensor in every call: torch.zeros(...) instead of a number",
    "TT224": "keep {name} the same, or choose the function by {name} outside the compiled call",
}


@tree_rule
def absent_arguments(tree: SourceTree) -> Iterator[Finding]:
    """A parameter that one call leaves at None and another one gives a tensor."""
    for site in reach_of(tree).sites:
        for function in compiled_functions(site)[:1]:
            yield from _none_or_not(site, function, tree)


def _none_or_not(site: TargetSite, function: FunctionValue, tree: SourceTree) -> Iterator[Finding]:
    spec = function.node.args
    names = _parameters(function)
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    calls = [call for call in site.calls if not call.attribute]
    for number, name in enumerate(names):
        default = defaults.get(name)
        is_none_default = isinstance(default, ast.Constant) and default.value is None
        given = [_passed(call, number, name) for call in calls]
        missing = [(v is None and is_none_default) or (v is not None and is_none(v)) for v in given]
        present = [v is not None and not is_none(v) and not isinstance(v, PythonValue) and _is_known(v) for v in given]
        if any(missing) and any(present):
            call = calls[present.index(True)]
            line = calls[missing.index(True)].node.lineno
            yield source_finding(
                "TT218", call.file, call.node, tree, reason=name, severity=_SETTLES, raised_at=frame_place(function),
                title=f"{call.file.segment(call.node.func)} is compiled twice: {name} is sometimes None",
                cause=f"{name} is None at line {line} and a value here; compiled at {site.place}",
                fix=_FIXES["TT218"].format(name=name),
            )


def _is_known(value: Value) -> bool:
    return type(value) is not Value and not isinstance(value, (LibraryName, ContainerValue))


def _passed(call: SiteCall, number: int, name: str) -> Value | None:
    return call.arguments[number] if number < len(call.arguments) else call.keywords.get(name)


@tree_rule
def ragged_batches(tree: SourceTree) -> Iterator[Finding]:
    """dynamic=False and a DataLoader whose last batch may be smaller."""
    reach = reach_of(tree)
    describer = Describer(tree, reach)
    for site in reach.sites:
        if not site.is_set("dynamic", False):
            continue
        for call in site.calls:
            loader = None if "mark_dynamic" in call.file.text else _loader(call, describer)
            if loader is not None:
                yield source_finding(
                    "TT203",
                    site.file,
                    site.node,
                    tree,
                    may=True,
                    title="the last batch of the loader may be smaller, and dynamic=False compiles it again",
                    cause=f"the loader at line {loader.lineno} keeps a last batch of another size; each size is "
                        "compiled with dynamic=False",
                    fix="drop_last=True in the DataLoader, or drop dynamic=False, or "
                    "torch._dynamo.maybe_mark_dynamic(batch, 0)",
                )
                break


def _loader(call: SiteCall, describer: Describer) -> ast.Call | None:
    """The DataLoader that a loop around a call iterates over, if it keeps a smaller last batch."""
    for loop in repeats_around(call.file, call.node):
        iterated = [loop.iter] if isinstance(loop, (ast.For, ast.AsyncFor)) else []
        iterated += [part.iter for part in getattr(loop, "generators", ())]
        for node in iterated:
            for kind in describer.of(_inner(node), call.file):
                loader = kind.values[0] if kind.type == "loader" else None
                if isinstance(loader, ast.Call) and not _drops_last(loader):
                    return loader
    return None


def _inner(node: ast.expr) -> ast.expr:
    """The loader in `enumerate(loader)` or `tqdm(loader)`."""
    while isinstance(node, ast.Call) and node.args and not isinstance(node.func, ast.Attribute):
        if isinstance(node.func, ast.Name) and node.func.id not in ("enumerate", "tqdm", "iter", "list"):
            break
        node = node.args[0]
    return node


def _drops_last(call: ast.Call) -> bool:
    given = {k.arg: k.value for k in call.keywords}
    value = given.get("drop_last")
    is_false = value is None or (isinstance(value, ast.Constant) and value.value is False)
    return not is_false or "batch_sampler" in given or "batch_size" not in given or None in given

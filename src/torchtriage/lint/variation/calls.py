"""Describes what a call returns: constructors of tensors, draws, conversions, functions of the project."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchtriage.lint.reach.calls import COMPILE
from torchtriage.lint.reach.model import TargetSite
from torchtriage.lint.source import FunctionNode, SourceFile
from torchtriage.lint.types.values import LibraryObject, ObjectValue, options
from torchtriage.lint.variation.attributes import transposed
from torchtriage.lint.variation.bindings import argument_of
from torchtriage.lint.variation.kinds import (
    TENSOR_KIND,
    UNKNOWN_KIND,
    ValueKind,
    any_varies,
    kinds,
    merged,
    number_type,
)

if TYPE_CHECKING:
    from torchtriage.lint.variation.describe import Describer, Viewpoint

Given = Mapping[str, tuple[ValueKind, ...]]
_UNKNOWN = (UNKNOWN_KIND,)
_FILLED = frozenset({"randn", "rand", "zeros", "ones", "empty"})
_LIKE = frozenset({"randn_like", "rand_like", "zeros_like", "ones_like", "empty_like", "full_like", "clone"})
_SAME_SHAPE = frozenset({
    "clone", "relu", "tanh", "sigmoid", "abs", "exp", "log", "sin", "cos", "sqrt", "square", "softmax", "log_softmax",
    "contiguous", "cpu", "cuda", "pin_memory", "requires_grad_", "detach", "round", "clamp", "normal_", "uniform_",
    "fill_", "zero_", "add", "mul", "sub", "div",
})
_DTYPE_METHODS = {
    "float": "float32", "half": "float16", "double": "float64", "bfloat16": "bfloat16", "long": "int64",
    "int": "int32", "bool": "bool",
}
_INT_DRAWS = frozenset({"randint", "randrange", "integers", "getrandbits", "poisson"})
_FLOAT_DRAWS = frozenset({"random", "uniform", "gauss", "normalvariate", "normal", "triangular", "betavariate"})
_PASSED_ON = frozenset({"list", "tuple", "sorted", "reversed", "iter", "set", "tqdm", "trange", "islice", "cycle"})
_GROWS = frozenset({"cat", "concat", "concatenate", "pad", "hstack", "vstack"})
AUTOCAST = ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast")


def describe_call(describer: "Describer", node: ast.Call, frame: "Viewpoint") -> tuple[ValueKind, ...]:
    helper = _helper(describer, node, frame)
    if helper is not None:
        return _returned(describer, node, *helper, frame)
    site = _compiled_at(describer, node)
    if site is not None:
        return (ValueKind(type="tensor", has_grad=True if _has_parameters(site, describer) else None),)
    dotted = frame.file.dotted(node.func)
    room, _, last = dotted.rpartition(".")
    if dotted in AUTOCAST:
        return _autocast(describer, node, frame)
    if dotted.endswith(".DataLoader"):
        return (ValueKind(type="loader", values=(node,)),)
    if dotted in ("enum.Enum", "enum.IntEnum", "enum.StrEnum"):
        return (ValueKind(type="list", item=(ValueKind(type="enum", varies=True),)),)
    if dotted == "contextlib.nullcontext":
        return (ValueKind(type="nullcontext"),)
    if room == "torch" or dotted.startswith("torch.nn.functional."):
        return _of_torch(describer, last, node, frame)
    if room in ("random", "numpy.random"):
        return _drawn(describer, last, node, frame)
    if room == "math":
        found = _all(describer, node.args, frame)
        kind = "int" if last in ("ceil", "floor", "gcd", "prod") else "float"
        return (ValueKind(type=kind, varies=any_varies(found)),)
    if room == "itertools" or last in _PASSED_ON:
        return _iterated(describer, last, node, frame)
    if isinstance(node.func, ast.Name) and not dotted:
        return _builtin(describer, node.func.id, node, frame) or _fresh_object(node, frame)
    if isinstance(node.func, ast.Attribute) and not dotted:
        return _method(describer, node.func, node, frame)
    return _UNKNOWN


def _all(describer: "Describer", nodes: Sequence[ast.expr], frame: "Viewpoint") -> list[ValueKind]:
    return [kind for node in nodes for kind in describer.describe(node, frame)]


def _compiled_at(describer: "Describer", node: ast.Call) -> TargetSite | None:
    """The torch.compile call whose result is called here."""
    return next((site for site in describer.reach.sites for call in site.calls if call.node is node), None)


def _has_parameters(site: TargetSite, describer: "Describer") -> bool:
    """Whether the compiled code uses a module, so that its result requires grad where autograd records."""
    modules = (LibraryObject, ObjectValue)
    if any(isinstance(target, modules) for target in options(site.target)):
        return True
    values = (v for r in describer.reach.reached if r.site is site for v in r.values.values())
    return any(isinstance(v, ObjectValue) or getattr(v, "name", "").startswith("torch.nn.") for v in values)


def _autocast(describer: "Describer", node: ast.Call, frame: "Viewpoint") -> tuple[ValueKind, ...]:
    enabled = next((k.value for k in node.keywords if k.arg == "enabled"), None)
    varies = enabled is not None and any_varies(describer.describe(enabled, frame))
    return (ValueKind(type="autocast", varies=varies),)


def _of_torch(describer: "Describer", last: str, node: ast.Call, frame: "Viewpoint") -> tuple[ValueKind, ...]:
    if last in _FILLED or last in ("full", "randint", "arange"):
        made = _filled(describer, last, node, frame)
        dtype = next((k.value for k in node.keywords if k.arg == "dtype"), None)
        return tuple(replace(made, dtype=each) for each in _named_dtypes(describer, dtype, frame)) or (made,)
    first = describer.describe(node.args[0], frame) if node.args else _UNKNOWN
    if last in ("from_numpy", "as_tensor", "asarray"):
        return tuple(ValueKind(type="tensor", dtype=kind.dtype, sizes=kind.sizes) for kind in first)
    if last in ("tensor", "scalar_tensor"):
        return (ValueKind(type="tensor", has_grad=False, sizes=() if number_type(first) else None),)
    if last in _GROWS:
        inside = [kind for each in first for part in (*each.parts, each.item, (each,)) for kind in part]
        grows = any(kind.is_grown or kind.has_varying_size or kind.length_varies for kind in inside)
        return (ValueKind(type="tensor", size_varies=grows),)
    if last in _LIKE or last in _SAME_SHAPE:
        return tuple(replace(k, is_transposed=False) if k.type == "tensor" else TENSOR_KIND for k in first)
    return (TENSOR_KIND,) if last.islower() and last not in ("device", "compile", "load", "Generator") else _UNKNOWN


def _filled(describer: "Describer", last: str, node: ast.Call, frame: "Viewpoint") -> ValueKind:
    given = {k.arg: k.value for k in node.keywords}
    shape: Sequence[ast.expr] = node.args
    if last in ("full", "randint"):
        shape = node.args[:1] if last == "full" else node.args[-1:]
    if len(shape) == 1 and isinstance(shape[0], (ast.Tuple, ast.List)):
        shape = shape[0].elts
    elif "size" in given:
        size = given["size"]
        shape = size.elts if isinstance(size, (ast.Tuple, ast.List)) else [size]
    sizes = []
    for part in shape:
        found = describer.describe(part, frame)
        if last != "arange" and len(shape) == 1 and any(kind.type not in ("int", "") for kind in found):
            return ValueKind(type="tensor", has_grad=False, dtype=_dtype(given.get("dtype"), frame.file, last))
        sizes.append(_one_size(found))
    requires = given.get("requires_grad")
    has_grad = isinstance(requires, ast.Constant) and requires.value is True
    is_starred = any(isinstance(part, ast.Starred) for part in shape)
    known = tuple(sizes[:1]) if last == "arange" and len(sizes) == 1 else tuple(sizes)
    if last == "arange" and len(sizes) != 1:
        return ValueKind(type="tensor", has_grad=False, size_varies=any(size.varies for size in sizes))
    return ValueKind(type="tensor", sizes=None if is_starred else known, has_grad=has_grad,
                dtype=_dtype(given.get("dtype"), frame.file, last))


def _one_size(found: Sequence[ValueKind]) -> ValueKind:
    """The size of a dimension; several constants are a size that varies."""
    [first, *rest] = merged(found)
    return first if not rest else ValueKind(type="int", varies=any_varies(found))


def _dtype(node: ast.expr | None, file: SourceFile, last: str) -> str:
    if node is None:
        if last in _FILLED:
            return "float32"
        return "int64" if last == "randint" else ""
    name = file.dotted(node).rpartition(".")[2]
    return {"float": "float32", "half": "float16", "double": "float64", "long": "int64"}.get(name, name)


def _named_dtypes(describer: "Describer", node: ast.expr | None, frame: "Viewpoint") -> list[str]:
    """The dtypes that a name has in the passes of a loop over them."""
    if not isinstance(node, ast.Name) or frame.file.dotted(node):
        return []
    named = [str(value) for kind in describer.describe(node, frame) for value in kind.values if kind.type == "function"]
    return [value.rpartition(".")[2] for value in named if value.startswith("torch.")]


def _drawn(describer: "Describer", last: str, node: ast.Call, frame: "Viewpoint") -> tuple[ValueKind, ...]:
    is_array = any(k.arg == "size" for k in node.keywords)
    if last in _INT_DRAWS and not is_array:
        return (ValueKind(type="int", varies=True),)
    if last in _FLOAT_DRAWS and not is_array:
        return (ValueKind(type="float", varies=True),)
    if last == "choice" and node.args:
        chosen = [kind for each in describer.describe(node.args[0], frame) for kind in each.item]
        return tuple(replace(kind, varies=True) for kind in chosen) or _UNKNOWN
    if last == "sample" and len(node.args) == 2:
        count = describer.describe(node.args[1], frame)
        return (ValueKind(type="list", length_varies=any_varies(count)),)
    return _UNKNOWN


def _builtin(describer: "Describer", name: str, node: ast.Call, frame: "Viewpoint") -> tuple[ValueKind, ...]:
    """What a builtin returns; empty for another name."""
    found = _all(describer, node.args, frame)
    if name in ("int", "float", "str", "bool", "len"):
        kind = "int" if name == "len" else name
        has_length = name == "len" and any(each.length_varies for each in found)
        return (ValueKind(type=kind, varies=any_varies(found) or has_length),)
    if name in ("max", "min", "abs", "round", "pow", "divmod") and number_type(found):
        return (ValueKind(type=number_type(found), varies=any_varies(found)),)
    if name == "eval":
        return (ValueKind(type="fresh"),)
    if name == "range":
        return (_range(node, found),)
    if name in ("enumerate", "zip", "map", "filter", "sum", "next", "dict") or name in _PASSED_ON:
        return _iterated(describer, name, node, frame)
    return ()


def _range(node: ast.Call, found: Sequence[ValueKind]) -> ValueKind:
    values: tuple[object, ...] = ()
    numbers = [kind.values[0] for kind in found if len(kind.values) == 1 and isinstance(kind.values[0], int)]
    if numbers and len(numbers) == len(node.args):
        values = tuple(range(*[int(str(n)) for n in numbers])[:64])
    item = ValueKind(type="int", varies=len(values) != 1, values=values)
    return ValueKind(type="list", item=(item,), length_varies=any_varies(found))


def _iterated(describer: "Describer", name: str, node: ast.Call, frame: "Viewpoint") -> tuple[ValueKind, ...]:
    if name == "count":
        return (ValueKind(type="list", item=(ValueKind(type="int", varies=True),)),)
    if not node.args:
        return _UNKNOWN
    items = [describer.items(argument, frame) for argument in node.args]
    lengths = any(kind.length_varies for kind in _all(describer, node.args[:1], frame))
    if name == "enumerate":
        pair = ValueKind(type="list", parts=((ValueKind(type="int", varies=True),), items[0]))
        return (ValueKind(type="list", item=(pair,), length_varies=lengths),)
    if name == "zip":
        return (ValueKind(type="list", item=(ValueKind(type="list", parts=tuple(items)),), length_varies=lengths),)
    if name in _PASSED_ON:
        return (ValueKind(type="list", item=items[0], length_varies=lengths),)
    if name == "product":
        return (ValueKind(type="list", item=(ValueKind(type="list", parts=tuple(items)),)),)
    return items[0] if name == "next" else _UNKNOWN


def _fresh_object(node: ast.Call, frame: "Viewpoint") -> tuple[ValueKind, ...]:
    """An object of a class that the function around the call creates each time."""
    function = frame.file.enclosing_function(node)
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    for inner in ast.walk(function) if function is not None else ():
        is_class = isinstance(inner, ast.ClassDef) and inner.name == name
        is_made = isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Call) and _makes_class(
            inner.value, frame.file
        ) and any(isinstance(t, ast.Name) and t.id == name for t in inner.targets)
        if is_class or is_made:
            return (ValueKind(type="fresh"),)
    return _UNKNOWN


def _makes_class(call: ast.Call, file: SourceFile) -> bool:
    dotted = file.dotted(call.func)
    is_type = isinstance(call.func, ast.Name) and call.func.id == "type" and len(call.args) == 3
    return is_type or dotted in ("collections.namedtuple", "dataclasses.make_dataclass", "enum.Enum")


def _method(describer: "Describer", called: ast.Attribute, node: ast.Call, frame: "Viewpoint") -> tuple[ValueKind, ...]:
    name = called.attr
    owner = describer.describe(called.value, frame)
    if name in ("to", "astype", "type") and node.args:
        dtype = _dtype(node.args[0], frame.file, "")
        named = [dtype] if dtype else _named_dtypes(describer, node.args[0], frame)
        return tuple(replace(k, type="tensor", dtype=each) for k in owner for each in named) or owner
    if name in _DTYPE_METHODS and not node.args:
        return tuple(replace(k, type="tensor", dtype=_DTYPE_METHODS[name]) for k in owner)
    if name in ("t", "transpose", "permute", "swapaxes", "movedim"):
        return tuple(transposed(kind) for kind in owner)
    if name == "detach":
        return tuple(replace(k, type="tensor", has_grad=False) for k in owner)
    if name in _SAME_SHAPE and all(kind.type == "tensor" for kind in owner):
        return tuple(replace(k, is_transposed=k.is_transposed and name != "contiguous") for k in owner)
    if name == "unsqueeze":
        return tuple(replace(k, sizes=None if k.sizes is None else (UNKNOWN_KIND, *k.sizes)) for k in owner)
    if name == "item":
        is_int = all(kind.dtype in ("int64", "int32") for kind in owner)
        return (ValueKind(type="int" if is_int else "float", varies=True),)
    if name in ("format", "join", "upper", "lower"):
        return (ValueKind(type="str", varies=any_varies([*owner, *_all(describer, node.args, frame)])),)
    if name in ("items", "values", "keys"):
        return (ValueKind(type="list", length_varies=any(kind.keys_vary for kind in owner)),)
    if name in _INT_DRAWS or (name in _FLOAT_DRAWS and not any(k.type == "tensor" for k in owner)):
        return _drawn(describer, name, node, frame)
    return (TENSOR_KIND,) if any(kind.type == "tensor" for kind in owner) else _UNKNOWN


def _helper(describer: "Describer", node: ast.Call, frame: "Viewpoint") -> tuple[SourceFile, FunctionNode] | None:
    """The function of the project that a call enters: by its name, or a method of self."""
    called = node.func
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "self":
        class_ = frame.file.enclosing_class(node)
        for method in class_.body if class_ is not None else ():
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and method.name == called.attr:
                return None if _is_decorated(method, frame.file) else (frame.file, method)
        return None
    definition = describer.tree.resolve(called, frame.file)
    if definition is None or not isinstance(definition.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    return None if _is_decorated(definition.node, definition.file) else (definition.file, definition.node)


def _is_decorated(function: FunctionNode, file: SourceFile) -> bool:
    """Whether a decorator compiles the function, so that its result comes out of a graph."""
    called = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return any(file.dotted(each) in COMPILE for each in called)


def _returned(
    describer: "Describer", node: ast.Call, file: SourceFile, function: FunctionNode, frame: "Viewpoint",
) -> tuple[ValueKind, ...]:
    """What a function of the project returns for these arguments, or yields."""
    spec = function.args
    names = [p.arg for p in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    given = {name: _given(describer, node, function, name, frame) for name in names}
    returned, yielded = _results(function)
    with describer.entered() as is_shallow:
        if not is_shallow:
            return _UNKNOWN
        if yielded:
            items = [k for y in yielded for k in describer.describe(y, _inside(frame, file, y, given, function))]
            return (ValueKind(type="list", item=kinds(items)),)
        found: list[ValueKind] = []
        for value in returned:
            found += describer.describe(value, _inside(frame, file, value, given, function))
        is_one = len(returned) == 1 or _is_chosen_by_varying(describer, returned, frame, file, given, function)
        return kinds(found) if is_one else _UNKNOWN


def _given(
    describer: "Describer", node: ast.Call, function: FunctionNode, name: str, frame: "Viewpoint",
) -> tuple[ValueKind, ...]:
    passed = argument_of(node, function, name)
    return describer.describe(passed, frame) if passed is not None else _UNKNOWN


def _inside(frame: "Viewpoint", file: SourceFile, use: ast.AST, given: Given, function: FunctionNode) -> "Viewpoint":
    return replace(frame, file=file, use=use, given=given, function=function)


def _results(function: FunctionNode) -> tuple[list[ast.expr], list[ast.expr]]:
    """(values that are returned, values that are yielded) by a function itself."""
    returned, yielded = [], []
    waiting: list[ast.AST] = list(function.body)
    for node in waiting:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, ast.Return) and node.value is not None:
            returned.append(node.value)
        if isinstance(node, ast.Yield) and node.value is not None:
            yielded.append(node.value)
        waiting.extend(ast.iter_child_nodes(node))
    return returned, yielded


def _is_chosen_by_varying(
    describer: "Describer", returned: Sequence[ast.expr], frame: "Viewpoint", file: SourceFile, given: Given,
    function: FunctionNode,
) -> bool:
    """Whether an `if` between the returns has another outcome in another pass."""
    for value in returned:
        for test in _tests_around(value, file):
            if any_varies(describer.describe(test, _inside(frame, file, test, given, function))):
                return True
    return False


def _tests_around(node: ast.AST, file: SourceFile) -> Iterator[ast.expr]:
    for parent in file.ancestors(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        if isinstance(parent, ast.If):
            yield parent.test

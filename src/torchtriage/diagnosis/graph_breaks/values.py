"""The code that takes the place of reading a tensor's value, or of selecting by a mask: by the use of the result."""

import ast
import copy
import itertools
import re
from collections.abc import Iterator
from typing import TypeVar

from torchtriage.diagnosis.statement import Statement, called_name, code, fits, own_nodes

SCALARS = "torch._dynamo.config.capture_scalar_outputs = True"
_READS = ("item", "float", "int", "bool", "tolist")
_CONVERSIONS = frozenset({"float", "int", "bool", "str", "print", "len", "round", "max", "min", "abs"})
_NEEDS_INT = frozenset({
    "range", "zeros", "ones", "empty", "full", "rand", "randn", "arange", "view", "reshape", "expand", "repeat",
    "narrow", "split", "chunk", "topk", "unfold", "eye", "linspace", "new_zeros", "new_ones", "pad", "roll",
})
_STORES = frozenset({"append", "add", "update", "log", "record", "extend", "setdefault", "add_scalar", "put"})
_REDUCTIONS = {
    "sum": "torch.where({mask}, {value}, 0).sum()",
    "mean": "torch.where({mask}, {value}, 0).sum() / {mask}.sum()",
    "numel": "{mask}.sum()",
    "max": "{value}.masked_fill(~{mask}, float('-inf')).max()",
    "amax": "{value}.masked_fill(~{mask}, float('-inf')).amax()",
    "min": "{value}.masked_fill(~{mask}, float('inf')).min()",
    "amin": "{value}.masked_fill(~{mask}, float('inf')).amin()",
}


def read_options(statement: Statement | None, where: str) -> list[str]:
    """What to write instead of a .item(), float() or .tolist(), the best first; empty if its use is not known."""
    call = _read_call(statement)
    if statement is not None and call is None:
        return _indexed_options(statement, where)
    if statement is None or call is None:
        return []
    order = _sort_call(statement.node, call)
    if order is not None:
        sorted_tensors = _sorted_tensors(order)
        if sorted_tensors:
            return [f"`{sorted_tensors}` instead of `{code(order)}` at {where}: it sorts the tensors in the graph"]
        return [f"call `{code(order)}` ({where}) before the compiled call and pass its result: it compares numbers"]
    value = _value(call)
    outer = _converted(statement.node, call)
    text, name = code(outer), called_name(outer)
    if not fits(text):
        return []
    use = number_use(statement, outer)
    if name == "tolist":
        return _unlisted(statement, call, value, where)
    if use == "index":
        return [_selected(statement, outer, value, where)]
    if use == "size" and not _is_of_arguments(statement, outer):
        return [
            f"keep the full size and mask with torch.where instead of a size from `{text}` at {where}: it is computed "
            "in the function itself", *_setting(statement),
        ]
    if use == "size":
        return [
            f"compute `{text}` ({where}) before the compiled call and pass it as an argument: it is used as a size",
            "keep the full size and mask with torch.where", *_setting(statement),
        ]
    if use == "test":
        kept = _detached(value, name)
        return _tested(statement, text, kept, where) or _compared(statement, outer, kept, where)
    made = _made_by_numpy(statement, value)
    if made:
        without = f"and use it without {_named(name)} at {where}"
        by_numpy = f" (`{made}`)" if made != value else ""
        return [f"compute `{value}` with torch instead of NumPy{by_numpy}, {without}"]
    computed = _math_call(statement.node, outer)
    if computed is not None:
        in_torch = _in_torch(computed, text, _detached(value, name))
        if not in_torch:
            return [f"compute `{code(computed)}` ({where}) outside the compiled function: it needs a Python number"]
        kept = f"`{in_torch}` instead of `{code(computed)}` at {where}"
    else:
        kept = f"`{_detached(value, name)}` instead of `{text}` at {where}"
    if use == "store":
        function = statement.function.name if statement.function else "the function"
        return [f"{kept}, and call .item() on it outside {function}, after the compiled call", *_setting(statement)]
    return [f"{kept}: it stays a tensor, and cuts the gradient as {_named(name)} did", *_setting(statement)]


def _is_of_arguments(statement: Statement, value: ast.expr) -> bool:
    """Whether the caller can compute a value: from arguments that the function does not assign again."""
    function = statement.function
    if function is None:
        return True
    arguments = function.args
    known = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    assigned = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    used = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    calls_self = any(isinstance(n, ast.Call) and code(n.func).startswith("self.") for n in ast.walk(value))
    return not calls_self and not used & assigned and bool(used & known)


def _selected(statement: Statement, call: ast.Call, value: str, where: str) -> str:
    """How to index with a tensor: as a subscript, a tensor without dimensions is read like .item()."""
    selection = _selection(statement, call, value)
    if selection is not None:
        subscript, selected = selection
        return f"`{selected}` instead of `{code(subscript)}` at {where}; stack a list first"
    index = f"{value}.long()" if called_name(call) == "int" else value
    return (
        f"keep `{value}` a tensor instead of `{code(call)}` at {where}, and index with .index_select(0, {index})[0]: "
        "in brackets it is read like .item()"
    )


def _indexed_options(statement: Statement, where: str) -> list[str]:
    """What to write instead of the only subscript that a tensor can index."""
    found = _index_code(statement)
    if found is None:
        return []
    subscript, selected = found
    text = f"`{selected}` instead of `{code(subscript)}` at {where}: in brackets a tensor is read like .item()"
    return [f"{text}; stack a list first", *_setting(statement)]


def _index_code(statement: Statement) -> tuple[ast.Subscript, str] | None:
    """The only subscript that a tensor without dimensions can index, and the selection that takes its place."""
    found = [
        node for node in own_nodes(statement.node)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
        and isinstance(node.slice, (ast.Name, ast.Attribute, ast.Subscript))
    ]
    if len(found) > 1:      # of several, the one whose index is an element of a tensor
        elements = _elements(statement)
        found = [node for node in found if isinstance(node.slice, ast.Name) and node.slice.id in elements]
    selected = f"{code(found[0].value)}.index_select(0, {code(found[0].slice)})[0]" if len(found) == 1 else ""
    return (found[0], selected) if selected and fits(selected) else None


def _elements(statement: Statement) -> set[str]:
    """The names to which the function assigns an element: `i` of i = order[0]."""
    names = set()
    for node in ast.walk(statement.function) if statement.function is not None else ():
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _sort_call(node: ast.stmt, call: ast.Call) -> ast.Call | None:
    """The sorted(), min() or max() whose key reads the value; None if there is none."""
    path = path_to(node, call)
    for outer, inner in itertools.pairwise(path):
        is_key = isinstance(inner, ast.keyword) and inner.arg == "key"
        if is_key and isinstance(outer, ast.Call) and called_name(outer) in ("sorted", "sort", "min", "max"):
            return outer
    return None


_SORTED = {"sorted": "sort().values", "min": "min()", "max": "max()"}


def _sorted_tensors(order: ast.Call) -> str:
    """The torch operator for a list of tensors that is sorted by their own values; empty if the key is another one."""
    keys = [keyword.value for keyword in order.keywords if keyword.arg == "key"]
    key = keys[0] if len(keys) == len(order.keywords) == 1 else None
    if not isinstance(key, ast.Lambda) or len(key.args.args) != 1 or len(order.args) != 1:
        return ""
    name = key.args.args[0].arg
    is_own_value = code(key.body) in (f"{name}.item()", f"float({name})")
    form = _SORTED.get(called_name(order), "") if is_own_value else ""
    text = f"torch.stack(list({code(order.args[0])})).{form}"
    return text if form and fits(text, code(order)) else ""


def _tested(statement: Statement, text: str, kept: str, where: str) -> list[str]:
    """What to write if a later `if` tests the name of the number, as a tensor breaks there; empty if none does."""
    node, function = statement.node, statement.function
    if not isinstance(node, ast.Assign) or function is None:
        return []
    names = {code(target) for target in node.targets}
    for later in ast.walk(function):
        tested = later.test if isinstance(later, (ast.If, ast.While, ast.IfExp, ast.Assert)) else None
        if tested is not None and names & {part.id for part in ast.walk(tested) if isinstance(part, ast.Name)}:
            return [
                f"`{kept}` instead of `{text}` at {where}, and torch.where, or a test after the compiled call, in "
                f"place of the test `{code(tested)}`: on a tensor it breaks too",
            ]
    return []


def _compared(statement: Statement, number: ast.Call, tensor: str, where: str) -> list[str]:
    """What to write for a comparison whose result is computed with; empty if a branch tests it."""
    tests = (ast.BoolOp, ast.IfExp, ast.If, ast.While, ast.Assert)
    path = path_to(statement.node, number)
    compared = next((node for node in reversed(path) if isinstance(node, ast.Compare)), None)
    if compared is None or any(isinstance(node, tests) for node in path):
        return []
    outer = _converted(statement.node, compared)
    kept = code(compared).replace(code(number), tensor)
    if isinstance(outer, ast.Call):
        kept = f"({kept}).{_CAST[called_name(outer)]}()"
    return [f"`{kept}` instead of `{code(outer)}` at {where}: it stays a tensor", *_setting(statement)]


_CAST = {"int": "long", "float": "float", "bool": "bool"}


def _made_by_numpy(statement: Statement, value: str) -> str:
    """The call of NumPy whose result the function keeps under a name of this value; empty if it shows none."""
    if re.match(r"(?:np|numpy)\.", value):
        return value
    names = [part.id for part in ast.walk(ast.parse(value, mode="eval")) if isinstance(part, ast.Name)]
    for node in ast.walk(statement.function) if statement.function is not None else ():
        is_kept = isinstance(node, ast.Assign) and len(node.targets) == 1 and code(node.targets[0]) in (value, *names)
        if isinstance(node, ast.Assign) and is_kept:
            made = code(node.value)
            if re.match(r"(?:np|numpy)\.", made) and fits(made, value):
                return made
    return ""


def read_code(statement: Statement) -> tuple[ast.expr, str] | None:
    """The expression that reads a value and the tensor that takes its place; None if the use needs a number."""
    call = _read_call(statement)
    if call is None:
        return _index_code(statement)
    if _sort_call(statement.node, call) is not None:
        return None
    value, outer = _value(call), _converted(statement.node, call)
    if called_name(outer) == "tolist":
        return (call, f"{value}.unbind()") if _is_looped(statement, call) and not _element_use(statement) else None
    use = number_use(statement, outer)
    if use in ("size", "test"):
        return None
    if use == "index":
        return _selection(statement, call, value)
    if _made_by_numpy(statement, value) or (called_name(outer) == "int" and _is_passed_on(statement, outer)):
        return None
    computed, detached = _math_call(statement.node, outer), _detached(value, called_name(outer))
    if computed is not None:
        in_torch = _in_torch(computed, code(outer), detached)
        return (computed, in_torch) if in_torch else None
    return outer, detached


_MATH_OF_TORCH = frozenset({
    "exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "tanh", "atan", "floor", "ceil",
})


def _math_call(node: ast.stmt, call: ast.Call) -> ast.Call | None:
    """The call of math around a number: math reads a tensor like .item(), so it has to become one of torch."""
    for outer in path_to(node, call)[:-1]:
        if isinstance(outer, ast.Call) and code(outer.func).startswith("math."):
            return outer
    return None


def _in_torch(computed: ast.Call, number: str, tensor: str) -> str:
    """The call of math on a tensor; empty if torch has no counterpart for it."""
    name = called_name(computed)
    if name not in _MATH_OF_TORCH or len(computed.args) != 1:
        return ""
    return code(computed).replace(f"math.{name}(", f"torch.{name}(", 1).replace(number, tensor)


def _selection(statement: Statement, call: ast.Call, value: str) -> tuple[ast.expr, str] | None:
    """The subscript with a tensor in place of the number; None if the call is not itself the subscript."""
    index = f"{value}.long()" if called_name(call) == "int" else value
    for node in own_nodes(statement.node):
        if isinstance(node, ast.Subscript) and node.slice is call and fits(code(node), code(node.value)):
            return node, f"{code(node.value)}.index_select(0, {index})[0]"
    return None


def size_code(statement: Statement) -> ast.expr | None:
    """The expression that reads a value which is used as a size; None if there is none."""
    call = _read_call(statement)
    if call is None:
        return None
    outer = _converted(statement.node, call)
    use = number_use(statement, outer)
    return outer if use == "size" and not _is_unrolled(statement) else None


def _later_calls(statement: Statement) -> Iterator[ast.Call]:
    """The calls to which the function passes a name that the statement assigns."""
    node = statement.node
    names = {target.id for target in node.targets if isinstance(target, ast.Name)} if isinstance(
        node, ast.Assign) else set()
    for part in ast.walk(statement.function) if statement.function is not None else ():
        if isinstance(part, ast.Call) and any(isinstance(a, ast.Name) and a.id in names for a in part.args):
            yield part


def _is_passed_on(statement: Statement, call: ast.Call) -> bool:
    """Whether a whole number goes to a function by its name, which may need it as a size."""
    return bool(path_to(statement.node, call)) and any(
        isinstance(later.func, ast.Name) and later.func.id not in _CONVERSIONS for later in _later_calls(statement))


def _is_unrolled(statement: Statement) -> bool:
    """Whether range() takes the number: each value is another program, wherever the number is computed."""
    return any(called_name(later) == "range" for later in _later_calls(statement))


def _setting(statement: Statement) -> list[str]:
    """The setting that captures the number: not in an autograd.Function, where it fails, nor if range() takes it."""
    arguments = statement.function.args.args if statement.function else []
    is_of_function = bool(arguments) and arguments[0].arg == "ctx"
    return [] if is_of_function or _is_unrolled(statement) else [SCALARS]


_Expression = TypeVar("_Expression", bound=ast.expr)


def _converted(node: ast.stmt, call: _Expression) -> _Expression | ast.Call:
    """`int(x.item())` for its `x.item()`: the conversion goes with it."""
    path = path_to(node, call)
    outer = path[-2] if len(path) > 1 else None
    if isinstance(outer, ast.Call) and isinstance(outer.func, ast.Name) and outer.func.id in ("int", "float", "bool"):
        return outer
    return call


def _named(name: str) -> str:
    return f".{name}()" if name == "item" else f"{name}()"


def _detached(value: str, name: str) -> str:
    is_primary = isinstance(ast.parse(value, mode="eval").body, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
    value = (value if is_primary else f"({value})").removesuffix(".detach()")
    return f"{value}.detach().long()" if name == "int" else f"{value}.detach()"


def _read_call(statement: Statement | None) -> ast.Call | None:
    """The only call of the statement that reads a value; None if there are several, or none."""
    if statement is None:
        return None
    calls = statement.calls(*_READS)
    inner = [call for call in calls if called_name(call) in ("item", "tolist")]
    chosen = inner or [call for call in calls if isinstance(call.func, ast.Name) and len(call.args) == 1]
    return chosen[0] if chosen and len({code(call) for call in chosen}) == 1 else None


def _value(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return code(call.func.value)
    return code(call.args[0])


def _later_use(statement: Statement, call: ast.expr) -> str:
    """How the function uses the name that the statement gives to the number; "arithmetic" if nothing else is seen."""
    node = statement.node
    if not isinstance(node, ast.Assign) or node.value is not call or statement.function is None:
        return "arithmetic"
    names = _computed_from({target.id for target in node.targets if isinstance(target, ast.Name)}, statement.function)
    uses = set()
    for later in ast.walk(statement.function):
        if isinstance(later, ast.stmt):
            for part in own_nodes(later):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id in names:
                    uses.add(_use(later, part))
    return next((use for use in ("size", "index", "test") if use in uses), "arithmetic")


_OF_NUMBERS = frozenset({"min", "max", "int", "round", "abs", "len", "numel", "size", "dim"})


def _computed_from(names: set[str], function: ast.AST) -> set[str]:
    """The names, and those to which the function assigns a number that it computes from them."""
    known = set(names)
    for node in sorted((n for n in ast.walk(function) if isinstance(n, ast.Assign)), key=lambda n: n.lineno):
        parts = list(ast.walk(node.value))
        calls = {called_name(part) for part in parts if isinstance(part, ast.Call)}
        is_number = calls <= _OF_NUMBERS and not any(isinstance(part, ast.Subscript) for part in parts)
        if is_number and any(isinstance(part, ast.Name) and part.id in known for part in parts):
            known |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return known


def number_use(statement: Statement, number: ast.expr) -> str:
    """How the function uses a number, here or under the name that the statement gives to it."""
    return _use(statement.node, number) or _later_use(statement, number)


def _use(node: ast.stmt, call: ast.expr) -> str:
    """How a number is used: as an index, a size, a test or a value to store; empty if in any other way."""
    path = path_to(node, call)
    for outer, inner in reversed(list(itertools.pairwise(path))):
        if isinstance(outer, ast.Slice):
            return "size"
        if isinstance(outer, ast.Subscript) and inner is outer.slice:
            return "index"
        if isinstance(outer, ast.Call) and inner is not outer.func:
            if called_name(outer) in _NEEDS_INT:
                return "size"
            if called_name(outer) in _STORES:
                return "store"
        if isinstance(outer, (ast.Compare, ast.BoolOp)):
            return "test"
        if isinstance(outer, (ast.Dict, ast.FormattedValue)):
            return "store"
        if isinstance(outer, (ast.If, ast.While, ast.IfExp)) and inner is outer.test:
            return "test"
    stores = (ast.Attribute, ast.Subscript)
    if isinstance(node, ast.Assign) and node.value is call and any(isinstance(t, stores) for t in node.targets):
        return "store"
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and call in node.value.elts:
        return "store"
    return ""


def path_to(node: ast.AST, wanted: ast.AST) -> list[ast.AST]:
    """The nodes from a statement down to one of its expressions, both included."""
    if node is wanted:
        return [node]
    for child in ast.iter_child_nodes(node):
        path = path_to(child, wanted)
        if path:
            return [node, *path]
    return []


def _unlisted(statement: Statement, call: ast.Call, value: str, where: str) -> list[str]:
    node = statement.node
    if isinstance(node, ast.For) and _is_looped(statement, call):
        use = _element_use(statement)
        if use == "size":
            return [f"mask by position instead of slicing by each element of `{code(call)}` at {where}: `mask = "
                    f"torch.arange(size) < {value}.unsqueeze(-1)`, and a mean is the sum under the mask divided by the "
                    "length; a slice needs a Python number, so a tensor breaks there too"]
        if use:
            return [f"compile the body of the loop, and keep the loop over `{code(call)}` ({where}) in Python: it uses "
                    f"the elements as {'an index' if use == 'index' else 'a test'}, where a tensor breaks too"]
        looped = code(node.iter).replace(code(call), f"{value}.unbind()")
        target = code(node.target)
        target = target.strip("()") if isinstance(node.target, ast.Tuple) and target.count("(") == 1 else target
        return [f"`for {target} in {looped}:` instead of looping over `{code(call)}` at {where}: "
                "the elements stay tensors"]
    return [f"keep `{value}` a tensor instead of `{code(call)}` at {where}: index it, or select with torch.where",
            f"compute `{code(call)}` before the compiled call and pass it as an argument"]


def _is_looped(statement: Statement, call: ast.Call) -> bool:
    """Whether a `for` takes the elements of the list one by one, also through enumerate() or zip()."""
    node = statement.node
    if not isinstance(node, ast.For):
        return False
    outer = node.iter
    return outer is call or (
        isinstance(outer, ast.Call) and called_name(outer) in ("enumerate", "zip") and call in outer.args)


def _element_use(statement: Statement) -> str:
    """How the body of a loop uses its elements, where it needs numbers: as a size, an index or a test; else empty."""
    node = statement.node
    assert isinstance(node, ast.For)
    targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
    if isinstance(node.iter, ast.Call) and called_name(node.iter) == "enumerate":
        targets = targets[1:]       # its first value is a Python number
    names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    uses = set()
    for later in ast.walk(node):
        if isinstance(later, ast.stmt) and later is not node:
            uses |= {_use(later, part) for part in own_nodes(later) if isinstance(part, ast.Name) and part.id in names}
    return next((use for use in ("size", "index", "test") if use in uses), "")


def selection_of_arguments(statement: Statement | None) -> str:
    """The call that finds indices or values in the arguments of the function, which its caller can make; else empty."""
    calls = statement.calls("nonzero", "argwhere", "unique", "unique_consecutive") if statement is not None else []
    if statement is None or statement.function is None or len(calls) != 1:
        return ""
    return code(calls[0]) if _is_of_arguments(statement, calls[0]) and fits(code(calls[0])) else ""


def mask_options(statement: Statement | None, where: str) -> list[str]:
    """What to write instead of selecting with a mask: an expression that keeps the full size; empty if unknown."""
    if statement is None:
        return []
    filled = fill_code(statement.node)
    if filled:
        return [f"`{filled}` instead of the assignment at {where}"]
    selected = reduction_code(statement.node)
    if selected is not None and fits(selected[1], code(selected[0])):
        return [f"`{selected[1]}` instead of `{code(selected[0])}` at {where}"]
    return []


def fill_code(node: ast.stmt) -> str:
    """The assignment that takes the place of an assignment by a mask; empty if the value has the size of the mask."""
    if not isinstance(node, (ast.Assign, ast.AugAssign)):
        return ""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return _filled(node, target) if isinstance(target, ast.Subscript) and _is_mask(target.slice) else ""


def reduction_code(node: ast.stmt) -> tuple[ast.Call, str] | None:
    """The reduction of a selection by a mask, and the one of the full size that takes its place; None if none is."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and not part.args and not part.keywords:
            selected = part.func.value
            form = _REDUCTIONS.get(part.func.attr)
            if form and isinstance(selected, ast.Subscript) and _is_mask(selected.slice):
                mask = code(selected.slice)
                mask = mask if re.fullmatch(r"[\w.]+", mask) else f"({mask})"
                return part, form.format(mask=mask, value=code(selected.value))
    return None


def _is_mask(index: ast.expr) -> bool:
    """Whether an index can be a boolean mask: a name, attribute, comparison or call, not a number, slice or tuple."""
    return isinstance(index, (ast.Name, ast.Attribute, ast.Compare, ast.BinOp, ast.Call, ast.UnaryOp))


class _FullSize(ast.NodeTransformer):
    """Takes the selection by a mask out of an expression: `y` for `y[mask]`."""

    def __init__(self, mask: str) -> None:
        self.mask = mask

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return node.value if code(node.slice) == self.mask else node


def _filled(node: ast.Assign | ast.AugAssign, target: ast.Subscript) -> str:
    name, mask = code(target.value), code(target.slice)
    full = _FullSize(mask).visit(copy.deepcopy(node.value))
    value = code(full)
    if value == code(node.value) and not _is_scalar(full):
        return ""       # a value that is selected in another way has the size of the mask
    if isinstance(node, ast.AugAssign):
        operator = ast.BinOp(left=ast.Name(id="x"), op=node.op, right=ast.Name(id="x"))
        value = f"{name} {code(operator).split()[1]} {value}"
    return f"{name} = torch.where({mask}, {value}, {name})"


def _is_scalar(value: ast.expr) -> bool:
    """Whether an expression is a number or an attribute or name, which may be one."""
    return isinstance(value, (ast.Constant, ast.UnaryOp, ast.Name, ast.Attribute))

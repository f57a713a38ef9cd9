"""The code that takes the place of a branch on a tensor: one option per form of the statement."""

import ast
import copy
from dataclasses import dataclass

from torchtriage.diagnosis.statement import Statement, called_name, code, fits
from torchtriage.text import shortened

BOTH = "both sides are computed"
LATER = "it raises RuntimeError, on a GPU after the call"
_COMPARED = {"equal": "({0} == {1}).all()", "allclose": "torch.isclose({0}, {1}).all()"}


def branch_options(statement: Statement | None, where: str) -> list[str]:
    """What to write instead of the statement, the best first; empty if its form is not known."""
    if statement is None:
        return []
    statement = _head(statement)
    node = statement.node
    if isinstance(node, ast.Assert):
        return [_assertion(node.test, node.msg, f"`assert {_short(node.test)}` at {where}")]
    if isinstance(node, ast.While):
        return [
            f"compile the body of the loop instead of {_function(statement)}, and keep `while {_short(node.test)}` "
            f"({where}) in Python",
            "torch.while_loop(condition, body, carried_tensors), with the same shapes each time",
        ]
    if isinstance(node, ast.If):
        return _if_options(node, statement, where)
    choice = conditional_code(node)
    if choice is not None and fits(choice[1]):
        return [f"`{choice[1]}` instead of the conditional expression at {where} ({BOTH})"]
    return []


def _head(statement: Statement) -> Statement:
    """The `if` of `if x.isnan().any(): raise ValueError`, whose body is the innermost statement of the line."""
    outer = statement.parents[-1] if statement.parents else None
    if isinstance(outer, ast.If) and outer.lineno == statement.node.lineno and statement.node in outer.body:
        return Statement(node=outer, parents=statement.parents[:-1])
    return statement


def branch_code(statement: Statement) -> tuple[list[ast.stmt], str] | None:
    """The statements of a branch and the code that takes their place; None if its form is not known."""
    statement = _head(statement)
    node = statement.node
    if isinstance(node, ast.Assert):
        return [node], _assertion_code(node.test, node.msg)
    if not isinstance(node, ast.If):
        return None
    if isinstance(node.body[-1], ast.Raise) and not node.orelse:
        return ([node], _raised_code(node, node.body[-1])) if len(node.body) == 1 else None
    if isinstance(node.body[0], ast.Continue):
        selected = _selected_round(node, statement)
        return ([node, statement.following], selected) if selected and statement.following else None
    code_of_both = _selection(node, statement)
    if not code_of_both:
        return None
    check, _ = _split_check(node.test)
    ends = isinstance(node.body[0], ast.Return) and not node.orelse and check is None
    return ([node, statement.following] if ends and statement.following else [node]), code_of_both


def conditional_code(node: ast.stmt) -> tuple[ast.IfExp, str] | None:
    """The only conditional expression of a statement and the call that takes its place; None if there is none."""
    choices = [part for part in ast.walk(node) if isinstance(part, ast.IfExp)]
    if len(choices) != 1 or not _are_tensors(choices[0].body, choices[0].orelse):
        return None
    return choices[0], _where(tensor_test(choices[0].test), choices[0].body, choices[0].orelse)


def _if_options(node: ast.If, statement: Statement, where: str) -> list[str]:
    last = node.body[-1]
    if isinstance(last, ast.Raise) and not node.orelse:
        return [_raised(node, last, where)]
    leaves = isinstance(last, (ast.Break, ast.Continue)) or (
        isinstance(last, ast.Return) and statement.loop is not None
    )
    if leaves and statement.loop is not None:
        return _leaves_loop(node, last, statement, where)
    select = _selection(node, statement)
    if select and fits(select):
        return [f"`{select}` instead of the branch at {where} ({BOTH})",
                "torch.cond(pred, true_fn, false_fn, operands) if computing both is too expensive"]
    outcomes, condition = _outcomes(node, statement), shortened(tensor_test(node.test), 50)
    if _differ_in_shape(outcomes) and not any(_is_cut(outcome) for outcome in outcomes):
        return [
            f"torch.where over both outcomes of the branch at {where}, if they have one shape; if not, keep the full "
            f"size and mask, as a graph cannot choose a size by a value; or branch on `{_short(node.test)}` before the "
            "compiled call",
        ]
    if _differ_in_shape(outcomes):
        return [
            f"keep the full size and mask what the branch at {where} cuts off, as a graph cannot choose a size by a "
            f"value; or branch on `{_short(node.test)}` before the compiled call",
        ]
    if any(_is_no_tensor(outcome) for outcome in outcomes):
        return [
            f"return the tensor `{condition}` from {_function(statement)} and decide on it after the compiled "
            f"call, instead of the branch at {where}: a graph cannot choose between values that are not tensors",
        ]
    if _has_effects(node):
        return [
            f"return the tensor `{condition}` from {_function(statement)} and do the body of the `if` at "
            f"{where} after the compiled call: it has side effects, which a graph cannot choose between",
        ]
    return []


def _outcomes(node: ast.If, statement: Statement) -> list[ast.expr | str | None]:
    """What the sides of a branch return, or assign to the same names."""
    if isinstance(node.body[-1], ast.Return):
        other = node.orelse[-1] if node.orelse else statement.following
        return [part.value for part in (node.body[-1], other) if isinstance(part, ast.Return)]
    chosen, otherwise = _assigned(node.body), _assigned(node.orelse)
    return [value for name in chosen for value in (chosen[name], otherwise.get(name, name))]


def _is_no_tensor(value: ast.expr | str | None) -> bool:
    """None, a truth value, a text or a function."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, bool) or not isinstance(value.value, (int, float))
    return value is None or isinstance(value, (ast.JoinedStr, ast.Lambda))


def _differ_in_shape(values: list[ast.expr | str | None]) -> bool:
    return len({frozenset(_shapes(value)) for value in values if value is not None}) > 1


def _leaves_loop(node: ast.If, last: ast.stmt, statement: Statement, where: str) -> list[str]:
    word = {ast.Break: "break", ast.Continue: "continue", ast.Return: "return"}[type(last)]
    options = [
        f"compile the body of the loop (the model, or one step) instead of {_function(statement)}, and keep the loop "
        f"with its `if {_short(node.test)}: {word}` ({where}) in Python",
    ]
    selected = _selected_round(node, statement) if word == "continue" else ""
    if selected and fits(selected):
        options.append(f"`{selected}` instead of the `continue` and what follows it ({BOTH})")
    elif word == "continue":
        options.append(f"drop the `continue` and select the results with torch.where({_short(node.test)}, old, new)")
    else:
        options.append("run the loop to its end and keep finished results with torch.where(done, old, new)")
    return options


def _selected_round(node: ast.If, statement: Statement) -> str:
    """`if test: continue` and the rest of the round, one assignment, as torch.where; empty if the rest is more."""
    loop, rest = statement.loop, statement.following
    is_last = isinstance(loop, (ast.For, ast.While)) and rest is not None and loop.body[-1] is rest
    if node.orelse or rest is None or not is_last:
        return ""
    parts = [
        f"{name} = {_where(tensor_test(node.test), name, value)}" for name, value in _assigned([rest]).items()
        if _are_tensors(value) and name in _mentioned(value)
    ]
    return "; ".join(parts)


def _raised(node: ast.If, last: ast.Raise, where: str) -> str:
    return f"`{_raised_code(node, last)}` instead of the `if ...: raise` at {where} ({LATER})"


def _raised_code(node: ast.If, last: ast.Raise) -> str:
    message = None
    if isinstance(last.exc, ast.Call) and last.exc.args:
        message = last.exc.args[0]
    guard, test = _split_plain(node.test)
    text = _call_of_assertion(negated(test), message)
    if guard is not None:
        text = f"if {code(guard)}: {text}"
    return text


def _assertion(test: ast.expr, message: ast.expr | None, instead_of: str) -> str:
    return f"`{_assertion_code(test, message)}` instead of {instead_of} ({LATER})"


def _assertion_code(test: ast.expr, message: ast.expr | None) -> str:
    guard, tensor = _split_plain(test)
    text = _call_of_assertion(tensor_test(tensor), message)
    if guard is not None:
        text = f"assert {code(guard)}; {text}"
    return text


def _call_of_assertion(test: str, message: ast.expr | None) -> str:
    if isinstance(message, ast.Constant) and isinstance(message.value, str) and fits(test, message.value):
        return f"torch._assert_async({test}, {message.value!r})"
    if isinstance(message, ast.JoinedStr):      # it would read the tensor: the message must be a constant
        fixed = "".join(str(part.value) for part in message.values if isinstance(part, ast.Constant))
        fixed = " ".join(fixed.split()).strip(" :,=(")
        return (
            f"torch._assert_async({test}, {fixed!r})" if fixed and fits(test, fixed)
            else f"torch._assert_async({test})"
        )
    return f"torch._assert_async({test})"


def _selection(node: ast.If, statement: Statement) -> str:
    """The statement as torch.where; empty if its sides are not two values of the same names."""
    check, condition = _split_check(node.test)
    if check is not None:
        inner = ast.If(test=condition, body=node.body, orelse=[])
        selected = "" if node.orelse else _selection(inner, statement)
        return f"if {code(check)}: {selected}" if selected else ""
    test = tensor_test(node.test)
    if isinstance(node.body[0], ast.Return) and len(node.body) == 1:
        other = node.orelse[0] if len(node.orelse) == 1 else statement.following if not node.orelse else None
        if isinstance(other, ast.Return) and _are_tensors(node.body[0].value, other.value):
            return f"return {_where(test, node.body[0].value, other.value)}"
        return ""
    return "; ".join(f"{name} = {value}" for name, value in _selected(node).items())


def _selected(node: ast.If) -> dict[str, str]:
    """For each name that all sides of a branch assign, the torch.where of its values; `elif` is a side of its own."""
    chosen = _assigned(node.body)
    nested = node.orelse[0] if len(node.orelse) == 1 else None
    otherwise: dict[str, ast.expr]
    if isinstance(nested, ast.If):
        otherwise = {name: ast.parse(text, mode="eval").body for name, text in _selected(nested).items()}
    else:
        otherwise = _assigned(node.orelse)
    if not chosen or (node.orelse and set(otherwise) != set(chosen)):
        return {}
    selected = {}
    for name, value in chosen.items():
        other: ast.expr | str = otherwise.get(name, name)
        if not _are_tensors(value, other):
            return {}
        selected[name] = _where(tensor_test(node.test), value, other)
    return selected


def _assigned(block: list[ast.stmt]) -> dict[str, ast.expr]:
    """Name and value of each assignment; empty if the block does anything else, or uses a name that it assigned."""
    values: dict[str, ast.expr] = {}
    for node in block:
        value: ast.expr
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AugAssign):
            target = node.target
            value = ast.BinOp(left=_loaded(node.target), op=node.op, right=node.value)
        else:
            return {}
        if not isinstance(target, ast.Name) and not _keeps_a_tensor(node, target):
            return {}
        if set(values) & _mentioned(value):
            return {}
        values[code(target)] = value
    return values


def _mentioned(value: ast.expr) -> set[str]:
    """The names and attributes that an expression reads."""
    return {code(part) for part in ast.walk(value) if isinstance(part, (ast.Name, ast.Attribute))}


def _keeps_a_tensor(node: ast.stmt, target: ast.expr) -> bool:
    """Whether a statement assigns what a method returns to an attribute of self: a number would not stay a number."""
    is_of_self = isinstance(target, ast.Attribute) and code(target.value) == "self"
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)]
    return is_of_self and isinstance(node, ast.Assign) and bool(calls)


def _loaded(target: ast.expr) -> ast.expr:
    loaded = copy.deepcopy(target)
    for part in ast.walk(loaded):
        if hasattr(part, "ctx"):
            part.ctx = ast.Load()
    return loaded


def _are_tensors(*values: ast.expr | str | None) -> bool:
    """Whether both sides can be arguments of torch.where: not None, a text, a container or a truth value."""
    for value in values:
        if _is_no_tensor(value) or isinstance(value, (ast.Tuple, ast.List, ast.Dict, ast.Set)):
            return False
        if value is not None and _reads_number(value):
            return False
    return not _differ_in_shape(list(values))


# What changes the shape of a tensor, or reads it as a number: torch.where computes both sides, at one shape.
_OTHER_SHAPE = frozenset({
    "cat", "stack", "squeeze", "unsqueeze", "flatten", "reshape", "view", "narrow", "pad", "repeat", "expand", "chunk",
    "split", "permute", "transpose", "masked_select", "nonzero", "unique", "topk", "index_select", "interpolate",
})
_REDUCTIONS = frozenset({
    "mean", "sum", "norm", "std", "var", "prod", "max", "min", "amax", "amin", "any", "all", "median",
})
_READS = frozenset({"item", "tolist", "int", "float", "bool", "numpy", "print"})


def _shapes(value: ast.AST | str) -> set[str]:
    """The parts of an expression that give it another shape than its operands have."""
    if isinstance(value, str) or _is_reduced(value):
        return set()
    parts = {shape for part in ast.iter_child_nodes(value) for shape in _shapes(part)}
    if isinstance(value, ast.Subscript) and any(isinstance(at, ast.Slice) for at in ast.walk(value.slice)):
        parts.add(code(value.slice))
    elif isinstance(value, ast.Call) and called_name(value) in _OTHER_SHAPE:
        arguments = (*value.args, *(keyword.value for keyword in value.keywords))
        parts.add(" ".join((called_name(value), *map(code, arguments))))
    return parts


def _is_cut(value: ast.expr | str | None) -> bool:
    """Whether an expression is itself a slice or another change of shape; a part of it may be broadcast."""
    if isinstance(value, ast.Subscript):
        return bool(_shapes(value))
    return isinstance(value, ast.Call) and called_name(value) in _OTHER_SHAPE


def _is_reduced(value: ast.AST) -> bool:
    """Whether an expression is a single number of its operand, whatever the shape of that: x[1:].mean()."""
    if not isinstance(value, ast.Call):
        return False
    name = called_name(value)
    is_function = isinstance(value.func, ast.Attribute) and code(value.func.value) == "torch"
    takes_all = len(value.args) == (1 if is_function else 0) and not value.keywords
    return (name in _REDUCTIONS and takes_all) or name.endswith(("_loss", "cross_entropy"))


def _reads_number(value: ast.expr | str) -> bool:
    return isinstance(value, ast.AST) and any(
        isinstance(part, ast.Call) and called_name(part) in _READS for part in ast.walk(value))


def _has_effects(node: ast.If) -> bool:
    """Whether a side of the branch does anything but assign to names."""
    for statement in (*node.body, *node.orelse):
        if isinstance(statement, ast.If):
            if _has_effects(statement):
                return True
            continue
        if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.Return, ast.Pass)):
            return True
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        if any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets):
            return True
    return False


def _where(test: str, value: ast.expr | str | None, other: ast.expr | str | None) -> str:
    return f"torch.where({test}, {code(value or '')}, {code(other or '')})"


def _function(statement: Statement) -> str:
    return statement.function.name if statement.function else "the function"


def _short(node: ast.expr) -> str:
    return shortened(code(node), 50)


# --- conditions as tensors


def negated(test: ast.expr) -> str:
    """The opposite of a condition, as an expression of tensors."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return tensor_test(test.operand)
    return code(ast.UnaryOp(op=ast.Invert(), operand=_AsTensors().visit(copy.deepcopy(test))))


def tensor_test(test: ast.expr) -> str:
    """A condition as an expression of tensors: `&` for `and`, nothing read with .item()."""
    return code(_AsTensors().visit(copy.deepcopy(test)))


@dataclass
class _AsTensors(ast.NodeTransformer):
    """Rewrites the parts of a condition that ask a tensor for a Python value."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        operator: ast.operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        parts: list[ast.expr] = [self.visit(value) for value in node.values]
        joined = parts[0]
        for part in parts[1:]:
            joined = ast.BinOp(left=joined, op=operator, right=part)
        return joined

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        return ast.UnaryOp(op=ast.Invert() if isinstance(node.op, ast.Not) else node.op, operand=operand)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        values = [self.visit(value) for value in (node.left, *node.comparators)]
        joined: ast.expr | None = None
        for left, operator, right in zip(values, node.ops, values[1:], strict=False):
            part = ast.Compare(left=left, ops=[operator], comparators=[right])
            joined = part if joined is None else ast.BinOp(left=joined, op=ast.BitAnd(), right=part)
        assert joined is not None
        return joined

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = called_name(node)
        if name == "item" and isinstance(node.func, ast.Attribute) and not node.args:
            return self.visit(node.func.value)      # type: ignore[no-any-return]
        if isinstance(node.func, ast.Name) and name in ("bool", "float", "int") and len(node.args) == 1:
            return self.visit(node.args[0])         # type: ignore[no-any-return]
        if isinstance(node.func, ast.Name) and name in ("any", "all") and len(node.args) == 1:
            return ast.Call(func=ast.Attribute(value=node.args[0], attr=name), args=[], keywords=[])
        if name in _COMPARED and len(node.args) >= 2:
            text = _COMPARED[name].format(code(node.args[0]), code(node.args[1]))
            return ast.parse(text, mode="eval").body
        return node


def _split_plain(test: ast.expr) -> tuple[ast.expr | None, ast.expr]:
    """(the parts of an `and` that are plain Python, the rest): a Python bool must not become part of a tensor."""
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
        return None, test
    plain = [value for value in test.values if not _reads_tensor(value)]
    tensors = [value for value in test.values if _reads_tensor(value)]
    if not plain or not tensors:
        return None, test
    return _joined(plain), _joined(tensors)


def _split_check(test: ast.expr) -> tuple[ast.expr | None, ast.expr]:
    """(`mask is not None` of `mask is not None and mask.any()`, the rest): without it the rest could fail."""
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
        return None, test
    checks = [value for value in test.values if _is_check(value)]
    others = [value for value in test.values if not _is_check(value)]
    return (_joined(checks), _joined(others)) if checks and others else (None, test)


def _is_check(value: ast.expr) -> bool:
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        return _is_check(value.operand)
    if isinstance(value, ast.Compare):
        return isinstance(value.ops[0], (ast.Is, ast.IsNot))
    return isinstance(value, ast.Call) and called_name(value) in ("isinstance", "hasattr", "callable")


def _joined(values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.BoolOp(op=ast.And(), values=values)


def _reads_tensor(value: ast.expr) -> bool:
    """Whether a condition calls a method: attributes, names and constants alone are taken for plain Python."""
    return any(isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) for part in ast.walk(value))

"""TT103, TT104, TT105: Python that needs the value of a tensor."""

import ast
from collections.abc import Iterator, Sequence

from torchtriage.lint.reach.model import Reached
from torchtriage.lint.rules.hazard import Hazard, calls, hazard_rule, is_set, names_of, quote
from torchtriage.lint.types.values import (
    ContainerValue,
    LibraryObject,
    MethodValue,
    TensorValue,
    Value,
    element_of,
    options,
    tensor_in,
)

SCALARS = "torch._dynamo.config.capture_scalar_outputs = True"
SHAPES = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
_SIZED_BY_VALUE = frozenset({"nonzero", "unique", "unique_consecutive", "masked_select", "argwhere", "bincount"})
_SAME_SIZE = {
    "nonzero": "torch.where(mask, a, b) keeps the full size",
    "argwhere": "torch.where(mask, a, b) keeps the full size",
    "masked_select": "torch.where(mask, x, 0) keeps the full size",
    "bincount": "torch.zeros(n).index_add_(0, idx, ones) with a known n",
    "repeat_interleave": "pass output_size= if the total is known",
}


@hazard_rule
def branches(reached: Reached) -> Iterator[Hazard]:
    """An if, while or assert that tests a tensor."""
    seen: set[ast.AST] = set()
    for node in list(reached.values):
        parent = reached.file.parent(node)
        test = getattr(parent, "test", None)
        if not isinstance(parent, (ast.If, ast.While, ast.IfExp, ast.Assert)) or test is not node or parent in seen:
            continue
        seen.add(parent)
        tensor = _tested(node, reached)
        if tensor is not None and not (isinstance(parent, ast.Assert) and _is_traced_assert(parent)):
            yield Hazard(
                code="TT103",
                node=parent,
                subject=f"{_WORDS[type(parent)]} on {quote(reached, node)}",
                cause="a Python condition needs the value of a tensor, which is not known while the graph is made",
                fix=_branch_fix(parent, *_condition(node, reached)),
                may=not tensor.sure,
                kind="Data-dependent branching",
            )


@hazard_rule
def tested_values(reached: Reached) -> Iterator[Hazard]:
    """`a and b`, `any([a, b])` and `[v for v in x if v > 0]`, which ask tensors for their truth outside of an if."""
    for node in list(reached.values):
        tested = [part for part in _asked_for_truth(node, reached) if _is_sure(_item(reached.value(part)))]
        if tested and (isinstance(node, ast.Call) or not _is_condition(node, reached)):
            is_generator = isinstance(tested[0], ast.GeneratorExp)      # no graph can be cut while one is consumed
            yield Hazard(
                code="TT113" if is_generator else "TT103",
                node=node,
                subject=f"the test of {quote(reached, tested[0])}",
                cause="Python asks for the truth of a tensor, which is not known while the graph is made",
                fix=f"combine tensors with &, |, torch.any or torch.where instead of {quote(reached, node)}",
                kind="Data-dependent branching",
            )


def _asked_for_truth(node: ast.AST, reached: Reached) -> Sequence[ast.expr]:
    if isinstance(node, ast.BoolOp):
        return node.values[:-1]
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
        return [test for part in node.generators for test in part.ifs]
    is_builtin = isinstance(node, ast.Call) and names_of(reached.value(node.func)) & {"builtins.any", "builtins.all"}
    given = node.args[0] if isinstance(node, ast.Call) and is_builtin and node.args else None
    if isinstance(given, (ast.List, ast.Tuple)):
        return given.elts
    return [given] if given is not None and isinstance(reached.value(given), ContainerValue) else []


def _item(value: Value) -> Value:
    """What `any(values)` asks for its truth."""
    return element_of(value) if isinstance(value, ContainerValue) else value


def _is_sure(value: Value) -> bool:
    return isinstance(value, TensorValue) and value.sure


def _is_condition(node: ast.AST, reached: Reached) -> bool:
    """Whether a node is the test of an if, while, choice or assert, or a part of it by `and`, `or` or `not`."""
    parent = reached.file.parent(node)
    while isinstance(parent, (ast.BoolOp, ast.UnaryOp)):
        node, parent = parent, reached.file.parent(parent)
    return isinstance(parent, (ast.If, ast.While, ast.IfExp, ast.Assert)) and parent.test is node


_WORDS = {ast.If: "the branch", ast.While: "the loop", ast.IfExp: "the choice", ast.Assert: "the assert"}


def _is_traced_assert(node: ast.Assert) -> bool:
    """Dynamo turns an assert without a message, or with a constant one, into an operator."""
    return node.msg is None or isinstance(node.msg, ast.Constant)


def _tested(node: ast.AST, reached: Reached) -> TensorValue | None:
    """The tensor whose truth a condition asks for; the parts of `and`, `or` and `not` are asked one by one."""
    if isinstance(node, ast.BoolOp):
        found = [tensor for tensor in (_tested(part, reached) for part in node.values) if tensor is not None]
        return next((tensor for tensor in found if tensor.sure), found[0] if found else None)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _tested(node.operand, reached)
    value = reached.value(node)
    if isinstance(node, ast.Call) and "builtins.bool" in names_of(reached.value(node.func)) and node.args:
        return tensor_in(reached.value(node.args[0]))
    tensor = tensor_in(value)
    if tensor is None or (isinstance(node, (ast.Name, ast.Attribute)) and not tensor.sure):
        return None  # `if flag:` where flag only may be a tensor
    return tensor


def _condition(node: ast.expr, reached: Reached) -> tuple[str, str]:
    """(the parts of an `and` that stay in Python, the rest as one tensor): `and`, `or`, `not` would read tensors."""
    if isinstance(node, ast.BoolOp):
        is_and = isinstance(node.op, ast.And)
        plain = [part for part in node.values if is_and and _tested(part, reached) is None]
        tensors = [_condition(part, reached)[1] for part in node.values if part not in plain]
        joined = f" {'&' if is_and else '|'} ".join(f"({text})" if " " in text else text for text in tensors)
        kept = " and ".join(reached.file.segment(part) for part in plain)
        return kept, joined if len(tensors) > 1 else tensors[0]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        text = _condition(node.operand, reached)[1]
        return "", f"~({text})" if " " in text else f"~{text}"
    return "", reached.file.segment(node)


def _branch_fix(node: ast.AST, plain: str, test: str) -> str:
    kept = f", under `if {plain}:`" if plain else ""
    if isinstance(node, ast.Assert):
        return f"torch._assert_async({test}){kept}, or check before the compiled call"
    if isinstance(node, ast.While):
        return "a fixed bound with a torch.where mask, or compile the body of the loop and not the loop"
    if isinstance(node, ast.If) and any(isinstance(s, ast.Raise) for s in node.body):
        return f"torch._assert_async(~({test})){kept} instead of the raise, or check before the compiled call"
    if isinstance(node, ast.If) and any(isinstance(s, ast.Break) for s in node.body):
        return "compile the body of the loop (the model or one step) and keep the loop with its test outside"
    return f"torch.where({test}, a, b) over both outcomes{kept}; torch.cond if computing both is too expensive"


@hazard_rule
def memberships(reached: Reached) -> Iterator[Hazard]:
    """`x in tensor`, which asks the tensor for a Python bool inside of torch's own code."""
    for node in list(reached.values):
        if isinstance(node, ast.Compare) and any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            tensor = tensor_in(reached.value(node.comparators[-1]))
            if tensor is not None and tensor.sure:
                yield Hazard(
                    code="TT119",
                    node=node,
                    subject=quote(reached, node),
                    cause="`in` needs the values of a tensor, and is asked in a method of torch that cannot be cut",
                    fix=f"torch.isin, or ({reached.file.segment(node.comparators[-1])} == value).any() with "
                        f"torch.where, instead of {quote(reached, node)}",
                )


@hazard_rule
def scalars(reached: Reached) -> Iterator[Hazard]:
    """A Python number made of a tensor."""
    for call in calls(reached):
        tensor, how = _read(call, reached)
        if tensor is None or (how in ("item", "int") and is_set(reached, "capture_scalar_outputs")):
            continue
        yield Hazard(
            code="TT104",
            node=call,
            subject=quote(reached, call),
            may=not tensor.sure,
            kind=_KINDS.get(how, ""),
            cause="a Python number made of a tensor is not known while the graph is made",
            fix=_scalar_fix(how, reached, call),
        )


_KINDS = {"item": "Unsupported Tensor.item() call with capture_scalar_outputs=False"}


def _read(call: ast.Call, reached: Reached) -> tuple[TensorValue | None, str]:
    for called in options(reached.value(call.func)):
        if isinstance(called, MethodValue) and called.name in ("item", "tolist", "equal", "allclose"):  # noqa: SIM102 - two questions
            if isinstance(called.owner, TensorValue):
                return called.owner, called.name
    names = names_of(reached.value(call.func))
    if names & {"builtins.int", "builtins.float"} and len(call.args) == 1:
        read = reached.value(call.args[0])
        if isinstance(read, LibraryObject) and read.name == "numpy.ndarray":
            return TensorValue(), "array"       # torch traces NumPy with tensors
        return _sure_only(reached.value(call.args[0])), "int"
    if "builtins.bool" in names and len(call.args) == 1 and not _is_condition(call, reached):
        return _sure_only(reached.value(call.args[0])), "bool"
    if names & {"torch.equal", "torch.allclose"}:
        return TensorValue(), "equal"
    return None, ""


def _sure_only(value: Value) -> TensorValue | None:
    tensor = tensor_in(value)
    return tensor if tensor is not None and tensor.sure else None


def _scalar_fix(how: str, reached: Reached, call: ast.Call) -> str:
    text = quote(reached, call)
    if how in ("equal", "allclose"):
        return f"keep the comparison a tensor, (a == b).all(), and select with torch.where, instead of {text}"
    if how == "bool":
        return f"keep the value a tensor instead of {text}, and select with torch.where"
    if how == "tolist":
        return f"keep {text} a tensor and index it"
    return f"keep the value a tensor (.detach() if it needs no gradient) instead of {text}, or {SCALARS}"


@hazard_rule
def sizes(reached: Reached) -> Iterator[Hazard]:
    """A tensor whose size depends on the values of another one."""
    if is_set(reached, "capture_dynamic_output_shape_ops"):
        return
    for call in calls(reached):
        name, tensor = _sized_by_value(call, reached)
        if tensor is not None:
            instead = _SAME_SIZE.get(name, "do it before the compiled call")
            yield _size_hazard(call, reached, tensor, f"{quote(reached, call)}: {instead}; or {SHAPES}")
    for node in list(reached.values):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            owner, mask = tensor_in(reached.value(node.value)), _mask(node.slice, reached)
            if owner is not None and mask is not None:
                sure = TensorValue(owner.sure and mask.sure)
                fix = f"torch.where({reached.file.segment(node.slice)}, x, 0) keeps the full size; or {SHAPES}"
                yield _size_hazard(node, reached, sure, fix)


def _mask(index: ast.expr, reached: Reached) -> TensorValue | None:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for part in parts:
        tensor = tensor_in(reached.value(part))
        if tensor is not None and tensor.dtype == "bool":
            return tensor
    return None


def _size_hazard(node: ast.expr, reached: Reached, tensor: TensorValue, fix: str) -> Hazard:
    return Hazard(
        code="TT105",
        node=node,
        subject=quote(reached, node),
        may=not tensor.sure,
        fix=fix,
        cause="the size of the result depends on the values in a tensor",
        kind="Dynamic shape operator",
    )


def _sized_by_value(call: ast.Call, reached: Reached) -> tuple[str, TensorValue | None]:
    for called in options(reached.value(call.func)):
        if isinstance(called, MethodValue) and isinstance(called.owner, TensorValue):  # noqa: SIM102 - two questions
            if called.name in _SIZED_BY_VALUE or _repeats(called.name, call, call.args, reached):
                return called.name, called.owner
    for name in names_of(reached.value(call.func)):
        room, _, last = name.rpartition(".")
        if room == "torch" and (last in _SIZED_BY_VALUE or _repeats(last, call, call.args[1:], reached)):
            return last, TensorValue()
        if name == "torch.where" and len(call.args) == 1 and not call.keywords:
            return "nonzero", TensorValue()
    return "", None


def _repeats(name: str, call: ast.Call, counts: list[ast.expr], reached: Reached) -> bool:
    """repeat_interleave with a tensor of counts and without the total."""
    if name != "repeat_interleave" or any(k.arg == "output_size" for k in call.keywords):
        return False
    given = [*counts[:1], *(k.value for k in call.keywords if k.arg == "repeats")]
    return any(tensor_in(reached.value(node)) is not None for node in given)

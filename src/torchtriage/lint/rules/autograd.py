"""TT109, TT110, TT116, TT118: autograd inside compiled code."""

import ast
from collections.abc import Iterator

from torchtriage.lint.reach.model import Reached
from torchtriage.lint.rules.hazard import Hazard, calls, hazard_rule, is_set, names_of, quote
from torchtriage.lint.rules.places import last_part
from torchtriage.lint.types.values import (
    FunctionValue,
    LibraryObject,
    MethodValue,
    PythonValue,
    TensorValue,
    Value,
    options,
    tensor_in,
)
from torchtriage.lint.variation.bindings import BindingKind, bindings

_GRAD = frozenset({"torch.autograd.grad", "torch.autograd.backward"})
_EFFECTS = frozenset({"append", "extend", "add", "update", "print", "setdefault", "item", "info", "warning"})
_FACTORIES = frozenset(
    f"torch.{name}{like}" for name in ("zeros", "ones", "empty", "rand", "randn", "full") for like in ("", "_like")
)
_ONLY_SELF = "compile the forward and the loss"


@hazard_rule
def backward(reached: Reached) -> Iterator[Hazard]:
    """backward() or torch.autograd.grad in compiled code."""
    if is_set(reached, "trace_autograd_ops"):
        return
    for call in calls(reached):
        called = reached.value(call.func)
        tensor = _method_of_tensor(called, "backward")
        if tensor is None and not names_of(called) & _GRAD:
            continue
        yield Hazard(
            code="TT109",
            node=call,
            subject=quote(reached, call),
            may=tensor is not None and not tensor.sure,
            cause="the autograd engine runs in the middle of the graph",
            fix=f"call {quote(reached, call)} outside the compiled function, with zero_grad() and the "
                f"optimizer's step: {_ONLY_SELF}",
        )


def _method_of_tensor(called: object, name: str) -> TensorValue | None:
    for option in options(called):  # type: ignore[arg-type]  # a Value
        if isinstance(option, MethodValue) and option.name == name and isinstance(option.owner, TensorValue):
            return option.owner
    return None


@hazard_rule
def tensor_hooks(reached: Reached) -> Iterator[Hazard]:
    """register_hook on a tensor that the compiled code makes."""
    for call in calls(reached):
        tensor = _method_of_tensor(reached.value(call.func), "register_hook")
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        if tensor is None or not isinstance(receiver, ast.Name):
            continue
        hook = reached.value(call.args[0]) if call.args else None
        has_effect = isinstance(hook, FunctionValue) and _has_effect(hook)
        if not has_effect or receiver.id in _parameters(reached):
            continue
        yield Hazard(
            code="TT116",
            node=call,
            subject=quote(reached, call),
            may=not tensor.sure,
            cause="a hook with effects outside of the graph, on a tensor that the graph makes, cannot be traced",
            fix=f"return {receiver.id} from the compiled function, and register the hook on it outside",
        )


def _has_effect(hook: FunctionValue) -> bool:
    """Whether a hook does more than return a gradient: it fills a list, sets an attribute, prints."""
    for node in ast.walk(hook.node):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.Call) and last_part(node.func) in _EFFECTS:
            return True
    return False


@hazard_rule
def backward_hooks(reached: Reached) -> Iterator[Hazard]:
    """A call of a module that has a backward hook."""
    for call, line in reached.backward_hooks.items():
        if isinstance(call, ast.Call):
            yield Hazard(
                code="TT116",
                node=call,
                subject=quote(reached, call),
                cause=f"the module has a backward hook, registered at line {line}",
                fix="register hooks on the outputs of the compiled function, outside: out.register_hook(...)",
            )


@hazard_rule
def requires_grad(reached: Reached) -> Iterator[Hazard]:
    """requires_grad_() on a tensor in compiled code."""
    parameters = _parameters(reached)
    for call in calls(reached):
        tensor = _method_of_tensor(reached.value(call.func), "requires_grad_")
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        is_input = isinstance(receiver, ast.Name) and receiver.id in parameters and not _sets_false(call, reached)
        is_weight = isinstance(receiver, ast.Name) and _sets_false(call, reached) and _is_weight(receiver, reached)
        is_leaf = not _sets_false(call, reached) and _is_made_without_grad(receiver, reached) and _returns(reached)
        if tensor is None or not (is_input or is_weight or is_leaf):
            continue
        yield Hazard(
            code="TT110",
            node=call,
            subject=quote(reached, call),
            may=not tensor.sure,
            cause="a tensor that the graph made may not start to record inside of it and leave it" if is_leaf
            else "requires_grad of an input or a parameter cannot be changed inside the graph",
            fix=f"set requires_grad before the compiled call instead of {quote(reached, call)}; detach() inside the "
            "graph does not break",
        )


def _is_made_without_grad(node: ast.expr | None, reached: Reached) -> bool:
    """Whether a tensor is certainly new to autograd: detached, or made by a factory of torch."""
    if isinstance(node, ast.Name):
        reaching = bindings(reached.file, node, node.id)
        values = [binding.value for binding in reaching if binding.kind is BindingKind.ASSIGNED]
        return bool(values) and len(values) == len(reaching) and all(
            isinstance(value, ast.Call) and _is_made_without_grad(value, reached) for value in values
        )
    if not isinstance(node, ast.Call) or any(keyword.arg == "requires_grad" for keyword in node.keywords):
        return False
    called = reached.value(node.func)
    return _method_of_tensor(called, "detach") is not None or bool(names_of(called) & _FACTORIES)


def _returns(reached: Reached) -> bool:
    return any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(reached.function.node))


def _parameters(reached: Reached) -> set[str]:
    """Parameters that the function does not assign again."""
    spec = reached.function.node.args
    names = {parameter.arg for parameter in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    assigned = {
        n.id for n in ast.walk(reached.function.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return names - assigned


def _is_weight(name: ast.Name, reached: Reached) -> bool:
    """Whether a loop gives the name the parameters of a module."""
    for binding in bindings(reached.file, name, name.id):
        iterated = binding.value if binding.kind is BindingKind.ITEM else None
        if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Attribute):
            return iterated.func.attr in ("parameters", "named_parameters")
    return False


def _sets_false(call: ast.Call, reached: Reached) -> bool:
    value = reached.value(call.args[0]) if call.args else None
    return isinstance(value, PythonValue) and value.constant is False


@hazard_rule
def optimizer_steps(reached: Reached) -> Iterator[Hazard]:
    """The step of an optimizer together with other work."""
    body = reached.function.node.body
    for call in calls(reached):
        is_step = all(_is_optimizer_step(called) for called in options(reached.value(call.func)))
        if is_step and isinstance(body, list) and len(body) > 1:
            yield Hazard(
                code="TT118",
                node=call,
                subject=quote(reached, call),
                cause="torch compiles the step of an optimizer as a separate function",
                fix=f"call {quote(reached, call)} outside this compiled function: {_ONLY_SELF}; to compile the "
                    "step too, do it alone: step = torch.compile(opt.step)",
            )


def _is_optimizer_step(called: Value) -> bool:
    return (
        isinstance(called, MethodValue)
        and called.name == "step"
        and isinstance(called.owner, LibraryObject)
        and called.owner.name.startswith("torch.optim.")
        and ".lr_scheduler." not in called.owner.name
    )


@hazard_rule
def tensor_data(reached: Reached) -> Iterator[Hazard]:
    """Assignment to .data of a tensor that the graph made."""
    for node in list(ast.walk(reached.function.node)):
        if not isinstance(node, ast.Assign) or node.value not in reached.values:
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr == "data":
                tensor = tensor_in(reached.value(target.value))
                if tensor is not None and tensor.sure:
                    yield Hazard(
                        code="TT121",
                        node=node,
                        subject=quote(reached, target),
                        cause="an assignment to .data of a tensor cannot be traced",
                        fix=f"with torch.no_grad(): x.copy_(...), or make a new tensor, instead of "
                            f"{quote(reached, node)}",
                    )

"""Which calls allocate with the parameters of a model, by how many copies."""

import ast
import re
from collections.abc import Iterator

from torchtriage.lint.index.gradients import is_on_device, is_parameter_iterable, parameter_lists, parameter_names
from torchtriage.lint.index.syntax import COMPREHENSIONS, calls, keyword, last_name, own_nodes, scopes, text
from torchtriage.lint.source import SourceFile
from torchtriage.text import shortened
from torchtriage.tickets.batches.source_facts import ModelAllocation

_MAX_CALL = 80
_JOINS = ("cat", "concat", "concatenate", "hstack")
_COPIES = {"clone": None, "float": 4, "double": 8, "half": 2, "bfloat16": 2}
_MODEL = re.compile(r"^(?:\w+_)?(?:model|net|network|policy|module|actor|critic|encoder|decoder)$")
# Tensors of the size of the parameters that an optimizer keeps, with those that one of its options adds.
_OPTIMIZERS: dict[str, tuple[str, int, dict[str, int]]] = {
    "Adam": ("exp_avg, exp_avg_sq", 2, {"amsgrad": 1}),
    "AdamW": ("exp_avg, exp_avg_sq", 2, {"amsgrad": 1}),
    "NAdam": ("exp_avg, exp_avg_sq", 2, {}),
    "RAdam": ("exp_avg, exp_avg_sq", 2, {}),
    "Adamax": ("exp_avg, exp_inf", 2, {}),
    "Adadelta": ("square_avg, acc_delta", 2, {}),
    "Adagrad": ("sum", 1, {}),
    "RMSprop": ("square_avg", 1, {"momentum": 1, "centered": 1}),
    "SGD": ("momentum_buffer", 0, {"momentum": 1}),
}


def allocations_in(file: SourceFile, path: str) -> Iterator[ModelAllocation]:
    """The calls of a file that allocate with the parameters; `path` is the file as tickets name it."""
    for scope in scopes(file):
        lists, tensors = parameter_lists(scope), parameter_names(scope)
        for node in own_nodes(scope):
            found = _at(node, file, lists, tensors)
            if found is not None:
                content, num_copies, element_bytes, is_kept = found
                yield ModelAllocation(
                    path=path, line=getattr(node, "lineno", 1), function=file.qualname(node),
                    call=shortened(text(node), _MAX_CALL), content=content, num_copies=num_copies,
                    element_bytes=element_bytes, is_kept=is_kept,
                )


_Found = tuple[str, int, int | None, bool]      # what it holds, number of copies, bytes per element, whether it is kept


def _at(node: ast.AST, file: SourceFile, lists: set[str], tensors: set[str]) -> _Found | None:
    if isinstance(node, COMPREHENSIONS) and not isinstance(node, ast.GeneratorExp):
        return _comprehension(node, lists)
    if not isinstance(node, ast.Call):
        return None
    name = last_name(node)
    if name in _OPTIMIZERS and file.dotted(node.func).startswith("torch.optim"):
        return _optimizer(node)
    if name == "deepcopy" and node.args:
        return _deepcopy(node.args[0])
    if name == "parameters_to_vector" and node.args:
        return ("one vector of all parameters", 1, None, False)
    if name in _JOINS and node.args and is_parameter_iterable(_iterated(node.args[0]), lists):
        return ("one tensor of all of them", 1, None, False) if _is_flat(node.args[0]) else None
    is_foreach = name.startswith("_foreach_") and not name.endswith("_") and name != "_foreach_norm"
    if is_foreach and node.args and is_parameter_iterable(node.args[0], lists):
        return ("one new tensor for each of them", 1, None, False)
    if name == "append" and node.args and _in_parameter_loop(node, file, lists):
        return _copy_of(node.args[0], tensors)
    return None


def _iterated(pieces: ast.expr) -> ast.expr:
    return pieces.generators[0].iter if isinstance(pieces, (ast.ListComp, ast.GeneratorExp)) else pieces


def _is_flat(pieces: ast.expr) -> bool:
    flat = calls(ast.walk(pieces), "view", "flatten", "reshape", "ravel")
    return isinstance(pieces, ast.Name) or bool(flat)


def _comprehension(node: ast.expr, lists: set[str]) -> _Found | None:
    """A list or dict with a copy of every parameter: `[p.detach().clone() for p in net.parameters()]`."""
    assert isinstance(node, COMPREHENSIONS)
    source = node.generators[0].iter
    element = node.value if isinstance(node, ast.DictComp) else node.elt
    is_state = isinstance(source, ast.Call) and bool(calls(ast.walk(source), "state_dict"))
    if not is_state and not is_parameter_iterable(source, lists):
        return None
    names = {name.id for name in ast.walk(node.generators[0].target) if isinstance(name, ast.Name)}
    return _copy_of(element, names)


def _copy_of(element: ast.expr, tensors: set[str]) -> _Found | None:
    """A copy, if the last call on a parameter makes one; a reduction or a view of it is none."""
    if isinstance(element, (ast.Tuple, ast.List)):
        return next((found for each in element.elts if (found := _copy_of(each, tensors))), None)
    name = last_name(element) if isinstance(element, ast.Call) else ""
    if name not in _COPIES or not is_on_device(element, tensors):
        return None
    return ("a copy of each of them", 1, _COPIES[name], True)


def _in_parameter_loop(node: ast.AST, file: SourceFile, lists: set[str]) -> bool:
    for parent in file.ancestors(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(parent, ast.For) and is_parameter_iterable(parent.iter, lists):
            return True
    return False


def _deepcopy(argument: ast.expr) -> _Found | None:
    if last_name(argument) == "state_dict":
        return ("a copy of the state", 1, None, True)
    if isinstance(argument, (ast.Name, ast.Attribute)) and _MODEL.match(last_name(argument)):
        return ("a second model, if it is one", 1, None, True)
    return None


def _optimizer(call: ast.Call) -> _Found | None:
    content, num_copies, options = _OPTIMIZERS[last_name(call)]
    for option, num_more in options.items():
        value = keyword(call, option)
        is_off = value is None or (isinstance(value, ast.Constant) and not value.value)
        num_copies += 0 if is_off else num_more
    return (f"the state of the optimizer ({content})", num_copies, None, True) if num_copies else None

"""TT704 to TT707: norms or ratios that overflow, explode, come too late."""

import ast
import re
from collections.abc import Iterator

from torchtriage.findings.model import Finding
from torchtriage.lint.index.gradients import is_on_device, parameter_lists, parameter_names
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import (
    assigned_value,
    blocks,
    calls,
    default_of,
    functions,
    is_root,
    last_name,
    mentions,
    own_nodes,
    receiver,
    scopes,
    text,
)
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import file_rule, source_finding
from torchtriage.lint.source import FunctionNode, SourceFile

_WIDE = re.compile(r"double|float64|\.item\(\)|float\(")
_COUNT = re.compile(      # `n_grads`, `self.count`, `found["num"]`, `max(n, 1)`, `len(grads)`
    r"(?:^|\W)(?:n|num|number|count)(?:_\w+)?\W*(?:, 1\)?)?$|(?:count|num)\W*(?:, 1\)?)?$|^len\(", re.IGNORECASE,
)
_SPREAD = re.compile(r"std|var|sigma|scale|norm_factor|spread|sqrt", re.IGNORECASE)
_TRACKED = re.compile(r"ema|ewma|baseline|moving|running|smooth|average|avg|reference|previous|prev", re.IGNORECASE)
_EPSILON = re.compile(r"^(?:\w+\.)?_?(?:eps|epsilon|tiny|smallest)\w*$", re.IGNORECASE)
SMALLEST_FLOOR = 1e-7       # a floor at or above it bounds a ratio to numbers that a plot can show
_STATISTICS = re.compile(
    r"grad\w*_?(?:norm|stat|health|hist|metric)|(?:collect|log|record|compute|measure)\w*grad", re.IGNORECASE,
)


@file_rule
def overflowing_squared_sum(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A gradient norm is the root of squares that were added up in float32 or lower."""
    if not mentions(file, "grad", "param"):
        return
    for function in functions(file):
        nodes = list(own_nodes(function))
        if is_test(file, tree) or not any(is_root(node) for node in nodes):
            continue
        gradients = parameter_names(function)
        lists = parameter_lists(function)
        for node in nodes:
            squared = _squared(node)
            if squared is None or _WIDE.search(text(squared).replace(".float(", "")):
                continue
            is_gradient = is_on_device(squared, gradients) or text(squared) in lists
            if is_gradient and "norm" not in text(squared) and _is_summed(file, node, function):
                yield source_finding(
                    "TT704", file, node, tree,
                    title=f"{text(node)} overflows to inf for large gradients",
                    cause="the squares are added up in the gradients' own precision or in float32: in float16 elements "
                          "above 255, in float32 above 1.8e19 make the sum inf, and the norm with it",
                    fix="take torch.linalg.vector_norm(gradient, dtype=torch.float64) of each tensor, and the norm of "
                        "these norms; torch.nn.utils.get_total_norm cures float16 alone",
                )
                break


def _squared(node: ast.AST) -> ast.expr | None:
    """`g` of `g * g`, `g ** 2`, `g.pow(2)`, `g.square()`, `torch.dot(g, g)`."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Mult) and text(node.left) == text(node.right):
            return node.left
        is_two = isinstance(node.right, ast.Constant) and node.right.value == 2
        return node.left if isinstance(node.op, ast.Pow) and is_two else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    name, arguments = node.func.attr, [*node.args, *(each.value for each in node.keywords)]
    of_torch = isinstance(node.func.value, ast.Name) and node.func.value.id in ("torch", "th")
    operands = arguments if of_torch else [node.func.value, *arguments]
    if name in ("dot", "vdot", "_foreach_mul", "mul") and len(operands) == 2 and text(operands[0]) == text(operands[1]):
        return operands[0]
    if name in ("pow", "_foreach_pow") and len(operands) == 2 and text(operands[1]) in ("2", "2.0"):
        return operands[0]
    return operands[0] if name == "square" and operands else None


def _is_summed(file: SourceFile, node: ast.AST, function: FunctionNode) -> bool:
    for parent in file.ancestors(node):
        if parent is function:
            return False
        if isinstance(parent, ast.Call) and last_name(parent) in ("sum", "dot", "fsum"):
            return True
        if isinstance(parent, ast.AugAssign):
            return True
        if isinstance(parent, ast.Assign):
            names = {text(target) for target in parent.targets}
            sums = calls(own_nodes(function), "sum")
            return any(text(receiver(call)) in names or any(text(a) in names for a in call.args) for call in sums)
    return _squared(node) is not None and last_name(node) in ("dot", "vdot")


@file_rule
def norm_divided_by_count(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """An L2 norm over all tensors is divided by their number."""
    if not mentions(file, "sqrt", "0.5"):
        return
    for scope in scopes(file):
        for node in own_nodes(scope):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div) or is_test(file, tree):
                continue
            norm = node.left
            if isinstance(norm, ast.Name):
                norm = assigned_value(scope, norm.id) or norm
            if _is_norm(norm) and _COUNT.search(text(node.right)) and "sqrt" not in text(node.right):
                yield source_finding(
                    "TT705", file, node, tree,
                    title=f"{text(node)} is neither the norm nor a mean",
                    cause=f"{text(node.left)} is the L2 norm over all tensors together; divided by "
                          f"{text(node.right)} it "
                          "shrinks as the model gains layers and compares with no published number",
                    fix="report the norm itself; for a number that does not grow with the model divide by the square "
                        "root of the number of elements",
                )


def _is_norm(node: ast.AST) -> bool:
    while isinstance(node, ast.Call) and last_name(node) in ("item", "float") and (node.args or receiver(node)):
        node = node.args[0] if node.args else receiver(node) or node
    if isinstance(node, ast.Call) and last_name(node) == "sqrt":
        node_inside = node.args[0] if node.args else receiver(node)
        return bool(re.search(r"sq|norm|grad|total|sum", text(node_inside), re.I)) and "/" not in text(node_inside)
    return is_root(node) and bool(re.search(r"sq|norm|grad|total|sum", text(node), re.I)) and "/" not in text(node)


@file_rule
def quotient_guarded_by_epsilon(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """A relative change is divided by a tracked value that only an epsilon keeps from zero."""
    if not mentions(file, "eps", "EPS", "tiny", "e-"):
        return
    for scope in scopes(file):
        for node in own_nodes(scope):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div) or is_test(file, tree):
                continue
            base = _guarded(node.right, scope, file)
            if base is None or _SPREAD.search(text(base)) or isinstance(base, ast.Constant):
                continue
            if not (_is_change_from(node.left, base) or _is_tracked(base)):
                continue
            yield source_finding(
                "TT706", file, node, tree,
                title=f"{text(node)} jumps when {text(base)} is close to zero",
                cause=f"only an epsilon is below the line, so a tiny {text(base)} turns any change into a number of "
                      "many millions, and whatever compares it with a limit fires",
                fix=f"give {text(base)} a floor at the scale that matters, such as max({text(base)}, 1e-6), or compare "
                    "the difference itself",
            )
            break


def _guarded(node: ast.AST, scope: ast.AST, file: SourceFile) -> ast.expr | None:
    """`y` of `y + eps` and `max(y, eps)`, where eps is tiny."""
    if isinstance(node, ast.Name) and (value := assigned_value(scope, node.id)) is not None:
        node = value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        pair = (node.left, node.right)
    elif isinstance(node, ast.Call) and last_name(node) == "max" and len(node.args) == 2:
        pair = (node.args[0], node.args[1])
    else:
        return None
    for base, floor in (pair, pair[::-1]):
        if _is_tiny(floor, file) and not _is_tiny(base, file):
            return base.args[0] if isinstance(base, ast.Call) and last_name(base) == "abs" and base.args else base
    return None


def _is_tiny(node: ast.AST, file: SourceFile) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, float) and 0 < node.value < SMALLEST_FLOOR
    if not _EPSILON.match(text(node)):
        return False
    known = default_of(file, last_name(node))
    return not isinstance(known, float) or 0 < known < SMALLEST_FLOOR


def _is_change_from(numerator: ast.AST, base: ast.AST) -> bool:
    """Whether a numerator contains the difference of something and the base."""
    for node in ast.walk(numerator):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Sub)
            and text(base) in (text(node.left), text(node.right))
        ):
            return True
    return False


def _is_tracked(base: ast.AST) -> bool:
    return bool(_TRACKED.search(last_name(base))) and isinstance(base, (ast.Attribute, ast.Name))


@file_rule
def statistics_after_clipping(file: SourceFile, tree: SourceTree) -> Iterator[Finding]:
    """Gradient statistics are taken after the gradients were clipped."""
    if not mentions(file, "clip_grad"):
        return
    for scope in scopes(file):
        if is_test(file, tree):
            continue
        for block in blocks(scope):
            clipped = False
            for statement in block:
                if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    continue
                found = [node for node in [statement, *own_nodes(statement)] if isinstance(node, ast.Call)]
                measured = next((call for call in found if clipped and _measures_gradients(call, file, tree)), None)
                if measured is not None:
                    yield _clipped_finding(file, tree, measured)
                    break
                clipped = clipped or bool(calls(found, "clip_grad_norm_", "clip_grad_value_"))
                if calls(found, "zero_grad"):
                    clipped = False


def _clipped_finding(file: SourceFile, tree: SourceTree, call: ast.Call) -> Finding:
    return source_finding(
        "TT707", file, call, tree,
        title=f"{text(call)[:60]} measures gradients that were already clipped",
        cause="the gradients are clipped a few lines earlier, so their norm never exceeds the limit and an explosion "
              "does not show",
        fix="measure before clipping; clip_grad_norm_ returns the norm from before",
    )


def _measures_gradients(call: ast.Call, file: SourceFile, tree: SourceTree) -> bool:
    name = last_name(call)
    if name == "norm" and ".grad" in text(call):
        return True
    definition = tree.resolve(call.func, file)
    if definition is not None and isinstance(definition.node, ast.FunctionDef) and "clip" not in name:
        measured = [inner for inner in ast.walk(definition.node) if isinstance(inner, ast.Call)]
        return any(last_name(inner) in ("norm", "vector_norm") and ".grad" in text(inner) for inner in measured)
    return bool(_STATISTICS.search(name)) and "clip" not in name and not name.startswith(("get_total", "zero"))

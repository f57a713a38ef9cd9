"""Where a node is: its loop, its scope, the names around it."""

import ast
from collections.abc import Iterator

from torchtriage.findings.model import Location
from torchtriage.lint.reach.model import SiteCall
from torchtriage.lint.source import SourceFile
from torchtriage.lint.types.values import FunctionValue

NO_GRAD = ("torch.no_grad", "torch.inference_mode")
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def enclosing_loop(file: SourceFile, node: ast.AST) -> ast.For | ast.AsyncFor | ast.While | None:
    """The nearest loop around a node in its function."""
    return next(loops_around(file, node), None)


def loops_around(file: SourceFile, node: ast.AST) -> Iterator[ast.For | ast.AsyncFor | ast.While]:
    """The loops around a node in its function, the nearest first; what a loop iterates over is not in it."""
    child = node
    for parent in file.ancestors(node):
        if isinstance(parent, _FUNCTIONS):
            return
        if isinstance(parent, LOOPS) and child is not getattr(parent, "iter", None):
            yield parent
        child = parent


def last_part(node: ast.AST) -> str:
    """`items` for `table.items`, `zip` for `zip`; empty for another expression."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def scope_around(file: SourceFile, node: ast.AST) -> ast.AST:
    """The function around a node, or the entire file."""
    return file.enclosing_function(node) or file.tree


def assigned_name(file: SourceFile, node: ast.AST) -> str:
    """The variable that is assigned this very expression; empty if there is none."""
    parent = file.parent(node)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        return parent.targets[0].id
    return ""


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression reads, without the parameters of its lambdas."""
    own = {p.arg for n in ast.walk(node) if isinstance(n, ast.Lambda) for p in n.args.args}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - own


def stored_names(node: ast.AST) -> set[str]:
    """The names that are assigned in a node, without that of what it assigns itself."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def calls_of_name(node: ast.AST, name: str) -> list[ast.Call]:
    """The calls of a variable in a node."""
    return [n for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name]


def with_items(file: SourceFile, node: ast.AST) -> Iterator[ast.expr]:
    """The context managers around a node in its function."""
    for parent in file.ancestors(node):
        if isinstance(parent, _FUNCTIONS):
            return
        if isinstance(parent, (ast.With, ast.AsyncWith)):
            for item in parent.items:
                yield item.context_expr


def frame_place(function: FunctionValue) -> Location:
    """The place of a compiled function, where torch reports its recompiles."""
    decorators = [] if isinstance(function.node, ast.Lambda) else function.node.decorator_list
    line = min([function.node.lineno, *(d.lineno for d in decorators)])
    return Location(path=function.file.path, line=line, function=function.file.qualname(function.node))


def is_under(call: SiteCall, names: tuple[str, ...]) -> bool:
    """Whether a context manager or decorator of these names is around a call."""
    items = [item.func if isinstance(item, ast.Call) else item for item in with_items(call.file, call.node)]
    function = call.file.enclosing_function(call.node)
    if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        items += [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return any(call.file.dotted(item) in names for item in items)

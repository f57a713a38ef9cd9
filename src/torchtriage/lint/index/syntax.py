"""Questions about pieces of syntax that several lint rules ask."""

import ast
from collections.abc import Iterable, Iterator, Sequence

from torchtriage.lint.project import SourceTree
from torchtriage.lint.source import FunctionNode, SourceFile

Block = list[ast.stmt]
_DISABLES = frozenset({"torch.compiler.disable", "torch._dynamo.disable", "torch._disable_dynamo"})
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def mentions(file: SourceFile, *words: str) -> bool:
    """Whether the text of a file has one of these words, which is quicker to see than any node."""
    return any(word in file.text for word in words)


def own_nodes(node: ast.AST) -> Sequence[ast.AST]:
    """The nodes below a node, in the order of the source, without those of nested functions and classes.

    Many rules ask for those of a function, so they are kept on its node.
    """
    kept: Sequence[ast.AST] | None = getattr(node, "own_nodes", None)
    if kept is None:
        kept = tuple(_walk(node))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            node.own_nodes = kept  # type: ignore[union-attr]  # a node takes any attribute
    return kept


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    waiting = list(reversed(list(ast.iter_child_nodes(node))))
    while waiting:
        current = waiting.pop()
        yield current
        if not isinstance(current, _NESTED):
            waiting.extend(reversed(list(ast.iter_child_nodes(current))))


def last_name(node: ast.AST | None) -> str:
    """`norm` of `torch.norm`, `x.norm` and `norm`; of a call, the name of what it calls."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def calls(nodes: Iterable[ast.AST], *names: str) -> list[ast.Call]:
    """The calls among the nodes whose function or method has one of these names."""
    return [node for node in nodes if isinstance(node, ast.Call) and last_name(node) in names]


def receiver(call: ast.Call) -> ast.expr | None:
    """`optimizer` of `optimizer.step()`."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def text(node: ast.AST | None) -> str:
    """The source of an expression on one line."""
    return "" if node is None else " ".join(ast.unparse(node).split())


def names_in(node: ast.AST) -> set[str]:
    """The plain names that are read in a node."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def targets(statement: ast.AST) -> list[ast.expr]:
    """What a statement assigns to, with tuples taken apart."""
    found: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        found = list(statement.targets)
    elif isinstance(
        statement, (ast.AugAssign, ast.AnnAssign, ast.For, ast.AsyncFor, ast.NamedExpr, ast.comprehension)
    ):
        found = [statement.target]
    flat: list[ast.expr] = []
    while found:
        target = found.pop(0)
        if isinstance(target, (ast.Tuple, ast.List)):
            found = [*target.elts, *found]
        else:
            flat.append(target.value if isinstance(target, ast.Starred) else target)
    return flat


def target_names(statement: ast.AST) -> list[str]:
    return [target.id for target in targets(statement) if isinstance(target, ast.Name)]


def assigned_value(scope: ast.AST, name: str) -> ast.expr | None:
    """The expression that a plain name is first bound to in a function."""
    for node in own_nodes(scope):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and name in target_names(node):
            return node.value
    return None


def blocks(scope: ast.AST) -> Iterator[Block]:
    """Every block of statements in a function or module, without nested functions."""
    for node in [scope, *own_nodes(scope)]:
        if node is not scope and isinstance(node, _NESTED):
            continue
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block:
                yield block


def scopes(file: SourceFile) -> Iterator[FunctionNode | ast.Module]:
    """The module and each of its functions."""
    yield file.tree
    yield from functions(file)


def functions(file: SourceFile) -> Iterator[FunctionNode]:
    yield from file.of_type(ast.FunctionDef)
    yield from file.of_type(ast.AsyncFunctionDef)


def loops(scope: ast.AST) -> list[ast.stmt]:
    return [node for node in own_nodes(scope) if isinstance(node, LOOPS)]


def is_root(node: ast.AST) -> bool:
    """Whether an expression takes a square root: `x ** 0.5`, `math.sqrt(x)`, `x.sqrt()`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return isinstance(node.right, ast.Constant) and node.right.value == 0.5
    return isinstance(node, ast.Call) and last_name(node) in ("sqrt", "sqrt_")


def is_method(file: SourceFile, function: FunctionNode) -> bool:
    return isinstance(file.parent(function), ast.ClassDef)


def decorators(node: FunctionNode | ast.ClassDef) -> set[str]:
    return {last_name(decorator) for decorator in node.decorator_list}


def is_disabled(node: FunctionNode, file: SourceFile, tree: SourceTree) -> bool:
    """Whether a decorator is torch.compiler.disable, under the name that the file imports or assigns."""
    return any(_disables(decorator, file, tree) for decorator in node.decorator_list)


def _disables(decorator: ast.expr, file: SourceFile, tree: SourceTree) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    assigned = tree.resolve(called, file)
    dotted = file.dotted(called) if assigned is None else assigned.file.dotted(assigned.node)
    return dotted in _DISABLES


def decorators_without_disable(node: FunctionNode, file: SourceFile, tree: SourceTree) -> set[str]:
    return {last_name(each) for each in node.decorator_list if not _disables(each, file, tree)}


def docstring_statement(body: Block) -> bool:
    return bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)


def body_of(node: FunctionNode) -> Block:
    """The statements of a function after its docstring."""
    return node.body[1:] if docstring_statement(node.body) else node.body


def default_of(file: SourceFile, name: str) -> object:
    """The constant that a file gives a name: by an assignment, a field or the default of a parameter; None if none."""
    for assign in file.of_type(ast.Assign):
        if any(last_name(target) == name for target in assign.targets) and isinstance(assign.value, ast.Constant):
            return assign.value.value
    for field in file.of_type(ast.AnnAssign):
        if last_name(field.target) == name and isinstance(field.value, ast.Constant):
            return field.value.value
    for function in functions(file):
        default = parameter_defaults(function).get(name)
        if isinstance(default, ast.Constant):
            return default.value
    return None


def parameter_defaults(function: FunctionNode) -> dict[str, ast.expr]:
    positional = [*function.args.posonlyargs, *function.args.args]
    defaults = function.args.defaults
    found = {a.arg: d for a, d in zip(positional[len(positional) - len(defaults):], defaults, strict=True)}
    keyword_only = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return found | {argument.arg: default for argument, default in keyword_only if default is not None}

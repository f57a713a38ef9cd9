"""How the source of a recompiled function uses a value: the tests, calls and loops that take it."""

import ast
import re
import textwrap
from collections.abc import Iterator

from torchtriage.diagnosis.statement import called_name, code

_OF_NUMBERS = frozenset({"min", "max", "abs", "int", "float", "round"})
_DEFINITION = re.compile(r"\s*(?:@|def |async def )")


def function_in(text: str, name: str) -> ast.AST | None:
    """A function in recorded lines, which may cut the blocks around it; a line alone is taken as a statement."""
    lines = text.split("\n")
    for start in (0, *(number for number, line in enumerate(lines) if number and _DEFINITION.match(line))):
        for end in range(len(lines), start, -1):
            tree = _parsed("\n".join(lines[start:end]))
            if tree is None:
                continue
            functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
            own = next((node for node in functions if node.name == name), None)
            if own is not None or len(lines) == 1:
                return own or tree
            break
    return _parsed(f"{lines[0].strip()}\n    pass") if len(lines) == 1 else None


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError):
        return None


def uses(tree: ast.AST | None, source: str) -> Iterator[ast.AST]:
    """The calls and tests of a function that take a value, or a number that the function computes from it."""
    if tree is None:
        return
    known = _computed(tree, {source, source.rpartition(".")[2]})
    for part in ast.walk(tree):
        taken: list[ast.AST] = []
        if isinstance(part, ast.Call):
            taken = [*part.args, *part.keywords]
        elif isinstance(part, (ast.If, ast.While, ast.Assert, ast.IfExp)):
            taken = [part.test]
        if any(_is_one_of(node, known) for one in taken for node in ast.walk(one)):
            yield part


def _is_one_of(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and code(node) in names


def _computed(tree: ast.AST, names: set[str]) -> set[str]:
    """The names, and those of numbers that the function computes from them."""
    known = set(names)
    for node in sorted((n for n in ast.walk(tree) if isinstance(n, ast.Assign)), key=lambda n: n.lineno):
        parts = list(ast.walk(node.value))
        calls = [part for part in parts if isinstance(part, ast.Call)]
        is_number = all(called_name(c) in _OF_NUMBERS or code(c.func).startswith("math.") for c in calls)
        if is_number and any(_is_one_of(part, known) for part in parts):
            known |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return known


def unrolled_loop(tree: ast.AST | None, source: str, dims: tuple[int, ...]) -> str:
    """The head of a loop that runs once per element of a dimension of the tensor; empty if the source shows none."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.For) and any(_runs_over(node.iter, source, dim, tree) for dim in dims):
            return f"for {code(node.target)} in {code(node.iter)}"
    return ""


def _runs_over(iterated: ast.expr, source: str, dim: int, tree: ast.AST | None) -> bool:
    if isinstance(iterated, ast.Call) and called_name(iterated) in ("enumerate", "zip", "reversed"):
        return any(_runs_over(argument, source, dim, tree) for argument in iterated.args)
    if isinstance(iterated, ast.Call) and called_name(iterated) == "unbind":
        return code(iterated) in _forms(source, dim, "{source}.unbind({dim})", "torch.unbind({source}, {dim})")
    if isinstance(iterated, ast.Call) and called_name(iterated) == "range":
        return any(_is_size(part, source, dim, tree) for argument in iterated.args for part in ast.walk(argument))
    return dim == 0 and code(iterated) == source


def _is_size(node: ast.AST, source: str, dim: int, tree: ast.AST | None) -> bool:
    """Whether an expression is the size, or a name that the function gives to it."""
    if not isinstance(node, ast.expr):
        return False
    if code(node) in _forms(source, dim, "{source}.size({dim})", "{source}.shape[{dim}]", "len({source})"):
        return True
    for assigned in ast.walk(tree) if tree is not None and isinstance(node, ast.Name) else ():
        if isinstance(assigned, ast.Assign) and len(assigned.targets) == 1 and isinstance(node, ast.Name):
            target = assigned.targets[0]
            if isinstance(target, ast.Name) and target.id == node.id:
                return not isinstance(assigned.value, ast.Name) and _is_size(assigned.value, source, dim, tree)
            is_shape = code(assigned.value) in (f"{source}.shape", f"{source}.size()")
            if is_shape and isinstance(target, ast.Tuple) and dim < len(target.elts):
                return code(target.elts[dim]) == node.id
    return False


def _forms(source: str, dim: int, *forms: str) -> set[str]:
    """The code of a size; some forms mean the first dimension only."""
    known = {form.format(source=source, dim=dim) for form in forms if dim == 0 or not form.startswith("len")}
    return known | ({re.sub(r",? ?0\)$", ")", text) for text in known} if dim == 0 else set())

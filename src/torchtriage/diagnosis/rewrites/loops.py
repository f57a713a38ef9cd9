"""Code without a break for a loop that ends early by a tensor, and for statements that read the clock."""

import ast
import re
from collections.abc import Callable, Iterator

from torchtriage.diagnosis.statement import Statement, called_name, code

_DRAWS = re.compile(r"rand|dropout|multinomial|bernoulli|normal_|sample|noise", re.IGNORECASE)
_CLOCKS = re.compile(
    r"(?:\btime\.)?\b(?:time|perf_counter|monotonic|process_time|perf_counter_ns|time_ns|monotonic_ns)\(\)"
    r"|\bdatetime\.(?:datetime\.)?(?:now|utcnow)\(")

Replaced = tuple[ast.stmt, str]     # a statement, and the code that takes its place


def run_to_end(
    statement: Statement, as_tensor: Callable[[ast.expr], str],
) -> tuple[ast.stmt, str, list[Replaced]] | None:
    """The loop around an `if test: break`, what comes before it, and the statements that keep finished results.

    `as_tensor` writes a test with tensors alone. None if the loop does anything but assign tensors to names.
    """
    loop, test = statement.loop, statement.node
    if not isinstance(loop, ast.For) or not isinstance(test, ast.If) or loop.orelse or test not in loop.body:
        return None
    if test.orelse or len(test.body) != 1 or not _leaves(test.body[0], loop, statement) or _DRAWS.search(code(loop)):
        return None
    function = statement.function
    others = [node for node in loop.body if node is not test]
    if function is None or not all(_assigns_name(node) for node in others):
        return None
    kept = _kept(loop, others, test, function)
    if kept is None or not kept:
        return None
    names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    done = next(name for name in ("done", "is_done", "has_ended", "loop_ended") if name not in names)
    if any(_changes_shape(node) for node in others if _assignment(node)[0] in kept):
        return None
    replaced: list[Replaced] = [(test, code(ast.parse(f"{done} = {done} | ({as_tensor(test.test)})")))]
    for node in others:
        name, value = _assignment(node)
        if name in kept:
            replaced.append((node, f"{name} = torch.where({done}, {name}, {value})"))
    return loop, f"{done} = torch.zeros((), dtype=torch.bool, device={kept[0]}.device)", replaced


_OTHER_SHAPE = frozenset({
    "cat", "concat", "concatenate", "stack", "hstack", "vstack", "pad", "repeat", "narrow", "squeeze", "unsqueeze",
    "flatten", "reshape", "view", "chunk", "split", "permute", "transpose", "masked_select", "nonzero", "unique",
    "topk",
})


def _changes_shape(node: ast.stmt) -> bool:
    """Whether a value may have another shape in each round, so that where() cannot choose between two of them."""
    parts = list(ast.walk(node))
    is_cut = any(isinstance(part, ast.Slice) for part in parts)
    return is_cut or any(isinstance(part, ast.Call) and called_name(part) in _OTHER_SHAPE for part in parts)


def _leaves(node: ast.stmt, loop: ast.For, statement: Statement) -> bool:
    """Whether a statement is `break`, or the `return` that follows the loop anyway."""
    if isinstance(node, ast.Break):
        return True
    function = statement.function
    body = function.body if function is not None else []
    after = body[body.index(loop) + 1:] if loop in body else []
    return isinstance(node, ast.Return) and len(after) == 1 and code(after[0]) == code(node)


def _assigns_name(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)


def _assignment(node: ast.stmt) -> tuple[str, str]:
    """Name and new value of an assignment to a name."""
    if isinstance(node, ast.AugAssign):
        name = code(node.target)
        return name, code(ast.BinOp(left=ast.Name(name, ast.Load()), op=node.op, right=node.value))
    assert isinstance(node, ast.Assign)
    return code(node.targets[0]), code(node.value)


def _kept(loop: ast.For, others: list[ast.stmt], test: ast.If, function: ast.AST) -> list[str] | None:
    """The names whose value a finished loop has to keep; None if one of them is not seen to be a tensor before it."""
    last = loop.end_lineno or loop.lineno
    nodes = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
    later = {n.id for n in nodes if isinstance(n.ctx, ast.Load) and n.lineno > last}
    if {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)} & later:
        return None
    assigned: set[str] = set()
    carried: set[str] = set()
    for node in loop.body:
        read = {n.id for n in ast.walk(test.test if node is test else node)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if isinstance(node, ast.AugAssign):
            read.add(code(node.target))
        carried |= read - assigned
        if node is not test:
            assigned.add(_assignment(node)[0])
    names = [_assignment(node)[0] for node in others]
    kept = [name for name in dict.fromkeys(names) if name in carried or name in later]
    return kept if all(_is_tensor_before(name, loop, function) for name in kept) else None


def _is_tensor_before(name: str, loop: ast.For, function: ast.AST) -> bool:
    """Whether a name is a parameter, or the result of a call, when the loop begins."""
    before = [
        node for node in ast.walk(function) if isinstance(node, ast.Assign) and node.lineno < loop.lineno
        and name in [code(target) for target in node.targets]
    ]
    if not before:
        return any(isinstance(n, ast.arg) and n.arg == name for n in ast.walk(function))
    return all(isinstance(node.value, (ast.Call, ast.BinOp)) and _is_computed(node.value) for node in before)


def _is_computed(value: ast.expr) -> bool:
    """Whether a value is the result of a call that by its name does not make a number or a container."""
    calls = [called_name(node) for node in ast.walk(value) if isinstance(node, ast.Call)]
    return bool(calls) and not set(calls) & {"int", "float", "len", "range", "item", "list", "dict", "size"}


def timed_statements(statement: Statement) -> Iterator[ast.stmt]:
    """The statements of a function that read the clock or use what was read; none if anything else needs that."""
    function = statement.function
    if function is None:
        return
    found: list[ast.stmt] = []
    names: set[str] = set()
    for node in (n for n in ast.walk(function) if isinstance(n, ast.stmt) and n is not function):
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if not _CLOCKS.search(code(node)) and not used & names:
            continue
        if not isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)):
            return
        found.append(node)
        if isinstance(node, ast.Assign):
            names |= {n.id for target in node.targets for n in ast.walk(target)
                      if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    kept = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id in names]
    inside = [n for node in found for n in ast.walk(node)]
    if all(any(n is part for part in inside) for n in kept) and statement.node in found:
        yield from found

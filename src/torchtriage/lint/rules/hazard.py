"""Hazards in compiled code, as findings."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torchtriage.findings.fingerprint import fingerprint, portable_path, without_comment
from torchtriage.findings.model import Check, CheckKind, Finding, Location
from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.interpreter import reach_of
from torchtriage.lint.reach.model import Hop, Reached
from torchtriage.lint.reach.objects import is_module
from torchtriage.lint.rule import source_finding, tree_rule
from torchtriage.lint.source import SourceFile
from torchtriage.lint.types.values import LibraryName, ObjectValue, Value, options
from torchtriage.text import shortened

MAX_QUOTE = 60
# These leave no place to cut, with or without a block around them, so a block does not change their code.
_NEVER_CUT = frozenset({"TT108", "TT111", "TT113", "TT115", "TT117", "TT120", "TT122"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """One place in compiled code that breaks the graph; `kind` is torch's name of such a break."""

    code: str
    node: ast.AST
    subject: str
    cause: str
    fix: str
    kind: str = ""
    may: bool = False


HazardRule = Callable[[Reached], Iterator[Hazard]]
HAZARD_RULES: list[HazardRule] = []


def hazard_rule(function: HazardRule) -> HazardRule:
    """Register a rule that is called with each function in compiled code."""
    HAZARD_RULES.append(function)
    return function


@tree_rule
def compiled_code(tree: SourceTree) -> Iterator[Finding]:
    """Every hazard in a function that a torch.compile reaches."""
    for reached in reach_of(tree).reached:
        for rule in HAZARD_RULES:
            for hazard in rule(reached):
                yield _finding(hazard, reached, tree)


def _finding(hazard: Hazard, reached: Reached, tree: SourceTree) -> Finding:
    code, effect, detail = hazard.code, f"breaks {reached.name}", ""
    block = _block(reached, hazard.node)
    if reached.site.is_set("fullgraph", True):
        code, effect = "TT308", f"makes compiling {reached.path[0].name} fail"
        detail = f"; fullgraph=True at {reached.site.place} allows no graph break"
    elif block and code not in _NEVER_CUT:
        code, effect = "TT119", f"sends {block.function} to eager"
        detail = f"; it is inside {block.text}, where no graph can be cut"
    if hazard.may:
        effect = f"may be a graph break in {reached.name}"
    return source_finding(
        code,
        reached.file,
        hazard.node,
        tree,
        title=f"{shortened(hazard.subject, MAX_QUOTE)} {effect}",
        cause=f"{hazard.cause}{detail}; {reached.path_text}",
        fix=hazard.fix,
        may=hazard.may,
        fingerprint=_fingerprint(code, hazard, reached, tree),
        verification=(Check(CheckKind.NO_GRAPH_BREAK, place=_place(reached.file, hazard.node)),),
    )


def _place(file: SourceFile, node: ast.AST) -> Location:
    return Location(path=file.path, line=getattr(node, "lineno", None))


def _fingerprint(code: str, hazard: Hazard, reached: Reached, tree: SourceTree) -> str:
    """That of the break at run time: by the bare name of the function and torch's name of the break."""
    line = without_comment(reached.file.line(getattr(hazard.node, "lineno", 1)))
    path = portable_path(reached.file.path, tree.roots)
    return fingerprint(code, path, reached.function.name, line, hazard.kind)


@dataclass(frozen=True, slots=True)
class Block:
    """A block that cannot be cut, and the function that then runs eager."""

    text: str
    function: str


def _block(reached: Reached, node: ast.AST) -> Block | None:
    """The nearest loop, try or with around a place, or around a call on the path to it; or a property."""
    own = _block_around(reached.file, node)
    if own:
        return Block(own, reached.name)
    for number in range(len(reached.path) - 1, 0, -1):
        hop, caller = reached.path[number], reached.path[number - 1]
        around = _block_around(hop.file, hop.node)
        if isinstance(hop.node, ast.Attribute) and not _is_of_submodule(hop, hop.node):
            around = around or f"the property {hop.name}"
        if around:
            return Block(around, caller.name)
    return None


def _is_of_submodule(hop: Hop, node: ast.Attribute) -> bool:
    """Whether a property belongs to a module inside another one, where torch does cut the graph."""
    bound = hop.function.bound
    is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
    return isinstance(bound, ObjectValue) and is_module(bound.instance.of) and not is_own


def _block_around(file: SourceFile, node: ast.AST) -> str:
    child = node
    for parent in file.ancestors(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return ""
        if isinstance(parent, _LOOPS) and child in (*parent.body, getattr(parent, "test", None)):
            return f"the loop at line {parent.lineno}"
        if isinstance(parent, ast.Try) and child in parent.body:
            return f"the try block at line {parent.lineno}"
        child = parent
    return ""


def names_of(value: Value) -> set[str]:
    """The names of libraries that a called value may be."""
    return {option.name for option in options(value) if isinstance(option, LibraryName)}


def calls(reached: Reached) -> Iterator[ast.Call]:
    """Every call that was evaluated in a function."""
    for node in list(reached.values):
        if isinstance(node, ast.Call):
            yield node


def is_set(reached: Reached, setting: str) -> bool:
    """Whether the file of the compile call, or that of the function, sets this part of torch._dynamo.config."""
    return any(re.search(rf"\b{setting}\b", file.text) for file in (reached.site.file, reached.file))


def quote(reached: Reached, node: ast.AST) -> str:
    return f"`{shortened(reached.file.segment(node), MAX_QUOTE)}`"


def is_conditional(reached: Reached, node: ast.AST) -> bool:
    """Whether an `if` inside the function decides whether a place is reached."""
    child = node
    for parent in reached.file.ancestors(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
        if isinstance(parent, ast.If) and child is not parent.test:
            value = reached.values.get(parent.test)
            if getattr(value, "constant", ...) is not True:
                return True
        if isinstance(parent, ast.ExceptHandler):
            return True
        child = parent
    return False

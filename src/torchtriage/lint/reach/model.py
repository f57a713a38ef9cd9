"""The parts of a reach: compile calls, reached functions, the path to each."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from torchtriage.lint.source import SourceFile
from torchtriage.lint.types.values import UNKNOWN, FunctionValue, NameScope, PythonValue, Value
from torchtriage.text import short_place


@dataclass(frozen=True, slots=True)
class Hop:
    """One call on a path: the function, and the line that calls it."""

    function: FunctionValue
    file: SourceFile
    node: ast.AST

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 1)

    @property
    def name(self) -> str:
        return self.function.file.qualname(self.function.node)


@dataclass(frozen=True, slots=True)
class SiteCall:
    """A call of a compiled function, with the values that it passes."""

    file: SourceFile
    node: ast.Call
    arguments: tuple[Value, ...]
    keywords: Mapping[str, Value]
    attribute: str = ""  # the method of a compiled module that was called instead of the module


@dataclass(eq=False, slots=True)
class TargetSite:
    """One torch.compile call or decorator, with what it compiles and the calls of the result."""

    file: SourceFile
    node: ast.AST
    options: Mapping[str, Value]
    target: Value
    inside: FunctionValue | None  # the function that makes the call
    calls: list[SiteCall] = field(default_factory=list)
    bound: list[FunctionValue] = field(default_factory=list)  # a decorated method, with the objects it was called on
    closures: list[FunctionValue] = field(default_factory=list)  # the target again, with other names around it
    num_made: int = 0  # how often compiled code makes it again
    is_used: bool = False

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 1)

    @property
    def place(self) -> str:
        return short_place(self.file.path, self.line)

    def is_set(self, option: str, value: object) -> bool:
        found = self.options.get(option)
        return isinstance(found, PythonValue) and found.constant is value


@dataclass(eq=False, slots=True)
class Reached:
    """A function in compiled code: the path to it, and the value of each expression that was evaluated in it."""

    function: FunctionValue
    site: TargetSite
    path: tuple[Hop, ...]
    scope: NameScope
    values: dict[ast.AST, Value] = field(default_factory=dict)
    # Calls of modules that have a backward hook, with the line that registers it.
    backward_hooks: dict[ast.AST, int] = field(default_factory=dict)

    @property
    def file(self) -> SourceFile:
        return self.function.file

    @property
    def name(self) -> str:
        return self.file.qualname(self.function.node)

    def value(self, node: ast.AST) -> Value:
        return self.values.get(node, UNKNOWN)

    @property
    def path_text(self) -> str:
        """`train.py:31 compiles Net.forward -> Block.forward -> norm() at layers.py:88`."""
        first, *rest = self.path
        text = f"{self.site.place} compiles {first.name}"
        for number, hop in enumerate(rest):
            text += f" -> {hop.name}"
            if number == len(rest) - 1:
                text += f", called at {short_place(hop.file.path, hop.line)}"
        return text


@dataclass(frozen=True, slots=True, eq=False)
class ModuleHook:
    """A hook that eager code registers on a module, or on all modules in it."""

    function: Value
    file: SourceFile
    node: ast.AST
    is_backward: bool
    is_before: bool
    takes_keywords: bool


@dataclass(eq=False, slots=True)
class Reach:
    """All compile calls of a tree and all that they reach."""

    sites: list[TargetSite] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)
    # Files of which a part could not be followed: the first line of that part and the reason.
    cut: list[tuple[SourceFile, int, str]] = field(default_factory=list)
    # For each module, the hooks on it; the keys are those of `hook_key`.
    hooks: dict[object, list[ModuleHook]] = field(default_factory=dict)
    # For each function, the calls of it in eager code.
    callers: dict[ast.AST, list[tuple[SourceFile, ast.AST]]] = field(default_factory=dict)

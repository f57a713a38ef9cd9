"""The state of an evaluation of source, through which its parts call each other."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.model import Hop, Reach, Reached, TargetSite
from torchtriage.lint.source import SourceFile
from torchtriage.lint.types.values import FunctionValue, LibraryObject, NameScope, Value

MAX_STEPS = 200_000  # statements in one call of lint; far above what a project of 1,000 files takes
MAX_DEPTH = 40  # nested calls
MAX_EAGER_DEPTH = 8
# A function is evaluated again for other arguments; what a further time would add is not worth it.
MAX_CONTEXTS = 8
MAX_EAGER_CONTEXTS = 3
MAX_TOLD_CONTEXTS = 24


class Machine(Protocol):
    """State that every part shares; the methods are those that a part needs of another one."""

    tree: SourceTree
    reach: Reach
    site: TargetSite | None  # the compile call whose code is evaluated; None: eager code
    current: Reached | None
    path: list[Hop]
    returns: list[list[Value]]
    yields: list[list[Value]]
    num_contexts: dict[object, int]
    memo: dict[object, Value]
    entered: set[ast.AST]  # functions that eager code has run
    eager_path: list[tuple[ast.AST, NameScope]]  # the calls that lead to the eager code, each with its scope
    modules: dict[SourceFile, NameScope]
    sites_by_node: dict[tuple[ast.AST, int], int]
    num_steps: int
    depth: int

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.reach = Reach()
        self.site, self.current = None, None
        self.path, self.returns, self.yields = [], [], []
        self.num_contexts, self.memo, self.modules, self.sites_by_node = {}, {}, {}, {}
        self.entered, self.eager_path = set(), []
        self.num_steps, self.depth = 0, 0

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Evaluate eager code of another place, such as the top of an imported module."""
        saved = self.site, self.current, self.path, self.returns, self.yields
        self.site, self.current, self.path, self.returns, self.yields = None, None, [], [[]], [[]]
        try:
            yield
        finally:
            self.site, self.current, self.path, self.returns, self.yields = saved

    def evaluate(self, node: ast.expr, scope: NameScope) -> Value: ...

    def run(self, body: Sequence[ast.stmt], scope: NameScope) -> bool: ...

    def truth(self, node: ast.expr, scope: NameScope) -> bool | None: ...

    def call(
        self,
        called: Value,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value: ...

    def attribute(self, value: Value, name: str, node: ast.AST, scope: NameScope) -> Value: ...

    def assign(self, target: ast.expr, value: Value, scope: NameScope) -> None: ...

    def run_function(
        self,
        function: FunctionValue,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value: ...

    def items_of(self, value: Value) -> Value: ...

    def grow(
        self, owner: Value, held: LibraryObject, added: Sequence[Value], receiver: ast.expr | None, scope: NameScope,
    ) -> None: ...

    def define(self, node: ast.stmt, scope: NameScope) -> Value: ...

    def annotation(self, node: ast.expr | None, scope: NameScope) -> Value | None:
        """The value that an annotation promises; None if it says nothing."""
        ...

    def rebind(self, node: ast.expr, value: Value, scope: NameScope) -> None: ...

    def module_scope(self, file: SourceFile) -> NameScope: ...

"""The state of an evaluation of source, and the operations that its parts use of each other."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from torchtriage.lint.project import SourceTree
from torchtriage.lint.reach.model import Hop, Reach, Reached, TargetSite
from torchtriage.lint.source import SourceFile
from torchtriage.lint.types.values import UNKNOWN, FunctionValue, NameScope, Value

MAX_STEPS = 200_000  # statements in one call of lint; far above what a project of 1,000 files takes
MAX_DEPTH = 40  # nested calls
MAX_EAGER_DEPTH = 8
# A function is evaluated again for other arguments; what a further time would add is not worth it.
MAX_CONTEXTS = 8
MAX_EAGER_CONTEXTS = 3


class Machine:
    """State that every part shares; the methods are those that a part needs of another one."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.reach = Reach()
        self.site: TargetSite | None = None  # the compile call whose code is evaluated; None: eager code
        self.current: Reached | None = None
        self.path: list[Hop] = []
        self.returns: list[list[Value]] = []
        self.yields: list[list[Value]] = []
        self.num_contexts: dict[object, int] = {}
        self.memo: dict[object, Value] = {}
        self.modules: dict[SourceFile, NameScope] = {}
        self.sites_by_node: dict[tuple[ast.AST, int], int] = {}
        self.num_steps = 0
        self.depth = 0

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Evaluate eager code of another place, such as the top of an imported module."""
        saved = self.site, self.current, self.path, self.returns, self.yields
        self.site, self.current, self.path, self.returns, self.yields = None, None, [], [[]], [[]]
        try:
            yield
        finally:
            self.site, self.current, self.path, self.returns, self.yields = saved

    def evaluate(self, node: ast.expr, scope: NameScope) -> Value:
        raise NotImplementedError

    def run(self, body: Sequence[ast.stmt], scope: NameScope) -> bool:
        raise NotImplementedError

    def truth(self, node: ast.expr, scope: NameScope) -> bool | None:
        raise NotImplementedError

    def call(
        self,
        called: Value,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        raise NotImplementedError

    def attribute(self, value: Value, name: str, node: ast.AST, scope: NameScope) -> Value:
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Value, scope: NameScope) -> None:
        raise NotImplementedError

    def run_function(
        self,
        function: FunctionValue,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
        scope: NameScope,
    ) -> Value:
        raise NotImplementedError

    def items_of(self, value: Value) -> Value:
        raise NotImplementedError

    def define(self, node: ast.stmt, scope: NameScope) -> Value:
        return UNKNOWN

    def module_scope(self, file: SourceFile) -> NameScope:
        raise NotImplementedError

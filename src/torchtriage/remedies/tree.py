"""A file parsed by libcst, with the statement at each line."""

import ast
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchtriage.diagnosis.statement import code
from torchtriage.errors import TriageError

if TYPE_CHECKING:
    import libcst as cst


class UneditableError(TriageError):
    """An edit cannot be made in this file; the message says why."""


def require_libcst() -> None:
    """Import libcst, or raise with the command that installs it."""
    try:
        import libcst  # noqa: F401
    except ImportError as error:
        raise TriageError(
            "fix edits files with libcst, which is not installed; install it with: pip install torchtriage[fix]"
        ) from error


class Tree:
    """The concrete syntax tree of a file, with the lines of its nodes."""

    def __init__(self, content: bytes) -> None:
        import libcst as cst
        from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider

        try:
            module = cst.parse_module(content)
        except cst.ParserSyntaxError as error:
            raise UneditableError(f"it is not valid Python any more: line {error.raw_line}") from error
        except (UnicodeDecodeError, LookupError, SyntaxError) as error:
            raise UneditableError(f"its encoding cannot be read: {error}") from error
        except RecursionError as error:
            raise UneditableError("it is nested too deeply to be edited") from error
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self.module = wrapper.module
        self._positions: Any = wrapper.resolve(PositionProvider)
        self._parents: Any = wrapper.resolve(ParentNodeProvider)

    def lines(self, node: "cst.CSTNode") -> tuple[int, int]:
        """The first and the last line of a node, decorators included."""
        position = self._positions[node]
        decorators = getattr(node, "decorators", ())
        first = min([position.start.line, *(self._positions[d].start.line for d in decorators)])
        return first, position.end.line

    def parent(self, node: "cst.CSTNode") -> "cst.CSTNode | None":
        return self._parents.get(node)  # type: ignore[no-any-return]

    def statement_at(self, line: int) -> "cst.BaseStatement | None":
        """The innermost statement on a line that has the line to itself; None if there is none."""
        import libcst as cst

        found = None
        for node in walk(self.module):
            if isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
                first, last = self.lines(node)
                if first <= line <= last:
                    found = node
        return found

    def following(self, node: "cst.BaseStatement") -> "cst.BaseStatement | None":
        """The next statement of the same block."""
        body: list[Any] = list(getattr(self.parent(node), "body", ()))
        position = body.index(node) if node in body else len(body)
        return body[position + 1] if position + 1 < len(body) else None

    def text(self, node: "cst.CSTNode") -> str:
        return self.module.code_for_node(node)


def walk(node: "cst.CSTNode") -> Iterator["cst.CSTNode"]:
    """A node and everything below it, from the outside to the inside."""
    yield node
    for child in node.children:
        yield from walk(child)


def own_parts(statement: "cst.CSTNode") -> Iterator["cst.CSTNode"]:
    """The nodes of a statement without those of its blocks."""
    import libcst as cst

    yield statement
    for child in statement.children:
        if not isinstance(child, cst.BaseSuite) and not (isinstance(statement, cst.If) and child is statement.orelse):
            yield from own_parts(child)


def plain(text: str) -> str:
    """Code as ast.unparse writes it on one line per statement; the text itself if it cannot be parsed."""
    import textwrap

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(textwrap.dedent(text).strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    return "\n".join(code(node) for node in tree.body)

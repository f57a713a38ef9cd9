"""What a graph break's text and source line show: the call, the condition, the classes involved."""

import ast
import re
import warnings
from dataclasses import dataclass

from torchtriage.recording.events import GraphBreak

MAX_QUOTE = 60      # a quoted expression must leave room for the sentence around it

_CALLS: tuple[tuple[str, str], ...] = (
    ("explanation", r"builtin operator `(?P<name>[^`]+)`"),
    ("context", r"^builtin (?P<name>\w+) \["),
    ("context", r"module: (?P<owner>[^,]+), qualname: (?P<name>[^,]+)"),
    ("context", r"qualname: (?P<name>[^,]+)"),
    ("context", r"call_method \w+\(<class '(?P<owner>[^']+)'>\) (?P<name>\w+)"),
    ("explanation", r"method `(?P<name>[^`]+)` of (?:class|nn\.Module) `?(?P<owner>[^`\s]+)"),
    ("explanation", r"Operator `(?P<name>[^`]+)`"),
    ("explanation", r"Backend compiler `[^`]+` failed with (?P<name>aten\.[\w.]+)"),
    ("context", r"method: <Logger (?P<owner>[^ >]+)[^>]*>\.(?P<name>\w+)"),
    ("context", r"numpy function: <(?:built-in )?(?:cyfunction|function|method|ufunc|class) '?(?P<name>[\w.]+)"),
    ("context", r"\bfn: <(?:built-in )?(?:function|method) (?P<name>[\w.]+)"),
    ("context", r"target: <(?:built-in )?(?:function|method) (?P<name>[\w.]+)"),
    ("context", r"<(?:bound method|function) (?P<name>[\w.<>]+?)(?: at | of |>)"),
    ("explanation", r"function `(?P<name>[\w.]+)`"),
)
_CALLED = tuple((field, re.compile(pattern)) for field, pattern in _CALLS)
_MODULE = re.compile(r"\b(LSTM|GRU|RNN)(?:Cell)?\(")
_MANAGER = re.compile(r"enter a `([^`]+)` context manager")
_RAISED = re.compile(r"raised exception (\w+)")
_CLASSES = re.compile(r"<class '([^']+)'>")
_ORIGIN = re.compile(r'File "[^"]*", line (\d+), in \S+, code: ([^\n]+)')
_BRANCH = re.compile(r"^(?:if|elif|while|assert)\b\s*(.+?):?\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One break, its source line, and the name of what was called there (empty if the text does not tell)."""

    event: GraphBreak
    line: str
    where: str
    called: str

    @property
    def quoted(self) -> str:
        return quote(self.line) if self.line else "the line"

    @property
    def at(self) -> str:
        return f"{self.quoted} at {self.where}"

    @property
    def operator(self) -> str:
        """`aten.nonzero.default` -> `nonzero`."""
        parts = self.called.split(".")
        name = parts[1].strip("_") if len(parts) > 1 and parts[0] in ("aten", "prims", "torch") else self.called
        return "unique" if name == "unique2" else name

    @property
    def condition(self) -> str:
        """The expression that the line branches on; empty if it cannot be told."""
        return branch_test(self.line)

    @property
    def recurrent(self) -> str:
        found = _MODULE.search(self.event.context)
        return f"nn.{found[1]}" if found else "a recurrent module (nn.LSTM, nn.GRU or nn.RNN)"

    @property
    def manager(self) -> str:
        found = _MANAGER.search(self.event.explanation)
        return found[1] if found else ""

    @property
    def exception(self) -> str:
        found = _RAISED.search(self.event.context)
        return found[1] if found else ""

    @property
    def object_type(self) -> str:
        """The class of the object that Dynamo refuses, if the text names one."""
        found = _CLASSES.search(self.event.explanation) or _CLASSES.search(self.event.context)
        if found:
            return found[1]
        context = self.event.context.split("\n", 1)[0].strip()
        return context if re.fullmatch(r"[\w.]+\.\w+", context) else ""

    @property
    def origin(self) -> tuple[int, str] | None:
        """The line that made the tensor in a condition, where PyTorch tells it and it is another line."""
        found = _ORIGIN.search(self.event.explanation)
        if found is None or int(found[1]) == self.event.line:
            return None
        return int(found[1]), found[2].strip()


def see(event: GraphBreak, code_line: str) -> Seen:
    """The break as its text and `code_line` show it; the line may be a caller's, if the break itself lies in torch."""
    line = code_line.strip() or (event.stack[-1].code.strip() if event.stack else "")
    place = next((e for e in reversed(event.stack) if e.code.strip() == line), event)
    return Seen(event=event, line=line, where=short_place(place.path, place.line), called=_called(event))


def short_place(path: str, line: int | None) -> str:
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{line}" if line else name


def _called(event: GraphBreak) -> str:
    for field, pattern in _CALLED:
        found = pattern.search(event.context if field == "context" else event.explanation)
        if found:
            owner = found.groupdict().get("owner") or ""
            name = found["name"].strip().strip(".")
            full = f"{owner}.{name}" if owner and "<" not in owner else name
            return re.sub(r"^(random\.)?Random\.", "random.", full)
    return ""


def quote(text: str, limit: int = MAX_QUOTE) -> str:
    """The text in backquotes, cut to a length that fits in a sentence."""
    text = " ".join(text.replace("`", "'").split())
    return f"`{text if len(text) <= limit else text[:limit - 3] + '...'}`"


def branch_test(line: str) -> str:
    """The condition of an `if`, `while`, `assert` or `a if c else b`; empty if the line shows none."""
    source = line[2:] if line.startswith("elif") else line
    for candidate in (source, f"{source}\n pass", f"{source}'')"):      # the message of an assert may begin on its line
        for node in ast.walk(_parsed(candidate)):
            if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
                return ast.get_source_segment(candidate, node.test) or ""
    found = _BRANCH.match(line)
    return found[1] if found else ""


def _parsed(source: str) -> ast.AST:
    """The tree of one source line; an empty module if it is only part of a statement."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # a user's odd escape sequence is no business of the report
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])

"""The text of a graph break, read with its source line: the call, the condition, the words of a title."""

import ast
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from torchtriage.diagnosis.statement import Statement
from torchtriage.recording.events import GraphBreak
from torchtriage.text import pattern, short_place, shortened

MAX_QUOTE = 60      # a quoted expression must leave room for the sentence around it
MAX_TITLE_QUOTE = 40      # a title also names the function and fits on a line

_CALLS: tuple[tuple[str, str], ...] = (
    ("explanation", r"builtin operator `(?P<name>[^`]+)`"),
    ("context", r"^builtin (?P<name>\w+) \["),
    ("context", r"module: (?P<owner>[^,]+), qualname: (?P<name>[^,]+)"),
    ("context", r"qualname: (?P<name>[^,]+)"),
    ("context", r"call_method \w+\(<class '(?P<owner>[^']+)'>\) (?P<name>\w+)"),
    ("explanation", r"method `(?P<name>[^`]+)` of (?:class|nn\.Module) `?(?P<owner>[^`\s]+)"),
    ("context", r"^name=(?P<name>\w+), type=(?P<owner>[\w.]+), attr="),
    ("explanation", r"graph breaks on `(?P<name>[\w.]+)\(\)`"),
    ("explanation", r"Operator `(?P<name>[^`]+)`"),
    ("explanation", r"Backend compiler `[^`]+` failed with (?P<name>aten\.[\w.]+)"),
    ("context", r"method: <Logger (?P<owner>[^ >]+)[^>]*>\.(?P<name>\w+)"),
    ("context", r"numpy function: <(?:built-in )?(?:cyfunction|function|method|ufunc|class) '?(?P<name>[\w.]+)"),
    ("context", r"\bfn: <(?:built-in )?(?:function|method) (?P<name>[\w.]+)"),
    ("context", r"target: <(?:built-in )?(?:function|method) (?P<name>[\w.]+)"),
    ("context", r"<(?:bound method|function) (?P<name>[\w.<>]+?)(?: at | of |>)"),
    ("explanation", r"function `(?P<name>[\w.]+)`"),
)
_MODULE = re.compile(r"\b(LSTM|GRU|RNN)(?:Cell)?\(")
_MANAGER = re.compile(r"enter a `([^`]+)` context manager")
_RAISED = re.compile(r"raised exception (\w+)")
_CLASSES = re.compile(r"<class '([^']+)'>")
_ORIGIN = re.compile(r'File "[^"]*", line (\d+), in \S+, code: ([^\n]+)')
_BRANCH = re.compile(r"^(?:if|elif|while|assert)\b\s*(.+?):?\s*$")
_WITH = re.compile(r"^(async )?with\b")
_LOG_CALL = re.compile(
    r"([\w.]+\.(?:debug|info|warning|warn|error|exception|critical|log|warning_once|isEnabledFor))\("
)
_OBJECTS = (
    (r"sparse", "a sparse tensor"),
    (r"nested_?tensor", "a nested tensor"),
    (r"torchscript|scriptmodule|scriptobject|torch\.jit", "a TorchScript module"),
    (r"nn\.parameter", "making an nn.Parameter"),
    (r"tensor subclass", "a tensor subclass"),
    (r"uninitialized nn\.module", "an nn.Module that is not initialised"),
    (r"hash", "an object used as a key"),
)
_STANDARD_LIBRARY = re.compile(r"/lib/python3\.\d+/(?!.*site-packages/)")
# Modules of the standard library that do no arithmetic.
_STANDARD_CALL = re.compile(
    r"\b((?:json|pickle|hashlib|zlib|base64|struct|csv|urllib|socket|subprocess|shutil|tempfile|pathlib|re|textwrap"
    r"|configparser|importlib|platform|queue|uuid|secrets|gzip|bz2|lzma|zipfile|tarfile|sqlite3|binascii|glob|getpass)"
    r"\.\w+)\("
)
_HIGHER_ORDER = re.compile(r"torch\.\w+")
_HIDDEN = re.compile(r"^(Higher Order Operator: |Encountered graph break |Failed to handle graph break )|^\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLine:
    """One break, its source line, and the name of the function called there (empty if unknown)."""

    event: GraphBreak
    line: str
    where: str
    called: str
    statement: Statement | None = None      # the statement of the line, where the recording has its source

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
        """The expression that the line branches on; empty if the line shows none."""
        return branch_test(self.line)

    @property
    def recurrent(self) -> str:
        match = _MODULE.search(self.event.context)
        return f"nn.{match[1]}" if match else "a recurrent module (nn.LSTM, nn.GRU or nn.RNN)"

    @property
    def manager(self) -> str:
        match = _MANAGER.search(self.event.explanation)
        return match[1] if match else ""

    @property
    def exception(self) -> str:
        match = _RAISED.search(self.event.context)
        return match[1] if match else ""

    @property
    def object_type(self) -> str:
        """The class of the object that Dynamo refuses, if the text names one."""
        match = _CLASSES.search(self.event.explanation) or _CLASSES.search(self.event.context)
        if match:
            return match[1]
        context = self.event.context.split("\n", 1)[0].strip()
        return context if re.fullmatch(r"[\w.]+\.\w+", context) else ""

    @property
    def origin(self) -> tuple[int, str] | None:
        """The line that made the tensor in a condition, if PyTorch names it and it is a different line."""
        match = _ORIGIN.search(self.event.explanation)
        if match is None or int(match[1]) == self.event.line:
            return None
        return int(match[1]), match[2].strip()


def read_break(event: GraphBreak, code_line: str, statement: Statement | None = None) -> BrokenLine:
    """The break with its line; the line may be that of a caller if the break itself is in torch."""
    line = code_line.strip() or (event.stack[-1].code.strip() if event.stack else "")
    place = next((e for e in reversed(event.stack) if e.code.strip() == line), event)
    return BrokenLine(
        event=event, line=line, where=short_place(place.path, place.line), statement=statement,
        called=standard_call(event, line) or _called(event),
    )


def standard_call(event: GraphBreak, line: str) -> str:
    """`json.dumps`, if the break is inside that call: what the standard library met there is not the cause."""
    call = _STANDARD_CALL.search(line)
    if call is None:
        return ""
    below = [event.path]
    for entry in reversed(event.stack):
        if entry.code.strip() == line:
            break
        below.append(entry.path)
    is_inside = any(_STANDARD_LIBRARY.search(path.replace("\\", "/")) for path in below)
    module = call[1].partition(".")[0]
    is_its_core = re.match(rf"_{module}\.\w+$", _called(event)) is not None      # hashlib.md5 is _hashlib.openssl_md5
    return call[1] if is_inside or is_its_core else ""


def _called(event: GraphBreak) -> str:
    for field, form in _CALLS:
        match = pattern(form).search(event.context if field == "context" else event.explanation)
        if match:
            owner = match.groupdict().get("owner") or ""
            name = match["name"].strip().strip(".")
            full = f"{owner}.{name}" if owner and "<" not in owner else name
            return re.sub(r"^(random\.)?Random\.", "random.", full)
    return ""


def quote(text: str, limit: int = MAX_QUOTE) -> str:
    """The text in backquotes, cut to a length that fits in a sentence."""
    text = " ".join(text.replace("`", "'").split())
    return f"`{shortened(text, limit)}`"


def branch_test(line: str) -> str:
    """The condition of an `if`, `while`, `assert` or `a if c else b`; empty if the line shows none."""
    source = line[2:] if line.startswith("elif") else line
    for candidate in (source, f"{source}\n pass", f"{source}'')"):      # the message of an assert may begin on its line
        for node in ast.walk(_parsed(candidate)):
            if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
                return ast.get_source_segment(candidate, node.test) or ""
    match = _BRANCH.match(line)
    return match[1] if match else ""


def _parsed(source: str) -> ast.AST:
    """The tree of one source line; an empty module if it is only part of a statement."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # the user's code may have an invalid escape sequence
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def plain_type(kind: str) -> str:
    """PyTorch's name of the kind; empty if the text only says how Dynamo continued."""
    return "" if _HIDDEN.search(kind) else kind.strip()


def subject_of(code: str, broken: BrokenLine) -> str:
    """The construct that breaks the graph, in a few plain words."""
    return _FIXED.get(code) or _SUBJECTS.get(code, _kind)(broken)


def _kind(broken: BrokenLine) -> str:
    kind = plain_type(broken.event.type)
    return quote(kind, MAX_TITLE_QUOTE) if kind else "an unnamed graph break"


def _or(prefix: str, name: str, otherwise: str) -> str:
    return f"{prefix}{name}" if name else otherwise


def _at(what: str, broken: BrokenLine) -> str:
    return f"{what} in {quote(broken.line, MAX_TITLE_QUOTE)}" if broken.line else what


def _logging(broken: BrokenLine) -> str:
    match = _LOG_CALL.search(broken.line)
    return f"{match[1] if match else broken.called.lstrip('_') or 'logging'}()"


def _branch(broken: BrokenLine) -> str:
    if broken.condition:
        return f"the branch on {quote(broken.condition, MAX_TITLE_QUOTE)}"
    return _at("the test of a tensor", broken)


def _scalar(broken: BrokenLine) -> str:
    call = re.search(r"\.(item|tolist)\(\)", broken.line)
    if call:
        return f".{call[1]}()"
    cast = re.search(r"(?<![\w.])(int|float|bool|range)\(", broken.line)
    if cast:
        return f"{cast[1]}() of a tensor"
    if broken.operator in ("equal", "allclose", "is_nonzero"):
        return f"torch.{broken.operator}()"
    return _at("reading a tensor's value", broken)


def _shape(broken: BrokenLine) -> str:
    operator = broken.operator
    if operator == "nonzero" and "[" in broken.line and not re.search(r"nonzero|where\(", broken.line):
        return "boolean-mask indexing"
    if "." in operator or not operator:
        return _at("a data-dependent size", broken)
    return f"{operator} (data-dependent size)"


def _autograd(broken: BrokenLine) -> str:
    if re.search(r"autograd.?function|[jv]vp|vjp", broken.event.type, re.IGNORECASE):
        return "a custom autograd.Function"
    return "backward()" if "backward" in broken.event.type.lower() + broken.called else "torch.autograd.grad()"


def _numpy(broken: BrokenLine) -> str:
    if re.search(r"\b(np|numpy)\.random\b", broken.line):
        return "a NumPy random number"
    return _or("NumPy's ", broken.called, "a NumPy call")


def _manager(broken: BrokenLine) -> str:
    if _WITH.match(broken.line):
        return quote(broken.line.rstrip(":"), MAX_TITLE_QUOTE)
    return _or("the context manager ", broken.manager, "a context manager")


def _object(broken: BrokenLine) -> str:
    kind = broken.event.type.lower()
    named = next((name for form, name in _OBJECTS if re.search(form, kind)), "")
    class_name = broken.object_type.rsplit(".", 1)[-1]
    return named or _or("an object of type ", class_name, _at("an unsupported object", broken))


def _exception(broken: BrokenLine) -> str:
    if broken.exception:
        return f"{broken.exception} raised while tracing"
    if re.search(r"assert|_check", broken.event.type, re.IGNORECASE):
        return "an assertion that Dynamo cannot trace"
    return _kind(broken)


def _higher_order(broken: BrokenLine) -> str:
    match = _HIGHER_ORDER.match(broken.event.type)
    return f"a misused {match[0]}" if match else "a misused higher-order operator"


_FIXED = {
    "TT101": "print()",
    "TT107": "copy.deepcopy()",
    "TT110": "a change of requires_grad",
    "TT113": "an iterator or generator",
    "TT116": "a hook registered inside the graph",
    "TT118": "the optimizer step",
    "TT119": "a graph break in a block that cannot be cut",
    "TT120": "an explicit graph break",
}
_SUBJECTS: dict[str, Callable[[BrokenLine], str]] = {
    "TT102": _logging,
    "TT103": _branch,
    "TT104": _scalar,
    "TT105": _shape,
    "TT106": lambda broken: _or("the call to ", broken.called, "a call into code that Dynamo skips"),
    "TT108": lambda broken: _or("the disabled function ", broken.called, "a function under torch.compiler.disable"),
    "TT109": _autograd,
    "TT111": _object,
    "TT112": lambda broken: _or("the call to ", broken.called, _at("an untraceable call", broken)),
    "TT114": _numpy,
    "TT115": _manager,
    "TT117": lambda broken: broken.recurrent,
    "TT121": lambda broken: _at("an unresolved attribute", broken),
    "TT122": _exception,
    "TT123": lambda broken: f"{_or('operator ', broken.operator, 'an operator')}, which fails on fake tensors,",
    "TT124": _higher_order,
    "TT125": lambda broken: f"{broken.called}()" if broken.called else "a clock or Python random number",
}

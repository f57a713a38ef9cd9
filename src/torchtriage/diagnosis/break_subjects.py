"""The words that name a graph break's cause in a title: `print() breaks f`, `nn.LSTM breaks f`."""

import re
from collections.abc import Callable

from torchtriage.diagnosis.break_seen import Seen, quote
from torchtriage.diagnosis.break_types import plain_type

MAX_QUOTE = 40      # a title also names the function and fits on a line

_WITH = re.compile(r"^(async )?with\b")
_LOG_CALL = re.compile(r"([\w.]+\.(?:debug|info|warning|warn|error|exception|critical|log|warning_once))\(")
_OBJECTS = (
    (r"sparse", "a sparse tensor"),
    (r"nested_?tensor", "a nested tensor"),
    (r"torchscript|scriptmodule|scriptobject|torch\.jit", "a TorchScript module"),
    (r"nn\.parameter", "making an nn.Parameter"),
    (r"tensor subclass", "a tensor subclass"),
    (r"uninitialized nn\.module", "an nn.Module that is not initialised"),
    (r"hash", "an object used as a key"),
)
_HIGHER_ORDER = re.compile(r"torch\.\w+")


def subject_of(code: str, seen: Seen) -> str:
    """What breaks the graph, in a few plain words."""
    return _FIXED.get(code) or _SUBJECTS.get(code, _kind)(seen)


def _kind(seen: Seen) -> str:
    kind = plain_type(seen.event.type)
    return quote(kind, MAX_QUOTE) if kind else "an unnamed graph break"


def _or(prefix: str, name: str, otherwise: str) -> str:
    return f"{prefix}{name}" if name else otherwise


def _at(what: str, seen: Seen) -> str:
    return f"{what} in {quote(seen.line, MAX_QUOTE)}" if seen.line else what


def _logging(seen: Seen) -> str:
    found = _LOG_CALL.search(seen.line)
    return f"{found[1] if found else seen.called.lstrip('_') or 'logging'}()"


def _branch(seen: Seen) -> str:
    if seen.condition:
        return f"the branch on {quote(seen.condition, MAX_QUOTE)}"
    return _at("the test of a tensor", seen)


def _scalar(seen: Seen) -> str:
    call = re.search(r"\.(item|tolist)\(\)", seen.line)
    if call:
        return f".{call[1]}()"
    cast = re.search(r"(?<![\w.])(int|float|bool|range)\(", seen.line)
    if cast:
        return f"{cast[1]}() of a tensor"
    if seen.operator in ("equal", "allclose", "is_nonzero"):
        return f"torch.{seen.operator}()"
    return _at("reading a tensor's value", seen)


def _shape(seen: Seen) -> str:
    operator = seen.operator
    if operator == "nonzero" and "[" in seen.line and not re.search(r"nonzero|where\(", seen.line):
        return "boolean-mask indexing"
    if "." in operator or not operator:
        return _at("a data-dependent size", seen)
    return f"{operator} (data-dependent size)"


def _autograd(seen: Seen) -> str:
    if re.search(r"autograd.?function|[jv]vp|vjp", seen.event.type, re.IGNORECASE):
        return "a custom autograd.Function"
    return "backward()" if "backward" in seen.event.type.lower() + seen.called else "torch.autograd.grad()"


def _numpy(seen: Seen) -> str:
    if re.search(r"\b(np|numpy)\.random\b", seen.line):
        return "a NumPy random number"
    return _or("NumPy's ", seen.called, "a NumPy call")


def _manager(seen: Seen) -> str:
    if _WITH.match(seen.line):
        return quote(seen.line.rstrip(":"), MAX_QUOTE)
    return _or("the context manager ", seen.manager, "a context manager")


def _object(seen: Seen) -> str:
    kind = seen.event.type.lower()
    named = next((name for pattern, name in _OBJECTS if re.search(pattern, kind)), "")
    return named or _or("an object of type ", seen.object_type.rsplit(".", 1)[-1], _at("an unsupported object", seen))


def _exception(seen: Seen) -> str:
    if seen.exception:
        return f"{seen.exception} raised while tracing"
    if re.search(r"assert|_check", seen.event.type, re.IGNORECASE):
        return "an assertion that Dynamo cannot trace"
    return _kind(seen)


def _higher_order(seen: Seen) -> str:
    found = _HIGHER_ORDER.match(seen.event.type)
    return f"a misused {found[0]}" if found else "a misused higher-order operator"


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
_SUBJECTS: dict[str, Callable[[Seen], str]] = {
    "TT102": _logging,
    "TT103": _branch,
    "TT104": _scalar,
    "TT105": _shape,
    "TT106": lambda seen: _or("the call to ", seen.called, "a call into code that Dynamo skips"),
    "TT108": lambda seen: _or("the disabled function ", seen.called, "a function marked with torch.compiler.disable"),
    "TT109": _autograd,
    "TT111": _object,
    "TT112": lambda seen: _or("the call to ", seen.called, _at("an untraceable call", seen)),
    "TT114": _numpy,
    "TT115": _manager,
    "TT117": lambda seen: seen.recurrent,
    "TT121": lambda seen: _at("an unresolved attribute", seen),
    "TT122": _exception,
    "TT123": lambda seen: f"{_or('operator ', seen.operator, 'an operator')}, which fails on fake tensors,",
    "TT124": _higher_order,
    "TT125": lambda seen: f"{seen.called}()" if seen.called else "a clock or Python random number",
}

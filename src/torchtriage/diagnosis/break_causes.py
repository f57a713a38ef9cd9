"""The cause of a graph break: PyTorch's name of its kind, refined by the call and the source line at its place."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torchtriage.diagnosis.break_remedies import Remedy, remedy_for
from torchtriage.diagnosis.break_seen import Seen, quote, see
from torchtriage.diagnosis.break_types import code_of_type
from torchtriage.recording.events import GraphBreak


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The rule a break belongs to, the words that name it in a title, what we add to PyTorch's text, and the remedy."""

    code: str
    subject: str
    remedy: Remedy
    note: str = ""


# Kinds that say only "a call that cannot be traced"; what was called decides.
_CALL_CODES = frozenset({"TT106", "TT112", "TT199"})

_LOGGING_FILE = re.compile(r"/(logging/__init__|warnings|loguru/\w+|absl/logging/__init__)\.py$")
_LOGGING_CALL = re.compile(r"^(_?warnings|logging|loguru|absl\.logging)\.|\bLogger\.|^warn$|warning_once$|^torch\._logging")
_LOGGING_LINE = re.compile(r"\b(logger|logging|log|_log|LOGGER|LOG)\.(debug|info|warning|warn|error|exception|critical|log|warning_once)\(")
_PRINT_CALL = re.compile(r"^(builtins\.)?print$|^pprint\.|TextIOWrapper\.(write|flush)$|^rich\.|^tqdm\..*write$")
_PRINT_LINE = re.compile(r"(?<![\w.])p?print\(")
_CLOCK = re.compile(r"^(time|random|uuid|secrets|_random|datetime|_datetime)\.|^Random\.|urandom$|^datetime\b")
_NUMPY = re.compile(r"^(numpy|np|mtrand|_generator|bit_generator)\b|^(Generator|RandomState|ndarray)\.|numpy\.random")
_NUMPY_LINE = re.compile(r"\b(np|numpy)\.random\b")
_AUTOGRAD = re.compile(r"^torch\.autograd\b|\bbackward$")
_TENSOR_AS_NUMBER = re.compile(r"^(range|int|float|bool|complex|round|math\.\w+)$")
_ITERATION = re.compile(r"^(next|iter|enumerate|zip|map|filter|reversed|itertools\.\w+)$")
_ATTRIBUTE = re.compile(r"^(setattr|getattr|hasattr|delattr|vars|super|__build_class__)$")
_SLICE = re.compile(r"\[[^\]]*:[^\]]*\]")
_SCALAR_CALL = re.compile(r"\.item\(|\.tolist\(|\b(int|float|bool)\(")
_WITH = re.compile(r"^(async )?with\b")
_HOOK_LINE = re.compile(r"\bregister_\w*hook\w*\(")


def _path(seen: Seen) -> str:
    return seen.event.path.replace("\\", "/")


def _is_call(seen: Seen, code: str) -> bool:
    return code in _CALL_CODES


def _prints(seen: Seen, code: str) -> bool:
    if _PRINT_CALL.search(seen.called):
        return True
    return bool(_PRINT_LINE.search(seen.line)) and (seen.called in ("", "str", "repr", "format") or "BuiltinVariable(print)" in _text(seen))


def _text(seen: Seen) -> str:
    return f"{seen.event.type}\n{seen.event.explanation}\n{seen.event.context}"


def _uses_tensor_as_number(seen: Seen, code: str) -> bool:
    if seen.event.gb_id == "GB0086":
        return "TensorVariable" in seen.event.context
    return bool(_TENSOR_AS_NUMBER.match(seen.called)) and "Tensor" in _text(seen)


# The first row whose test holds gives the code; the tests see the code that PyTorch's kind alone would give.
_REFINEMENTS: tuple[tuple[str, Callable[[Seen, str], bool]], ...] = (
    ("TT118", lambda seen, code: "/torch/optim/" in _path(seen)),
    ("TT117", lambda seen, code: _path(seen).endswith("/torch/nn/modules/rnn.py")),
    ("TT116", lambda seen, code: _path(seen).endswith("/torch/utils/hooks.py") or (_is_call(seen, code) and bool(_HOOK_LINE.search(seen.line)))),
    ("TT107", lambda seen, code: bool(re.search(r"/copy\.py$", _path(seen))) or (_is_call(seen, code) and "deepcopy" in seen.called + seen.line)),
    ("TT101", lambda seen, code: code in (*_CALL_CODES, "TT102") and _prints(seen, code)),
    ("TT102", lambda seen, code: bool(_LOGGING_FILE.search(_path(seen)))),
    ("TT102", lambda seen, code: _is_call(seen, code) and bool(_LOGGING_CALL.search(seen.called) or _LOGGING_LINE.search(seen.line))),
    ("TT114", lambda seen, code: _is_call(seen, code) and bool(_NUMPY.search(seen.called)) and "torch.Generator" not in _text(seen)),
    ("TT114", lambda seen, code: code in (*_CALL_CODES, "TT104") and bool(_NUMPY_LINE.search(seen.line))),
    ("TT125", lambda seen, code: _is_call(seen, code) and bool(_CLOCK.search(seen.called))),
    ("TT109", lambda seen, code: _is_call(seen, code) and bool(_AUTOGRAD.search(seen.called)) and not _WITH.match(seen.line)),
    ("TT104", _uses_tensor_as_number),
    ("TT105", lambda seen, code: code == "TT104" and bool(_SLICE.search(seen.line)) and not _SCALAR_CALL.search(seen.line)
     and seen.event.gb_id == "GB0124"),
    ("TT113", lambda seen, code: code == "TT112" and bool(_ITERATION.match(seen.called))),
    ("TT121", lambda seen, code: code == "TT112" and bool(_ATTRIBUTE.match(seen.called))),
    ("TT115", lambda seen, code: _is_call(seen, code) and (bool(_WITH.match(seen.line)) or seen.called.endswith("__enter__"))),
    ("TT111", lambda seen, code: _is_call(seen, code) and seen.called.endswith(".__new__")),
)


def classify(event: GraphBreak, code_line: str) -> Cause:
    """The cause of a break whose line reads `code_line`; TT199 if nothing specific is known."""
    seen = see(event, code_line)
    plain = code_of_type(event.type, event.gb_id)
    code = next((code for code, holds in _REFINEMENTS if holds(seen, plain)), plain)
    return Cause(code=code, subject=_subject(code, seen), note=_note(code, seen), remedy=remedy_for(code, seen, refined=code != plain))


def _note(code: str, seen: Seen) -> str:
    if code == "TT103" and seen.origin:
        line, text = seen.origin
        return f"the tested value is made at line {line}: {quote(text)}"
    return ""


def _named(prefix: str, name: str, otherwise: str) -> str:
    return f"{prefix}{name}" if name else otherwise


def _autograd(seen: Seen) -> str:
    if "autograd.Function" in seen.event.type or "jvp" in seen.event.type or "vjp" in seen.event.type:
        return "a custom autograd.Function"
    return "backward()" if "backward" in seen.event.type.lower() + seen.called else "torch.autograd.grad()"


def _scalar(seen: Seen) -> str:
    call = re.search(r"\.(item|tolist)\(\)", seen.line)
    if call:
        return f".{call[1]}()"
    cast = re.search(r"(?<![\w.])(int|float|bool|range)\(", seen.line)
    if cast:
        return f"{cast[1]}() of a tensor"
    return f"torch.{seen.operator}()" if seen.operator in ("equal", "allclose", "is_nonzero") else f"the value of a tensor in {seen.quoted}"


_SUBJECTS: dict[str, Callable[[Seen], str]] = {
    "TT101": lambda seen: "print()",
    "TT102": lambda seen: f"{_log_call(seen)}()",
    "TT103": lambda seen: _named("the branch on ", quote(seen.condition) if seen.line else "", "a branch on a tensor's value"),
    "TT104": _scalar,
    "TT105": lambda seen: f"{seen.operator or quote(seen.line)}, whose size depends on data," if seen.operator or seen.line
    else "a size that depends on data",
    "TT106": lambda seen: _named("the call to ", seen.called, "a call into code that Dynamo skips"),
    "TT107": lambda seen: "copy.deepcopy()",
    "TT108": lambda seen: _named("the disabled function ", seen.called, "a function marked with torch.compiler.disable"),
    "TT109": _autograd,
    "TT110": lambda seen: "a change of requires_grad",
    "TT111": lambda seen: _named("an object of type ", seen.object_type, "an object that Dynamo cannot represent"),
    "TT112": lambda seen: _named("the call to ", seen.called, "a call that Dynamo does not model"),
    "TT113": lambda seen: "an iterator or generator",
    "TT114": lambda seen: "a NumPy random number" if _NUMPY_LINE.search(seen.line) else _named("NumPy's ", seen.called, "a NumPy call"),
    "TT115": lambda seen: quote(seen.line.rstrip(":")) if _WITH.match(seen.line) else _named("the context manager ", seen.manager, "a context manager"),
    "TT116": lambda seen: "a hook registered inside the graph",
    "TT117": lambda seen: seen.recurrent,
    "TT118": lambda seen: "the optimizer step",
    "TT119": lambda seen: "a graph break in a block that cannot be cut",
    "TT120": lambda seen: "an explicit graph break",
    "TT121": lambda seen: "an attribute that Dynamo cannot resolve",
    "TT122": lambda seen: f"{seen.exception} raised while tracing",
    "TT123": lambda seen: _named("operator ", seen.operator, "an operator") + " fails on fake tensors and",
    "TT124": lambda seen: _named("a misused ", _operator_name(seen.event.type), "a misused higher-order operator"),
    "TT125": lambda seen: _named("", f"{seen.called}()" if seen.called else "", "a clock or Python random number"),
}


def _log_call(seen: Seen) -> str:
    found = re.search(r"([\w.]+\.(?:debug|info|warning|warn|error|exception|critical|log|warning_once))\(", seen.line)
    return found[1] if found else seen.called.lstrip("_") or "logging"


def _operator_name(kind: str) -> str:
    found = re.match(r"torch\.\w+", kind)
    return found[0] if found else ""


def _subject(code: str, seen: Seen) -> str:
    if code in _SUBJECTS:
        return _SUBJECTS[code](seen)
    return quote(seen.event.type) if seen.event.type else "an unnamed graph break"

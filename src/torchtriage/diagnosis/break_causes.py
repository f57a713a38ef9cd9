"""The cause of a graph break: PyTorch's name of its kind, refined by the call and the source line at its place."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torchtriage.diagnosis.break_remedies import Remedy, remedy_for
from torchtriage.diagnosis.break_seen import Seen, quote, see
from torchtriage.diagnosis.break_subjects import subject_of
from torchtriage.diagnosis.break_types import code_of_type
from torchtriage.recording.events import GraphBreak

_LOGGING_FILE = re.compile(r"/(logging/__init__|warnings|loguru/\w+|absl/logging/__init__)\.py$")
_LOGGING_CALL = re.compile(r"^(_?warnings|logging|loguru|absl\.logging)\.|\bLogger\.|^warn$|warning_once$|^torch\._logging")
_LOGGING_LINE = re.compile(
    r"\b_?(logger|logging|log|LOGGER|LOG)\.(debug|info|warning|warn|error|exception|critical|log|warning_once)\("
)
_PRINT_CALL = re.compile(r"^(builtins\.)?print$|^pprint\.|TextIOWrapper\.(write|flush)$|^rich\.|^tqdm\..*write$")
_PRINT_LINE = re.compile(r"(?<![\w.])p?print\(")
_CLOCK = re.compile(r"^(time|random|uuid|secrets|_random|datetime|_datetime)\.|^Random\.|urandom$")
_NUMPY = re.compile(r"^(numpy|mtrand)\b|^(Generator|RandomState|ndarray)\.")
_NUMPY_LINE = re.compile(r"\b(np|numpy)\.random\b")
_AUTOGRAD = re.compile(r"^torch\.autograd\b|\bbackward$")
_NUMBER = re.compile(r"^(range|int|float|bool|complex|round|math\.\w+)$")
_ITERATION = re.compile(r"^(next|iter|enumerate|zip|map|filter|reversed|itertools\.\w+)$|\.__(next|iter)__$")
_ATTRIBUTE = re.compile(r"^(setattr|getattr|hasattr|delattr|vars|super|__build_class__)$")
_SLICE = re.compile(r"\[[^\]]*:[^\]]*\]")
_SCALAR_CALL = re.compile(r"\.item\(|\.tolist\(|\b(int|float|bool)\(")
_WITH = re.compile(r"^(async )?with\b")
_HOOK_LINE = re.compile(r"\bregister_\w*hook\w*\(")

# Kinds that say only "a call that cannot be traced"; what was called decides.
_CALL_CODES = frozenset({"TT106", "TT112", "TT199"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The rule a break belongs to, the words that name it in a title, what we add to PyTorch's text, and the remedy."""

    code: str
    subject: str
    remedy: Remedy
    note: str = ""


def classify(event: GraphBreak, code_line: str) -> Cause:
    """The cause of a break whose line reads `code_line`; TT199 if nothing specific is known."""
    seen = see(event, code_line)
    plain = code_of_type(event.type, event.gb_id)
    code = _by_place(seen) or (_by_call(seen) if plain in _CALL_CODES else None) or _by_value(seen, plain) or plain
    remedy = remedy_for(code, seen, refined=code != plain)
    return Cause(code=code, subject=subject_of(code, seen), note=_note(code, seen), remedy=remedy)


def _by_place(seen: Seen) -> str | None:
    """Some files do only one thing, so a break inside them has one meaning."""
    path = seen.event.path.replace("\\", "/")
    if "/torch/optim/" in path:
        return "TT118"
    if path.endswith("/torch/nn/modules/rnn.py"):
        return "TT117"
    if path.endswith("/torch/utils/hooks.py"):
        return "TT116"
    if re.search(r"/lib/python3\.\d+/copy\.py$", path):
        return "TT107"
    return "TT102" if _LOGGING_FILE.search(path) else None


# The first row whose test holds decides what an untraceable call is about.
_CALL_ROWS: tuple[tuple[str, Callable[[Seen], object]], ...] = (
    ("TT101", lambda seen: _prints(seen)),
    ("TT102", lambda seen: _LOGGING_CALL.search(seen.called) or _LOGGING_LINE.search(seen.line)),
    ("TT107", lambda seen: "deepcopy" in seen.called or (not seen.called and "deepcopy(" in seen.line)),
    ("TT116", lambda seen: _HOOK_LINE.search(seen.line)),
    ("TT114", lambda seen: _NUMPY.search(seen.called) or _NUMPY_LINE.search(seen.line)),
    ("TT125", lambda seen: _CLOCK.search(seen.called)),
    ("TT115", lambda seen: _WITH.match(seen.line) or seen.called.endswith("__enter__")),
    ("TT109", lambda seen: _AUTOGRAD.search(seen.called)),
    ("TT104", lambda seen: _NUMBER.match(seen.called) and "Tensor" in seen.event.explanation + seen.event.context),
    ("TT113", lambda seen: _ITERATION.search(seen.called)),
    ("TT121", lambda seen: _ATTRIBUTE.match(seen.called)),
    ("TT111", lambda seen: seen.called.endswith(".__new__")),
)


def _by_call(seen: Seen) -> str | None:
    return next((code for code, holds in _CALL_ROWS if holds(seen)), None)


def _prints(seen: Seen) -> bool:
    if _PRINT_CALL.search(seen.called):
        return True
    return bool(_PRINT_LINE.search(seen.line)) and seen.called in ("", "str", "repr", "format")


def _by_value(seen: Seen, plain: str) -> str | None:
    """Kinds about a value, told apart by the line that wants it."""
    if plain == "TT104" and _NUMPY_LINE.search(seen.line):
        return "TT114"
    if plain == "TT104" and seen.event.gb_id == "GB0124" and _SLICE.search(seen.line) and not _SCALAR_CALL.search(seen.line):
        return "TT105"
    if plain == "TT102" and _prints(seen):
        return "TT101"
    if seen.event.gb_id == "GB0086" and "TensorVariable" in seen.event.context:
        return "TT104"
    return None


def _note(code: str, seen: Seen) -> str:
    if code == "TT103" and seen.origin:
        line, text = seen.origin
        return f"the tested value is made at line {line}: {quote(text)}"
    return ""

"""The text of a failed guard, parsed: the guarded value, its value at the compile, its value now."""

import ast
import enum
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torchtriage.recording.events import StackEntry
from torchtriage.text import pattern

BACKEND = "the backend"     # the source of a guard that compares the backends of two torch.compile calls


class Kind(enum.StrEnum):
    """The property that the failed guard checks; the value is part of fingerprints."""

    SIZE = "size"
    STRIDE = "stride"
    RANK = "rank"
    DTYPE = "dtype"
    DEVICE = "device"
    REQUIRES_GRAD = "requires_grad"
    EQUALS = "equals"
    LENGTH = "length"
    KEYS = "keys"
    NONE = "none"
    ATTRIBUTE = "attribute"
    TYPE = "type"
    IDENTITY = "identity"
    GLOBAL_STATE = "global state"
    ZERO_ONE = "zero or one"
    SYMBOLIC = "symbolic"
    MARKING = "marking"
    EMPTY = "empty"
    UNPARSED = "unparsed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One parsed reason. `old` is the value at the compile of the cache entry; `new` only if torch reports it."""

    kind: Kind
    raw: str
    guard: str = ""             # the guard alone, without entry, comment and stack
    path: str = ""              # the guarded source as torch writes it
    source: str = ""            # the same as the user writes it
    old: str | None = None
    new: str | None = None
    dim: int | None = None      # of a tensor; of a tuple key, the part that changed
    entry: str | None = None    # compile id of the cache entry whose guard failed
    code: str = ""              # the user's line that made torch guard
    place: str = ""             # path:line of that line
    by_torch: str = ""          # path:line in torch, if torch guards for its own purposes and not for a user's line
    stack: tuple[StackEntry, ...] = ()  # the lines that led to the guard, the innermost last; empty if torch has none
    hint: str = ""              # torch's own hint

    @property
    def is_of_backend(self) -> bool:
        return self.kind is Kind.IDENTITY and self.source == BACKEND

    @property
    def is_global(self) -> bool:
        return self.path.startswith("G[")

    @property
    def is_of_closure(self) -> bool:
        """Whether a function that is found by its name holds the value, as a nested function holds its outer names."""
        return self.is_global and ".__closure__[" in self.path

    @property
    def is_parameter(self) -> bool:
        return "._parameters[" in self.path or self.hint.startswith("Guard failed on a parameter")

    @property
    def is_zero_one(self) -> bool:
        """Whether a size of 0 or 1 is involved, which torch always compiles separately."""
        return self.kind is Kind.ZERO_ONE or (self.kind is Kind.SIZE and bool({"0", "1"} & {self.old, self.new}))

    @property
    def is_plain(self) -> bool:
        """Whether the guarded source is a name or attribute itself, and not an expression of it."""
        return self.path == "" or not re.search(r"[*+/%]|\bmath\.|^\(", self.path)

    @property
    def value_type(self) -> str:
        """int, float, bool, str or other: the type of the constant that `old` spells."""
        return type_name(self.old or "")


def type_name(text: str) -> str:
    """The type of the Python constant that a text spells: int, float, bool, str or other."""
    if text in ("nan", "inf", "-inf"):
        return "float"
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return "other"
    name = type(value).__name__
    return name if name in ("int", "float", "bool", "str") else "other"


MAX_READ = 4_000    # characters; real reasons stay below 2,000, and garbage must not make the patterns slow

_ENTRY = re.compile(r"(?:- )?(?:(!\d+(?:/\d+/\d+)?|\d+/\d+(?:_\d+)?|None):(?:\s|$))?\s*")
_STACK = re.compile(r"\n[\s-]*user stack(?: trace)?:", re.IGNORECASE)
_FRAME = re.compile(
    r'File "(?P<path>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)(?:\n[\s-]*(?P<code>[^\n]+))?'
)
_COMMENT = re.compile(r"(?:(?P<code>.*?)  # )?(?P<place>[^\s(]\S*:\d+) in ")
_BY_TORCH = re.compile(r"\((?P<place>[^\s/]\S*:\d+) in ")
_HINT = re.compile(r"\s*\(HINT: (.*)\)", re.DOTALL)
_ON_A_PARAMETER = re.compile(r"\. (Guard failed on a parameter, .*)$", re.DOTALL)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


@functools.lru_cache(maxsize=4096)
def parse_reason(raw: str) -> Reason:
    """The reason in a text; a form that is not known is kept as UNPARSED, never lost."""
    text = raw.strip()
    head = _ENTRY.match(text)
    entry = head[1] if head and head[1] != "None" else None
    text, *stack = _STACK.split(text[head.end():] if head else text, maxsplit=1)
    guard, comment = _cut_comment(text[:MAX_READ])
    hint = _HINT.search(comment or guard) or _ON_A_PARAMETER.search(guard)
    guard = _ON_A_PARAMETER.sub("", _HINT.sub("", guard)).strip()
    reason = _match(guard, raw)
    frames = _frames(stack[0][-MAX_READ:]) if stack else ()
    code, place = _written_at(comment, frames)
    closure = re.match(r'guard on "(\w+)"', hint[1]) if hint else None
    if closure and ".__closure__[" in reason.path:
        reason = replace(reason, source=closure[1])
    by_torch = None if place else _BY_TORCH.match(comment)
    return _as_key(replace(
        reason, entry=entry, code=code, place=place, by_torch=by_torch["place"] if by_torch else "",
        hint=hint[1] if hint else "", stack=frames,
    ))


def _as_key(reason: Reason) -> Reason:
    """`k[1] == 0`, guarded for a line that indexes with `[k]`, concerns one part of a tuple key."""
    part = re.fullmatch(r"(.+)\[(\d{1,4})\]", reason.source)
    if part is None or reason.kind is not Kind.EQUALS or f"[{part[1]}]" not in reason.code.replace(" ", ""):
        return reason
    return replace(reason, kind=Kind.KEYS, source=part[1], dim=int(part[2]))


def _cut_comment(text: str) -> tuple[str, str]:
    """The guard and the comment behind it; a `  # ` inside a string constant does not count."""
    masked = _QUOTED.sub(lambda quoted: "'" * len(quoted[0]), text)
    at = masked.find("  # ")
    return (text[:at], text[at + 4:]) if at >= 0 else (text, "")


def _frames(text: str) -> tuple[StackEntry, ...]:
    return tuple(
        StackEntry(path=frame["path"], line=int(frame["line"]), function=frame["function"].strip(),
                   code=(frame["code"] or "").strip())
        for frame in _FRAME.finditer(text)
    )


def _written_at(comment: str, frames: tuple[StackEntry, ...]) -> tuple[str, str]:
    """The line that made torch guard: from the full stack if there is one, else from the shortened comment."""
    if frames:
        return frames[-1].code, f"{frames[-1].path}:{frames[-1].line}"
    match = _COMMENT.match(comment)
    return ((match["code"] or "").strip(), match["place"]) if match else ("", "")


def _match(guard: str, raw: str) -> Reason:
    if not guard:
        return Reason(kind=Kind.EMPTY, raw=raw)
    for form, read in _FORMS:
        match = pattern(form, re.DOTALL).fullmatch(guard)
        reason = read(match, Reason(kind=Kind.UNPARSED, raw=raw, guard=guard)) if match else None
        if reason and reason.kind is Kind.EQUALS and not reason.is_plain:
            # `((-0.3)*age) == -0.15` guards a number that is computed from age: the value of age is not known.
            names = dict.fromkeys(name[0] for name in _NAME.finditer(reason.path) if name[0] != "math")
            return replace(reason, source=readable(next(iter(names), reason.path)), old=None)
        if reason:
            return replace(reason, source=readable(reason.path))
    return Reason(kind=Kind.UNPARSED, raw=raw, guard=guard)


Read = Callable[[re.Match[str], Reason], Reason | None]


def _as(kind: Kind, **fixed: Any) -> Read:
    """A reader that takes path, old, new and dim from the groups of the same names."""
    def read(match: re.Match[str], reason: Reason) -> Reason:
        groups: dict[str, Any] = {name: text.strip() for name, text in match.groupdict().items() if text}
        dim = groups.pop("dim", None)
        return replace(reason, kind=kind, dim=int(dim) if dim else None, **{**fixed, **groups})
    return read


_TENSOR_KINDS = {
    "size": Kind.SIZE, "stride": Kind.STRIDE, "rank": Kind.RANK, "dtype": Kind.DTYPE,
    "device index": Kind.DEVICE, "requires_grad": Kind.REQUIRES_GRAD,
}


_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}


def _tensor(match: re.Match[str], reason: Reason) -> Reason | None:
    reason = replace(reason, path=match["path"], old=match["old"].strip(), new=match["new"] and match["new"].strip())
    if match["what"] == "dispatch key set":
        return _dispatch(reason)
    kind = _TENSOR_KINDS[match["what"]]
    if kind is Kind.REQUIRES_GRAD:
        old = reason.old in ("1", "True")
        return replace(reason, kind=kind, old=str(old), new=str(not old))
    if kind is Kind.DEVICE:
        return replace(reason, kind=kind, old=f"device {reason.old}", new=f"device {reason.new}")
    if kind in (Kind.SIZE, Kind.STRIDE):
        return replace(reason, kind=kind, dim=int(match["dim"])) if match["dim"] else None
    if kind is Kind.DTYPE:
        return replace(reason, kind=kind, old=_dtype(reason.old), new=_dtype(reason.new))
    return replace(reason, kind=kind)


def _dtype(name: str | None) -> str | None:
    """`Float`, as C++ prints a dtype, -> `torch.float32`."""
    return f"torch.{_DTYPES[name]}" if name in _DTYPES else name


def _dispatch(reason: Reason) -> Reason | None:
    """A tensor's dispatch keys hold its device, and whether autograd, inference mode or autocast is on."""
    old, new = (re.findall(r"\w+", (text or "").removeprefix("DispatchKeySet")) for text in (reason.old, reason.new))
    if not old or not new:
        return None
    if old[0] != new[0]:
        return replace(reason, kind=Kind.DEVICE, old=old[0].lower(), new=new[0].lower())
    changed = set(old) ^ set(new)
    if any(key.startswith("Autocast") for key in changed):
        return replace(reason, kind=Kind.GLOBAL_STATE, path="autocast", old=None, new=None)
    if any(key.startswith(("Autograd", "ADInplaceOrView")) for key in changed):
        return replace(reason, kind=Kind.GLOBAL_STATE, path="inference_mode", old=None, new=None)
    return replace(reason, kind=Kind.TYPE)


def _not_a_tensor(match: re.Match[str], reason: Reason) -> Reason:
    if match["new"] == "<class 'NoneType'>":
        return replace(reason, kind=Kind.NONE, path=match["path"], old="a tensor", new="None")
    return replace(reason, kind=Kind.TYPE, path=match["path"], old="Tensor", new=class_name(match["new"] or "") or None)


def class_name(text: str) -> str:
    """`<class 'a.b.C'>` -> `C`."""
    return text.removeprefix("<class '").removesuffix("'>").rpartition(".")[2]


def _contains(match: re.Match[str], reason: Reason) -> Reason:
    old, new = ("without", "with") if match["absent"] else ("with", "without")
    return replace(reason, kind=Kind.KEYS, path=match["path"], old=f"{old} {match['key']}", new=f"{new} {match['key']}")


def _same_object(match: re.Match[str], reason: Reason) -> Reason:
    old = f"the same object as {match['other']}"
    return replace(reason, kind=Kind.IDENTITY, path=match["path"], old=old, new="another object")


def _attribute(match: re.Match[str], reason: Reason) -> Reason:
    return replace(reason, kind=Kind.ATTRIBUTE, path=f"{match['path']}.{match['name']}")


def _flags(match: re.Match[str], reason: Reason) -> Reason:
    names = (re.sub(r"^autocast(\(\w+\))?_\w+$", "autocast", flag) for flag in match["flags"].split())
    return replace(reason, kind=Kind.GLOBAL_STATE, path=", ".join(dict.fromkeys(names)))


_SIZE_OF = re.compile(r"(?P<path>[\w.'\"\[\]]+?)\.(?:size|stride)\(\)\[(?P<dim>\d+)\]")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*(?:\[[^\]]*\][\w.]*)*(?!\w*\()")
_PLAIN = r"[^<>=%*/+]+"     # a size itself; a condition on a remainder or a multiple of it comes from the program
_ZERO_ONE = re.compile(
    rf"2 <= {_PLAIN}|1 < {_PLAIN}|{_PLAIN} >= 2|{_PLAIN} > 1|{_PLAIN} != [01]|.*\.size\(\)\[\d+\] == (?P<old>[01])"
)


def _symbolic(match: re.Match[str], reason: Reason) -> Reason:
    """A relation between sizes; its subject is the first size in it, else the first name."""
    size = _SIZE_OF.search(reason.guard)
    name = next((n[0] for n in _NAME.finditer(reason.guard) if n[0] not in ("and", "or", "not", "math")), "")
    path, dim = (size["path"], int(size["dim"])) if size else (name, None)
    special = _ZERO_ONE.fullmatch(reason.guard)
    if special:
        return replace(reason, kind=Kind.ZERO_ONE, path=path, dim=dim, old=special["old"])
    return replace(reason, kind=Kind.SYMBOLIC, path=path, dim=dim)


_FORMS: tuple[tuple[str, Read], ...] = (
    (r"tensor '(?P<path>.+)' (?:Tensor )?(?P<what>size|stride|rank|dtype|dispatch key set|requires_grad|device index)"
     r" mismatch(?: at index (?P<dim>\d{1,4}))?\. [Ee]xpected (?:requires_grad=|device index to be )?"
     r"(?P<old>.+?)(?:, actual (?P<new>.+))?", _tensor),
    (r"expected type of '(?P<path>.+)' to be a tensor type, (?:'? ?but found (?P<new><class .+>)|but found .*)",
     _not_a_tensor),
    (r"GLOBAL_STATE changed:(?P<flags>.*)", _flags),
    (r"___check_torch_function_mode_stack\(\)", _as(Kind.GLOBAL_STATE, path="torch_function_mode")),
    (r"utils_device\.CURRENT_DEVICE == (?P<old>.+)", _as(Kind.GLOBAL_STATE, path="default_device")),
    (r"torch\.autograd\.forward_ad\._current_level == (?P<old>.+)", _as(Kind.GLOBAL_STATE, path="forward_ad_level")),
    (r"torch\._functorch\.pyfunctorch\.compare_functorch_state\(.*\)",
     _as(Kind.GLOBAL_STATE, path="functorch_transforms")),
    (r"torch\._functorch\.\S*top_saved_tensors_hooks ids == (?P<old>.+)",
     _as(Kind.GLOBAL_STATE, path="saved_tensors_hooks")),
    (r"___?check_(?:type_id|fake_script_type)\((?P<path>.+), \d+\)"
     r"(?:, type=(?:<class '(?:.*\.)?(?P<old>[^.']+)'>|.*))?",
     _as(Kind.TYPE)),
    (r"TYPE_MISMATCH\((?P<path>.+)\)", _as(Kind.TYPE)),
    (r"___?check_obj_id\((?P<path>.+), \d+\)(?:, type=.+)?", _as(Kind.IDENTITY)),
    (r"CodeGuardAccessor: Not a function on (?P<path>.+)", _as(Kind.IDENTITY)),
    (r"Cache line invalidated because (?P<path>.+) got deallocated", _as(Kind.IDENTITY, new="deallocated")),
    (r"BACKEND_MATCH failure: .*", _as(Kind.IDENTITY, path=BACKEND)),
    (r"Duplicate tensors? found.*?\[['\"](?P<path>[^'\"]+)['\"].*",
     _as(Kind.IDENTITY, old="a separate tensor", new="the same tensor as another argument")),
    (r"(?P<absent>not )?___dict_contains\((?P<key>.+), (?P<path>.+)\)", _contains),
    (r"(?P<absent>not )?set\.__contains__\((?P<path>.+), (?P<key>.+?)\)", _contains),
    (r"KeyError on (?P<path>.+)", _as(Kind.KEYS)),
    (r"list\(dict\.keys\((?P<path>.+)\)\)\[\d+\] == (?P<old>.+)", _as(Kind.KEYS)),
    (r"list\((?P<path>.+)\.keys\(\)\) == (?P<old>.+)", _as(Kind.KEYS)),
    (r"___dict_version\((?P<path>.+)\) == \d+", _as(Kind.KEYS)),
    (r"len\((?P<path>.+)\) [!=]= (?P<old>\d+)", _as(Kind.LENGTH)),
    (r"___tuple_iterator_len\((?P<path>.+)\) == (?P<old>\d+)", _as(Kind.LENGTH)),
    (r"IndexError on (?P<path>.+)", _as(Kind.LENGTH)),
    (r"hasattr\((?P<path>.+), '_dynamo_\w+'\) == False|\(\(getattr\(.+", _as(Kind.MARKING)),
    (r"_(?:has_)?dynamo_\w+ (?:is present|should be absent|not a subset|expected|mismatch).*", _as(Kind.MARKING)),
    (r"(?:not )?hasattr\((?P<path>.+), '(?P<name>\w+)'\)(?: == False)?", _attribute),
    (r"getattr failed on source (?P<path>.+)", _as(Kind.ATTRIBUTE)),
    (r"(?P<path>[^=<>]+) is None", _as(Kind.NONE, old="None", new="not None")),
    (r"(?P<path>[^=<>]+) is not None", _as(Kind.NONE, old="not None", new="None")),
    (r"(?P<path>[\w.'\"\[\]]+) is (?P<other>[\w.'\"\[\]]+)", _same_object),
    (r"(?:\(type\(.+\) is (?:float|complex) and )?__(?:math|numpy)_isnan\((?P<path>[^()]+)\)\)?",
     _as(Kind.EQUALS, old="nan")),
    (r"\"?Shape guard failed with values: (?P<new>.*)", _as(Kind.SYMBOLIC)),
    (r"[^'\"=<>!]*?(?:\.(?:size|stride)\(\)\[\d+\]|\.storage_offset\(\)).*", _symbolic),
    (r"[^'\"]*(?:['\"]\w+['\"][^'\"]*)*?(?: [<>]=? | != | % |\bEq\(|\bNe\(|\bMod\().*", _symbolic),
    (r"(?:int|float|str|bool|complex|bytes|___normalize_(?:range|count)_iter)\((?P<path>[^()]+)\) == (?P<old>.+)",
     _as(Kind.EQUALS)),
    (r"(?P<path>(?:[^=<>!'\"]|'[^']*'|\"[^\"]*\")+?) == (?P<old>.+)", _as(Kind.EQUALS)),
    (r"not (?P<path>[\w.'\"\[\]]+)", _as(Kind.LENGTH, old="0")),
)


# Torch's name of a guarded value as the user writes it: `L['self']._modules['0'].idx` -> `self[0].idx`

_LOCAL = re.compile(r"\b[LG]\[\s*(['\"])(.*?)\1\s*\]")
_IMPORT = re.compile(r"\b__import_(\w+)")
_REGISTERED = re.compile(r"\.(?:_modules|_parameters|_buffers|__dict__)\[(['\"])(\w+)\1\]")
_KEYWORD = re.compile(r"(?<![\w.])kwargs\[(['\"])(\w+)\1\]")
_WRAPPER = re.compile(r"(?:___from_numpy|___as_tensor|math\.trunc)\((.*)\)", re.DOTALL)
_DICT_VALUE = re.compile(r"dict\.__getitem__\((.+), list\(dict\.keys\(\1\)\)\[(\d+)\]\)")
_DICT_ITEM = re.compile(r"dict\.__getitem__\((.+?), (.+?)\)")
_KEY = re.compile(r"list\(dict\.keys\((.+)\)\)\[(\d+)\]")
_FUNCTION_PART = re.compile(r"\.(?:__code__|__closure__\[\d+\]\.cell_contents)")
_BOUND = re.compile(r"^\w+\.__self__\b")    # of the method that a wrapper calls


@functools.lru_cache(maxsize=4096)
def readable(path: str) -> str:
    """The shortest form that the user knows; an unknown path is returned unchanged."""
    name = _LOCAL.sub(r"\2", path.strip())
    name = _KEYWORD.sub(r"\2", name)
    name = _IMPORT.sub(lambda match: match[1].replace("_dot_", "."), name)
    while wrapped := _WRAPPER.fullmatch(name.removesuffix(".item()")):
        name = wrapped[1]
    name = _DICT_VALUE.sub(r"list(\1.values())[\2]", name)
    name = _DICT_ITEM.sub(r"\1[\2]", name)
    name = _KEY.sub(r"list(\1)[\2]", name)
    name = _REGISTERED.sub(lambda match: f"[{match[2]}]" if match[2].isdigit() else f".{match[2]}", name)
    return _BOUND.sub("self", _FUNCTION_PART.sub("", name)).removeprefix("__main__.")

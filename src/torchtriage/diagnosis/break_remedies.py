"""What to change for each cause of a graph break, in words that name the call and the line seen."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torchtriage.diagnosis.break_remedies_by_id import BY_ID
from torchtriage.diagnosis.break_seen import Seen, quote, short_place

SCALARS = "torch._dynamo.config.capture_scalar_outputs = True"
SHAPES = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
AUTOGRAD = "torch._dynamo.config.trace_autograd_ops = True"
RNN = "torch._dynamo.config.allow_rnn = True"
UNBACKED = "the number is then unbacked: branching on it still breaks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to change; `setting` is the part that works from outside, without an edit at the line."""

    text: str
    setting: str = ""
    caveat: str = ""

    @property
    def full(self) -> str:
        return f"{self.text}; {self.caveat}" if self.caveat else self.text


_FAILED_AT = re.compile(r'Original traceback:\s+File "([^"]+)", line (\d+)[^\n]*\n\s*([^\n]+)')
# Hints that PyTorch adds to hundreds of kinds; none says what to change.
_GENERIC_HINT = re.compile(
    r"report an issue|open an issue|file an issue|write Dynamo tracing rules|graph break is fundamental|may be difficult to debug"
    r"|likely to be a Dynamo bug|caused by an earlier graph break|may result in an error when running in eager"
    r"|not supposed to be reachable|does not really define", re.IGNORECASE,
)


def specific_hint(hints: tuple[str, ...]) -> str:
    """PyTorch's first hint that says what to change; empty if it has none."""
    return next((" ".join(hint.split()).rstrip(".") for hint in hints if hint.strip() and not _GENERIC_HINT.search(hint)), "")


def remedy_for(code: str, seen: Seen, refined: bool = False) -> Remedy:
    """The most specific remedy known: ours for the id, ours for the code, PyTorch's own hint, or a way to isolate the line."""
    if not refined and seen.event.gb_id in BY_ID:
        return _by_id(seen.event.gb_id, seen)
    return _BY_CODE.get(code, _other)(seen)


def _by_id(gb_id: str, seen: Seen) -> Remedy:
    failed = _FAILED_AT.search(seen.event.explanation) if gb_id == "GB0219" else None
    if failed:
        where = short_place(failed[1], int(failed[2]))
        return Remedy(text=f"the compiler fails on {quote(failed[3])} at {where}: do that before the compiled call, or uncompiled")
    name, kind = seen.called or "the call", seen.object_type or "the object"
    return Remedy(text=BY_ID[gb_id].format(line=seen.quoted, where=seen.where, name=name, type=kind))


def _print(seen: Seen) -> Remedy:
    if seen.event.gb_id == "GB0296":
        return _by_id("GB0296", seen)
    setting = "torch._dynamo.config.reorderable_logging_functions.add(print)"
    return Remedy(
        text=f"move {seen.at} out of the compiled function, or {setting}", setting=setting,
        caveat="it then prints after the graph, and only if every argument is a tensor, a constant or an f-string of them"
               " (suppress_errors does not cure it)",
    )


def _logging(seen: Seen) -> Remedy:
    function = re.search(r"\b((?:warnings|logging)\.\w+)\(", seen.line)
    if function or re.search(r"^_?warnings\.warn$", seen.called):
        setting = f"torch._dynamo.config.reorderable_logging_functions.add({function[1] if function else 'warnings.warn'})"
        return Remedy(text=f"log outside the compiled function instead of {seen.at}, or {setting}", setting=setting)
    method = re.search(r"\.(debug|info|warning|warn|error|exception|critical|log|warning_once)\(", seen.line)
    setting = f"torch._dynamo.config.ignore_logging_functions.add(logging.Logger.{method[1] if method else 'warning'})"
    return Remedy(
        text=f"log outside the compiled function instead of {seen.at}, or {setting}", setting=setting,
        caveat="compiled code then drops the message (before torch 2.13 the setting is ignore_logger_methods);"
               " reorderable_logging_functions does not cure logger methods",
    )


def _branch(seen: Seen) -> Remedy:
    test = quote(seen.condition) if seen.condition else seen.quoted
    plain, where = test.strip("`"), seen.where
    if "Ndarray" in seen.event.context:
        text = f"{test} at {where} is a NumPy value, which Dynamo traces as a tensor: use Python ints or math.* there"
    elif seen.line.startswith("assert"):
        holds = re.sub(r"^not (.+)$", r"~(\1)", plain)     # `not` asks a tensor for a Python bool, as the assert does
        text = f"torch._assert_async({holds}) instead of the assert at {where}, or check before the compiled call"
    elif seen.line.startswith("while"):
        text = f"a fixed bound and a torch.where mask, or torch.while_loop, instead of `while {plain}` at {where}"
    elif re.fullmatch(r"(not )?self\.[\w.]+", plain):
        text = f"keep {test} (tested at {where}) as a Python bool or int, not a tensor, or torch.where over both outcomes"
    elif re.search(r"\bin\b", plain) and not re.search(r"\bfor\b", plain):
        text = f"torch.isin and torch.where on tensors instead of {test} at {where}"
    elif not seen.condition or re.search(r"(?<!\.)\b(and|or|not|any|all)\b", plain):
        text = (f"{test} at {where} asks a tensor for a Python bool: combine tensors with & | ~ .any() .all() and select"
                " with torch.where; keep the parts that are plain Python in the `if`")
    else:
        text = (f"torch.where({plain}, a, b) over both outcomes instead of the branch at {where};"
                " torch.cond(pred, f, g, operands) if computing both is too dear")
    return Remedy(text=text)


def _scalar(seen: Seen) -> Remedy:
    if seen.called == "range":
        return Remedy(text=f"give range() at {seen.where} a Python int: a fixed bound with a torch.where mask, or a size")
    if seen.operator in ("equal", "allclose"):
        return Remedy(
            text=f"keep the comparison a tensor: (a == b).all() and torch.where instead of torch.{seen.operator} at"
                 f" {seen.where} (capture_scalar_outputs does not cure this one)")
    if ".tolist(" in seen.line or seen.event.gb_id == "GB0109":
        return Remedy(
            text=f"keep {seen.at} a tensor and index it; {SCALARS} also works for an integer tensor, not for a floating one")
    return Remedy(text=f"keep the value a tensor instead of {seen.at}, or {SCALARS}", setting=SCALARS, caveat=UNBACKED)


_SAME_SIZE = {
    "nonzero": "torch.where(mask, a, b) keeps the full size instead of selecting with the mask",
    "masked_select": "torch.where(mask, x, 0) keeps the full size",
    "repeat_interleave": "pass output_size= if you know the total, and the break is gone",
    "bincount": "torch.zeros(n).index_add_(0, idx, ones) with a known n",
    "unique": "torch.sort and compare neighbours, or do it before the compiled call",
}


def _shape(seen: Seen) -> Remedy:
    if seen.event.gb_id == "GB0124":
        return Remedy(text=f"slice with a Python int or mask instead of {seen.at}, or {SCALARS}", setting=SCALARS)
    instead = _SAME_SIZE.get(seen.operator, "do it before the compiled call, or mask instead of selecting")
    return Remedy(text=f"{seen.at}: {instead}; or {SHAPES}", setting=SHAPES, caveat=UNBACKED.replace("number", "size"))


_CALLS: tuple[tuple[str, str], ...] = (
    (r"manual_seed|rng_state|\bseed$|fork_rng|default_generator", "set the random state before the compiled call, not in it"),
    (r"pickle|json|serialization|\bopen$|shelve|marshal", "read, write and serialise outside the compiled function"),
    (r"inspect|traceback|_getframe", "inspect once in __init__ and keep the answer"),
    (r"^(os|posix|nt|sys|platform|socket|subprocess|pathlib|shutil)\.", "do it once before the compiled call and pass the"
                                                                        " value in"),
    (r"\block|thread|Condition|Semaphore|Queue", "take the lock around the compiled call, not in it"),
    (r"lru_cache|functools\.cache", "compute the cached value before the compiled call: tracing runs the function once anyway"),
    (r"ContextVar", "read the context variable before the compiled call and pass its value in"),
    (r"torch\.cuda|synchronize|empty_cache|memory_", "do device management outside the compiled function"),
    (r"tqdm", "put the progress bar around the compiled call"),
    (r"^(str|repr|format|ascii)$", "format text outside the compiled function, since it needs the tensor's values"),
    (r"^(sorted|sort|min|max|sum)$", "use the torch operator (torch.sort, torch.amax, torch.sum) on a stacked tensor"),
    (r"^id$|data_ptr", "do not depend on object identity inside the graph"),
    (r"^(input|breakpoint|exec|eval|compile|globals|locals)$|^(gc|weakref|_?ctypes|importlib)\b", "keep it outside the"
                                                                                                  " compiled function"),
)


def _call(seen: Seen) -> Remedy:
    name = seen.called
    advice = next((advice for pattern, advice in _CALLS if name and re.search(pattern, name)), "")
    if advice:
        return Remedy(text=f"{advice}: {seen.at} calls {name}")
    if seen.event.gb_id in ("GB0007", "GB0008", "GB0009", "GB0177"):
        return Remedy(
            text=f"call {name or 'the function'} outside the compiled function ({seen.at}); if it works on tensors, make it"
                 " an operator with torch.library.custom_op")
    hint = specific_hint(seen.event.hints)
    what = f"the call to {name}" if name else "the call"
    text = f"replace {what} in {seen.at} by a torch operator, or move it out of the compiled function"
    return Remedy(text=f"{text}; PyTorch: {hint}" if hint else text)


def _grad(seen: Seen) -> Remedy:
    if re.search(r"autograd.?function|[jv]vp|vjp", seen.event.type, re.IGNORECASE):
        return _other(seen)
    return Remedy(
        text=f"move {seen.at} out of the compiled function (compile the forward and the loss), or {AUTOGRAD}"
             " on torch 2.13 and later", setting=AUTOGRAD)


def _numpy(seen: Seen) -> Remedy:
    if re.search(r"random|Generator\.", seen.called + seen.line):
        return Remedy(
            text=f"draw with torch.rand or torch.randint instead of {seen.at}, or draw before the compiled call and pass"
                 " the values in")
    name = f" for {seen.called}" if seen.called else ""
    return Remedy(text=f"use the torch function{name} instead of {seen.at}, or compute it before the compiled call")


def _with(seen: Seen) -> Remedy:
    if re.search(r"lock|Lock|Condition|Semaphore", seen.manager + seen.line):
        return Remedy(text=f"take the lock around the compiled call instead of {seen.at}")
    return Remedy(
        text=f"enter {seen.at} around the compiled call instead of inside it; torch.no_grad, autocast and"
             " set_grad_enabled made inside the function are traced")


def _clock(seen: Seen) -> Remedy:
    if "sleep" in seen.called:
        return Remedy(text=f"sleep outside the compiled function instead of {seen.at}")
    if re.search(r"random|uuid|secrets", seen.called):
        return Remedy(text=f"draw with torch.rand or torch.randint, or before the compiled call, instead of {seen.at}")
    return Remedy(text=f"read {seen.called or 'the clock'} before and after the compiled call instead of {seen.at}")


def _object(seen: Seen) -> Remedy:
    if not seen.called.endswith(".__new__"):
        return _other(seen)
    made = seen.called.removesuffix(".__new__")
    return Remedy(text=f"make the {made} once, outside the compiled function, instead of in {seen.at}")


def _other(seen: Seen) -> Remedy:
    """PyTorch's own hint, or a way to keep the line out of the graph."""
    hint = specific_hint(seen.event.hints)
    if hint:
        return Remedy(text=f"{hint} ({seen.at})")
    return Remedy(
        text=f"move {seen.at} out of the compiled function, or put it in a function marked with torch.compiler.disable,"
             " so that the break is in one known place")


def _text(template: str) -> Callable[[Seen], Remedy]:
    return lambda seen: Remedy(text=template.format(at=seen.at, where=seen.where, name=seen.called or "the function"))


_BY_CODE: dict[str, Callable[[Seen], Remedy]] = {
    "TT101": _print,
    "TT102": _logging,
    "TT103": _branch,
    "TT104": _scalar,
    "TT105": _shape,
    "TT106": _call,
    "TT107": _text("copy before the compiled call, or x.clone() for a tensor, instead of {at}"),
    "TT108": _text(
        "if the break is not wanted, remove torch.compiler.disable from {name} (called at {where}); if it is, call it"
        " first or last in the compiled function"),
    "TT109": _grad,
    "TT110": _text("set requires_grad before the compiled call instead of {at}; detach() inside the graph does not break"),
    "TT111": _object,
    "TT112": _call,
    "TT114": _numpy,
    "TT115": _with,
    "TT116": _text("register the hook once, before compiling, instead of {at}"),
    "TT117": lambda seen: Remedy(
        text=f"keep {seen.recurrent} out of the compiled function, or {RNN}", setting=RNN,
        caveat="tracing it is slow to compile"),
    "TT118": _text(
        "keep optimizer.step() ({where}) out of this compiled function; to compile it, do it alone:"
        " step = torch.compile(opt.step), with lr=torch.tensor(...) so that a scheduled lr does not recompile"),
    "TT119": _text("move {at} out of the loop, try or with block, so that the graph can be cut there"),
    "TT120": _text("remove the explicit break ({at}) if it is not needed any more"),
    "TT125": _clock,
}

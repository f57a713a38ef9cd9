"""What to change for each cause of a graph break, in words that name the call and the line seen."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torchtriage.diagnosis.break_remedies_by_id import BY_ID
from torchtriage.diagnosis.break_seen import Seen, quote

SCALARS = "torch._dynamo.config.capture_scalar_outputs = True"
SHAPES = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
AUTOGRAD = "torch._dynamo.config.trace_autograd_ops = True"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to change; `setting` is the part that works from outside, without an edit at the line."""

    text: str
    setting: str = ""
    caveat: str = ""

    @property
    def full(self) -> str:
        return f"{self.text}{self.caveat and '; '}{self.caveat}"


# Hints that PyTorch adds to hundreds of kinds; none says what to change.
_GENERIC_HINT = re.compile(
    r"report an issue|open an issue|file an issue|write Dynamo tracing rules|graph break is fundamental|may be difficult to debug"
    r"|likely to be a Dynamo bug|caused by an earlier graph break|may result in an error when running in eager"
    r"|not supposed to be reachable|does not really define", re.I,
)


def specific_hint(hints: tuple[str, ...]) -> str:
    """PyTorch's first hint that says what to change; empty if it has none."""
    return next((" ".join(hint.split()).rstrip(".") for hint in hints if hint.strip() and not _GENERIC_HINT.search(hint)), "")


def remedy_for(code: str, seen: Seen, refined: bool = False) -> Remedy:
    """The most specific remedy known: ours for the id, ours for the code, PyTorch's own hint, or a way to isolate the line."""
    text = None if refined else BY_ID.get(seen.event.gb_id or "")
    if text is not None:
        return Remedy(text=text.format(line=seen.quoted, where=seen.where, name=seen.called or "the call", type=seen.object_type or "the object"))
    return _BY_CODE.get(code, _other)(seen)


def _print(seen: Seen) -> Remedy:
    setting = "torch._dynamo.config.reorderable_logging_functions.add(print)"
    return Remedy(
        text=f"move {seen.quoted} at {seen.where} out of the compiled function, or {setting}", setting=setting,
        caveat="it then prints after the graph, and only if every argument is a tensor, a constant or an f-string of them"
               " (suppress_errors does not cure it)",
    )


def _logging(seen: Seen) -> Remedy:
    if "warn" in seen.called and "Logger" not in seen.event.type or "warnings." in seen.line:
        setting = "torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)"
        return Remedy(text=f"warn once outside the compiled function instead of {seen.quoted} at {seen.where}, or {setting}", setting=setting)
    found = re.search(r"\.(\w+)\(", seen.line)
    method = found[1] if found else "warning"
    setting = f"torch._dynamo.config.ignore_logging_functions.add(logging.Logger.{method})"
    return Remedy(
        text=f"log outside the compiled function instead of {seen.quoted} at {seen.where}, or {setting}", setting=setting,
        caveat="compiled code then drops the message (before torch 2.13 the setting is ignore_logger_methods);"
               " reorderable_logging_functions does not cure logger methods",
    )


def _branch(seen: Seen) -> Remedy:
    test = quote(seen.condition) if seen.line else "the tensor condition"
    if "Ndarray" in seen.event.context:
        return Remedy(text=f"{test} at {seen.where} is a NumPy value, which Dynamo traces as a tensor: compute it with Python ints or math.*")
    if seen.line.startswith("assert"):
        return Remedy(text=f"torch._assert_async({test}) instead of the assert at {seen.where}, or check before the compiled call")
    if seen.line.startswith("while"):
        return Remedy(text=f"a loop with a fixed bound and a torch.where mask instead of `while` on {test} at {seen.where}, or torch.while_loop")
    if re.fullmatch(r"`(not )?self\.[\w.]+`", test):
        return Remedy(text=f"keep {test} (tested at {seen.where}) as a Python bool or int instead of a tensor, "
                           "or torch.where(...) over both outcomes")
    return Remedy(text=f"torch.where({test.strip('`')}, a, b) over both outcomes instead of the branch at {seen.where}; "
                       "torch.cond(pred, f, g, operands) if computing both is too dear")


def _scalar(seen: Seen) -> Remedy:
    caveat = "the number is then unbacked: branching on it still breaks"
    if seen.called == "range":
        return Remedy(text=f"give range() at {seen.where} a Python int: a fixed bound with a torch.where mask, or a size from x.shape")
    if seen.operator in ("equal", "allclose"):
        return Remedy(text=f"keep the comparison a tensor: (a == b).all() instead of torch.{seen.operator} at {seen.where}, and torch.where on it"
                           " (capture_scalar_outputs does not cure this one)")
    if ".tolist(" in seen.line or seen.event.gb_id == "GB0109":
        return Remedy(text=f"keep {seen.quoted} at {seen.where} a tensor and index it; for an integer tensor {SCALARS} also works,"
                           " for a floating one it does not")
    return Remedy(text=f"keep the value a tensor instead of {seen.quoted} at {seen.where}, or {SCALARS}", setting=SCALARS, caveat=caveat)


def _shape(seen: Seen) -> Remedy:
    operator = seen.operator
    if seen.event.gb_id == "GB0124":
        return Remedy(text=f"slice with a Python int or mask instead of {seen.quoted} at {seen.where}, or {SCALARS}", setting=SCALARS)
    instead = {
        "nonzero": "torch.where(mask, a, b) keeps the full size instead of selecting with the mask",
        "masked_select": "torch.where(mask, x, 0) keeps the full size",
        "repeat_interleave": "pass output_size= if you know the total, and the break is gone",
        "bincount": "torch.zeros(n).index_add_(0, idx, ones) with a known n",
        "unique2": "torch.sort and compare neighbours, or do it before the compiled call",
    }.get(operator, "do it before the compiled call, or mask instead of selecting")
    return Remedy(text=f"at {seen.where} {seen.quoted}: {instead}; or {SHAPES}", setting=SHAPES,
                  caveat="the size is then unbacked, so branching on it still breaks")


_CALLS: tuple[tuple[str, str], ...] = (
    (r"manual_seed|rng_state|\bseed$|fork_rng|default_generator", "set the random state before the compiled call, not in it"),
    (r"pickle|json|torch\.save|torch\.load|\bopen$|shelve|marshal", "read, write and serialise outside the compiled function; memoise on a plain key"),
    (r"^(os|posix|nt|sys|platform|socket|subprocess|pathlib|shutil)\.", "read it once before the compiled call and pass the value in"),
    (r"inspect|traceback|_getframe", "inspect once in __init__ and keep the answer"),
    (r"lock|thread|Condition|Semaphore|Queue", "take the lock around the compiled call, not in it"),
    (r"lru_cache|functools\.cache", "compute the cached value before the compiled call, or drop the cache: tracing runs the function once"),
    (r"ContextVar", "read the context variable before the compiled call and pass its value in"),
    (r"torch\.cuda|synchronize|empty_cache|memory_", "do device management outside the compiled function"),
    (r"^(gc|weakref|ctypes|_ctypes|importlib)\b", "keep it outside the compiled function"),
    (r"tqdm", "put the progress bar around the compiled call"),
    (r"^(str|repr|format|ascii)$", "format text outside the compiled function: it needs the tensor's values"),
    (r"^(sorted|sort|min|max|sum)$", "use the torch operator (torch.sort, torch.amax, torch.stack(...).sum()) on a stacked tensor"),
    (r"^id$|data_ptr", "do not depend on object identity inside the graph"),
    (r"^(input|breakpoint|exec|eval|compile|globals|locals)$", "keep it outside the compiled function"),
)


def _call(seen: Seen) -> Remedy:
    name = seen.called
    for pattern, advice in _CALLS:
        if name and re.search(pattern, name):
            return Remedy(text=f"{advice}: {seen.quoted} at {seen.where} calls {name}")
    if seen.event.gb_id in ("GB0007", "GB0008", "GB0009", "GB0177"):
        what = name or "the function"
        return Remedy(text=f"call {what} outside the compiled function ({seen.quoted} at {seen.where}); "
                           "if it works on tensors, make it an operator with torch.library.custom_op")
    hint = specific_hint(seen.event.hints)
    what = f"the call to {name}" if name else "this call"
    return Remedy(text=f"replace {what} in {seen.quoted} at {seen.where} by a torch operator or move it out of the compiled function"
                       + (f"; PyTorch: {hint}" if hint else ""))


def _grad(seen: Seen) -> Remedy:
    if "autograd.Function" in seen.event.type or "vp" in seen.event.type:
        return _other(seen)
    return Remedy(
        text=f"move {seen.quoted} at {seen.where} out of the compiled function (compile the forward and the loss), or {AUTOGRAD} on torch 2.13+",
        setting=AUTOGRAD,
    )


def _numpy(seen: Seen) -> Remedy:
    if re.search(r"random", seen.called + seen.line):
        return Remedy(text=f"draw with torch.rand, torch.randint or a torch.Generator instead of {seen.quoted} at {seen.where}, "
                           "or draw before the compiled call and pass the values in")
    name = f" for {seen.called}" if seen.called else ""
    return Remedy(text=f"use the torch function{name} instead of {seen.quoted} at {seen.where}, or compute it before the compiled call")


def _with(seen: Seen) -> Remedy:
    if re.search(r"lock|Lock|Condition|Semaphore", seen.manager + seen.line):
        return Remedy(text=f"take the lock around the compiled call instead of {seen.quoted} at {seen.where}")
    return Remedy(text=f"enter {seen.quoted} (at {seen.where}) around the compiled call instead of inside it; "
                       "torch.no_grad, autocast and set_grad_enabled made inside the function are traced")


def _uncuttable(seen: Seen) -> Remedy:
    return Remedy(text=f"move {seen.quoted} at {seen.where} out of the loop, try or with block, so that the graph can be cut there")


def _other(seen: Seen) -> Remedy:
    """PyTorch's own hint, or a way to keep the line out of the graph."""
    hint = specific_hint(seen.event.hints)
    if hint:
        return Remedy(text=f"{hint} ({seen.quoted} at {seen.where})")
    return Remedy(text=f"move {seen.quoted} at {seen.where} out of the compiled function, or put it in a function marked with"
                       " torch.compiler.disable so that the break is in one known place")


_BY_CODE: dict[str, Callable[[Seen], Remedy]] = {
    "TT101": _print,
    "TT102": _logging,
    "TT103": _branch,
    "TT104": _scalar,
    "TT105": _shape,
    "TT106": _call,
    "TT107": lambda seen: Remedy(
        text=f"copy before the compiled call, or x.clone() for a tensor, instead of {seen.quoted} at {seen.where}"),
    "TT108": lambda seen: Remedy(
        text=f"if the break is not wanted, remove torch.compiler.disable from {seen.called or 'the function'} called at {seen.where};"
             " if it is, call it at the edge of the compiled function"),
    "TT109": _grad,
    "TT110": lambda seen: Remedy(
        text=f"set requires_grad before the compiled call instead of {seen.quoted} at {seen.where}; x.detach() inside the graph needs no change"),
    "TT112": _call,
    "TT114": _numpy,
    "TT115": _with,
    "TT116": lambda seen: Remedy(text=f"register the hook once, before compiling, instead of {seen.quoted} at {seen.where}"),
    "TT117": lambda seen: Remedy(
        text=f"torch._dynamo.config.allow_rnn = True traces {seen.recurrent} (slow to compile), or keep it out of the compiled function, "
             "or write the time loop with its Cell module", setting="torch._dynamo.config.allow_rnn = True"),
    "TT118": lambda seen: Remedy(
        text="keep optimizer.step() out of this compiled function; if you want it compiled, do it alone: step = torch.compile(opt.step),"
             " with lr=torch.tensor(...) so that a scheduled lr does not recompile"),
    "TT119": _uncuttable,
    "TT120": lambda seen: Remedy(text=f"remove the explicit break at {seen.where} ({seen.quoted}) if it is not needed any more"),
    "TT125": lambda seen: Remedy(
        text=f"call {seen.called or 'it'} before the compiled call and pass the value in as a tensor, instead of {seen.quoted} at {seen.where};"
             " for randomness use torch.rand"),
}

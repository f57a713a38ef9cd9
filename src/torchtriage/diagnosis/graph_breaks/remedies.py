"""The remedy for each cause of a graph break; its text names the call with its line."""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from torchtriage.diagnosis.graph_breaks.branches import branch_options
from torchtriage.diagnosis.graph_breaks.draws import draw_use, drawn
from torchtriage.diagnosis.graph_breaks.remedies_by_id import BY_ID
from torchtriage.diagnosis.graph_breaks.text import BrokenLine, quote
from torchtriage.diagnosis.graph_breaks.values import SCALARS, mask_options, read_options, selection_of_arguments
from torchtriage.diagnosis.statement import called_name, code, fits, own_nodes
from torchtriage.recording.events import GraphBreak
from torchtriage.text import listed, short_place

SHAPES = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
AUTOGRAD = "torch._dynamo.config.trace_autograd_ops = True"
RNN = "torch._dynamo.config.allow_rnn = True"
UNBACKED = "the number is then unbacked: branching on it still breaks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that fixes a break; `setting` is the part that works from outside, without an edit at the line."""

    text: str
    setting: str = ""
    caveat: str = ""
    is_exact: bool = False      # made for the statement itself, and so complete
    is_from_outside: bool = False       # written in the program, wherever the line is

    @property
    def full(self) -> str:
        return f"{self.text}; {self.caveat}" if self.caveat else self.text


_FAILED_AT = re.compile(r'Original traceback:\s+File "([^"]+)", line (\d+)[^\n]*\n\s*([^\n]+)')
# Hints that PyTorch adds to hundreds of kinds; none says what to change.
_GENERIC_HINT = re.compile(
    r"report an issue|open an issue|file an issue|write Dynamo tracing rules|graph break is fundamental"
    r"|may be difficult to debug|likely to be a Dynamo bug|caused by an earlier graph break"
    r"|may result in an error when running in eager"
    r"|not supposed to be reachable|does not really define", re.IGNORECASE,
)


def specific_hint(hints: tuple[str, ...]) -> str:
    """PyTorch's first hint that says what to change; empty if it has none."""
    for hint in hints:
        if hint.strip() and not _GENERIC_HINT.search(hint):
            return " ".join(hint.split()).rstrip(".")
    return ""


def remedy_for(code: str, broken: BrokenLine, refined: bool = False) -> Remedy:
    """The most specific remedy: ours for the id, ours for the code, PyTorch's hint, or a way to isolate the line."""
    if not refined and broken.event.gb_id in BY_ID:
        return _by_id(broken.event.gb_id, broken)
    return _BY_CODE.get(code, _other)(broken)


_DRAWN = re.compile(r"\bnext\([^()]*\)")


def _by_id(gb_id: str, broken: BrokenLine) -> Remedy:
    drawn = _DRAWN.search(broken.line)
    if gb_id == "GB4347" and drawn:
        return Remedy(text=f"call `{drawn[0]}` ({broken.where}) before the compiled call and pass the value in")
    random = _generator_call(broken) if gb_id == "GB0055" else ""
    if random:
        return Remedy(text=(
            f"call `{random}` ({broken.where}) before the compiled call and pass its result in: Dynamo does not trace "
            "a torch.Generator"
        ))
    failed = _FAILED_AT.search(broken.event.explanation) if gb_id == "GB0219" else None
    if failed:
        where = short_place(failed[1], int(failed[2]))
        return Remedy(text=(
            f"the compiler fails on {quote(failed[3])} at {where}: run that before the compiled call, or uncompiled"
        ))
    name, kind = broken.called or "the call", broken.object_type or "the object"
    return Remedy(text=BY_ID[gb_id].format(line=broken.quoted, where=broken.where, name=name, type=kind))


def _generator_call(broken: BrokenLine) -> str:
    """The only call of the statement with generator=; empty if there is none that can be quoted."""
    nodes = own_nodes(broken.statement.node) if broken.statement is not None else ()
    calls = [n for n in nodes if isinstance(n, ast.Call) and any(k.arg == "generator" for k in n.keywords)]
    return code(calls[0]) if len(calls) == 1 and fits(code(calls[0])) else ""


_PRINTED_TYPES = re.compile(r"argument types \[([^\]]*)\]")
_PRINTABLE = frozenset({"str", "Tensor"})
_NUMBERS = frozenset({"int", "float", "bool"})


def _print(broken: BrokenLine) -> Remedy:
    if broken.event.gb_id == "GB0296":
        return _by_id("GB0296", broken)
    types = _PRINTED_TYPES.search(broken.event.explanation)
    names = re.findall(r"\w+", types[1]) if types else []
    if "write" in broken.called or not _can_print_later(broken, names):
        return Remedy(text=f"move {broken.at} out of the compiled function")
    setting = "torch._dynamo.config.reorderable_logging_functions.add(print)"
    return Remedy(
        text=f"move {broken.at} out of the compiled function, or {setting}", setting=setting,
        caveat="it then prints after the graph (suppress_errors does not fix it)",
    )


def _can_print_later(broken: BrokenLine, types: list[str]) -> bool:
    """Whether Dynamo can move the print behind the graph: a number that is not written out may be a dynamic one."""
    if not set(types) <= _PRINTABLE | _NUMBERS:
        return False
    calls = broken.statement.calls("print") if broken.statement else []
    seen = calls[0].args if len(calls) == 1 else []
    arguments = seen if len(seen) == len(types) else [None] * len(types)
    pairs = zip(types, arguments, strict=True)
    return all(kind in _PRINTABLE or isinstance(argument, ast.Constant) for kind, argument in pairs)


_FILTERS = re.compile(r"\b(?:simplefilter|filterwarnings|resetwarnings|catch_warnings)\b")


def _logging(broken: BrokenLine) -> Remedy:
    function = re.search(r"\b((?:warnings|logging)\.\w+)\(", broken.line)
    if _FILTERS.search(f"{broken.called} {broken.line}"):
        return Remedy(text=(
            f"set the filter of warnings before the compiled call, not in it ({broken.at}): it does not log, so no "
            "setting of Dynamo moves it behind the graph"
        ), is_exact=True)
    if function or re.search(r"^_?warnings\.warn$", broken.called):
        name = function[1] if function else "warnings.warn"
        if not _logs_text_only(broken):
            return Remedy(text=f"move {broken.at} out of the compiled function")
        setting = f"torch._dynamo.config.reorderable_logging_functions.add({name})"
        return Remedy(text=f"log outside the compiled function instead of {broken.at}, or {setting}", setting=setting)
    method = re.search(
        r"\.(debug|info|warning|warn|error|exception|critical|log|warning_once|isEnabledFor)\(", broken.line)
    name = method[1] if method else "warning"
    setting = f"torch._dynamo.config.ignore_logging_functions.add(logging.Logger.{name})"
    return Remedy(
        text=f"log outside the compiled function instead of {broken.at}, or {setting}", setting=setting,
        caveat="compiled code then drops the message (before torch 2.13 the setting is ignore_logger_methods);"
               " reorderable_logging_functions does not apply to logger methods",
    )


def _logs_text_only(broken: BrokenLine) -> bool:
    """Whether the call has one argument, a text: only then can Dynamo move it behind the graph."""
    calls = broken.statement.calls("warn", "info", "warning", "debug", "error", "log") if broken.statement else []
    texts = (ast.Constant, ast.JoinedStr)
    return all(len(call.args) == 1 and not call.keywords and isinstance(call.args[0], texts) for call in calls)


def _options(options: list[str]) -> str:
    return "; or ".join(options)


def _branch(broken: BrokenLine) -> Remedy:
    options = branch_options(broken.statement, broken.where)
    if options and "Ndarray" not in broken.event.context:
        return Remedy(text=_options(options), is_exact=True)
    test = quote(broken.condition) if broken.condition else broken.quoted
    plain, where = test.strip("`"), broken.where
    if "Ndarray" in broken.event.context:
        text = f"{test} at {where} is a NumPy value, which Dynamo traces as a tensor: use Python ints or math.* there"
    elif broken.line.startswith("assert"):
        holds = re.sub(r"^not (.+)$", r"~(\1)", plain)     # `not` asks a tensor for a Python bool, as the assert does
        text = f"torch._assert_async({holds}) instead of the assert at {where}, or check before the compiled call"
    elif broken.line.startswith("while"):
        text = f"a fixed bound and a torch.where mask, or torch.while_loop, instead of `while {plain}` at {where}"
    elif re.fullmatch(r"(not )?self\.[\w.]+", plain):
        kept = f"keep {test} (tested at {where}) as a Python bool or int, not a tensor"
        text = f"{kept}, or torch.where over both outcomes"
    elif re.search(r"\bin\b", plain) and not re.search(r"\bfor\b", plain):
        text = f"torch.isin and torch.where on tensors instead of {test} at {where}"
    elif not broken.condition or re.search(r"(?<!\.)\b(and|or|not|any|all)\b", plain):
        text = (f"{test} at {where} asks a tensor for a Python bool: combine tensors with & | ~ .any() .all() and "
                "select with torch.where; keep the parts that are plain Python in the `if`")
    else:
        text = (f"torch.where({plain}, a, b) over both outcomes instead of the branch at {where};"
                " torch.cond(pred, f, g, operands) if computing both is too expensive")
    return Remedy(text=text)


def _scalar(broken: BrokenLine) -> Remedy:
    options = read_options(broken.statement, broken.where) or branch_options(broken.statement, broken.where)
    if options:
        setting = SCALARS if SCALARS in options else ""
        return Remedy(text=_options(options), setting=setting, caveat=UNBACKED if setting else "", is_exact=True)
    if broken.called == "range":
        return Remedy(text=f"give range() at {broken.where} a Python int: a fixed bound with a torch.where mask, "
                           "or a size")
    if broken.operator in ("equal", "allclose"):
        return Remedy(
            text=f"keep the comparison a tensor: (a == b).all() and torch.where instead of torch.{broken.operator} at"
                 f" {broken.where} (capture_scalar_outputs does not fix this one)")
    if ".tolist(" in broken.line or broken.event.gb_id == "GB0109":
        return Remedy(
            text=f"keep {broken.at} a tensor and index it; {SCALARS} also works for an integer tensor, not for a "
                 "floating-point one")
    text = f"keep the value a tensor instead of {broken.at}, or {SCALARS}"
    return Remedy(text=text, setting=SCALARS, caveat=UNBACKED)


# The full size holds what the mask left out, so what averages over it has to leave that out again.
MEANS = " (a mean is then sum() / mask.sum(); cross_entropy takes labels of -100 where the mask is False)"
_SAME_SIZE = {
    "nonzero": f"torch.where(mask, a, b) keeps the full size instead of selecting with the mask{MEANS}",
    "masked_select": f"torch.where(mask, x, 0) keeps the full size{MEANS}",
    "repeat_interleave": "pass output_size= if you know the total: this removes the break",
    "bincount": "torch.zeros(n).index_add_(0, idx, ones) with a known n",
    "unique": "torch.sort and compare neighbours, or do it before the compiled call",
}


def _shape(broken: BrokenLine) -> Remedy:
    options = mask_options(broken.statement, broken.where)
    if options:
        return Remedy(text=_options([*options, SHAPES]), setting=SHAPES, caveat=UNBACKED.replace("number", "size"))
    if broken.event.gb_id == "GB0124":
        return Remedy(text=f"slice with a Python int or mask instead of {broken.at}, or {SCALARS}", setting=SCALARS)
    selected = selection_of_arguments(broken.statement)
    if selected:
        return Remedy(text=(
            f"call `{selected}` ({broken.where}) before the compiled call and pass its result, whose size then becomes "
            f"dynamic; or torch.where(mask, a, b) on the full size; or {SHAPES}"
        ), setting=SHAPES, caveat=UNBACKED.replace("number", "size"))
    instead = _SAME_SIZE.get(broken.operator, "do it before the compiled call, or mask instead of selecting")
    caveat = UNBACKED.replace("number", "size")
    return Remedy(text=f"{broken.at}: {instead}; or {SHAPES}", setting=SHAPES, caveat=caveat)


_CALLS: tuple[tuple[str, str], ...] = (
    (r"manual_seed|rng_state|\bseed$|fork_rng|default_generator",
     "set the random state before the compiled call, not in it"),
    (r"pickle|json|serialization|\bopen$|shelve|marshal", "read, write and serialise outside the compiled function"),
    (r"inspect|traceback|_getframe", "inspect once in __init__ and keep the result"),
    (r"^(os|posix|nt|sys|platform|socket|subprocess|pathlib|shutil)\.",
     "do it once before the compiled call and pass the value in"),
    (r"\block|thread|Condition|Semaphore|Queue", "take the lock around the compiled call, not in it"),
    (r"lru_cache|functools\.cache",
     "compute the cached value before the compiled call: tracing runs the function once anyway"),
    (r"ContextVar", "read the context variable before the compiled call and pass its value in"),
    (r"torch\.cuda|synchronize|empty_cache|memory_", "do device management outside the compiled function"),
    (r"tqdm", "put the progress bar around the compiled call"),
    (r"^(str|repr|format|ascii)$", "format text outside the compiled function, since it needs the tensor's values"),
    (r"^(sorted|sort|min|max|sum)$", "use the torch operator (torch.sort, torch.amax, torch.sum) on a stacked tensor"),
    (r"^id$|data_ptr", "do not depend on object identity inside the graph"),
    (r"^(input|breakpoint|exec|eval|compile|globals|locals)$|^(gc|weakref|_?ctypes|importlib)\b",
     "keep it outside the compiled function"),
)


_ON_TENSORS = re.compile(r"builtin op(erator)? on tensor arguments")


def _drawn_number(broken: BrokenLine) -> str:
    """The assignment that draws a number of this line with Python's random, which Dynamo traces as a tensor."""
    statement = broken.statement
    if not _ON_TENSORS.search(broken.event.type) or statement is None or statement.function is None:
        return ""
    used = {node.id for node in own_nodes(statement.node) if isinstance(node, ast.Name)}
    for node in ast.walk(statement.function):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id in used and re.search(r"= random\.\w+\(", code(node)):
            return code(node)
    return ""


def _call(broken: BrokenLine) -> Remedy:
    drawn_at = _drawn_number(broken)
    if drawn_at:
        return Remedy(text=(
            f"draw `{drawn_at}` before the compiled call and pass the value in as an argument: in the graph it is a "
            f"tensor, and {broken.at} needs a number"
        ), is_exact=True)
    name = broken.called
    types = _PRINTED_TYPES.search(broken.event.explanation)
    if name in ("str", "repr", "format") and types and "Tensor" not in types[1]:
        return Remedy(text=(
            f"format text outside the compiled function and pass it in: {broken.at} calls {name} on a number that is "
            "dynamic; each text is then compiled separately"
        ))
    advice = next((advice for pattern, advice in _CALLS if name and re.search(pattern, name)), "")
    if advice:
        return Remedy(text=f"{advice}: {broken.at} calls {name}")
    if broken.event.gb_id in ("GB0007", "GB0008", "GB0009", "GB0177"):
        return Remedy(
            text=f"call {name or 'the function'} outside the compiled function ({broken.at}); if it works on tensors, "
                 "make it an operator with torch.library.custom_op")
    hint = specific_hint(broken.event.hints)
    what = f"the call to {name}" if name else "the call"
    text = f"replace {what} in {broken.at} with a torch operator, or move it out of the compiled function"
    return Remedy(text=f"{text}; PyTorch: {hint}" if hint else text)


def _grad(broken: BrokenLine) -> Remedy:
    if re.search(r"autograd.?function|[jv]vp|vjp", broken.event.type, re.IGNORECASE):
        return _other(broken)
    outside = f"call {broken.at} outside the compiled function, with zero_grad() and the optimizer's step: compile the "
    if "autograd.grad(" in broken.line and _differentiates_twice(broken):
        return Remedy(text=(
            f"call {broken.at} outside the compiled function, on a model that is not compiled: create_graph=True "
            "differentiates twice, which code compiled with aot_eager or inductor refuses"
        ))
    if "autograd.grad(" in broken.line:
        return Remedy(text=(
            f"call {broken.at} outside the compiled function: compile only the model that it differentiates"
        ))
    if not _is_traced_whole(broken):
        return Remedy(text=f"{outside}forward and the loss")
    return Remedy(text=f"{outside}forward and the loss; or {AUTOGRAD} on torch 2.13 and later", setting=AUTOGRAD)


def _differentiates_twice(broken: BrokenLine) -> bool:
    calls = broken.statement.calls("grad") if broken.statement is not None else []
    twice = {code(keyword.value) for call in calls for keyword in call.keywords if keyword.arg == "create_graph"}
    return bool(twice - {"False"})


def _is_traced_whole(broken: BrokenLine) -> bool:
    """Whether Dynamo can trace this backward(): no optimizer breaks beside it, and no tensor with a graph leaves."""
    function = broken.statement.function if broken.statement is not None else None
    if function is None or broken.event.gb_id != "GB0123":
        return False
    nodes = list(ast.walk(function))
    if any(isinstance(node, ast.Call) and called_name(node) in ("step", "zero_grad") for node in nodes):
        return False
    returned = [node.value for node in nodes if isinstance(node, ast.Return)]      # none: the end is not recorded
    return bool(returned) and all(_has_no_graph(value) for value in returned)


def _has_no_graph(value: ast.expr | None) -> bool:
    """A returned value that is a constant, detached, or a tuple of such values."""
    if isinstance(value, ast.Tuple):
        return all(_has_no_graph(part) for part in value.elts)
    is_detached = isinstance(value, ast.Call) and called_name(value) == "detach"
    return value is None or isinstance(value, ast.Constant) or is_detached


def is_scheduled_step(event: GraphBreak) -> bool:
    """Whether the break is at the wrapper that a learning-rate scheduler puts around the optimizer's step."""
    return "/torch/optim/lr_scheduler.py" in event.explanation.replace("\\", "/")


def _optimizer_step(broken: BrokenLine) -> Remedy:
    before = "before a scheduler is made, which replaces opt.step with a wrapper that Dynamo does not trace"
    if is_scheduled_step(broken.event) and broken.event.path.endswith("_dynamo/external_utils.py"):
        return Remedy(text=f"call torch.compile(opt.step) {before}: then the step itself is compiled", is_exact=True)
    return Remedy(text=(
        f"call {broken.at} outside this compiled function{_rest_of_step(broken)}: compile the forward and the loss; "
        "to compile the step too, "
        f"do it alone: step = torch.compile(opt.step), {before}, with lr=torch.tensor(...) so that a scheduled lr "
        "does not recompile"
    ))


def _rest_of_step(broken: BrokenLine) -> str:
    """`, and loss.backward() too`: what else of a training step the function of the statement calls."""
    function = broken.statement.function if broken.statement is not None else None
    rest: list[str] = []
    for node in ast.walk(function) if function is not None else ():
        is_part = isinstance(node, ast.Call) and called_name(node) in ("backward", "zero_grad", "step")
        if is_part and code(node) not in broken.line:
            rest.append(f"`{code(node)}`")
    return f", and {listed(list(dict.fromkeys(rest)), 3)} too" if rest else ""


_DRAW_CALL = re.compile(r"\b(?:random|rng|generator|gen)\.(\w+)\(", re.IGNORECASE)


def _draw(broken: BrokenLine) -> Remedy:
    """A random number inside the graph; torch draws others than NumPy or Python do."""
    call = _DRAW_CALL.search(broken.line)
    name = call[1] if call else broken.called.rpartition(".")[2]
    use = draw_use(broken.statement, name, broken.called)
    if use in ("size", "index"):
        return Remedy(text=(
            f"draw before the compiled call and pass the value in as an argument, instead of {broken.at}: it is used "
            f"as {'a size' if use == 'size' else 'an index'}, and a tensor breaks there"
        ), is_exact=True)
    instead = drawn(broken.statement, name, broken.called)
    place = f"at {broken.where}" if instead.startswith("`") else f"instead of {broken.at}"
    node = broken.statement.node if broken.statement else None
    branches = use == "test" or isinstance(node, (ast.If, ast.While)) or bool(broken.condition)
    select = ", and select with torch.where or multiply by a mask, as a branch on it breaks too" if branches else ""
    return Remedy(
        text=f"{instead} {place} (other random numbers than before){select}; or draw before "
             "the compiled call and pass the value in as a tensor", is_exact=True)


def _numpy(broken: BrokenLine) -> Remedy:
    if re.search(r"random|Generator\.", broken.called + broken.line):
        return _draw(broken)
    if "unsupported by PyTorch" in broken.event.type:
        return Remedy(text=(
            f"compute {broken.at} before the compiled call and pass the result in: torch has no counterpart of "
            f"numpy.{broken.called or 'this function'} that Dynamo can trace"
        ))
    name = f" for {broken.called}" if broken.called else ""
    return Remedy(text=f"use the torch function{name} instead of {broken.at}, or compute it before the compiled call")


def _with(broken: BrokenLine) -> Remedy:
    if re.search(r"lock|Lock|Condition|Semaphore", broken.manager + broken.line):
        return Remedy(text=f"take the lock around the compiled call instead of {broken.at}")
    if re.search(r"\bopen\(", broken.line):
        return Remedy(text=(
            f"move the block of {broken.at} out of the compiled function: return what it writes, pass what it reads"
        ))
    return Remedy(
        text=f"enter {broken.at} around the compiled call instead of inside it; torch.no_grad, autocast and"
             " set_grad_enabled made inside the function are traced")


def _clock(broken: BrokenLine) -> Remedy:
    if "sleep" in broken.called:
        return Remedy(text=f"sleep outside the compiled function instead of {broken.at}")
    if re.search(r"urandom|uuid|secrets", broken.called):
        return Remedy(text=f"call {broken.called} outside the compiled function ({broken.at})")
    if "random" in broken.called:
        return _draw(broken)
    return Remedy(text=f"read {broken.called or 'the clock'} before and after the compiled call instead of {broken.at}")


def _object(broken: BrokenLine) -> Remedy:
    if not broken.called.endswith(".__new__"):
        return _other(broken)
    made = broken.called.removesuffix(".__new__")
    return Remedy(text=f"make the {made} once, outside the compiled function, instead of in {broken.at}")


def _iterator(broken: BrokenLine) -> Remedy:
    """Some versions of torch have an id for next() and one for a loop, others name the method that the type lacks."""
    if broken.called.endswith("__iter__"):
        return _by_id("GB0811", broken)
    if broken.called.endswith("__next__") or _DRAWN.search(broken.line):
        return _by_id("GB4347", broken)
    return _other(broken)


def _other(broken: BrokenLine) -> Remedy:
    """PyTorch's own hint, or a way to keep the line out of the graph."""
    hint = specific_hint(broken.event.hints)
    if hint:
        return Remedy(text=f"{hint} ({broken.at})")
    return Remedy(
        text=f"move {broken.at} out of the compiled function, or put it in a function decorated with "
             "torch.compiler.disable, so that the break is in one known place")


def _text(template: str) -> Callable[[BrokenLine], Remedy]:
    def remedy(broken: BrokenLine) -> Remedy:
        return Remedy(text=template.format(at=broken.at, where=broken.where, name=broken.called or "the function"))

    return remedy


_BY_CODE: dict[str, Callable[[BrokenLine], Remedy]] = {
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
    "TT110": _text("set requires_grad before the compiled call instead of {at}; detach() inside the graph "
                   "does not break"),
    "TT111": _object,
    "TT112": _call,
    "TT113": _iterator,
    "TT114": _numpy,
    "TT115": _with,
    "TT116": _text("register the hook once, before compiling, instead of {at}"),
    "TT117": lambda broken: Remedy(
        text=f"keep {broken.recurrent} out of the compiled function, or {RNN}", setting=RNN,
        caveat="tracing it is slow to compile"),
    "TT118": _optimizer_step,
    "TT119": _text("move {at} out of the loop, try or with block, so that the graph can be cut there"),
    "TT120": _text("remove the explicit break ({at}) if it is not needed any more"),
    "TT125": _clock,
}

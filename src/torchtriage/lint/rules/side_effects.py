"""TT101, TT102, TT106, TT107, TT114, TT125: calls into Python that have no place in a graph."""

import ast
import re
from collections.abc import Iterator

from torchtriage.lint.reach.model import Reached
from torchtriage.lint.rules.hazard import Hazard, calls, hazard_rule, is_conditional, is_set, names_of, quote
from torchtriage.lint.types.torch_calls import EXTERNAL_OBJECTS
from torchtriage.lint.types.values import (
    UNKNOWN,
    ContainerValue,
    LibraryObject,
    MethodValue,
    ObjectValue,
    TensorValue,
    options,
    tensor_in,
)

REORDER = "torch._dynamo.config.reorderable_logging_functions.add"
_LOG_SETTINGS = ("reorderable_logging_functions", "ignore_logging_functions", "ignore_logger_methods")
_LOG_METHODS = frozenset(
    {
        "debug",
        "info",
        "warning",
        "warn",
        "error",
        "exception",
        "critical",
        "log",
        "warning_once",
    }
)
_PRINTS = frozenset(
    {"builtins.print", "pprint.pprint", "pprint.pp", "rich.print", "sys.stdout.write", "sys.stderr.write"}
)
_NOT_TRACED = re.compile(
    r"^(zlib|hashlib|pickle|json|bisect|struct|binascii|subprocess|socket|shutil|tempfile|ctypes|gc|requests|csv)\.\w"
    r"|^os\.(path\.(exists|isfile|isdir|getsize|getmtime)|listdir|makedirs|remove|stat|system|getpid|urandom|popen)$"
    r"|^torch\.(save|load|manual_seed|get_rng_state|set_rng_state|set_num_threads)$|^torch\.random\.(manual_seed|seed)$"
    r"|^torch\.cuda\.(manual_seed|manual_seed_all|set_rng_state)$|^warnings\.(simplefilter|filterwarnings|resetwarnings)$"
    r"|^torch\.cuda\.(synchronize|empty_cache|memory_allocated|max_memory_allocated|memory_reserved)$"
    r"|^builtins\.(open|input|breakpoint|exec|eval)$"
)
_CLOCK = re.compile(
    r"^time\.(time|time_ns|perf_counter|perf_counter_ns|monotonic|monotonic_ns|process_time|sleep|strftime|ctime|localtime|gmtime)$"
    r"|^datetime\.datetime\.(now|utcnow|today)$|^uuid\.uuid\d$|^secrets\.\w+$"
    r"|^random\.(random|gauss|normalvariate|choice|choices|shuffle|sample|betavariate|expovariate|seed|triangular)$"
    r"|^random\.(getrandbits|randbytes|lognormvariate|paretovariate|vonmisesvariate|weibullvariate|gammavariate)$"
)


# Functions of NumPy without a counterpart in torch._numpy of torch 2.13.
_NOT_IN_TORCH = frozenset({
    "apply_along_axis", "apply_over_axes", "argpartition", "array2string", "asanyarray", "block", "compress",
    "cumulative_sum", "delete", "digitize", "ediff1d", "extract", "frombuffer", "fromfunction", "fromiter",
    "histogram_bin_edges", "insert", "interp", "intersect1d", "isin", "lexsort", "loadtxt", "nanargmax",
    "nanargmin", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod",
    "nanquantile", "nanstd", "nansum", "nanvar", "packbits", "partition", "piecewise", "poly", "polyfit",
    "polyval", "putmask", "ravel_multi_index", "roots", "save", "savetxt", "savez", "select", "setdiff1d",
    "setxor1d", "trapezoid", "trim_zeros", "union1d", "unpackbits", "unravel_index", "unwrap",
})


@hazard_rule
def prints(reached: Reached) -> Iterator[Hazard]:
    """A print in compiled code."""
    if is_set(reached, "reorderable_logging_functions"):
        return
    for call in calls(reached):
        if names_of(reached.value(call.func)) & _PRINTS:
            plain = isinstance(call.func, ast.Name) and call.func.id == "print"
            setting = f", or {REORDER}(print): it then prints after the graph" if plain else ""
            yield Hazard(
                code="TT101",
                node=call,
                subject=quote(reached, call),
                kind="Failed to trace builtin operator",
                cause="a compiled function that prints is cut there",
                fix=f"move {quote(reached, call)} out of the compiled function{setting}",
                may=is_conditional(reached, call),
            )


@hazard_rule
def logs(reached: Reached) -> Iterator[Hazard]:
    """A call of a logger or of warnings.warn in compiled code."""
    if any(is_set(reached, name) for name in _LOG_SETTINGS):
        return
    for call in calls(reached):
        names = names_of(reached.value(call.func))
        is_warning = any(name in ("warnings.warn", "warnings.warn_explicit") for name in names)
        is_logging = any(_is_log_function(name) for name in names) or _is_logger_method(reached, call)
        if not is_warning and not is_logging:
            continue
        yield Hazard(
            code="TT102",
            node=call,
            subject=quote(reached, call),
            may=is_conditional(reached, call),
            cause="a compiled function that logs is cut there",
            fix=f"log outside the compiled function instead of {quote(reached, call)}, or put it under "
            "`if not torch.compiler.is_compiling():`",
        )


def _is_log_function(name: str) -> bool:
    room, _, last = name.rpartition(".")
    return room in ("logging", "loguru.logger", "absl.logging") and last in _LOG_METHODS


def _is_logger_method(reached: Reached, call: ast.Call) -> bool:
    called = reached.value(call.func)
    if isinstance(called, MethodValue) and isinstance(called.owner, LibraryObject):
        return called.owner.name == "logging.Logger" and called.name in _LOG_METHODS
    return False


@hazard_rule
def untraced_calls(reached: Reached) -> Iterator[Hazard]:
    """A call of a C function, or of a file or process, in compiled code."""
    for call in calls(reached):
        for name in sorted(names_of(reached.value(call.func))):
            plain = name.removeprefix("builtins.")
            if _NOT_TRACED.search(name):
                yield Hazard(
                    code="TT106",
                    node=call,
                    subject=quote(reached, call),
                    cause=f"the compiler cannot trace {plain}",
                    fix=f"call {plain} before the compiled call and pass the result in",
                    may=is_conditional(reached, call),
                )
            elif _CLOCK.search(name):
                yield Hazard(
                    code="TT125",
                    node=call,
                    subject=quote(reached, call),
                    cause=f"the compiler cannot trace {plain}",
                    fix=_clock_fix(name),
                    may=is_conditional(reached, call),
                )


def _clock_fix(name: str) -> str:
    if name.startswith(("random.", "uuid.", "secrets.")):
        return (
            "draw with torch (torch.rand, torch.randint, torch.randn), or draw before the compiled call and pass it in"
        )
    if name == "time.sleep":
        return "sleep outside the compiled function"
    return f"read {name} before and after the compiled call, or only under `if not torch.compiler.is_compiling():`"


@hazard_rule
def file_objects(reached: Reached) -> Iterator[Hazard]:
    """A method of a file, writer or connection in compiled code."""
    for call in calls(reached):
        called = reached.value(call.func)
        owner = called.owner if isinstance(called, MethodValue) else None
        if isinstance(owner, LibraryObject) and owner.name in EXTERNAL_OBJECTS:
            yield Hazard(
                code="TT112",
                node=call,
                subject=quote(reached, call),
                cause=f"a method of {owner.name} is not Python code that the compiler can trace",
                fix=f"call {quote(reached, call)} outside the compiled function, with what it returns",
                may=is_conditional(reached, call),
            )


@hazard_rule
def copies(reached: Reached) -> Iterator[Hazard]:
    """A deepcopy of something that holds tensors."""
    for call in calls(reached):
        if "copy.deepcopy" in names_of(reached.value(call.func)) and call.args:
            copied = reached.value(call.args[0])
            holds = any(
                isinstance(o, (ObjectValue, LibraryObject, TensorValue))
                or (isinstance(o, ContainerValue) and tensor_in(o.element))
                for o in options(copied)
            )
            if holds or copied == UNKNOWN:
                yield Hazard(
                    code="TT107",
                    node=call,
                    subject=quote(reached, call),
                    may=not holds,
                    cause="copy.deepcopy of an object that holds tensors cannot be traced",
                    fix=f"copy before the compiled call, or x.clone() for a tensor, instead of {quote(reached, call)}",
                )


@hazard_rule
def numpy_functions(reached: Reached) -> Iterator[Hazard]:
    """A function of NumPy that torch does not trace."""
    for call in calls(reached):
        for name in sorted(names_of(reached.value(call.func))):
            if name.startswith("numpy.") and name.removeprefix("numpy.") in _NOT_IN_TORCH:
                yield Hazard(
                    code="TT114",
                    node=call,
                    subject=quote(reached, call),
                    cause=f"torch has no {name} to trace in its place",
                    fix=f"compute {quote(reached, call)} with torch, or before the compiled call",
                )


# How many positional arguments come before the size in the draws that torch 2.13 traces as arrays.
_BEFORE_SIZE = {
    "rand": 0, "randn": 0, "random": 0, "random_sample": 0, "sample": 0, "choice": 1, "normal": 2, "uniform": 2,
    "randint": 2,
}


def _is_traced(name: str, call: ast.Call) -> bool:
    """Whether a draw has a size, which torch traces; a single number and other distributions break the graph."""
    before = _BEFORE_SIZE.get(name.removeprefix("numpy.random."))
    has_size = any(keyword.arg == "size" for keyword in call.keywords)
    return before is not None and (has_size or len(call.args) > before)


@hazard_rule
def numpy_draws(reached: Reached) -> Iterator[Hazard]:
    """A random number of NumPy in compiled code."""
    for call in calls(reached):
        called = reached.value(call.func)
        is_generator = (
            isinstance(called, MethodValue)
            and isinstance(called.owner, LibraryObject)
            and called.owner.name == "numpy.random.Generator"
        )
        drawn = [name for name in names_of(called) if name.startswith("numpy.random.") and not _is_traced(name, call)]
        if is_generator or drawn:
            yield Hazard(
                code="TT114",
                node=call,
                subject=quote(reached, call),
                cause="a random generator of NumPy cannot be traced",
                fix="draw with torch (torch.rand, torch.randn, torch.randint), or draw before the compiled call and "
                "pass the value in as a tensor",
            )

"""The cause of a graph break: PyTorch's name of its kind, refined by the call at its place."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torchtriage.diagnosis.frameworks import framework_of
from torchtriage.diagnosis.graph_breaks.remedies import Remedy, is_scheduled_step, remedy_for
from torchtriage.diagnosis.graph_breaks.text import BrokenLine, plain_type, quote, read_break, standard_call, subject_of
from torchtriage.diagnosis.statement import Statement
from torchtriage.recording.events import GraphBreak
from torchtriage.text import pattern

_LOGGING_FILE = re.compile(r"/(logging/__init__|warnings|loguru/\w+|absl/logging/__init__)\.py$")
_LOGGING_CALL = re.compile(r"^(_?warnings|logging|loguru|absl\.logging)\.|\bLogger\.|^warn$|warning_once$"
                           r"|^torch\._logging")
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
_OPTIMIZER = re.compile(r"\bOptimizer\.|\bopt(?:im|imizer)?\w*\.(?:zero_grad|step)\(")
_HOOK_LINE = re.compile(r"\bregister_\w*hook\w*\(")

# The first pattern that is found in the kind decides, so narrow patterns come before wide ones; case does not count.
_BY_TYPE: tuple[tuple[str, str], ...] = (
    ("TT119", r"^graph break in (a )?loop|^graph break in inlined|^graph break under generic"),
    ("TT120", r"torch\._dynamo\.(graph_break|skip_frame|step_unsupported)|comptimecontext|forced graph break"),
    ("TT108", r"torch\.(compiler|_dynamo)\.disable"),
    ("TT117", r"\b(RNN|LSTM|GRU)\b"),
    ("TT118", r"^optimizer\b"),
    ("TT107", r"deepcopy"),
    ("TT102", r"\blogging\b|\bwarnings\b|reorder a debugging function"),
    ("TT110", r"requires_grad"),
    ("TT116", r"hooks?\b|RemovableHandle"),
    ("TT105", r"dynamic shape operator|dynamic slicing|data-dependent output shape|unbacked SymInt"
              r"|torch\.Size element"),
    ("TT115", r"context ?manager|contextlib|record_function|torch\.profiler|traceback\.annotate"
              r"|version_counter escaped|use_mem_pool"),
    ("TT123", r"^backend compiler exception"),
    ("TT123", r"fake ?tensor|running FX node|call_method node|fx\.Node|PT2-compliant|op packet|device mismatch"),
    ("TT123", r"shape mismatch with out=|dtype mismatch between tensor|non-contiguous `out=`"),
    ("TT122", r"\bassert|(?<!compiler )\bexception\b|^TypeError from user|due to TypeError|torch\._check|traceback"),
    ("TT122", r"(undefined|deleted|uninitiali[sz]ed) (local )?(variable|cell)|find name in frame|key not found"
              r"|bind arguments"),
    ("TT122", r"^import failure|^length mismatch|failed to broadcast"),
    ("TT103", r"data.dependent (branch|control|jump|expression)|generic_jump|guard_scalar|^list_richcompare"
              r"|^data.dependent$"),
    ("TT104", r"\.item\b|tolist|data dependent operator|unsupported index\(Tensor\)|indexing .* non-scalar tensor"),
    ("TT114", r"numpy|\bndarray\b"),
    ("TT125", r"random\.Random|time function"),
    ("TT109", r"\bautograd\.|_autograd_grad|backward\(\)|_ImperativeEngine|retain_grad|grad_fn|backward_state"
              r"|accumulate_grad"),
    ("TT109", r"custom [jv][vj]p|^autograd_function|AutogradFunctionContext|^proxy not set"),
    ("TT124", r"\bHOP\b|higher.?order|^torch\.(cond|switch|while_loop|scan|map|associative_scan)\b|invoke_subgraph"
              r"|FlexAttention"),
    ("TT124", r"^(executorch|hints_wrapper|out_dtype|strict_mode|wrap_with|leaf_function|flex_gemm|checkpoint)"),
    ("TT124", r"strict mode|nonstrict_trace|set_subgraph_inputs"),
    ("TT124", r"functorc?h\b|functional_call|triton|tma_descriptor"),
    ("TT124", r"check_meta_consistency|non-single tensor return|register_constant"),
    ("TT113", r"generator\b(?! method)|iterat|\bnext\(\)|itertools|tp_iter|iter\(\)|comprehension|^SEND "
              r"|StopIteration|UNPACK"),
    ("TT106", r"function marked as skipped|not implemented in python|SkipFunctionVariable|implemented in C|vectorcall"
              r"|no traceable __call__"),
    ("TT112", r"issubclass|isinstance"),
    ("TT111", r"sparse|NestedTensor|nested_tensor|subclass|TorchScript|ScriptModule|ScriptObject|torch\.jit"),
    ("TT111", r"opaque|reconstruct|sourceless|weakref|to wrap\b|FSDP"),
    ("TT111", r"nn\.Parameter|parameter construction|dataclass|P2P|Pydantic"),
    ("TT121", r"getattr|setattr|delattr|hasattr|__dict__|__class__|build_class|descriptor|metaclass|STORE_ATTR"
              r"|super\b|\bmro\b"),
    ("TT121", r"attribute mutation|^unsupported attribute|(member|MemPool) attribute"),
    ("TT121", r"class attribute|tensor (data )?attribute|attribute for|immutable cell|__get__"),
    ("TT111", r"hash|equality|nn\.Module attribute type|uninitialized nn\.Module|Enum|namedtuple|TypedDict|SourceType"
              r"|deque|namespace"),
    ("TT111", r"to proxy|unconverted argument|unsupported argument type"),
    ("TT111", r"python_type\(\)|keys in (dict_keys|mapping)|mapping proxy|list itself"),
    ("TT111", r"associated real value|object identity"),
    ("TT111", r"user-defined (object|class) construction|closure in output|non-constructible"),
    ("TT112", r"builtin|method|function call|_impl\b|missing|\bid\(\)"),
    ("TT112", r"\bid or hash|call_id|cast\(\)|slot not implemented|compar"),
    ("TT112", r"repr|str\(\)|__len__|list\(\)|vars\(\)|^sort |inspect"),
    ("TT112", r"functools|fromkeys|__[gs]etitem__|typing|__torch_function__"),
    ("TT112", r"Tensor\.\w+|torch\.\* op|SymInt arguments|SymNode|is_inference"),
    ("TT112", r"_ntuple|inplace op|elementwise_dtypes|_SDPAParams"),
    ("TT112", r"bytecode|BUILD_STRING|variadic|__self__|python constant"),
    ("TT112", r"slice assignment|assume_constant|torch\.compile call|import result"),
    ("TT112", r"ContextVar|\bbytes\(\)|bytearray|__str__|length_hint|min/max|MAKE_CELL|STORE_GLOBAL"),
    ("TT112", r"COW tensor|data pointer|rank-relative"),
    ("TT112", r"torch\.distributed|async_op|accelerator|get_device_module|deterministic|torch function mode"),
)

# The rule by id, for events whose kind is missing or hidden behind the name of an enclosing operator.
_BY_ID = {gb_id: code for code, gb_ids in (
    ("TT102", "GB0291"),
    ("TT103", "GB0035 GB0170 GB6622"),
    ("TT104", "GB0033 GB0109 GB0124"),
    ("TT105", "GB0036 GB0037 GB0038"),
    ("TT106", "GB0007 GB0008 GB0009"),
    ("TT107", "GB0179 GB4198"),
    ("TT108", "GB0098 GB0099"),
    ("TT109", "GB0123 GB9186"),
    ("TT110", "GB0125 GB0206"),
    ("TT111", "GB0092 GB0116"),
    ("TT112", "GB0059 GB0147 GB0156 GB0207 GB0208"),
    ("TT113", "GB4347 GB8335"),
    ("TT114", "GB0294"),
    ("TT115", "GB0142"),
    ("TT117", "GB0014"),
    ("TT119", "GB7000"),
    ("TT120", "GB0025"),
    ("TT121", "GB0467"),
    ("TT122", "GB0034 GB0088"),
    ("TT123", "GB0064"),
) for gb_id in gb_ids.split()}

# Kinds that say only "a call that cannot be traced"; the called function decides.
_CALL_CODES = frozenset({"TT106", "TT112", "TT199"})


UNCUTTABLE = "TT119"
# These never leave a place to cut, with or without a block around them, so the cause names the finding, not the block.
_NEVER_CUT = frozenset({"TT111", "TT113", "TT115", "TT117", "TT120", "TT122", "TT124"})
BACKEND_FAILED = "GB0219"   # the graph was cut well enough; it could not be compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The rule of a break, its name in a title, a note that adds to PyTorch's text, its remedy."""

    code: str
    subject: str
    remedy: Remedy
    note: str = ""


def classify(event: GraphBreak, code_line: str, statement: Statement | None = None) -> Cause:
    """The cause of a break whose line reads `code_line`; TT199 if nothing specific is known."""
    broken = read_break(event, code_line, statement)
    framework = framework_of(event.stack)
    if framework is not None:
        remedy = Remedy(text=framework.remedy, is_exact=True, is_from_outside=True)
        return Cause(code="TT106", subject=framework.subject, remedy=remedy)
    plain = code_of_type(event.type, event.gb_id)
    code = _by_place(broken)
    if code is None and plain in _CALL_CODES:
        code = _by_call(broken)
    code = code or _by_value(broken, plain) or plain
    remedy = remedy_for(code, broken, refined=code != plain)
    return Cause(code=code, subject=subject_of(code, broken), note=_note(code, broken), remedy=remedy)


def reported_code(cause: Cause, gb_id: str | None, *, runs_eager: bool) -> str:
    """The code of the finding: that of the cause, or TT119 if a block that cannot be cut left the frame to eager."""
    if runs_eager and cause.code not in _NEVER_CUT and gb_id != BACKEND_FAILED:
        return UNCUTTABLE
    return cause.code


def _by_place(broken: BrokenLine) -> str | None:
    """The code of a break inside a file that has a single purpose."""
    path = broken.event.path.replace("\\", "/")
    if "/torch/optim/" in path or is_scheduled_step(broken.event):
        return "TT118"
    if path.endswith("/torch/nn/modules/rnn.py"):
        return "TT117"
    if path.endswith("/torch/utils/hooks.py"):
        return "TT116"
    if re.search(r"/lib/python3\.\d+/copy\.py$", path):
        return "TT107"
    if _LOGGING_FILE.search(path):
        return "TT102"
    return "TT106" if standard_call(broken.event, broken.line) else None


# Why torch leaves a call to Python that it does not name in the kind ("Unsupported function call (delayed)").
_NO_RNN = re.compile(r"does not support RNN, GRU, or LSTM")
_DISABLED = re.compile(r"wrapped with `torch\.compiler\.disable`")

# The first row whose test holds decides the code of an untraceable call.
_CALL_ROWS: tuple[tuple[str, Callable[[BrokenLine], object]], ...] = (
    ("TT117", lambda broken: _NO_RNN.search(broken.event.explanation)),
    ("TT108", lambda broken: _DISABLED.search(broken.event.explanation)),
    ("TT101", lambda broken: _prints(broken)),
    ("TT102", lambda broken: _LOGGING_CALL.search(broken.called) or _LOGGING_LINE.search(broken.line)),
    ("TT107", lambda broken: "deepcopy" in broken.called or (not broken.called and "deepcopy(" in broken.line)),
    ("TT116", lambda broken: _HOOK_LINE.search(broken.line)),
    ("TT118", lambda broken: _OPTIMIZER.search(f"{broken.called} {broken.line}")),
    ("TT114", lambda broken: _NUMPY.search(broken.called) or _NUMPY_LINE.search(broken.line)),
    ("TT125", lambda broken: _CLOCK.search(broken.called)),
    ("TT115", lambda broken: _WITH.match(broken.line) or broken.called.endswith("__enter__")),
    ("TT109", lambda broken: _AUTOGRAD.search(broken.called)),
    ("TT104", lambda broken: _reads_number(broken)),
    ("TT113", lambda broken: _ITERATION.search(broken.called)),
    ("TT121", lambda broken: _ATTRIBUTE.match(broken.called)),
    ("TT111", lambda broken: broken.called.endswith(".__new__")),
)


def _reads_number(broken: BrokenLine) -> bool:
    is_tensor = "Tensor" in broken.event.explanation or "Tensor" in broken.event.context
    return is_tensor and bool(_NUMBER.match(broken.called))


def _by_call(broken: BrokenLine) -> str | None:
    return next((code for code, holds in _CALL_ROWS if holds(broken)), None)


def _prints(broken: BrokenLine) -> bool:
    if _PRINT_CALL.search(broken.called):
        return True
    return bool(_PRINT_LINE.search(broken.line)) and broken.called in ("", "str", "repr", "format")


def _by_value(broken: BrokenLine, plain: str) -> str | None:
    """The code of a kind that concerns a value, by the line that needs the value."""
    if plain == "TT104" and _NUMPY_LINE.search(broken.line):
        return "TT114"
    is_slice = _SLICE.search(broken.line) and not _SCALAR_CALL.search(broken.line)
    if plain == "TT104" and broken.event.gb_id == "GB0124" and is_slice:
        return "TT105"
    if plain == "TT102" and _prints(broken):
        return "TT101"
    if plain == "TT124" and _HOOK_LINE.search(broken.line):
        return "TT116"
    if broken.event.gb_id == "GB0086" and "TensorVariable" in broken.event.context:
        return "TT104"
    return None


def _note(code: str, broken: BrokenLine) -> str:
    if code == "TT103" and broken.origin:
        line, text = broken.origin
        return f"the tested value is made at line {line}: {quote(text)}"
    return ""


def code_of_type(kind: str, gb_id: str | None) -> str:
    """The rule for PyTorch's name of a kind of break; TT199 if no rule fits."""
    kind = plain_type(kind)
    for code, text in _BY_TYPE:
        if kind and pattern(text, re.IGNORECASE).search(kind):
            return code
    return _BY_ID.get(gb_id or "", "TT199")

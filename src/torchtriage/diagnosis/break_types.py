"""Which rule each kind of graph break belongs to, by the name that PyTorch gives the kind."""

import re

# Kinds that say where a break is, not what caused it: Dynamo gives up on the whole frame there.
WHOLE_FRAME_IDS = frozenset({"GB7000", "GB0065", "GB0066", "GB4297", "GB9741"})

# The first pattern that is found in the kind decides, so narrow patterns come before wide ones; case does not count.
_BY_TYPE: tuple[tuple[str, str], ...] = (
    ("TT119", r"^graph break in (a )?loop|^graph break in inlined|^graph break under generic"),
    ("TT120", r"torch\._dynamo\.(graph_break|skip_frame|step_unsupported)|comptimecontext|forced graph break"),
    ("TT108", r"torch\.compiler\.disable"),
    ("TT117", r"\b(RNN|LSTM|GRU)\b"),
    ("TT118", r"^optimizer\b"),
    ("TT107", r"deepcopy"),
    ("TT102", r"\blogging\b|\bwarnings\b|reorder a debugging function"),
    ("TT110", r"requires_grad"),
    ("TT116", r"hooks?\b|RemovableHandle"),
    ("TT105", r"dynamic shape operator|dynamic slicing|data-dependent output shape|unbacked SymInt"),
    ("TT115", r"context ?manager|contextlib|record_function|torch\.profiler|traceback\.annotate|version_counter escaped"),
    ("TT123", r"^backend compiler exception"),
    ("TT123", r"fake ?tensor|running FX node|call_method node|fx\.Node|PT2-compliant|op packet|device mismatch"),
    ("TT123", r"shape mismatch with out=|dtype mismatch between tensor|non-contiguous `out=`"),
    ("TT122", r"\bassert|(?<!compiler )\bexception\b|^TypeError from user|due to TypeError|torch\._check|traceback"),
    ("TT122", r"(undefined|deleted|uninitiali[sz]ed) (local )?(variable|cell)|find name in frame|key not found|bind arguments"),
    ("TT122", r"^import failure|^length mismatch|failed to broadcast"),
    ("TT103", r"data.dependent (branch|control|jump|expression)|generic_jump|guard_scalar|^list_richcompare|^data.dependent$"),
    ("TT104", r"\.item\b|tolist|data dependent operator|unsupported index\(Tensor\)|indexing .* non-scalar tensor"),
    ("TT114", r"numpy|\bndarray\b"),
    ("TT125", r"random\.Random"),
    ("TT109", r"\bautograd\.|_autograd_grad|backward\(\)|_ImperativeEngine|retain_grad|grad_fn|backward_state|accumulate_grad"),
    ("TT109", r"custom [jv][vj]p|^autograd_function|AutogradFunctionContext|^proxy not set"),
    ("TT124", r"\bHOP\b|higher.?order|^torch\.(cond|while_loop|scan|map|associative_scan)\b|invoke_subgraph|FlexAttention"),
    ("TT124", r"^(executorch|hints_wrapper|out_dtype|strict_mode|wrap_with|leaf_function)"),
    ("TT124", r"strict mode|nonstrict_trace|set_subgraph_inputs"),
    ("TT124", r"functorc?h\b|functional_call|triton|tma_descriptor"),
    ("TT124", r"check_meta_consistency|non-single tensor return|register_constant"),
    ("TT113", r"generator\b(?! method)|iterat|\bnext\(\)|itertools|tp_iter|iter\(\)|comprehension|^SEND |StopIteration|UNPACK"),
    ("TT106", r"function marked as skipped|not implemented in python|SkipFunctionVariable|implemented in C|vectorcall"),
    ("TT112", r"issubclass|isinstance"),
    ("TT111", r"sparse|NestedTensor|nested_tensor|subclass|TorchScript|ScriptModule|ScriptObject|torch\.jit"),
    ("TT111", r"opaque|reconstruct|sourceless|weakref|to wrap\b|FSDP"),
    ("TT111", r"nn\.Parameter|parameter construction|dataclass|P2P|Pydantic"),
    ("TT121", r"getattr|setattr|delattr|hasattr|__dict__|__class__|build_class|descriptor|metaclass|STORE_ATTR|super\b|\bmro\b"),
    ("TT121", r"class attribute|tensor (data )?attribute|attribute for|immutable cell|__get__"),
    ("TT111", r"hash|equality|nn\.Module attribute type|uninitialized nn\.Module|Enum|namedtuple|TypedDict|SourceType|deque"),
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
    ("TT112", r"torch\.distributed|async_op|accelerator|get_device_module|deterministic|torch function mode"),
)
_TABLE = tuple((code, re.compile(pattern, re.IGNORECASE)) for code, pattern in _BY_TYPE)

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
_HIDDEN = re.compile(r"^(Higher Order Operator: |Encountered graph break |Failed to handle graph break )|^\s*$")


def plain_type(kind: str) -> str:
    """PyTorch's name of the kind; empty where the text in its place only says how Dynamo went on."""
    return "" if _HIDDEN.search(kind) else kind.strip()


def code_of_type(kind: str, gb_id: str | None) -> str:
    """The rule for PyTorch's name of a kind of break; TT199 if no rule fits."""
    kind = plain_type(kind)
    for code, pattern in _TABLE:
        if kind and pattern.search(kind):
            return code
    return _BY_ID.get(gb_id or "", "TT199")

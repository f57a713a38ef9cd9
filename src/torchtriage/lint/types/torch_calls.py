"""The value that a call into torch, NumPy or Python returns, by the name of what is called."""

import ast
from collections.abc import Sequence

from torchtriage.lint.types.values import (
    NONE,
    TENSOR,
    UNKNOWN,
    ContainerValue,
    LibraryName,
    LibraryObject,
    PythonValue,
    TensorValue,
    Value,
    element_of,
    join,
    tensor_in,
)

INT, FLOAT, BOOL, STR = PythonValue("int"), PythonValue("float"), PythonValue("bool"), PythonValue("str")
SHAPE = ContainerValue("tuple", INT)
TENSORS = ContainerValue("tuple", TENSOR)
ARRAY = LibraryObject("numpy.ndarray")

RECURRENT = frozenset({"torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN"})
_INT_METHODS = frozenset(
    {
        "dim",
        "numel",
        "ndimension",
        "element_size",
        "storage_offset",
        "get_device",
        "data_ptr",
        "nelement",
        "__len__",
    }
)
_BOOL_METHODS = frozenset(
    {
        "is_contiguous",
        "is_floating_point",
        "is_complex",
        "is_signed",
        "is_shared",
        "is_pinned",
        "is_inference",
    }
)
_BOOL_TENSOR = frozenset(
    {
        "all",
        "any",
        "eq",
        "ne",
        "gt",
        "lt",
        "ge",
        "le",
        "isnan",
        "isinf",
        "isfinite",
        "bool",
        "logical_and",
        "isclose",
        "logical_or",
        "logical_not",
        "logical_xor",
        "greater",
        "less",
        "signbit",
        "isin",
        "isneginf",
        "isposinf",
    }
)
_INT_TENSOR = frozenset({"argmax", "argmin", "long", "int", "argsort", "nonzero", "count_nonzero", "randint", "arange"})
_TUPLES = frozenset({"chunk", "split", "unbind", "tensor_split", "hsplit", "vsplit", "meshgrid", "broadcast_tensors"})
# Named tuples of tensors if they are given a dimension.
_WITH_DIM = frozenset({"max", "min", "median", "mode", "nanmedian"})
_NAMED_TUPLES = frozenset(
    {"sort", "topk", "kthvalue", "cummax", "cummin", "svd", "qr", "eigh", "eig", "slogdet", "aminmax"}
)
_PYTHON_FUNCTIONS = {
    "torch.is_tensor": BOOL,
    "torch.is_grad_enabled": BOOL,
    "torch.is_floating_point": BOOL,
    "torch.numel": INT,
    "torch.is_complex": BOOL,
    "torch.is_autocast_enabled": BOOL,
    "torch.is_inference_mode_enabled": BOOL,
    "torch.get_default_dtype": PythonValue("dtype"),
    "torch.device": PythonValue("device"),
    "torch.finfo": PythonValue("finfo"),
    "torch.iinfo": PythonValue("finfo"),
    "torch.manual_seed": UNKNOWN,
    "torch.save": NONE,
    "torch.load": UNKNOWN,
    "torch.get_num_threads": INT,
    "torch.set_num_threads": NONE,
    "torch.equal": PythonValue("bool", from_tensor=True),
    "torch.allclose": PythonValue("bool", from_tensor=True),
    "torch.set_default_dtype": NONE,
    "torch.set_default_device": NONE,
    "torch.promote_types": PythonValue("dtype"),
    "torch.result_type": PythonValue("dtype"),
    "torch.can_cast": BOOL,
    "torch.typename": STR,
    "torch.broadcast_shapes": SHAPE,
    "torch.set_float32_matmul_precision": NONE,
    "torch.vmap": UNKNOWN,
    "torch.get_rng_state": TENSOR,
    "torch.get_default_device": PythonValue("device"),
    "torch.seed": INT,
    "torch.initial_seed": INT,
    "torch.use_deterministic_algorithms": NONE,
    "torch.sym_int": INT,
    "torch.cond": UNKNOWN,
    "torch.while_loop": UNKNOWN,
}
_TENSOR_ROOMS = ("torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.ops.aten", "torch")
_DTYPES = frozenset(
    {
        "float",
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "double",
        "half",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "long",
        "int",
        "short",
        "bool",
        "complex64",
        "complex128",
        "cfloat",
        "strided",
        "channels_last",
        "contiguous_format",
        "preserve_format",
        "sparse_coo",
        "float8_e4m3fn",
        "float8_e5m2",
    }
)
_CONSTANTS = frozenset({"pi", "inf", "nan", "e"})
_MULTI = frozenset({"MultiheadAttention", "LSTM", "GRU", "RNN", "LSTMCell"})
_CONTEXTS = frozenset({"no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast"})
# Objects that talk to the world outside of Python.
EXTERNAL_OBJECTS = frozenset({
    "csv.writer", "csv.reader", "io.StringIO", "io.BytesIO", "builtins.open", "sqlite3.connect", "socket.socket",
    "hashlib.sha256", "hashlib.md5", "queue.Queue", "torch.utils.tensorboard.SummaryWriter",
})
_LOGGERS = frozenset({"logging.getLogger", "logging.Logger", "structlog.get_logger", "absl.logging.get_absl_logger"})


def attribute_of_name(name: str) -> Value:
    """A name of a library: a dtype or constant of torch, or the name itself."""
    room, _, last = name.rpartition(".")
    if room == "torch" and last in _DTYPES:
        return PythonValue("dtype", name)
    if room in ("torch", "math", "numpy") and last in _CONSTANTS:
        return FLOAT
    if name in ("torch.cuda.is_available", "sys.argv"):
        return LibraryName(name)
    return LibraryName(name)


def tensor_attribute(tensor: TensorValue, name: str) -> Value | None:
    """An attribute of a tensor that is not a method; None if it is one."""
    if name in ("shape",):
        return SHAPE
    if name in ("ndim", "itemsize", "nbytes", "names", "output_nr"):
        return INT
    if name in ("dtype", "device", "layout", "grad_fn", "is_sparse"):
        return PythonValue(name)
    if name in (
        "requires_grad",
        "is_cuda",
        "is_leaf",
        "is_meta",
        "is_quantized",
        "is_mps",
        "is_nested",
        "is_xpu",
        "is_cpu",
    ):
        return BOOL
    if name in ("T", "mT", "H", "mH", "data", "real", "imag"):
        return tensor
    return TensorValue(sure=False) if name == "grad" else None


def tensor_method(tensor: TensorValue, name: str, args: Sequence[Value], has_dim: bool) -> Value:
    """What a method of a tensor returns."""
    if name == "item":
        return PythonValue(tensor.dtype or "float", from_tensor=True)
    if name == "tolist":
        return ContainerValue("list", PythonValue(tensor.dtype or "float", from_tensor=True))
    if name in ("size", "stride"):
        return INT if args or has_dim else SHAPE
    if name in _INT_METHODS:
        return INT
    if name in _BOOL_METHODS:
        return BOOL
    if name == "type" and not args:
        return STR
    if name in ("equal", "allclose"):
        return PythonValue("bool", from_tensor=True)
    if name in ("numpy", "__array__"):
        return ARRAY
    if name in ("backward", "register_hook", "retain_grad"):
        return NONE
    if name in ("untyped_storage", "storage"):
        return LibraryObject("torch.UntypedStorage")
    return _tensors(name, args, has_dim, tensor)


def _tensors(name: str, args: Sequence[Value], has_dim: bool, tensor: TensorValue) -> Value:
    sure = tensor.sure
    if name in _TUPLES or name in _NAMED_TUPLES or (name in _WITH_DIM and (has_dim or _is_dim(args))):
        return ContainerValue("tuple", TensorValue(sure))
    if name in _BOOL_TENSOR:
        return TensorValue(sure, "bool")
    if name in _INT_TENSOR:
        return TensorValue(sure, "int")
    if name in ("float", "half", "double", "bfloat16", "softmax", "sigmoid", "mean", "exp", "log"):
        return TensorValue(sure, "float")
    keeps = name in ("view", "reshape", "flatten", "squeeze", "unsqueeze", "detach", "clone", "t", "cpu", "cuda")
    return TensorValue(sure, tensor.dtype if keeps else "")


def _is_dim(args: Sequence[Value]) -> bool:
    return bool(args) and isinstance(args[0], PythonValue) and args[0].type == "int"


# Of Python numbers they are computed while the graph is made, as torch 2.13 shows; np.prod and np.mean are not.
_NUMPY_OF_NUMBERS = frozenset({"sqrt", "ceil", "floor", "exp", "log", "log2", "log10"})


def library_call(name: str, args: Sequence[Value], keywords: Sequence[str], node: ast.AST) -> Value:
    """What a call of a name of a library returns; unknown if nothing certain can be said."""
    if name in _PYTHON_FUNCTIONS:
        return _PYTHON_FUNCTIONS[name]
    if name in _LOGGERS:
        return LibraryObject("logging.Logger")
    if name in EXTERNAL_OBJECTS:
        return LibraryObject(name, node)
    room, _, last = name.rpartition(".")
    if name.startswith("torch."):
        return _torch_call(name, room, last, args, keywords, node)
    if name.startswith("numpy."):
        if room == "numpy.random":
            made = last in ("default_rng", "RandomState", "Generator")
            return LibraryObject("numpy.random.Generator") if made else FLOAT
        is_number = last in _NUMPY_OF_NUMBERS and all(isinstance(a, PythonValue) and not a.from_tensor for a in args)
        return FLOAT if is_number else ARRAY
    if room == "math":
        return PythonValue("float", from_tensor=any(tensor_in(a) for a in args))
    if room in ("random", "time", "os", "sys"):
        return LibraryObject("random.Random") if last == "Random" else UNKNOWN
    if name in ("copy.deepcopy", "copy.copy", "typing.cast"):
        return args[-1] if args else UNKNOWN
    if name in ("threading.Lock", "threading.RLock"):
        return LibraryObject(name)
    return LibraryObject(name, node, tuple(args)) if last[:1].isupper() else _other_call(name, args)


def _other_call(name: str, args: Sequence[Value]) -> Value:
    if name in ("itertools.chain", "itertools.islice"):
        return ContainerValue("iterator", join(element_of(a) for a in args))
    return UNKNOWN


def _torch_call(
    name: str,
    room: str,
    last: str,
    args: Sequence[Value],
    keywords: Sequence[str],
    node: ast.AST,
) -> Value:
    if name in ("torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.nn.Buffer", "torch.Tensor"):
        return TENSOR
    if last[:1].isupper():
        return LibraryObject(_public(name), node, tuple(args))
    if last in _CONTEXTS or room.startswith(("torch.amp", "torch.cuda")):
        return LibraryObject(name, node, tuple(args)) if last in _CONTEXTS else UNKNOWN
    has_dim = "dim" in keywords
    if room in _TENSOR_ROOMS:
        if last == "tensor" or last == "as_tensor":
            return TensorValue(True, _dtype_of(args[0]) if args else "")
        first = tensor_in(args[0]) if args else None
        return _tensors(last, args[1:], has_dim, TensorValue(True, first.dtype if first else ""))
    return UNKNOWN


def _public(name: str) -> str:
    """`torch.nn.modules.linear.Linear` under its public name."""
    return f"torch.nn.{name.rpartition('.')[2]}" if name.startswith("torch.nn.modules.") else name


def _dtype_of(value: Value) -> str:
    return value.type if isinstance(value, PythonValue) and value.type in ("int", "float", "bool") else ""


def module_result(name: str) -> Value:
    """What calling a module of torch.nn returns."""
    return TENSORS if name.rpartition(".")[2] in _MULTI else TENSOR


def module_attribute(name: str) -> Value | None:
    """An attribute of a module of torch.nn that is not a method; None if it may be one."""
    if name in ("weight", "bias", "running_mean", "running_var", "in_proj_weight", "in_proj_bias"):
        return TENSOR
    if name.startswith(("weight_", "bias_")):
        return TENSOR
    if name in (
        "in_features",
        "out_features",
        "hidden_size",
        "input_size",
        "num_layers",
        "embedding_dim",
        "num_features",
        "in_channels",
        "out_channels",
        "num_heads",
        "embed_dim",
        "num_embeddings",
    ):
        return INT
    return BOOL if name in ("training", "batch_first", "bidirectional") else None


def object_method(owner: LibraryObject, method: str) -> Value:
    """What a method of an object of a library returns."""
    if owner.name.startswith("torch.distributions."):
        return UNKNOWN if method in ("expand",) else TENSOR
    if owner.name == "torch.Generator" and method == "manual_seed":
        return owner
    if owner.name == "numpy.random.Generator":
        return FLOAT
    if owner.name == "numpy.ndarray":
        return FLOAT if method in ("item", "sum", "mean", "max", "min") else ARRAY
    return UNKNOWN


def annotated(dotted: str) -> Value | None:
    """The value of a parameter with this annotation; None if the annotation says nothing."""
    if dotted in ("torch.Tensor", "Tensor", "torch.FloatTensor", "torch.LongTensor", "torch.nn.Parameter"):
        return TENSOR
    if dotted in ("torch.BoolTensor",):
        return TensorValue(True, "bool")
    if dotted in ("int", "float", "bool", "str", "None"):
        return PythonValue(dotted)
    if dotted in ("torch.device", "torch.dtype"):
        return PythonValue(dotted.partition(".")[2])
    return None

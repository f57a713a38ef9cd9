"""What to change about each pattern of recompiles; each remedy was tried on torch 2.13 and 2.9 and lowered their number."""

from collections.abc import Callable
from dataclasses import dataclass

from torchtriage.diagnosis.reasons import Kind
from torchtriage.diagnosis.stories import Story
from torchtriage.findings.model import Fix


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A story with the names and places that its texts speak of; an unknown place is an empty text."""

    story: Story
    name: str           # of the function
    subject: str        # what changed: x.size(0), len(xs), self.n
    before_call: str    # "before the call at train.py:140"
    compiled_at: str    # "train.py:31"
    star: str = ""      # "*" or "**" where the source is a function's *args or **kwargs
    inside: str = ""    # the library that the function belongs to, if nobody asked torch.compile for this function
    broken_at: str = ""     # the graph break that keeps such a function out of its caller's graph

    @property
    def is_static(self) -> bool:
        return self.story.call is not None and self.story.call.dynamic is False

    @property
    def at_compile(self) -> str:
        return f" at {self.compiled_at}" if self.compiled_at else ""


def remedy(code: str, scene: Scene) -> Fix:
    """The fix for a story of this code."""
    if scene.inside and code not in _OF_SIZES:
        return _apart(scene)
    if not scene.inside and scene.story.source.startswith("past_key_values"):
        return Fix(text="generate(..., cache_implementation='static') keeps the cache at one size; one that grows recompiles")
    made = _MADE.get(code)
    if made is not None:
        return made(scene)
    story = scene.story
    text = _TEXTS[code].format(source=story.source, old=story.reasons[0].old, name=scene.name, before_call=scene.before_call)
    return Fix(text=text)


_TEXTS = {
    "TT206": "make {source} a tensor, on a module a buffer, that counts in the graph; or count outside the compiled function",
    "TT208": (
        "each mode is compiled once and kept, so flipping back is free: "
        "call {name} once in train() and once in eval() before the part that is timed"
    ),
    "TT211": "cast {before_call}: {source} = {source}.to({old}), or whichever dtype is meant",
    "TT212": (
        "create or move {source} on one device before the first call: {source} = {source}.to(device); "
        "state that follows its input from device to device inside the compiled function is compiled for each"
    ),
    "TT213": "{source} = {source}.contiguous() {before_call}; a transposed or strided view is another memory layout",
    "TT214": "give {source} one number of dimensions {before_call}, such as {source}.flatten(0, -2)",
    "TT215": "pass {source}.detach() if no gradient flows through it, or call {name} with requires_grad the same every time",
    "TT216": (
        "look the key up outside {name} and pass the value, or pass the values as a list in a fixed order; "
        "keys of another type, such as strings or flat indices, recompile just the same"
    ),
    "TT222": (
        "keep the value a tensor instead of taking it out with .item(); where the number itself is needed, "
        "torch._dynamo.config.capture_scalar_outputs = True keeps it in the graph"
    ),
    "TT224": (
        "each value of {source} is compiled once and kept: keep the set of values small "
        "and call {name} once with each before the part that is timed"
    ),
    "TT298": (
        "torch names no guard; on 2.9 this is what compiling the same function again with a new backend object looks like: "
        "call torch.compile once and keep what it returns"
    ),
}


_OF_SIZES = frozenset({"TT201", "TT202", "TT203", "TT221"})     # sizes come from what the user passes, even inside a library


def _apart(scene: Scene) -> Fix:
    """What a library passes to its own functions is not the user's to change; that they are compiled apart is."""
    cache = "pass use_cache=False where the cache is not used, as in training; or " if "past_key_values" in scene.story.source else ""
    if not scene.broken_at:
        return Fix(text=(
            f"{cache}{scene.name} is called from code of {scene.inside} that is not compiled, so it is compiled apart, once for each kind"
            " of call: compile its caller, or leave it out with torch.compiler.disable"
        ))
    return Fix(text=(
        f"{cache}cure the graph break at {scene.broken_at} (its finding says how): because of it {scene.name} is compiled apart from its"
        " caller, once for each kind of call; traced within its caller, each use keeps its own values"
    ))


def mark_dynamic(scene: Scene) -> str:
    """The call that makes the dimensions dynamic where the code allows it; mark_dynamic would raise where it does not."""
    dims = scene.story.dims
    if scene.inside:
        return f"torch._dynamo.maybe_mark_dynamic on the tensor that this size comes from, {scene.before_call}, from the first call on"
    mark = f"torch._dynamo.maybe_mark_dynamic({scene.story.source}, {dims[0] if len(dims) == 1 else list(dims)})"
    return f"{mark} {scene.before_call}, from the first call on, and so for each tensor that shares the size"


def _settled(scene: Scene) -> Fix:
    return Fix(text=f"nothing needs to change; to save this compile: {mark_dynamic(scene)}", safe=True)


def _keeps_changing(scene: Scene) -> Fix:
    if scene.is_static:
        return Fix(text=f"drop dynamic=False{scene.at_compile}, or {mark_dynamic(scene)}")
    return Fix(text=(
        f"{mark_dynamic(scene)}; where the size meets a parameter of that size it cannot become dynamic: "
        f"compile the caller of {scene.name} instead, so that each use is compiled once"
    ))


def _ragged(scene: Scene) -> Fix:
    return Fix(text=(
        f"DataLoader(..., drop_last=True), or pad the last batch to the usual size; to keep it as it is: {mark_dynamic(scene)}"
    ))


def _if_needed(scene: Scene) -> str:
    return "" if scene.story.keeps_on else "nothing needs to change if it stays quiet; to save this compile: "


def _int(scene: Scene) -> Fix:
    source = scene.story.source
    if scene.is_static:
        return Fix(text=(
            f"drop dynamic=False{scene.at_compile}: an int is then dynamic from its second value on; "
            f"or pass torch.tensor({source})"
        ))
    if "nn.Module" in scene.story.reasons[0].hint:
        return Fix(text=(
            f"register {source} as a buffer, or set torch._dynamo.config.allow_unspec_int_on_nn_module = True: "
            "without it an int attribute of a module is a constant"
        ))
    if "._" in source:      # a field that a class keeps for itself is not the user's to replace
        return Fix(text=f"keep {source} the same in every call; it is dynamic from its second value on, unless the code needs its value")
    return Fix(text=(
        f"{_if_needed(scene)}make it a tensor, torch.tensor({source}); an int argument is dynamic from its second value on, "
        f"unless the code needs its value, as range({source}) does"
    ))


def _global(scene: Scene) -> Fix:
    reason = scene.story.reasons[0]
    if reason.value_type not in ("int", "float"):
        return Fix(text=f"set {reason.source} before the first call of {scene.name}, and then leave it")
    never = "; a global int never becomes dynamic" if reason.value_type == "int" else ""
    return Fix(text=(
        f"pass {reason.source} to {scene.name} as an argument, which is dynamic from its second value on, "
        f"or make it a tensor and change it with fill_(){never}"
    ))


def _float(scene: Scene) -> Fix:
    source = scene.story.source
    if "param_groups" in source:
        return Fix(text="create the optimizer with a tensor: lr=torch.tensor(1e-3); schedulers then change it in place")
    static = f"drop dynamic=False{scene.at_compile}, or " if scene.is_static else ""
    name = source.rpartition(".")[2]
    tensor = f"{name}=torch.tensor({scene.story.reasons[0].old})"
    return Fix(text=f"{static or _if_needed(scene)}wrap it in a tensor: {tensor}, changed with fill_()")


def _per_layer(scene: Scene) -> Fix:
    whole = f"compile the model that holds the layers instead of {scene.name}: its one frame inlines every layer"
    if scene.story.kind is not Kind.EQUALS:
        return Fix(text=whole)
    is_int = scene.story.reasons[0].value_type == "int"
    unspec = ", or set torch._dynamo.config.allow_unspec_int_on_nn_module = True" if is_int else ""
    return Fix(text=f"{whole}; or make {scene.story.source} a buffer or a tensor argument{unspec}")


def _grad_mode(scene: Scene) -> Fix:
    return Fix(text=(
        f"call {scene.name} under one mode: the same torch.no_grad() or none at all, and torch.inference_mode() is a third; "
        "or call it once in each mode before the part that is timed, as each is compiled once and kept"
    ))


_FLAG_TEXTS = {
    "autocast": "enter torch.autocast with the same device, dtype and cache setting around every call of {name}, or around none",
    "torch_function_mode": "call {name} always inside or always outside `with torch.device(...)` or another torch function mode",
    "default_device": "call torch.set_default_device before the first call of {name}, and then leave it",
}


def _flag(scene: Scene) -> Fix:
    flag = scene.story.source
    text = _FLAG_TEXTS.get(flag, "set {flag} before the first call of {name}, and then leave it")
    return Fix(text=text.format(flag=flag, name=scene.name))


_ARGUMENTS = {"*": "number of positional arguments", "**": "set of keyword arguments"}


def _length(scene: Scene) -> Fix:
    source = scene.story.source
    if scene.star:
        return Fix(text=f"call {scene.name} with the same {_ARGUMENTS[scene.star]} every time: each is compiled once and kept")
    if source.endswith("._modules"):
        return Fix(text=(
            f"each number of layers is a program of its own: call {scene.name} outside compiled code, "
            "or mark it @torch.compiler.disable, which breaks the graph there"
        ))
    if " != " in scene.story.reasons[0].guard:      # how torch words the length of a dict
        return Fix(text=f"give {source} all its keys before the first call, or pass {scene.name} a list of fixed length instead")
    return Fix(text=(
        f"pad {source} to a fixed length {scene.before_call}, or pass torch.stack({source}): its size becomes dynamic"
    ))


def _presence(scene: Scene) -> Fix:
    source = scene.story.source
    if scene.story.kind is Kind.ATTRIBUTE:
        return Fix(text=f"give every object the attribute: set it in __init__, so that {source} has it in each call")
    if "." in source:
        return Fix(text=f"set {source} before the first call of {scene.name}, and then leave it; with and without is compiled once each")
    return Fix(text=f"pass a tensor every time, one that does nothing (a mask of ones) in place of None for {source}")


def _identity(scene: Scene) -> Fix:
    reason = scene.story.reasons[0]
    if reason.source == "the backend":
        return Fix(text=f"make the backend once, outside the loop, and pass the same object to torch.compile{scene.at_compile}")
    if reason.new == "deallocated":
        return Fix(text=f"keep {reason.source} alive and pass the same object again")
    if reason.old is not None:      # two arguments were, or were not, one object
        return Fix(text=f"clone() one of the arguments {scene.before_call}, so that they are never the same tensor")
    return Fix(text=(
        f"make {reason.source} once, outside the loop, and pass the same object every time; "
        "pass what differs as a tensor argument"
    ))


def _zero_one(scene: Scene) -> Fix:
    if not scene.story.dims or scene.inside:
        return Fix(text="pad to at least 2, or leave out calls with 0 or 1")
    return Fix(text=(
        f"pad to at least 2, or leave out calls with 0 or 1; or torch._dynamo.decorators.mark_unbacked({scene.story.source}, "
        f"{scene.story.dims[0]}) {scene.before_call}, which breaks the graph at a branch on the size, and raises where a 1 "
        "is broadcast"
    ))


def _type(scene: Scene) -> Fix:
    source = scene.story.source
    if scene.story.reasons[0].new == "Parameter":
        return Fix(text=f"pass {source}.detach(), or a Parameter every time: a Parameter and a plain tensor are two types")
    reason = scene.story.reasons[0]
    if not {"Tensor", "int", "float", "bool"} & {reason.old, reason.new}:
        return Fix(text=f"pass one type every time as {source}")
    return Fix(text=f"pass a tensor every time: torch.as_tensor({source}, dtype=torch.float32) {scene.before_call}")


def _symbolic(scene: Scene) -> Fix:
    reason = scene.story.reasons[0]
    if "duck sizing" in reason.raw:
        return Fix(text="set torch.fx.experimental._config.use_duck_shape = False, so that sizes equal at first are told apart")
    padded = f"pad {scene.subject} so that `{reason.guard}` always holds"
    if reason.by_torch:
        return Fix(text=f"{padded}, or keep both sides: it is torch that compiles differently there (torch/{reason.by_torch})")
    return Fix(text=f"{padded}, or take out the branch on it{f' at {reason.place}' if reason.place else ''}")


def _other(scene: Scene) -> Fix:
    if scene.story.kind is Kind.MARKING:
        return Fix(text="mark the tensor the same way in every call, from the first on")
    return Fix(text="TORCH_LOGS=recompiles_verbose lists every guard that failed; see the reason as torch gives it")


_MADE: dict[str, Callable[[Scene], Fix]] = {
    "TT201": _settled, "TT202": _keeps_changing, "TT203": _ragged, "TT204": _int, "TT205": _float, "TT207": _per_layer,
    "TT209": _grad_mode, "TT210": _flag, "TT217": _length, "TT218": _presence, "TT219": _identity, "TT220": _global,
    "TT221": _zero_one, "TT223": _type, "TT225": _symbolic, "TT299": _other,
}

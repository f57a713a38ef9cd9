"""The remedy for each pattern of recompiles; each was applied to real programs."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from torchtriage.diagnosis.recompiles.groups import MIN_TO_KEEP_ON, RecompileGroup
from torchtriage.diagnosis.recompiles.guard_text import Kind, readable
from torchtriage.findings.model import Fix
from torchtriage.text import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A group with the names and places that its texts mention; an unknown place is an empty text."""

    group: RecompileGroup
    name: str           # of the function
    subject: str        # what changed: x.size(0), len(xs), self.n
    before_call: str    # "before the call at train.py:140"
    compiled_at: str    # "train.py:31"
    body: str = ""      # the source of the function, where the recording has it
    value: str = ""     # the value as the line of the call writes it; empty if that line does not show it
    batches: str = ""   # how the user of a library that makes the batches keeps their size
    dynamic: str = ""   # how to end dynamic=False, where a library calls torch.compile
    star: str = ""      # "*" or "**" where the source is a function's *args or **kwargs
    inside: str = ""    # the library of the function, if torch.compile was not called on this function
    broken_at: str = ""     # the graph break that keeps such a function out of its caller's graph
    has_specs: bool = False     # torch.compile has dynamic_shapes=
    calls: tuple[str, ...] = ()     # if the backend changed: "train.py:31 with backend='eager'"

    @property
    def is_static(self) -> bool:
        return self.group.call is not None and self.group.call.dynamic is False

    @property
    def at_compile(self) -> str:
        return f" at {self.compiled_at}" if self.compiled_at else ""

    @property
    def described(self) -> str:
        """The value in words, for a line that has no name for it."""
        return f"the value that {self.name} calls {self.group.source}"

    @property
    def not_static(self) -> str:
        return self.dynamic or f"drop dynamic=False{self.at_compile}"


def remedy(code: str, scene: Scene) -> Fix:
    """The fix for a group of this code."""
    group = scene.group
    if scene.inside and code not in _OF_SIZES:
        return _separate(scene)
    if not scene.inside and group.source.startswith("past_key_values"):
        return Fix(text=(
            "generate(..., cache_implementation='static') keeps the cache at one size; a cache that grows recompiles"
        ))
    if group.flags and group.limit:
        return _combinations(scene)
    if code in _BY_SCENE:
        return _BY_SCENE[code](scene)
    return Fix(text=_TEXTS[code].format(source=group.source, name=scene.name))


MAX_FLAGS = 5       # of which all combinations are worth a compile each


def _combinations(scene: Scene) -> Fix:
    flags = scene.group.flags
    choose = f"decide in the graph: make each a tensor and write torch.where(flag, a, b) in {scene.name}"
    if len(flags) > MAX_FLAGS:
        return Fix(text=f"{choose}; {listed(flags)} change independently, and each combination is compiled")
    number = 2 ** len(flags)
    return Fix(text=(
        f"torch._dynamo.config.recompile_limit = {number} before the first call: {listed(flags)} change independently, "
        f"and each of their {number} combinations is compiled once; or {choose}"
    ))


_TEXTS = {
    "TT208": (
        "nothing to do: each mode is compiled once and kept, so flipping back is free; "
        "call {name} once in train() and once in eval() mode before any timing"
    ),
    "TT212": (
        "create or move {source} on one device before the first call: {source} = {source}.to(device); "
        "state that moves with its input inside the compiled function is compiled once per device"
    ),
    "TT298": (
        "torch names no guard; on 2.9 this happens if the same function is compiled again with a new backend object: "
        "call torch.compile once and keep the function that it returns"
    ),
}


def _dtype(scene: Scene) -> Fix:
    value, old, if_recurs = scene.value, scene.group.reasons[0].old, _if_recurs(scene)
    if not value:
        return Fix(text=f"{if_recurs}cast {scene.described} to {old}, or the dtype you intend, {scene.before_call}")
    return Fix(text=f"{if_recurs}cast {scene.before_call}: {value} = {value}.to({old}), or the dtype you intend")


def _stride(scene: Scene) -> Fix:
    value = scene.value
    call = f"{value} = {value}.contiguous()" if value else f"call .contiguous() on {scene.described}"
    return Fix(text=(
        f"{_if_recurs(scene)}{call} {scene.before_call}; a transposed or strided view has a different memory layout"
    ))


# Sizes come from the tensors that the user passes, even inside a library.
_OF_SIZES = frozenset({"TT201", "TT202", "TT203", "TT221"})


def _separate(scene: Scene) -> Fix:
    """The user cannot change the arguments inside a library, only that the function is compiled separately."""
    cache = ""
    if "past_key_values" in scene.group.source:
        cache = "pass use_cache=False where the cache is not used, as in training; or "
    if not scene.broken_at:
        return Fix(text=(
            f"{cache}{scene.name} is called from code of {scene.inside} that is not compiled, so it is compiled "
            "separately, once for each kind of call: compile its caller, or exclude it with torch.compiler.disable"
        ))
    return Fix(text=(
        f"{cache}remove the graph break at {scene.broken_at} (its finding says how): because of it {scene.name} is "
        "compiled separately from its caller, once for each kind of call; "
        "traced within its caller, each use keeps its own values"
    ))


def mark_dynamic(scene: Scene) -> str:
    """The call that makes the dimensions dynamic if the code allows it; mark_dynamic would raise if it does not."""
    dims = scene.group.dims
    if scene.inside or not scene.value:
        return (
            f"torch._dynamo.maybe_mark_dynamic on the tensor that this size comes from, {scene.before_call}, "
            "from the first call on"
        )
    mark = f"torch._dynamo.maybe_mark_dynamic({scene.value}, {dims[0] if len(dims) == 1 else list(dims)})"
    return f"{mark} {scene.before_call}, from the first call on, and likewise for each tensor that shares the size"


def _same_size(scene: Scene) -> str:
    """How to keep the sizes the same, or to make them dynamic: in the library that makes the batches, if there is one.

    The tensors do not exist at the line that calls such a library.
    """
    return scene.batches or mark_dynamic(scene)


def _shape_spec(scene: Scene) -> str:
    """The argument of torch.compile that names the size, from torch 2.14 on; only a parameter can be named."""
    source = scene.group.source
    has_place = not (scene.inside or scene.star or scene.batches)
    if not scene.has_specs or not has_place or not source.isidentifier() or not scene.group.dims:
        return ""
    spec = f'dynamic_shapes={{"{source}": TensorSpec([...])}}'
    return (
        f"; or {spec} in torch.compile{scene.at_compile}, instead of dynamic=, with a ShapeVar at "
        f"dimension {scene.group.dims[0]} (torch.fx.experimental.dynamic_spec): one graph for every size, 0 and 1 "
        "included, but sizes that it does not name are static, and a branch on the size breaks the graph"
    )


NOTHING = "nothing to do: each state is compiled once and kept; to save the second compile, "
UNSEEN = "if the torch.compile call has dynamic=False, drop it; if not, "


def _settled(scene: Scene) -> Fix:
    if scene.group.call is None:
        return Fix(text=f"{UNSEEN}nothing needs to change; to save this compile: {_same_size(scene)}")
    also = f"; or {scene.dynamic}" if scene.dynamic and scene.batches else ""
    return Fix(text=f"nothing needs to change; to save this compile: {_same_size(scene)}{also}", safe=True)


def _keeps_changing(scene: Scene) -> Fix:
    if scene.is_static:
        if may_be_of_a_layer(scene) and scene.group.in_one_step is not False:
            return Fix(text=(
                f"compile the model that holds the layers instead of {scene.name}, if {scene.subject} differs because "
                "each layer has its own width; if it differs from call to call of one layer, "
                + scene.not_static
            ))
        return Fix(text=f"{scene.not_static}, or {_same_size(scene)}{_shape_spec(scene)}")
    if _is_needed(scene.group) and not scene.batches:
        return Fix(text=(
            f"compute what needs {scene.subject} as a Python number before the call, and pass the result: a key of a "
            "dict, range(), an index of a list or int() keeps a size from becoming dynamic; a size that must match a "
            f"parameter cannot become dynamic either: then compile the caller of {scene.name}, so that each use is "
            "compiled once"
        ))
    unseen = UNSEEN if scene.group.call is None else ""
    return Fix(text=(
        f"{unseen}{_same_size(scene)}; a size that must match a parameter cannot become dynamic: "
        f"compile the caller of {scene.name} instead, so that each use is compiled once"
    ))


def _is_needed(group: RecompileGroup) -> bool:
    """Whether one dimension kept recompiling although automatic dynamic shapes, which take one recompile, were on."""
    if group.call is None or group.call.dynamic is not None:
        return False
    recompiles = Counter(reason.dim for reason in group.reasons)
    return max(recompiles.values()) >= MIN_TO_KEEP_ON


def _ragged(scene: Scene) -> Fix:
    if scene.batches:
        return Fix(text=f"{_if_settled(scene)}{scene.batches}")
    pad = "pad the last batch to the usual size"
    # A batch without a name of its own is cut out of a tensor at the call: no DataLoader makes it.
    first = f"DataLoader(..., drop_last=True), or {pad}" if scene.value or not scene.is_static else (
        f"{scene.not_static}: one recompile makes the size dynamic; or {pad}")
    return Fix(text=f"{_if_settled(scene)}{first}; to keep it as it is: {mark_dynamic(scene)}")


def may_be_of_a_layer(scene: Scene) -> bool:
    """A method that is decorated in its class serves every instance: a size may be a layer's own, not the data's."""
    call = scene.group.call
    if call is None or "." not in call.target or 0 in scene.group.dims:
        return False
    return (call.path, call.line) == (call.target_path, call.target_line)


def _if_settled(scene: Scene) -> str:
    return "nothing to do: the size is dynamic from now on; to save this compile: " if scene.group.is_settled else ""


NOT_AGAIN = "nothing needs to change if it does not recur; to save this compile: "


def _if_needed(scene: Scene) -> str:
    return "" if scene.group.keeps_on else NOT_AGAIN


def _if_recurs(scene: Scene) -> str:
    return NOT_AGAIN if scene.group.is_settled else ""


def _int(scene: Scene) -> Fix:
    group, source = scene.group, scene.group.source
    if scene.is_static:
        return Fix(text=(
            f"{scene.not_static}: an int is then dynamic from its second value on; "
            f"or pass {f'torch.tensor({scene.value})' if scene.value else 'it as a tensor'}"
        ))
    if "nn.Module" in scene.group.reasons[0].hint:
        return Fix(text=(
            f"register {source} as a buffer, or set torch._dynamo.config.allow_unspec_int_on_nn_module = True: "
            "without it an int attribute of a module is a constant"
        ))
    line = scene.group.reasons[0].code
    if re.search(rf"\brange\([^)]*\b{re.escape(source)}\b", line):
        return Fix(text=(
            f"compile the body of the loop instead of {scene.name}, and keep `{line.rstrip(':')}` in Python: range() "
            f"unrolls the loop, so each value of {source} is another program; or always run the largest number of "
            "steps and mask"
        ))
    if re.search(rf"\[\s*{re.escape(source)}\s*\]", line):
        return _index(scene)
    if group.keeps_on and group.call is not None and _is_operator_argument(scene):
        return Fix(text=(
            f"each value of {source} is a constant of an operator in `{line}`, so it is another program, compiled once "
            f"and kept: if its values are few and known, raise torch._dynamo.config.recompile_limit above their "
            f"number and call {scene.name} once with each before any timing; else keep this line outside {scene.name}"
        ))
    if "._" in source:      # the user does not replace a private field
        return Fix(text=(
            f"keep {source} the same in every call; it is dynamic from its second value on, "
            "unless the code needs its value"
        ))
    return Fix(text=(
        f"{_if_needed(scene)}make it a tensor{f', torch.tensor({scene.value})' if scene.value else ''}; "
        "an int argument is dynamic from its second value on, "
        f"unless the code needs its value, as range({source}) does"
    ))


def _index(scene: Scene) -> Fix:
    """An int that selects from a list is a constant; one that indexes a tensor is dynamic, unlike a 0-d tensor."""
    source, line = scene.group.source, scene.group.reasons[0].code
    if not scene.group.keeps_on:
        return Fix(text=f"nothing needs to change if it does not recur: {source} is dynamic where it indexes a tensor")
    stays = (
        f"{source} stays an int, which is dynamic where it indexes a tensor; "
        f"a tensor as index is not, except in index_select"
    )
    if re.search(rf"\[\s*{re.escape(source)}\s*\]\(", line):
        return Fix(text=(
            f"call every module of the list in `{line}` and index the stacked results with {source}: "
            f"torch.stack([module(x) for module in ...])[{source}]; {stays}; or, if the modules are few, raise "
            f"torch._dynamo.config.recompile_limit above their number: each is compiled once and kept"
        ))
    return Fix(text=(
        f"make the list in `{line}` one tensor before the compiled call: torch.tensor(...) of numbers, "
        f"torch.stack(...) of tensors; {stays}"
    ))


# The arguments of these operators are numbers, never tensors: a kernel size, a stride.
_OPERATOR = r"\b(?:\w*(?:pool|conv)\w*|unfold|fold)\("


def _is_operator_argument(scene: Scene) -> bool:
    source = re.escape(scene.group.source)
    return re.search(rf"{_OPERATOR}.*(?<![\w.]){source}\b", scene.group.reasons[0].code) is not None


def _from_tensor(scene: Scene) -> Fix:
    """A number that was read from a tensor: by .item() before a break, or as an index."""
    source, line = scene.group.source, scene.group.reasons[0].code
    tensor = source.removesuffix(".item()")
    if tensor != source and re.search(rf"\[\s*{re.escape(tensor)}\s*\]", line):
        return Fix(text=(
            f"`{line}` reads the value of {tensor} as an index: use .index_select(0, {tensor}) instead of "
            f"[{tensor}], or pass {tensor} as an int, which is dynamic where it indexes a tensor"
        ))
    return Fix(text=(
        "keep the value in a tensor instead of reading it with .item(); if the number itself is needed, "
        "torch._dynamo.config.capture_scalar_outputs = True keeps it in the graph"
    ))


def _global(scene: Scene) -> Fix:
    reason = scene.group.reasons[0]
    if reason.value_type not in ("int", "float"):
        nothing = NOTHING if scene.group.is_settled else ""
        return Fix(text=(
            f"{nothing}set {reason.source} before the first call of {scene.name}, and do not change it afterwards"
        ))
    if re.search(rf"{re.escape(reason.source)}\s*[+-]=", reason.code.replace('"', "'")):
        return Fix(text=(
            f"take `{reason.code}` out of {scene.name}: count outside, and pass {reason.source} as an argument, which "
            "is dynamic from its second value on, where it is used; or make it a tensor that counts in the graph"
        ))
    never = "; a global int never becomes dynamic" if reason.value_type == "int" else ""
    return Fix(text=(
        f"pass {reason.source} to {scene.name} as an argument, which is dynamic from its second value on, "
        f"or make it a tensor and change it with fill_(){never}"
    ))


def _float(scene: Scene) -> Fix:
    source = scene.group.source
    if "param_groups" in source:
        return Fix(text="create the optimizer with a tensor: lr=torch.tensor(1e-3); schedulers then change it in place")
    static = f"{scene.not_static}, or " if scene.is_static else ""
    name = source.rpartition(".")[2]
    reason = scene.group.reasons[0]
    if _passes_to(reason.code, name, "dropout"):
        return Fix(text=(
            f"write the dropout with a tensor as rate: x * (torch.rand_like(x) >= {name}) / (1 - {name}), "
            f"where {name} is a tensor (other random numbers than before)"
        ))
    value = reason.old if reason.is_plain else "..."
    position = re.fullmatch(r"args\[(\d)\]", source)      # torch's name for an argument of a wrapped function
    if position:
        return Fix(text=(
            f"{static or _if_needed(scene)}pass a tensor as argument {int(position[1]) + 1} {scene.before_call}: "
            f"torch.tensor({value}), changed with fill_(){_math(scene)}{_then_branches(scene)}"
        ))
    return Fix(text=(
        f"{static or _if_needed(scene)}wrap it in a tensor: {name}=torch.tensor({value}), changed with fill_()"
        f"{_math(scene)}{_then_branches(scene)}"
    ))


def _passes_to(line: str, name: str, functions: str) -> bool:
    """Whether a line passes a value to one of these functions, which need a Python number."""
    return bool(re.search(rf"(?:{functions})\w*\([^()]*\b{re.escape(name)}\b", line))


_TAKES_A_NUMBER = "dropout|range|view|reshape|chunk|split|topk|pad|roll|narrow|unfold|pool|conv|interpolate|norm"


def _per_layer(scene: Scene) -> Fix:
    whole = f"compile the model that holds the layers instead of {scene.name}: its one frame inlines every layer"
    reason = scene.group.reasons[0]
    name = reason.source.rpartition(".")[2]
    if scene.group.kind is not Kind.EQUALS or _passes_to(reason.code, name, _TAKES_A_NUMBER):
        return Fix(text=whole)
    is_int = reason.value_type == "int"
    unspec = ", or set torch._dynamo.config.allow_unspec_int_on_nn_module = True" if is_int else ""
    return Fix(text=f"{whole}; or make {scene.group.source} a buffer or a tensor argument{unspec}")


def _grad_mode(scene: Scene) -> Fix:
    return Fix(text=(
        f"{NOTHING if scene.group.is_settled else ''}call {scene.name} under one grad mode: "
        "always with torch.no_grad(), always without, or always with "
        "torch.inference_mode(); or call it once in each mode before any timing"
    ))


_FLAG_TEXTS = {
    "autocast": (
        "enter torch.autocast with the same device, dtype and cache setting around every call of {name}, or around none"
    ),
    "torch_function_mode": (
        "call {name} always inside or always outside `with torch.device(...)` or another torch function mode"
    ),
    "num_threads": (
        "call torch.set_num_threads once, before the first call of {name}: each thread count is compiled separately"
    ),
    "default_device": "call torch.set_default_device before the first call of {name}, and do not change it afterwards",
}


def _flag(scene: Scene) -> Fix:
    flag = scene.group.source
    text = _FLAG_TEXTS.get(flag, "set {flag} before the first call of {name}, and do not change it afterwards")
    nothing = NOTHING if scene.group.is_settled else ""
    return Fix(text=nothing + text.format(flag=flag, name=scene.name))


_ARGUMENTS = {"*": "number of positional arguments", "**": "set of keyword arguments"}


def _length(scene: Scene) -> Fix:
    source = scene.group.source
    if scene.star:
        arguments = _ARGUMENTS[scene.star]
        return Fix(text=f"call {scene.name} with the same {arguments} every time: each is compiled once and kept")
    if source.endswith("._modules"):
        return Fix(text=(
            f"each number of layers is a separate program: call {scene.name} outside compiled code, "
            "or decorate it with @torch.compiler.disable, which breaks the graph there"
        ))
    if _is_dict(scene.group) and _is_read_by_name(scene):
        return Fix(text=_same_keys(scene))
    if _is_dict(scene.group):
        return Fix(text=(
            f"pass the values as one tensor: {_stacked(scene)} {scene.before_call}, whose size "
            f"becomes dynamic; or give {source} all its keys before the first call"
        ))
    growth = _growth(scene)
    if growth:
        return Fix(text=(
            f"take `{growth}` out of {scene.name}: it makes {source} longer in each call, and each length is compiled; "
            f"return the value, and append it outside {scene.name}"
        ))
    if _holds_numbers(scene.group):
        passed = f"torch.tensor({scene.value})" if scene.value else f"the numbers of {scene.described} as one tensor"
        return Fix(text=(
            f"pass {passed}, whose size becomes dynamic: each number of a list is a guard too; in {scene.name}, "
            f"index with the tensor, or reduce it, in place of a loop over {source}"
        ))
    value = scene.value
    stacked = f"pass torch.stack({value})" if value else "stack it to one tensor with torch.stack"
    return Fix(text=(
        f"pad {value or scene.described} to a fixed length {scene.before_call}, or {stacked}: its size becomes dynamic"
    ))


def _holds_numbers(group: RecompileGroup) -> bool:
    """Whether torch guards the items of the list by their values, as it does with Python numbers."""
    item = re.compile(rf"{re.escape(group.source)}\[\d+\]$")
    return any(
        item.match(readable(source)) and re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", value)
        for compile_ in group.compiles for source, value in compile_.values.items()
    )


def _growth(scene: Scene) -> str:
    """The statement of the function that makes the list longer; empty if the source shows none."""
    body = f"{scene.body}\n{scene.group.reasons[0].code}"
    found = re.search(rf"^\s*({re.escape(scene.group.source)}(?:\.(?:append|extend|insert)\(.*| \+= .*))$", body, re.M)
    return found[1].strip() if found else ""


def _is_read_by_name(scene: Scene) -> bool:
    """Whether the function reads entries of the dict by a fixed key, so that each has a separate role."""
    name = re.escape(scene.group.source)
    return re.search(rf"\b{name}(?:\.get\(|\.pop\(|\[)\s*['\"]|['\"] (?:not )?in {name}\b", scene.body) is not None


def _same_keys(scene: Scene) -> str:
    return (
        f"give {scene.group.source} the same keys in every call: where one is missing, {scene.before_call}, put one "
        "that has no effect (zeros if it is added, ones if it multiplies, all False if it is a mask)"
    )


def _stacked(scene: Scene) -> str:
    """The values of a dict as one tensor."""
    return f"torch.stack(list({scene.value}.values()))" if scene.value else "torch.stack on the values of the dict"


def _is_dict(group: RecompileGroup) -> bool:
    """Whether the value is a dict: torch words its length with `!=`, or guards its items by a key that is a text."""
    item = f"{group.source}['"
    guarded = (readable(source) for compile_ in group.compiles for source in compile_.values)
    return " != " in group.reasons[0].guard or any(source.startswith(item) for source in guarded)


def _presence(scene: Scene) -> Fix:
    source = scene.group.source
    if scene.group.kind is Kind.ATTRIBUTE:
        return Fix(text=f"give every object the attribute: set it in __init__, so that {source} has it in each call")
    if "." in source:
        return Fix(text=(
            f"set {source} before the first call of {scene.name}, and do not change it afterwards; "
            "the variants with and without it are each compiled once"
        ))
    nothing = NOTHING if scene.group.is_settled else ""
    return Fix(text=(
        f"{nothing}pass a tensor every time: instead of None for {source}, one that has no effect ({_neutral(scene)})"
    ))


def _neutral(scene: Scene) -> str:
    """The tensor that changes nothing, by how the function uses the argument."""
    name = re.escape(scene.group.source)
    if re.search(rf"masked_fill_?\(\s*{name}\b", scene.body):
        return "all False: it fills nothing"
    if re.search(rf"\+=?\s*{name}\b|\b{name}\s*\+", scene.body):
        return "zeros: they are added"
    if re.search(rf"(?<!\*)\*=?\s*{name}\b|\b{name}\s*\*(?!\*)", scene.body):
        return "ones: they multiply"
    return "a mask of ones if it multiplies, of zeros if it is added, all False if it fills"


def _identity(scene: Scene) -> Fix:
    reason = scene.group.reasons[0]
    if scene.group.num_settings > 1:
        nothing = "nothing to do if you need each of them; otherwise " if scene.group.is_settled else ""
        return Fix(text=f"{nothing}call torch.compile on {scene.name} once, with one set of settings, for all uses")
    if reason.is_of_backend:
        return Fix(text=(
            f"create the backend once, outside the loop, and pass the same object to torch.compile{scene.at_compile}"
        ))
    if reason.new == "deallocated":
        return Fix(text=f"keep {reason.source} alive and pass the same object again")
    if reason.old is not None:      # two arguments were, or were not, one object
        return Fix(text=f"clone() one of the arguments {scene.before_call}, so that they are never the same tensor")
    if re.search(rf"\b{re.escape(reason.source)}\.(?:value|name)\b", reason.code):
        return Fix(text=(
            f"pass a tensor instead of the enum member: torch.tensor({reason.source}.value); each member is compiled "
            "separately"
        ))
    return Fix(text=(
        f"create {reason.source} once, outside the loop, and pass the same object every time; "
        "pass the values that differ as tensor arguments"
    ))


def _zero_one(scene: Scene) -> Fix:
    if scene.batches:
        return Fix(text=scene.batches)
    nothing = "nothing to do: 0 and 1 are each compiled once; to save this compile, " if scene.group.is_settled else ""
    if not scene.group.dims or scene.inside or not scene.value:
        return Fix(text=f"{nothing}pad to at least 2, or skip calls with 0 or 1")
    return Fix(text=(
        f"{nothing}pad to at least 2, or skip calls with 0 or 1; or torch._dynamo.decorators.mark_unbacked("
        f"{scene.value}, {scene.group.dims[0]}) {scene.before_call}, which breaks the graph at a branch "
        f"on the size and raises if a 1 is broadcast{_shape_spec(scene)}"
    ))


def _type(scene: Scene) -> Fix:
    source = scene.group.source
    if scene.group.reasons[0].new == "Parameter":
        return Fix(text=(
            f"pass {source}.detach(), or a Parameter every time: a Parameter and a plain tensor are different types"
        ))
    reason = scene.group.reasons[0]
    if reason.kind is Kind.TYPE and not {"Tensor", "int", "float", "bool"} & {reason.old, reason.new}:
        if scene.group.keeps_on and reason.old:
            return Fix(text=(
                f"define {reason.old} once, at module level: a class that is made again in each call is another type "
                "each time"
            ))
        return Fix(text=f"pass the same type every time as {source}")
    if not scene.value:
        return Fix(text=f"pass a tensor every time for {scene.described}: torch.as_tensor {scene.before_call}")
    made = f"torch.as_tensor({scene.value}, dtype=torch.float32)"
    return Fix(text=f"pass a tensor every time: {made} {scene.before_call}")


_TORCH_MODULE = re.compile(r"^nn/(?:modules/)?\w+\.py:")      # torch shortens the paths of its own files


def _symbolic(scene: Scene) -> Fix:
    reason = scene.group.reasons[0]
    if "duck sizing" in reason.raw:
        return Fix(text=(
            "set torch.fx.experimental._config.use_duck_shape = False, so that sizes that are equal at first "
            "are treated as separate"
        ))
    padded = f"pad {scene.subject} so that `{reason.guard}` always holds"
    by_torch = reason.by_torch or (reason.place if _TORCH_MODULE.search(reason.place) else "")
    if by_torch:
        return Fix(text=f"{padded}, or keep both variants: torch itself sets this guard (torch/{by_torch})")
    at = f" at {reason.place.rpartition('/')[2]}" if reason.place else ""
    if reason.dim is None:
        nothing = NOTHING if scene.group.is_settled else ""
        return Fix(text=(
            f"{nothing}test {scene.subject} before the call and pass the result, or take the branch on it{at} out of "
            f"{scene.name}: each side of `{reason.guard}` is another program"
        ))
    return Fix(text=f"{padded}, or remove the branch on it{at}")


def _counter(scene: Scene) -> Fix:
    counter = re.sub(r"^list\((.+)\.values\(\)\)\[\d+\]$", r"each value of \1", scene.group.source)
    return Fix(text=(
        f"{_if_recurs(scene)}make {counter} a tensor (on a module, a buffer) that counts in the graph"
        f"{_math(scene)}{_then_branches(scene)}; or count outside the compiled function"
    ))


def _math(scene: Scene) -> str:
    """A function of math reads a tensor like .item()."""
    call = re.search(r"\bmath\.(\w+)\(", scene.group.reasons[0].code)
    return f", with torch.{call[1]} instead of math.{call[1]}" if call else ""


def _then_branches(scene: Scene) -> str:
    """What a value that becomes a tensor breaks next: a branch on it."""
    name = re.escape(scene.group.source.rpartition(".")[2])
    lines = [scene.group.reasons[0].code, *scene.body.splitlines()]
    for line in lines:
        branch = re.search(rf"^\s*(?:el)?if\b.*\b{name}\b.*:|^\s*(?:while|assert)\b.*\b{name}\b", line)
        if branch or re.search(rf"\bif [^:]*\b{name}\b.* else\b", line):
            return f", and select with torch.where in place of `{line.strip()}`, which would branch on a tensor"
    return ""


def _text_value(scene: Scene) -> Fix:
    source, name = scene.group.source, scene.name
    if scene.group.keeps_on:
        return Fix(text=(
            f"leave {source} out of {name} and use it outside, before or after the call: each value is another "
            "program; only a small, fixed set of values is worth compiling, each once before any timing"
        ))
    return Fix(text=(
        f"nothing to do for a small set of values: each value of {source} is compiled once and kept; call {name} once "
        "with each before any timing"
    ))


def _requires_grad(scene: Scene) -> Fix:
    source, name = scene.group.source, scene.name
    nothing = NOTHING if scene.group.is_settled else ""
    return Fix(text=(
        f"{nothing}call {name} with the same requires_grad every time: {source}.requires_grad_() on the first one too "
        f"if gradients flow through it, {source}.detach() every time if not"
    ))


def _keys(scene: Scene) -> Fix:
    source, name = scene.group.source, scene.name
    if scene.group.dims:
        return Fix(text=(
            f"look the key up outside {name} and pass the value, or pass the values as a list in a fixed order; "
            "keys of another type, such as strings or flat indices, recompile as well"
        ))
    if _is_read_by_name(scene):
        return Fix(text=_same_keys(scene))
    return Fix(text=(
        f"pass the values without their keys: {_stacked(scene)} {scene.before_call}, whose size "
        f"becomes dynamic, and put the keys back outside {name}; or give {source} the same keys in every call; a list "
        "instead of the dict recompiles for each length"
    ))


def _rank(scene: Scene) -> Fix:
    """One more dimension is usually the batch."""
    value, ranks = scene.value, sorted({rank for _, rank in scene.group.values})
    if len(ranks) == 2 and all(rank.isdigit() for rank in ranks) and int(ranks[1]) - int(ranks[0]) == 1:
        more = f"{value}.unsqueeze(0)" if value else f"unsqueeze(0) on {scene.described}"
        return Fix(text=(
            f"{_if_recurs(scene)}pass {ranks[1]} dimensions every time: {more} {scene.before_call} where "
            f"{value or 'it'} has only {ranks[0]}, and squeeze(0) on the result"
        ))
    return Fix(text=(
        f"{_if_recurs(scene)}give {value or scene.described} a fixed number of dimensions {scene.before_call}, for "
        f"example {f'{value}.flatten(0, -2)' if value else 'with flatten(0, -2)'}"
    ))


def _other(scene: Scene) -> Fix:
    if scene.group.kind is Kind.MARKING:
        return Fix(text="mark the tensor the same way in every call, starting with the first")
    return Fix(text="TORCH_LOGS=recompiles_verbose lists every guard that failed; read the reason that torch reports")


_BY_SCENE: dict[str, Callable[[Scene], Fix]] = {
    "TT201": _settled, "TT202": _keeps_changing, "TT203": _ragged, "TT204": _int, "TT205": _float, "TT206": _counter,
    "TT207": _per_layer,
    "TT209": _grad_mode, "TT210": _flag, "TT211": _dtype, "TT213": _stride, "TT214": _rank, "TT216": _keys,
    "TT217": _length, "TT218": _presence,
    "TT215": _requires_grad, "TT219": _identity, "TT220": _global, "TT224": _text_value,
    "TT221": _zero_one, "TT222": _from_tensor, "TT223": _type, "TT225": _symbolic, "TT299": _other,
}

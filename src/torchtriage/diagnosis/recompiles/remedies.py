"""The remedy for each pattern of recompiles; each was applied to real programs."""

import ast
import re
from collections.abc import Callable

from torchtriage.diagnosis.recompiles.groups import RecompileGroup
from torchtriage.diagnosis.recompiles.guard_text import Kind, readable
from torchtriage.diagnosis.recompiles.scene import NOTHING, Scene, if_recurs
from torchtriage.diagnosis.recompiles.size_remedies import (
    keeps_changing_remedy,
    ragged_remedy,
    settled_remedy,
    symbolic_remedy,
    zero_one_remedy,
)
from torchtriage.diagnosis.recompiles.value_remedies import (
    counter_remedy,
    flag_remedy,
    float_remedy,
    from_tensor_remedy,
    global_remedy,
    grad_mode_remedy,
    int_remedy,
    per_layer_remedy,
)
from torchtriage.diagnosis.statement import code
from torchtriage.findings.model import Fix
from torchtriage.text import listed


def remedy(code: str, scene: Scene) -> Fix:
    """The fix for a group of this code."""
    group = scene.group
    if scene.inside and code not in _OF_SIZES:
        return _separate(scene)
    if group.source.startswith("self.state[") and "/torch/optim/" in group.frame.key[0] and not group.keeps_on:
        return Fix(text=(
            "nothing to do: the optimizer makes its state in the first step, so the second step is compiled again, once"
        ))
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
    value, old, condition = scene.value, scene.group.reasons[0].old, if_recurs(scene)
    if not value:
        return Fix(text=f"{condition}cast {scene.described} to {old}, or the dtype you intend, {scene.before_call}")
    return Fix(text=f"{condition}cast {scene.before_call}: {value} = {value}.to({old}), or the dtype you intend")


def _stride(scene: Scene) -> Fix:
    value = scene.value
    call = f"{value} = {value}.contiguous()" if value else f"call .contiguous() on {scene.described}"
    return Fix(text=(
        f"{if_recurs(scene)}{call} {scene.before_call}; a transposed or strided view has a different memory layout"
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
    joined = _joined(scene)
    if joined:
        return Fix(text=f"compute `{joined}` {scene.before_call}, and pass the tensor: its size becomes dynamic")
    return Fix(text=(
        f"pad {value or scene.described} to a fixed length {scene.before_call}, or {stacked}: its size becomes dynamic"
    ))


def _joined(scene: Scene) -> str:
    """The call of torch.stack or torch.cat by which the function makes the list one tensor; empty if none is seen."""
    for node in ast.walk(scene.function) if scene.function is not None else ():
        is_call = isinstance(node, ast.Call) and code(node.func) in ("torch.stack", "torch.cat", "torch.concat")
        if isinstance(node, ast.Call) and is_call and node.args and code(node.args[0]) == scene.group.source:
            return code(node).replace(f"({scene.group.source}", f"({scene.value or scene.group.source}", 1)
    return ""


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


def _selects_by_key(scene: Scene) -> bool:
    """Whether the function looks up something else by the keys of the dict over which it loops."""
    tree = scene.function
    if tree is None:
        return False
    keys = set()
    for node in ast.walk(tree):
        if not isinstance(node, (ast.For, ast.comprehension)):
            continue
        first = node.target.elts[0] if isinstance(node.target, ast.Tuple) else node.target
        is_over_dict = any(code(part) == scene.group.source for part in ast.walk(node.iter))
        if is_over_dict and isinstance(first, ast.Name):
            keys.add(first.id)
    of_others = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)]
    return any(code(n.slice) in keys and code(n.value) != scene.group.source for n in of_others)


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
    if re.search(rf"masked_fill_?\(\s*~\s*{name}\b", scene.body):
        return "all True: it fills nothing"
    if re.search(rf"masked_fill_?\(\s*{name}\b", scene.body):
        return "all False: it fills nothing"
    if re.search(rf"\+=?\s*{name}\b|\b{name}\s*\+", scene.body):
        return "zeros: they are added"
    if re.search(rf"(?<!\*)\*=?\s*{name}\b|\b{name}\s*\*(?!\*)", scene.body):
        return "ones: they multiply"
    return (
        "a mask of ones if it multiplies, of zeros if it is added, all False if it fills, all True if its inverse does"
    )


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
    if _selects_by_key(scene):
        raised = "raise torch._dynamo.config.recompile_limit above their number: " if scene.group.limit else ""
        return Fix(text=(
            f"give {source} the same keys in every call, with a mask for those that are missing: {name} selects by the "
            f"key, so each set of keys is another program; or, if these sets are few, {raised}each is compiled once "
            "and kept"
        ))
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
            f"{if_recurs(scene)}pass {ranks[1]} dimensions every time: {more} {scene.before_call} where "
            f"{value or 'it'} has only {ranks[0]}, and squeeze(0) on the result (a size of 1 is compiled apart, once)"
        ))
    return Fix(text=(
        f"{if_recurs(scene)}give {value or scene.described} a fixed number of dimensions {scene.before_call}, for "
        f"example {f'{value}.flatten(0, -2)' if value else 'with flatten(0, -2)'}"
    ))


def _other(scene: Scene) -> Fix:
    if scene.group.kind is Kind.MARKING:
        return Fix(text="mark the tensor the same way in every call, starting with the first")
    return Fix(text="TORCH_LOGS=recompiles_verbose lists every guard that failed; read the reason that torch reports")


_BY_SCENE: dict[str, Callable[[Scene], Fix]] = {
    "TT201": settled_remedy, "TT202": keeps_changing_remedy, "TT203": ragged_remedy, "TT204": int_remedy,
    "TT205": float_remedy, "TT206": counter_remedy, "TT207": per_layer_remedy, "TT209": grad_mode_remedy,
    "TT210": flag_remedy, "TT211": _dtype, "TT213": _stride, "TT214": _rank, "TT215": _requires_grad,
    "TT216": _keys, "TT217": _length, "TT218": _presence, "TT219": _identity, "TT220": global_remedy,
    "TT221": zero_one_remedy, "TT222": from_tensor_remedy, "TT223": _type, "TT224": _text_value,
    "TT225": symbolic_remedy, "TT299": _other,
}

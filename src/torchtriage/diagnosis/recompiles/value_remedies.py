"""The remedies for Python numbers and flags that change."""

import ast
import re
from collections.abc import Iterator

from torchtriage.diagnosis.compiles.source_uses import function_in, uses
from torchtriage.diagnosis.recompiles.guard_text import Kind
from torchtriage.diagnosis.recompiles.scene import NOTHING, Scene, if_needed, if_recurs
from torchtriage.diagnosis.statement import called_name, code
from torchtriage.findings.model import Fix


def int_remedy(scene: Scene) -> Fix:
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
    if not group.keeps_on and _needs_number(line, source):
        return Fix(text=(
            f"nothing needs to change: {source} is dynamic from its second value on; `{line}` needs a number, so "
            "a tensor would break the graph there"
        ))
    if "._" in source:      # the user does not replace a private field
        return Fix(text=(
            f"keep {source} the same in every call; it is dynamic from its second value on, "
            "unless the code needs its value"
        ))
    return Fix(text=(
        f"{if_needed(scene)}make it a tensor{f', torch.tensor({scene.value})' if scene.value else ''}; "
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


def from_tensor_remedy(scene: Scene) -> Fix:
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


def global_remedy(scene: Scene) -> Fix:
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


def float_remedy(scene: Scene) -> Fix:
    source = scene.group.source
    if "param_groups" in source:
        rate = scene.group.reasons[0].old or "1e-3"
        return Fix(text=(
            f"create the optimizer with a tensor: lr=torch.tensor({rate}); schedulers then change it in place, and a "
            "loop of your own has to: group['lr'].fill_(value), as assigning a float puts a constant back"
        ))
    static = f"{scene.not_static}, or " if scene.is_static else ""
    name = source.rpartition(".")[2]
    reason = scene.group.reasons[0]
    if _passes_to(reason.code, name, "dropout"):
        return Fix(text=(
            f"write the dropout with a tensor as rate: x * (torch.rand_like(x) >= {name}) / (1 - {name})"
            f"{' while self.training' if 'self.training' in reason.code else ''}, "
            f"where {name} is a tensor (other random numbers than before)"
        ))
    value = reason.old if reason.is_plain else "..."
    position = re.fullmatch(r"args\[(\d)\]", source)      # torch's name for an argument of a wrapped function
    if position:
        return Fix(text=(
            f"{static or if_needed(scene)}pass a tensor as argument {int(position[1]) + 1} {scene.before_call}: "
            f"torch.tensor({value}), changed with fill_(){_math(scene)}{_then_branches(scene)}"
        ))
    return Fix(text=(
        f"{static or if_needed(scene)}wrap it in a tensor: {name}=torch.tensor({value}), changed with fill_()"
        f"{_math(scene)}{_then_branches(scene)}"
    ))


def _passes_to(line: str, name: str, functions: str) -> bool:
    """Whether a line passes a value to one of these functions, which need a Python number."""
    return bool(re.search(rf"(?:{functions})\w*\([^()]*\b{re.escape(name)}\b", line))


_TAKES_A_NUMBER = "dropout|range|view|reshape|chunk|split|topk|pad|roll|narrow|unfold|pool|conv|interpolate|norm"


def _needs_number(line: str, source: str) -> bool:
    """Whether a line takes a value as a size: as the argument of a function, or in a slice."""
    is_slice = re.search(rf"\[[^\]]*(?::\s*{re.escape(source)}\b|\b{re.escape(source)}\s*:)", line) is not None
    return is_slice or _passes_to(line, source.rpartition(".")[2], _TAKES_A_NUMBER)


def per_layer_remedy(scene: Scene) -> Fix:
    whole = f"compile the model that holds the layers instead of {scene.name}: its one frame inlines every layer"
    reason = scene.group.reasons[0]
    name = reason.source.rpartition(".")[2]
    if scene.group.kind is not Kind.EQUALS or _passes_to(reason.code, name, _TAKES_A_NUMBER):
        return Fix(text=whole)
    is_int = reason.value_type == "int"
    unspec = ", or set torch._dynamo.config.allow_unspec_int_on_nn_module = True" if is_int else ""
    return Fix(text=f"{whole}; or make {scene.group.source} a buffer or a tensor argument{unspec}")


def grad_mode_remedy(scene: Scene) -> Fix:
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


def flag_remedy(scene: Scene) -> Fix:
    flag = scene.group.source
    text = _FLAG_TEXTS.get(flag, "set {flag} before the first call of {name}, and do not change it afterwards")
    nothing = NOTHING if scene.group.is_settled else ""
    return Fix(text=nothing + text.format(flag=flag, name=scene.name))


def counter_remedy(scene: Scene) -> Fix:
    counter = re.sub(r"^list\((.+)\.values\(\)\)\[\d+\]$", r"each value of \1", scene.group.source)
    # An int attribute of a module is a constant, so it recompiles in every call.
    settled = "" if "nn.Module" in scene.group.reasons[0].hint else if_recurs(scene)
    return Fix(text=(
        f"{settled}make {counter} a tensor (on a module, a buffer) that counts in the graph"
        f"{_math(scene)}{_then_branches(scene)}; or count outside the compiled function"
    ))


def _math(scene: Scene) -> str:
    """A function of math reads a tensor like .item()."""
    for part in _uses(scene):
        if isinstance(part, ast.Call) and code(part.func).startswith("math."):
            return f", with torch.{called_name(part)} instead of {code(part.func)}"
    return ""


def _then_branches(scene: Scene) -> str:
    """What a value that becomes a tensor breaks next: a branch on it."""
    for part in _uses(scene):
        if isinstance(part, (ast.If, ast.While)):
            head = f"{'if' if isinstance(part, ast.If) else 'while'} {code(part.test)}:"
        elif isinstance(part, (ast.Assert, ast.IfExp)):
            head = code(part)
        else:
            continue
        return f", and select with torch.where in place of `{head}`, which would branch on a tensor"
    return ""


def _uses(scene: Scene) -> Iterator[ast.AST]:
    for tree in (function_in(scene.group.reasons[0].code, ""), scene.function):
        yield from uses(tree, scene.group.source)

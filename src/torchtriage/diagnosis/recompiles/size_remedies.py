"""The remedies for sizes that change."""

import re

from torchtriage.diagnosis.compiles.source_uses import unrolled_loop
from torchtriage.diagnosis.recompiles.scene import NOTHING, UNSEEN, Scene, if_settled, is_needed
from torchtriage.findings.model import Fix


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


def settled_remedy(scene: Scene) -> Fix:
    if scene.group.call is None:
        return Fix(text=f"{UNSEEN}nothing needs to change; to save this compile: {_same_size(scene)}")
    also = f"; or {scene.dynamic}" if scene.dynamic and scene.batches else ""
    return Fix(text=f"nothing needs to change; to save this compile: {_same_size(scene)}{also}", safe=True)


def keeps_changing_remedy(scene: Scene) -> Fix:
    loop = unrolled_loop(scene.function, scene.group.source, scene.group.dims)
    if loop:
        return Fix(text=(
            f"compile the body of the loop instead of {scene.name}, and keep `{loop}` in Python: the loop is unrolled, "
            f"so each value of {scene.subject} is another program, and no setting makes it dynamic; or pad to a few "
            "fixed sizes"
        ))
    if scene.is_static:
        if may_be_of_a_layer(scene) and scene.group.in_one_step is not False:
            return Fix(text=(
                f"compile the model that holds the layers instead of {scene.name}, if {scene.subject} differs because "
                "each layer has its own width; if it differs from call to call of one layer, "
                + scene.not_static
            ))
        return Fix(text=f"{scene.not_static}, or {_same_size(scene)}{_shape_spec(scene)}")
    if is_needed(scene.group) and not scene.batches:
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


def ragged_remedy(scene: Scene) -> Fix:
    if scene.batches:
        return Fix(text=f"{if_settled(scene)}{scene.batches}")
    pad = "pad the last batch to the usual size"
    # A batch without a name of its own is cut out of a tensor at the call: no DataLoader makes it.
    first = f"DataLoader(..., drop_last=True), or {pad}" if scene.value or not scene.is_static else (
        f"{scene.not_static}: one recompile makes the size dynamic; or {pad}")
    return Fix(text=f"{if_settled(scene)}{first}; to keep it as it is: {mark_dynamic(scene)}")


def may_be_of_a_layer(scene: Scene) -> bool:
    """A method that is decorated in its class serves every instance: a size may be a layer's own, not the data's."""
    call = scene.group.call
    if call is None or "." not in call.target or 0 in scene.group.dims:
        return False
    return (call.path, call.line) == (call.target_path, call.target_line)


def zero_one_remedy(scene: Scene) -> Fix:
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


_TORCH_MODULE = re.compile(r"^nn/(?:modules/)?\w+\.py:")      # torch shortens the paths of its own files


def _is_branch(line: str) -> bool:
    return re.search(r"^\s*(?:if|elif|while|assert)\b|\bif\b.+\belse\b", line) is not None


def symbolic_remedy(scene: Scene) -> Fix:
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
    place = at if _is_branch(reason.code) else ""
    decided = (
        f"take the branch on {scene.subject}{place} out of {scene.name}: test it in the caller, and compile each side "
        "as a function of its own"
    )
    kept = ", as each side is compiled once and kept" if scene.group.is_settled else ""
    is_upper_bound = re.search(r"<=? \d+$", reason.guard) is not None     # padding makes a size larger
    return Fix(text=f"{decided}{kept}" if is_upper_bound else f"{decided}{kept}; or {padded}")

"""Checks that padding changes no result, gradient or written argument of a function."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.errors import TriageError
from torchtriage.shapes.functions.compiling import Compiles
from torchtriage.shapes.functions.padding import RESULT, Named, map_tensors, tensors_in
from torchtriage.text import counted

ROUNDING = 16       # multiples of a dtype's epsilon by which a value that should be 0 may differ


class PaddingChangesResultError(TriageError):
    """The padded call does not give the result of the unpadded one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of one tensor between the padded and the unpadded run; infinite if its shape or a NaN differs."""

    name: str
    greatest: float
    allowed: float
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.note or f'greatest difference {self.greatest:.3g}, allowed {self.allowed:.3g}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPadding:
    """A check that passed, with the differences of the tensors it compared."""

    size: int
    length: int
    differences: Sequence[Difference]

    @property
    def greatest(self) -> Difference:
        return max(self.differences, key=lambda d: d.greatest)

    def __repr__(self) -> str:
        greatest = self.greatest
        return (f"padding {self.size} to {self.length} changes nothing: greatest difference {greatest.greatest:.3g} "
                f"in {greatest.name}, over {counted(len(self.differences), 'tensor')}")


@dataclass(frozen=True, slots=True)
class _Run:
    results: Named
    written: Named      # the tensor arguments after the call
    gradients: Named


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Two ways of making the same call, which should agree."""

    function: Callable[..., Any]        # the user's function, whose modules are needed
    plain: Callable[..., Any]
    padded: Callable[..., Any]
    arguments: tuple[Sequence[Any], Mapping[str, Any]]
    named: Callable[[Sequence[Any], Mapping[str, Any]], Named]
    size: int
    length: int
    rtol: float | None = None           # of the largest value; None: the square root of the dtype's epsilon
    atol: float | None = None


def check(call: Call) -> CheckedPadding:
    """Compare the two calls; raises PaddingChangesResultError. Works on copies; restores buffers and random state."""
    plain = _run(call, call.plain)
    differences = list(_differences(plain, _run(call, call.padded), call))
    wrong = [d for d in differences if not d.greatest <= d.allowed]
    if not wrong:
        return CheckedPadding(size=call.size, length=call.length, differences=differences)
    is_random = any(not d.greatest <= d.allowed for d in _differences(plain, _run(call, call.plain, seed=1), call))
    lines = "\n".join(f"  {d}" for d in sorted(wrong, key=lambda d: -d.greatest)[:10])
    if is_random:
        remedy = ("the result of the unpadded call also depends on the seed (dropout, sampling): "
                  "check the function in eval mode")
    else:
        remedy = ("mask the padding (length= passes the true length), choose another pad=, name the arguments with "
                  "args= or the outputs with out_dim=; a reduction or a batch norm over the padded dimension needs "
                  "a mask")
    problem = f"padding {call.size} to {call.length} changes {len(wrong)} of {len(differences)} tensors"
    raise PaddingChangesResultError(f"{problem}:\n{lines}\n{remedy}")


def _run(call: Call, function: Callable[..., Any], seed: int = 0) -> _Run:
    import torch

    args, kwargs = copied(*call.arguments)
    inputs = call.named(args, kwargs)
    with untouched(call.function):
        torch.manual_seed(seed)
        results = tensors_in(function(*args, **kwargs), RESULT)
        return _Run(
            results=[(name, t.detach().clone()) for name, t in results],
            written=[(f"{name} after the call", t.detach()) for name, t in inputs],
            gradients=_gradients(results, inputs, call.function),
        )


def _gradients(results: Named, inputs: Named, function: Callable[..., Any]) -> Named:
    """The gradients of the results, with fixed random weights, for every input and parameter they depend on."""
    import torch

    outputs = [t for _, t in results if t.requires_grad]
    if not outputs:
        return []
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(t.shape, generator=generator, dtype=t.dtype).to(t.device) for t in outputs]
    names = {id(p): name for module in modules_of(function) for name, p in module.named_parameters()}
    names |= {id(t): name for name, t in inputs}
    leaves = leaves_behind(outputs)
    gradients = []
    for number, gradient in enumerate(torch.autograd.grad(outputs, leaves, weights, allow_unused=True)):
        if gradient is not None:
            leaf = leaves[number]
            name = names.get(id(leaf), f"tensor {number}, {tuple(leaf.shape)}")
            gradients.append((f"gradient of {name}", gradient))
    return gradients


def _differences(plain: _Run, padded: _Run, call: Call) -> Iterator[Difference]:
    yield from _differences_in(plain.results, padded.results, call)
    yield from _differences_in(plain.written, padded.written, call)
    # A gradient that is 0 in theory is noise in both runs, so gradients are judged by the largest of them.
    scale = max((_largest(t) for _, t in plain.gradients), default=0.0)
    yield from _differences_in(plain.gradients, padded.gradients, call, scale)


def _differences_in(expected: Named, actual: Named, call: Call, scale: float | None = None) -> Iterator[Difference]:
    """`scale`: the value to which the tolerance is relative; by default the largest of each tensor."""
    by_name = dict(actual)
    for name, tensor in expected:
        other = by_name.get(name)
        if other is None:
            yield Difference(name=name, greatest=float("inf"), allowed=0.0, note="is missing from the padded run")
        elif other.shape != tensor.shape:
            note = f"has the shape {tuple(other.shape)}, unpadded {tuple(tensor.shape)}"
            yield Difference(name=name, greatest=float("inf"), allowed=0.0, note=note)
        elif tensor.numel():
            allowed = _allowed(tensor, call, _largest(tensor) if scale is None else scale)
            yield Difference(name=name, greatest=_distance(tensor, other), allowed=allowed)


def _allowed(tensor: Any, call: Call, scale: float) -> float:
    import torch

    epsilon = torch.finfo(tensor.dtype).eps if tensor.is_floating_point() or tensor.is_complex() else 0.0
    rtol = epsilon ** 0.5 if call.rtol is None else call.rtol
    return rtol * scale + (ROUNDING * epsilon if call.atol is None else call.atol)


def _largest(tensor: Any) -> float:
    """The largest finite value."""
    import torch

    finite = tensor[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() and finite.dtype != torch.bool else 0.0


def _distance(expected: Any, actual: Any) -> float:
    """The greatest difference; equal infinities, and NaN in both places, count as equal."""
    import torch

    same = (expected == actual) | (expected.isnan() & actual.isnan())
    wide = torch.complex128 if expected.is_complex() else torch.float64
    apart = (expected.to(wide) - actual.to(wide)).abs()
    return float(torch.where(same, 0.0, apart.nan_to_num(nan=float("inf"), posinf=float("inf"))).max())


def copied(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Copies of the tensor arguments; a tensor that is passed twice stays one, since torch.compile guards on that."""
    copies: dict[int, Any] = {}

    def copy(_: str, tensor: Any) -> Any:
        if id(tensor) not in copies:
            copies[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return copies[id(tensor)]

    copied_kwargs = {name: map_tensors(value, "", copy) for name, value in kwargs.items()}
    return [map_tensors(value, "", copy) for value in args], copied_kwargs


def modules_of(function: Callable[..., Any]) -> list[Any]:
    """The module that a function is or belongs to, and those in its closure or globals."""
    import torch

    code, closure = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    named = [getattr(function, "__globals__", {}).get(name) for name in getattr(code, "co_names", ())]
    objects = [function, getattr(function, "__self__", None), *(cell.cell_contents for cell in closure), *named]
    return [module for module in objects if isinstance(module, torch.nn.Module)]


class untouched:  # noqa: N801 - used as a statement
    """`with untouched(function):` restores the buffers of its modules (such as a running mean) and the random state."""

    def __init__(self, function: Callable[..., Any]) -> None:
        import torch

        buffers = [buffer for module in modules_of(function) for buffer in module.buffers()]
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in buffers]
        self._random = torch.random.fork_rng()

    def __enter__(self) -> None:
        self._random.__enter__()

    def __exit__(self, *error: Any) -> None:
        import torch

        self._random.__exit__(*error)
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)


def leaves_behind(outputs: Sequence[Any]) -> list[Any]:
    """The tensors that would get a gradient from backward(), in the order of the graph."""
    leaves, visited = [], set()
    todo = [t.grad_fn for t in outputs if t.grad_fn is not None]
    while todo:
        node = todo.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        todo += [parent for parent, _ in node.next_functions]
    return leaves


def warm_up(
    plain: Callable[..., Any], compiled: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any],
) -> float:
    """Make one call; returns its compile seconds.

    If the result requires gradients, includes the backward and a second call without gradients. Works on copies of the
    arguments; restores the buffers of the modules of `plain` and the random state, and leaves no gradient.
    """
    import torch

    def call() -> list[Any]:
        own_args, own_kwargs = copied(args, kwargs)
        return [t for _, t in tensors_in(compiled(*own_args, **own_kwargs), RESULT) if t.requires_grad]

    with Compiles() as compiles, untouched(plain):
        outputs = call()
        if outputs:
            ones = [torch.ones_like(t) for t in outputs]
            torch.autograd.grad(outputs, leaves_behind(outputs), ones, allow_unused=True)
            with torch.no_grad():
                call()
    return compiles.seconds

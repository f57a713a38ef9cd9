"""Does padding change what a function returns, writes into its arguments, or gives as gradients?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.errors import TriageError
from torchtriage.shapes.functions.compiling import Compiles
from torchtriage.shapes.functions.padding import RESULT, Named, map_tensors, tensors_in

ROUNDING = 16       # multiples of a dtype's epsilon that a value which should be 0 may be off by


class PaddingChangesResultError(TriageError):
    """The padded call does not give what the unpadded one gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far one tensor of the padded run is from the unpadded one; infinite if its shape, or a NaN, differs."""

    name: str
    greatest: float
    allowed: float
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.note or f'greatest difference {self.greatest:.3g}, allowed {self.allowed:.3g}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPadding:
    """A check that passed: what was compared, and the greatest difference."""

    size: int
    length: int
    differences: Sequence[Difference]

    @property
    def greatest(self) -> Difference:
        return max(self.differences, key=lambda d: d.greatest)

    def __repr__(self) -> str:
        return (f"padding {self.size} to {self.length} changes nothing: greatest difference {self.greatest.greatest:.3g} "
                f"in {self.greatest.name}, over {len(self.differences)} tensors")


@dataclass(frozen=True, slots=True)
class _Run:
    results: Named
    written: Named      # the tensor arguments after the call
    gradients: Named


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Two ways to make the same call, which should agree."""

    function: Callable[..., Any]        # the user's, for its modules
    plain: Callable[..., Any]
    padded: Callable[..., Any]
    arguments: tuple[Sequence[Any], Mapping[str, Any]]
    named: Callable[[Sequence[Any], Mapping[str, Any]], Named]
    size: int
    length: int
    rtol: float | None = None           # None: the square root of the dtype's epsilon, of the largest value of the tensor
    atol: float | None = None


def check(call: Call) -> CheckedPadding:
    """Compare the two runs, or raise PaddingChangesResultError. Runs on copies; buffers and random numbers are put back."""
    plain = _run(call, call.plain)
    differences = list(_differences(plain, _run(call, call.padded), call))
    wrong = [d for d in differences if not d.greatest <= d.allowed]
    if not wrong:
        return CheckedPadding(size=call.size, length=call.length, differences=differences)
    is_random = any(not d.greatest <= d.allowed for d in _differences(plain, _run(call, call.plain, seed=1), call))
    listed = "\n".join(f"  {d}" for d in sorted(wrong, key=lambda d: -d.greatest)[:10])
    todo = ("the unpadded call gives another result for another seed too (dropout, sampling): check it in eval mode" if is_random else
            "mask what is padded (length= passes the true length), choose another pad=, name the arguments with args= or the outputs with "
            "out_dim=; a reduction or a batch norm over the padded dimension cannot be padded without a mask")
    found = f"padding {call.size} to {call.length} changes {len(wrong)} of {len(differences)} tensors"
    raise PaddingChangesResultError(f"{found}:\n{listed}\n{todo}")


def _run(call: Call, function: Callable[..., Any], seed: int = 0) -> _Run:
    import torch

    args, kwargs = copied(*call.arguments)
    inputs = call.named(args, kwargs)
    with untouched(call.function):
        torch.manual_seed(seed)
        results = tensors_in(function(*args, **kwargs), RESULT)
        return _Run([(name, t.detach().clone()) for name, t in results], [(f"{name} after the call", t.detach()) for name, t in inputs],
                    _gradients(results, inputs, call.function))


def _gradients(results: Named, inputs: Named, function: Callable[..., Any]) -> Named:
    """Of the results, weighted at random but always alike, by every input and parameter behind them."""
    import torch

    outputs = [t for _, t in results if t.requires_grad]
    if not outputs:
        return []
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(t.shape, generator=generator, dtype=t.dtype).to(t.device) for t in outputs]
    known = {id(p): name for module in modules_of(function) for name, p in module.named_parameters()}
    known |= {id(t): name for name, t in inputs}
    leaves = leaves_behind(outputs)
    found = torch.autograd.grad(outputs, leaves, weights, allow_unused=True)
    return [(f"gradient of {known.get(id(leaf), f'tensor {number}, {tuple(leaf.shape)}')}", gradient)
            for number, (leaf, gradient) in enumerate(zip(leaves, found, strict=True)) if gradient is not None]


def _differences(plain: _Run, padded: _Run, call: Call) -> Iterator[Difference]:
    for expected, actual in ((plain.results, padded.results), (plain.written, padded.written), (plain.gradients, padded.gradients)):
        of_gradients = expected is plain.gradients
        # A gradient that is 0 in theory is noise in both runs, so gradients are judged by the largest of them.
        scale = max((_largest(t) for _, t in expected), default=0.0) if of_gradients else None
        found = dict(actual)
        for name, tensor in expected:
            if name not in found:
                yield Difference(name=name, greatest=float("inf"), allowed=0.0, note="is missing from the padded run")
            elif found[name].shape != tensor.shape:
                yield Difference(name=name, greatest=float("inf"), allowed=0.0,
                                 note=f"has the shape {tuple(found[name].shape)}, unpadded {tuple(tensor.shape)}")
            elif tensor.numel():
                allowed = _allowed(tensor, call, _largest(tensor) if scale is None else scale)
                yield Difference(name=name, greatest=_distance(tensor, found[name]), allowed=allowed)


def _allowed(tensor: Any, call: Call, scale: float) -> float:
    import torch

    epsilon = torch.finfo(tensor.dtype).eps if tensor.is_floating_point() or tensor.is_complex() else 0.0
    rtol = epsilon ** 0.5 if call.rtol is None else call.rtol
    return rtol * scale + (ROUNDING * epsilon if call.atol is None else call.atol)


def _largest(tensor: Any) -> float:
    """Of the finite values."""
    import torch

    finite = tensor[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() and finite.dtype != torch.bool else 0.0


def _distance(expected: Any, actual: Any) -> float:
    """The greatest difference; equal infinities and NaN in both places are none."""
    import torch

    same = (expected == actual) | (expected.isnan() & actual.isnan())
    wide = torch.complex128 if expected.is_complex() else torch.float64
    apart = (expected.to(wide) - actual.to(wide)).abs()
    return float(torch.where(same, 0.0, apart.nan_to_num(nan=float("inf"), posinf=float("inf"))).max())


def copied(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Copies of the tensor arguments; a tensor that is given twice stays one, since torch.compile tells that from two."""
    copies: dict[int, Any] = {}

    def copy(_: str, tensor: Any) -> Any:
        if id(tensor) not in copies:
            copies[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return copies[id(tensor)]

    return [map_tensors(value, "", copy) for value in args], {name: map_tensors(value, "", copy) for name, value in kwargs.items()}


def modules_of(function: Callable[..., Any]) -> list[Any]:
    """The modules that a function is, belongs to, closes over or names as a global."""
    import torch

    code, closure = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    named = [getattr(function, "__globals__", {}).get(name) for name in getattr(code, "co_names", ())]
    found = [function, getattr(function, "__self__", None), *(cell.cell_contents for cell in closure), *named]
    return [module for module in found if isinstance(module, torch.nn.Module)]


class untouched:  # noqa: N801 - used as a statement
    """`with untouched(function):` puts the buffers of its modules (a batch norm's running mean) and the random numbers back afterwards."""

    def __init__(self, function: Callable[..., Any]) -> None:
        import torch

        self._buffers = [(buffer, buffer.detach().clone()) for module in modules_of(function) for buffer in module.buffers()]
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
    """The tensors that backward() would leave a gradient in, in the order in which the graph reaches them."""
    leaves, seen = [], set()
    todo = [t.grad_fn for t in outputs if t.grad_fn is not None]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        todo += [parent for parent, _ in node.next_functions]
    return leaves


def warm_up(plain: Callable[..., Any], compiled: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """The compile seconds of a call; with its backward, and once more without gradients, if the result has any.

    Runs on copies of the arguments; the buffers of the modules of `plain` and the random numbers are put back, no gradient is left behind.
    """
    import torch

    def call() -> list[Any]:
        own_args, own_kwargs = copied(args, kwargs)
        return [t for _, t in tensors_in(compiled(*own_args, **own_kwargs), RESULT) if t.requires_grad]

    with Compiles() as seen, untouched(plain):
        outputs = call()
        if outputs:
            torch.autograd.grad(outputs, leaves_behind(outputs), [torch.ones_like(t) for t in outputs], allow_unused=True)
            with torch.no_grad():
                call()
    return seen.seconds

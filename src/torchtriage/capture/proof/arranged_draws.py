"""Random values that depend on a key and not on the order of the draws, so that two programs can draw the same ones.

Every value is independent of the others and has the distribution that its operator asks for. So where two programs
compute the same from arranged draws, their results have the same distribution, however the draws are arranged.
"""

import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from torchtriage.capture.proof.module_state import RunningModule

# How draws are arranged: by step, shape and number; the same, with 1 - u instead of u for a mask, which a mask made by
# `rand() > p` needs; or one row after the other, for values that are drawn at once or one by one; or by step with the
# first and the second draw of a shape exchanged, the third and the fourth, and so on, for two that are drawn in the
# other order: `swapped:` and the digests of the shapes, see `digest_of`. Or by step and the module that draws, for
# modules of a kind that run in another order.
BY_STEP, MIRRORED, BY_ROW, SWAPPED, BY_MODULE = "step", "mirrored", "row", "swapped", "module"
_KINDS = {
    "randn": "normal", "randn_like": "normal", "normal": "normal", "normal_": "normal", "normal_functional": "normal",
    "rand": "uniform", "rand_like": "uniform", "uniform": "uniform", "uniform_": "uniform",
    "bernoulli": "bernoulli", "bernoulli_": "bernoulli", "native_dropout": "bernoulli",
    "randint": "randint", "randint_like": "randint", "random_": "randint", "random": "randint",
}
_MIXERS = ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15))     # of splitmix64, as signed numbers


class ArrangedDraws:
    """Gives each random operator its values; `step` numbers the optimizer steps."""

    def __init__(self, arrangement: str, step: Callable[[], int]) -> None:
        self._arrangement, _, digests = arrangement.partition(":")
        self._step, self._swapped = step, frozenset(digests.split(","))
        self._running = RunningModule()
        self._counts: Counter[tuple[Any, ...]] = Counter()
        self._rows: Counter[tuple[Any, ...]] = Counter()
        self._drawn_in = -1
        self.keys = 0                               # digest of all keys by step, in any order
        self.elements: Counter[str] = Counter()     # drawn of each kind

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of a random operator; the generator is left as it was."""
        import torch

        name = func._schema.name.rpartition("::")[2]
        kind, shape = kind_and_shape(func, args, kwargs)
        given = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        is_weight = bool(tensors) and tensors[0].is_leaf and tensors[0].requires_grad     # which is initialized
        seed = self._seed(_source(kind), shape, is_weight=is_weight)
        result = _seeded(func, args, kwargs, seed, tensors)
        values = result[-1] if isinstance(result, tuple) else result
        if not isinstance(values, torch.Tensor) or values.layout is not torch.strided:
            return result
        self.elements[kind] += values.numel()
        if kind not in ("normal", "uniform", "bernoulli", "randint") or given.get("train") is False:
            return result
        uniform = self._uniform(kind, seed, values)
        if kind == "uniform":
            low, high = given.get("from", 0.0), given.get("to", 1.0)
            values.copy_(low + _rounded_down(uniform, values.dtype) * (high - low))
        elif kind == "normal":
            mean, std = given.get("mean", 0.0), given.get("std", 1.0)
            values.copy_(mean + std * (2 ** 0.5 * torch.erfinv(2 * uniform - 1)).to(values.dtype))
        elif kind == "bernoulli":
            probability = 1 - given["p"] if name == "native_dropout" else given.get("p", given["self"])
            dtype = values.dtype if values.is_floating_point() else torch.get_default_dtype()
            chance = _rounded_down(uniform, dtype)
            values.copy_((1 - chance if self._arrangement == MIRRORED else chance) < probability)
            if name == "native_dropout":
                result[0].copy_(given["input"] * values / max(probability, torch.finfo(dtype).tiny))
        elif given.get("high", given.get("to")) is not None:
            low, high = given.get("low", given.get("from")) or 0, given.get("high", given.get("to"))
            values.copy_(low + (uniform * (high - low)).floor())
        return result

    def _seed(self, kind: str, shape: str, *, is_weight: bool) -> int:
        step = self._step()
        if step != self._drawn_in and self._arrangement != BY_ROW:
            self._drawn_in = step
            self._counts.clear()
        place = self._running.name() if self._arrangement == BY_MODULE else ""
        number = self._counts[kind, shape, place]
        self._counts[kind, shape, place] += 1
        if not is_weight and str(digest_of(kind, shape)) in self._swapped:
            number ^= 1
        key = (kind, shape, step, number, *([place] if place else []))
        self.keys += zlib.crc32(repr(key).encode())
        return zlib.crc32(repr(key[:2] + key[3:] if self._arrangement == BY_ROW else key).encode())

    def _uniform(self, kind: str, seed: int, values: Any) -> Any:
        """Numbers between 0 and 1, both excluded, in float64: one per element, from a hash of its position."""
        import torch

        first = 0
        if self._arrangement == BY_ROW:
            key = (_source(kind), *values.shape[-1:])
            first, seed = self._rows[key], zlib.crc32(repr(key).encode())
            self._rows[key] += values.numel()
        bits = torch.arange(first, first + values.numel(), device=values.device) + (seed << 31)
        for shift, factor in _MIXERS:
            bits = (bits ^ ((bits >> shift) & ((1 << (64 - shift)) - 1))) * factor
        bits = bits ^ ((bits >> 31) & ((1 << 33) - 1))
        return (((bits >> 12) & ((1 << 52) - 1)).to(torch.float64) + 0.5).div_(float(1 << 52)).reshape(values.shape)


def kind_and_shape(func: Any, args: Any, kwargs: Any) -> tuple[str, str]:
    """What a random operator draws; operators that draw from the same values have the same kind."""
    import torch

    name = func._schema.name.rpartition("::")[2]
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    shapes: list[Any] = [tuple(t.shape) for t in tensors]
    shapes += [tuple(value) for value in args if isinstance(value, list | tuple)]
    return _KINDS.get(name, name), str(shapes[:1])


def digest_of(kind: str, shape: str) -> int:
    return zlib.crc32(f"{_source(kind)} {shape}".encode())


def _source(kind: str) -> str:
    return "uniform" if kind == "bernoulli" else kind


def _rounded_down(uniform: Any, dtype: Any) -> Any:
    """As many bits as the dtype holds, so that no value becomes 1."""
    import torch

    steps = 2 / torch.finfo(dtype).eps
    return ((uniform * steps).floor() / steps).to(dtype)


def _seeded(func: Any, args: Any, kwargs: Any, seed: int, tensors: Any) -> Any:
    """The operator with its generator at a seed, and the generator in the state of before."""
    import torch

    device = tensors[0].device if tensors else torch.device(kwargs.get("device") or "cpu")
    generator = kwargs.get("generator")
    if generator is None and device.type == "cuda":
        generator = torch.cuda.default_generators[device.index or 0]
    generator = generator if generator is not None else torch.default_generator
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        return func(*args, **kwargs)
    finally:
        generator.set_state(state)

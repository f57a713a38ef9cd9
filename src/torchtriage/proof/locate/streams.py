"""The operations of one step of one process, as a child process recorded them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Relative distance of two values that rounding in another order of operations explains.
_TOLERANCE: Mapping[str, float] = {
    "float64": 1e-11, "complex128": 1e-11, "float32": 1e-4, "complex64": 1e-4, "float16": 1e-2, "bfloat16": 3e-2,
}


@dataclass(frozen=True, slots=True)
class Digest:
    """One tensor: its form, a hash of its bytes, its norm and a fixed projection in float64."""

    shape: tuple[int, ...]
    dtype: str
    code: str
    norm: float | None
    projection: float | None

    def agrees(self, other: "Digest") -> bool:
        """Equal, or within rounding; a discrete value must be equal."""
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            return False
        return self.code == other.code or self.distance(other) <= _TOLERANCE.get(self.dtype, 0.0)

    def distance(self, other: "Digest") -> float:
        """The larger of the relative distances of norm and projection; infinite if one is not finite."""
        pairs = [(self.norm, other.norm), (self.projection, other.projection)]
        scale = max(abs(self.norm or 0.0), abs(other.norm or 0.0))
        if not scale or not scale < float("inf"):
            return 0.0 if pairs[0][0] == pairs[0][1] and pairs[1][0] == pairs[1][1] else float("inf")
        distances = [abs(a - b) / scale for a, b in pairs if a is not None and b is not None]
        return max(distances, default=float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOperation:
    """One operation that ran: where it comes from and the values it read and left."""

    name: str
    path: str = ""
    line: int | None = None
    function: str = ""
    module: str = ""
    is_backward: bool = False
    is_random: bool = False
    inputs: tuple[Digest, ...] = ()
    outputs: tuple[Digest, ...] = ()

    @property
    def is_write(self) -> bool:
        """Whether it changes a tensor in place, by ATen's naming."""
        return self.name.removeprefix("aten.").partition(".")[0].endswith("_")

    def key(self) -> tuple[str, tuple[tuple[int, ...], ...]]:
        return self.name, tuple(value.shape for value in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStream:
    operations: Sequence[StreamOperation]
    is_cut: bool = False
    had_optimizer: bool = False
    state: str = ""


def read_stream(folder: Path) -> OperationStream | None:
    """The longest stream in a folder: that of the process that trains; None if there is none."""
    found = [_parsed(json.loads(path.read_text())) for path in sorted(folder.glob("stream-*.json"))]
    return max(found, key=lambda stream: len(stream.operations), default=None)


def _parsed(data: Mapping[str, Any]) -> OperationStream:
    operations = []
    for row in data["operations"]:
        values = {name: tuple(Digest(tuple(d[0]), *d[1:]) for d in row[name]) for name in ("inputs", "outputs")}
        operations.append(StreamOperation(**{**row, **values}))
    return OperationStream(
        operations=operations, is_cut=data["is_cut"], had_optimizer=data["had_optimizer"], state=data["state"])

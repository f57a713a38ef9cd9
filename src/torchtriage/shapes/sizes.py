"""Which sizes the compiled frames of a run saw, and which of them vary."""

from collections.abc import Iterable, Sequence
from typing import Any

from torchtriage.findings.shape_study import VaryingSize
from torchtriage.recording.recording import Recording
from torchtriage.shapes.reading import main_process

MAX_VALUES = 64     # listed of one size, the most frequent ones
_FIELDS = ("path", "line", "function", "source", "dim", "values", "num_values", "num_calls")


def seen_sizes(recording: Recording) -> list[VaryingSize]:
    """Every size and number that a compiled frame took in, also those that never varied; a frame's graphs are taken together."""
    found: dict[tuple[Any, ...], VaryingSize] = {}
    for fact in main_process(recording).facts.get("sizes") or ():
        size = VaryingSize(**{name: fact[name] for name in _FIELDS})
        key = (size.path, size.line, size.function, size.source, size.dim)
        found[key] = _together(found[key], size) if key in found else size
    return list(found.values())


def _together(a: VaryingSize, b: VaryingSize) -> VaryingSize:
    values = dict(a.values)
    for value, number in b.values.items():
        values[value] = values.get(value, 0) + number
    listed = sorted(values.items(), key=lambda item: -item[1])[:MAX_VALUES]
    unlisted = max(a.num_values - len(a.values), b.num_values - len(b.values))
    return VaryingSize(
        path=a.path, line=a.line, function=a.function, source=a.source, dim=a.dim, values=dict(listed),
        num_values=len(values) + unlisted, num_calls=a.num_calls + b.num_calls,
    )


def varying(sizes: Iterable[VaryingSize]) -> list[VaryingSize]:
    """Those with more than one value, the most varied first."""
    return sorted((size for size in sizes if size.num_values > 1), key=lambda size: -size.num_values)


def num_calls(sizes: Sequence[VaryingSize]) -> int:
    """Calls of the frame that was called most."""
    return max((size.num_calls for size in sizes), default=0)

"""A row of a ring: what it is as it is written, and what it holds as it is read.   P tensors, G groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchtriage.telemetry.levels import CATEGORIES

LOSS, SCALE, SKIPPED, NUM_EXTRAS = range(4)
NUM_LATE = 32       # metrics of a step that may come from a device; more are read at once
GRADS, WEIGHTS, AFTER, NUM_BLOCKS = range(4)     # of a row; AFTER: the gradients after clipping
ALL = frozenset(CATEGORIES)


@dataclass(slots=True, kw_only=True)
class Label:
    """What a row is, beside its numbers."""

    step: int = 0
    time: float = 0.0
    wanted: frozenset[str] = ALL
    update: int = 0     # since the parameters are watched, as all ranks count it
    present: dict[tuple[int, int], Sequence[int]] = field(default_factory=dict)     # by block and part the tensors of its rows
    is_clipped: bool = False
    extras: dict[int, float] = field(default_factory=dict)          # those that are known here
    awaited: frozenset[int] = frozenset()                           # those that come from a device
    scaled: frozenset[int] = frozenset()                            # blocks of gradients that still hold the scale of GradScaler
    has_updates: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    late: tuple[str, ...] = ()                                      # metrics that come from a device, by the order of their slots
    histograms: Mapping[str, Sequence[int]] | None = None


@dataclass(slots=True, kw_only=True)
class Look:
    """A row as it is read: by block a table with a row for each tensor, without elements where there was none."""

    label: Label
    tables: dict[int, Any]      # blocks that nothing was taken of are left out
    extras: dict[int, float]
    late: dict[str, float]
    norms_2G: Any = None        # of the change and of the weights of each group

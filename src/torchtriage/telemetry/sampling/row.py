"""One sampled step: its metadata when written, its tables when read.

P tensors, S statistics, G groups, W numbers per row.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torchtriage.recording import series
from torchtriage.recording.series import SHARD, series_of, series_of_group
from torchtriage.telemetry.config import CATEGORIES, DETAILED
from torchtriage.telemetry.observation import Observation, total_norm, unscaled
from torchtriage.telemetry.sampling.ring import Ring
from torchtriage.telemetry.statistics.columns import NUM_STATS

LOSS, SCALE, SKIPPED, NUM_EXTRAS = range(4)
NUM_LATE = 32       # metrics per step that may arrive from a device; further ones are read immediately
GRADS, WEIGHTS, AFTER, NUM_BLOCKS = range(4)     # blocks of a row; AFTER: the gradients after clipping
ALL = frozenset(CATEGORIES)


@dataclass(slots=True, kw_only=True)
class Label:
    """The metadata of a row."""

    step: int = 0
    time: float = 0.0
    wanted: frozenset[str] = ALL
    update: int = 0     # counted from the first update of these parameters, alike on all ranks
    # Tensors with a row, by block and part.
    present: dict[tuple[int, int], Sequence[int]] = field(default_factory=dict)
    is_clipped: bool = False
    extras: dict[int, float] = field(default_factory=dict)          # values known on the host
    awaited: frozenset[int] = frozenset()                           # extras that arrive from a device
    # Gradient blocks that still include GradScaler's scale.
    scaled: frozenset[int] = frozenset()
    has_updates: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    late: tuple[str, ...] = ()                                      # metrics that arrive from a device, in slot order
    histograms: Mapping[str, Sequence[int]] | None = None


@dataclass(slots=True, kw_only=True)
class Sample:
    """A row after reading: per block a table with one row per tensor, without elements if the tensor was not
    measured.
    """

    label: Label
    tables: dict[int, Any]      # without blocks in which nothing was measured
    extras: dict[int, float]
    late: dict[str, float]
    norms_2G: Any = None        # of the change and of the weights, per group


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Where each number of a row is: the blocks, the extras, the update norms, the late metrics.

    Tensors are sorted by device, so the tensors of one device are a part: a contiguous range of every block.
    """

    num_tensors: int
    num_groups: int
    part_starts: tuple[int, ...]
    part_sizes: tuple[int, ...]
    # Per part: whether row i belongs to tensor i; else rows are in the order of Label.present.
    is_in_place: tuple[bool, ...]

    @property
    def block_size(self) -> int:
        return self.num_tensors * NUM_STATS

    @property
    def extras_at(self) -> int:
        return NUM_BLOCKS * self.block_size

    @property
    def norms_at(self) -> int:
        return self.extras_at + NUM_EXTRAS

    @property
    def late_at(self) -> int:
        return self.norms_at + 2 * self.num_groups

    @property
    def width(self) -> int:
        return self.late_at + NUM_LATE


@dataclass(slots=True, kw_only=True, eq=False)
class RowReader:
    """Turns the rows of a ring into observations, on any thread and without a torch operation."""

    ring: Ring
    layout: RowLayout
    names: tuple[str, ...]
    groups: Mapping[str, Sequence[int]]
    ranks: tuple[int, ...]      # the ranks that hold the parameters together; empty if all of them are here
    shard_P: Any                # whether this rank holds only a part of the tensor
    counts_P: Any               # whether this rank's part counts towards the totals over all ranks
    main: str = ""              # appended to the names of totals where there are several optimizers
    clips: bool = False         # whether the program is known to clip gradients

    def observations(self, wait: bool = False) -> Iterable[Observation]:
        return map(self.observation, self.samples(wait))

    def samples(self, wait: bool = False) -> Iterable[Sample]:
        layout = self.layout
        for row_W, label in self.ring.drain(wait):
            extras = dict(label.extras)
            for extra in label.awaited:
                extras[extra] = extras.get(extra, 0.0) + float(row_W[layout.extras_at + extra])
            tables = {}
            for block in (GRADS, AFTER, WEIGHTS):
                table_PS = self._table(row_W, label, block, extras.get(SCALE))
                if table_PS is not None:
                    tables[block] = table_PS
            norms_2G = None
            if label.has_updates:
                norms_2G = row_W[layout.norms_at : layout.late_at].reshape(2, -1).copy()
            late = {name: float(row_W[layout.late_at + number]) for number, name in enumerate(label.late)}
            yield Sample(label=label, extras=extras, tables=tables, late=late, norms_2G=norms_2G)

    def observation(self, sample: Sample, is_merged: bool = False) -> Observation:
        """`is_merged`: the sample covers the complete parameters, not only this rank's shard."""
        label, extras, scale = sample.label, sample.extras, sample.extras.get(SCALE)
        is_shard = bool(self.ranks) and not is_merged
        values: dict[str, float] = {}
        for name, norm in self._norms(sample, is_shard).items():
            if norm is not None:
                values[self._total_name(SHARD + name if is_shard else name)] = norm
        if LOSS in extras:
            values[self._total_name(series.LOSS)] = extras[LOSS] / (scale or 1.0)
        for name, extra in ((series.SCALER_SCALE, SCALE), (series.SCALER_SKIPPED_TOTAL, SKIPPED)):
            if extra in extras:
                values[series_of_group(name, self.main) if self.main else name] = extras[extra]
        return Observation(
            step=label.step, time=label.time, values=values | label.metrics | sample.late, names=self.names,
            grad_PS=sample.tables.get(GRADS), weight_PS=sample.tables.get(WEIGHTS),
            has_tensors="group_gradients" in label.wanted, is_detailed=DETAILED in label.wanted,
            histograms=label.histograms or {}, shard_P=self.shard_P if is_shard else None,
        )

    def _norms(self, sample: Sample, is_shard: bool) -> dict[str, float | None]:
        """Norms of all tensors and of groups.

        A shard uses only parts that count, so that squares add up over the ranks.
        """
        grad_PS, after_PS = sample.tables.get(GRADS), sample.tables.get(AFTER)
        counted_P = self.counts_P if is_shard else slice(None)
        before, after = _norm(grad_PS, counted_P, is_shard), _norm(after_PS, counted_P, is_shard)
        has_changed = before is not None and after is not None and before != after and not math.isnan(before)
        self.clips = self.clips or has_changed
        norms = {
            series.GRAD_NORM: before,
            series.GRAD_NORM_AFTER_CLIP: after if self.clips else None,     # without clipping it would repeat grad_norm
            series.WEIGHT_NORM: _norm(sample.tables.get(WEIGHTS), counted_P, is_shard),
        }
        if len(self.groups) > 1 and "group_gradients" in sample.label.wanted:
            for name, indices in self.groups.items():
                of_P = [i for i in indices if self.counts_P[i]] if is_shard else indices
                norms[series_of_group(series.GRAD_NORM, name)] = _norm(grad_PS, of_P, is_shard)
        if sample.norms_2G is not None:
            for name, change, weight in zip(self.groups, *sample.norms_2G.tolist(), strict=True):
                ratio = change / weight if weight > 0 and math.isfinite(weight) else None
                norms[series_of(series.UPDATE_RATIO, name)] = ratio
        return norms

    def _total_name(self, name: str) -> str:
        """`loss` of an optimizer other than the first is `loss/group:Adam 2`."""
        return series_of_group(name, self.main) if self.main and "/" not in name else name

    def _table(self, row_W: Any, label: Label, block: int, scale: float | None) -> Any:
        """The block with one row per tensor, without elements where a tensor was not measured; None if no tensor was.
        """
        layout = self.layout
        present = {}
        for part in range(len(layout.part_sizes)):
            if label.present.get((block, part)):
                present[part] = label.present[block, part]
        if not present:
            return None
        size = layout.block_size
        part_PS = row_W[block * size : (block + 1) * size].reshape(-1, NUM_STATS)
        scale = scale if block in label.scaled else None
        if layout.is_in_place == (True,) and len(present[0]) == len(self.names):
            return unscaled(part_PS, scale) if scale else part_PS.copy()
        table_PS = np.zeros((len(self.names), NUM_STATS))
        for part, rows in present.items():
            start = layout.part_starts[part]
            at = [start + i for i in rows]
            table_PS[at] = part_PS[at] if layout.is_in_place[part] else part_PS[start : start + len(rows)]
        return unscaled(table_PS, scale) if scale else table_PS


def _norm(table_PS: Any, of_P: Any, is_shard: bool) -> float | None:
    """The norm of several tensors as one; None if unknown, but 0 for a shard without elements, which adds nothing."""
    if table_PS is None:
        return None
    norm = total_norm(table_PS[of_P])
    return 0.0 if norm is None and is_shard else norm

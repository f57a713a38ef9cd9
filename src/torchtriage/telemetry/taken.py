"""What is taken at a step from one set of parameters: into a row of a ring on the training's side, out of it on the reader's.

P tensors, S statistics, G groups, W numbers a row.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from torchtriage.telemetry.aten_statistics import accumulator
from torchtriage.telemetry.observation import Observation, unscaled, whole_norm
from torchtriage.telemetry.parts import new_part
from torchtriage.telemetry.ring import Ring
from torchtriage.telemetry.statistics import statistics
from torchtriage.telemetry.table import NUM_STATS, Stat
from torchtriage.telemetry.tensors import why_refused
from torchtriage.telemetry.updates import UpdateMeter

LOSS, SCALE, SKIPPED, NUM_EXTRAS = range(4)
NUM_LATE = 32       # metrics of a step that may come from a device; more are read at once
GRADS, WEIGHTS, AFTER, NUM_BLOCKS = range(4)     # of a row; AFTER: the gradients after clipping


@dataclass(slots=True, kw_only=True)
class Label:
    """What a row is, beside its numbers."""

    step: int = 0
    time: float = 0.0
    present: dict[tuple[int, int], Sequence[int]] = field(default_factory=dict)     # by block and part the tensors of its rows
    is_clipped: bool = False
    has: set[int] = field(default_factory=set)                      # which extras are known
    scaled: set[int] = field(default_factory=set)                   # blocks of gradients that still hold the scale of GradScaler
    has_updates: bool = False
    is_detailed: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)                   # metrics that come from a device, by the order of their slots
    histograms: dict[str, list[int]] = field(default_factory=dict)


class Track:
    """The parameters of an optimizer or a model, each once, with the ring that their statistics go through.

    `groups`: names with the parameters of each; a parameter that is in none belongs to the whole only.
    """

    def __init__(self, named: Sequence[tuple[str, torch.Tensor]], groups: Mapping[str, Sequence[torch.Tensor]], *,
                 main: str = "", num_slots: int | None = None) -> None:
        self.refused = {name: reason for name, p in named if (reason := why_refused(p))}      # gradients that are refused come later
        self._num_left_out = len(self.refused)
        kept = sorted(((name, p) for name, p in named if name not in self.refused), key=lambda pair: str(pair[1].device))
        self.names = tuple(name for name, _ in kept)
        self.parameters = [p for _, p in kept]
        self.main = main        # put behind the names of the whole where there are several tracks
        self.index = {id(p): i for i, p in enumerate(self.parameters)}
        self.groups = {name: [self.index[id(p)] for p in of if id(p) in self.index] for name, of in groups.items()}
        self.dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in self.parameters})
        self._devices = [p.device for p in self.parameters]
        self._starts = {device: self._devices.index(device) for device in dict.fromkeys(self._devices)}
        self.device = self._devices[0] if self._devices else torch.device("cpu")
        self._parts = [new_part(d, *zip(*[pair for pair in kept if pair[1].device == d], strict=True)) for d in self._starts]
        self._is_in_place = [part.is_in_place for part in self._parts]
        self._sizes = [self._devices.count(device) for device in self._starts]
        self._updates = self._new_updates()
        self._size = len(self.names) * NUM_STATS
        self._late = NUM_BLOCKS * self._size + NUM_EXTRAS + 2 * len(self.groups)      # where the metrics of a row begin
        others = [device for device in self._starts if device.type != "cpu"]
        self.ring = Ring(self._late + NUM_LATE, others, num_slots)
        self._extras = None if self.device.type == "cpu" else torch.zeros(NUM_EXTRAS, dtype=accumulator(self.device), device=self.device)
        self._slot: int | None = None
        self.label = Label()

    def _new_updates(self) -> UpdateMeter | None:
        members = [[self.parameters[i] for i in of] for of in self.groups.values()]
        return UpdateMeter(members) if len(self._starts) == 1 and any(members) else None

    def is_still(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether these are the parameters it was made for, where they were."""
        wanted = list(parameters)
        return (
            len(wanted) == len(self.index) + self._num_left_out
            and sum(id(p) in self.index for p in wanted) == len(self.index)
            and all(p.device == device for p, device in zip(self.parameters, self._devices, strict=True))
        )

    def release(self) -> None:
        """Let go of the parameters; what the ring holds can still be read."""
        self.drop()
        self.parameters, self._parts, self._updates = [], [], None

    @property
    def is_open(self) -> bool:
        return self._slot is not None

    def open(self) -> bool:
        """Begin a row; False, and counted, if the ring is full."""
        if self._slot is None:
            self._slot = self.ring.claim()
            self.label = Label()
            if self._extras is not None:
                self._extras.zero_()
        return self._slot is not None

    def drop(self) -> None:
        """Forget the row that was begun."""
        self._slot = None

    def add_loss(self, loss: torch.Tensor | float) -> None:
        self._add(LOSS, loss)

    def put_extra(self, extra: int, value: torch.Tensor | float) -> None:
        self.label.has.discard(extra)
        self._add(extra, value)

    def _add(self, extra: int, value: torch.Tensor | float) -> None:
        """To what the row holds so far of it; a value on a device stays there."""
        assert self._slot is not None
        is_new = extra not in self.label.has
        self.label.has.add(extra)
        if self._extras is None or not isinstance(value, torch.Tensor):
            row, at = self.ring.array(self._slot), NUM_BLOCKS * self._size + extra
            row[at] = float(value) if is_new else row[at] + float(value)
            return
        if is_new:
            self._extras[extra].copy_(value.detach(), non_blocking=True)
        else:
            self._extras[extra].add_(value.detach().to(self._extras.device, non_blocking=True))

    def put_metrics(self, metrics: Mapping[str, torch.Tensor | float]) -> None:
        """Numbers of the program's own; one on a device that rows are filled from arrives with the row."""
        assert self._slot is not None
        for name, value in metrics.items():
            is_late = isinstance(value, torch.Tensor) and value.device in self.ring.devices and len(self.label.late) < NUM_LATE
            if is_late and isinstance(value, torch.Tensor):
                at = self._late + len(self.label.late)
                self.ring.host_KW[self._slot, at].copy_(value.detach().reshape(()), non_blocking=True)
                self.label.late.append(name)
            else:
                self.label.metrics[name] = float(value)

    def forget_gradients(self) -> None:
        """They will be taken anew."""
        self.label.present = {key: rows for key, rows in self.label.present.items() if key[0] == WEIGHTS}

    def has_changed(self) -> bool:
        """Whether gradients are no longer those that were taken, by the smallest of them; on a device it takes them for changed."""
        if self.device.type != "cpu" or self._slot is None:
            return True
        table_PS = self._rows(self._slot, True, GRADS * len(self.names), len(self.names))
        order = sorted(range(len(self.names)), key=lambda i: self.parameters[i].numel())
        alive = next((i for i in order if table_PS[i, Stat.NORM] > 0), None)
        grad = self.parameters[alive].grad if alive is not None else None
        return grad is not None and not why_refused(grad) and statistics([grad])[0, Stat.NORM] != table_PS[alive, Stat.NORM]

    def take_gradients(self, block: int = GRADS, only: Sequence[int] | None = None) -> None:
        """Of all parameters that have one, or of `only` those by index; what the row holds already is left as it is."""
        self._take(block, only)

    def take_weights(self) -> None:
        self._take(WEIGHTS, None)

    def _take(self, block: int, only: Sequence[int] | None) -> None:
        assert self._slot is not None
        present = self.label.present
        for number, (part, start, size) in enumerate(zip(self._parts, self._starts.values(), self._sizes, strict=True)):
            mine = None if only is None else [i - start for i in only if start <= i < start + size]
            if mine is None or mine:
                rows_PS = self._rows(self._slot, part.is_in_place, block * len(self.names) + start, size)
                present[block, number] = part.take(rows_PS, present.get((block, number), ()), mine, block == WEIGHTS)
                self.refused |= part.refused

    def _rows(self, slot: int, is_array: bool, start: int, num: int) -> Any:
        row_W = self.ring.array(slot) if is_array else self.ring.host_KW[slot]
        return row_W[start * NUM_STATS : (start + num) * NUM_STATS].reshape(num, NUM_STATS)

    def begin_update(self) -> None:
        if self._updates is not None:
            self._updates.begin()

    def end_update(self) -> None:
        if self._updates is not None and self._slot is not None and self._updates.end():
            at = NUM_BLOCKS * self._size + NUM_EXTRAS
            count = self._updates.norms_2G.numel()
            self.ring.host_KW[self._slot, at : at + count].view_as(self._updates.norms_2G).copy_(self._updates.norms_2G, non_blocking=True)
            self.label.has_updates = True

    def commit(self) -> None:
        """The row is complete."""
        if self._slot is None:
            return
        if self._extras is not None:
            at = NUM_BLOCKS * self._size
            for extra in self.label.has:
                self.ring.host_KW[self._slot, at + extra].copy_(self._extras[extra], non_blocking=True)
        self.ring.commit(self._slot, self.label)
        self._slot = None

    # The reader's side: no torch operation, any thread.

    def observations(self, wait: bool = False) -> Iterable[Observation]:
        for row_W, label in self.ring.drain(wait):
            yield self._decoded(row_W, label)

    def _decoded(self, row_W: Any, label: Label) -> Observation:
        extras = {e: float(row_W[NUM_BLOCKS * self._size + e]) for e in label.has}
        scale = extras.get(SCALE)
        grad_PS, after_PS, weight_PS = (self._table(row_W, label, block, scale) for block in (GRADS, AFTER, WEIGHTS))
        values: dict[str, float | None] = {"grad_norm": None if grad_PS is None else whole_norm(grad_PS)}
        if LOSS in extras:
            values["loss"] = extras[LOSS] / (scale or 1.0)
        if after_PS is not None:
            values["grad_norm_after_clip"] = whole_norm(after_PS)
        if weight_PS is not None:
            values["weight_norm"] = whole_norm(weight_PS)
        values |= {"scaler/scale": scale, "scaler/skipped_total": extras.get(SKIPPED)}
        values |= self._of_groups(row_W, label, grad_PS)
        known = {self._called(name): value for name, value in values.items() if value is not None}
        late = {name: float(row_W[self._late + number]) for number, name in enumerate(label.late)}
        return Observation(
            step=label.step, time=label.time, values=known | label.metrics | late, names=self.names, grad_PS=grad_PS, weight_PS=weight_PS,
            is_detailed=label.is_detailed, histograms=label.histograms,
        )

    def _of_groups(self, row_W: Any, label: Label, grad_PS: Any) -> dict[str, float | None]:
        values: dict[str, float | None] = {}
        if len(self.groups) > 1 and grad_PS is not None:
            values |= {f"grad_norm/group:{name}": whole_norm(grad_PS[indices]) for name, indices in self.groups.items()}
        if label.has_updates:
            norms_2G = row_W[NUM_BLOCKS * self._size + NUM_EXTRAS :][: 2 * len(self.groups)].reshape(2, -1)
            for name, change, weight in zip(self.groups, *norms_2G.tolist(), strict=True):
                values[f"update_ratio/{name}"] = change / weight if weight > 0 and math.isfinite(weight) else None
        return values

    def _called(self, name: str) -> str:
        """`loss` of another optimizer than the first is `loss/group:Adam 2`."""
        return f"{name}/group:{self.main}" if self.main and "/" not in name else name

    def _table(self, row_W: Any, label: Label, block: int, scale: float | None) -> Any:
        """The block with a row for each tensor, without elements where there was none; None if nothing was taken."""
        present = {number: label.present[block, number] for number in range(len(self._sizes)) if label.present.get((block, number))}
        if not present:
            return None
        table_PS = np.zeros((len(self.names), NUM_STATS))
        part_PS = row_W[block * self._size : (block + 1) * self._size].reshape(-1, NUM_STATS)
        for number, start in enumerate(self._starts.values()):
            rows = present.get(number, ())
            for_rows = [start + i for i in rows]
            table_PS[for_rows] = part_PS[for_rows] if self._is_in_place[number] else part_PS[start : start + len(rows)]
        return unscaled(table_PS, scale) if scale and block in label.scaled else table_PS

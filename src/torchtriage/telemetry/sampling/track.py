"""Measures the parameters of one model or optimizer into the rows of a ring.

P tensors, S statistics, G groups, W numbers per row.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from torchtriage.telemetry.config import DETAILED, RARE
from torchtriage.telemetry.sampling.devices import HostPart, new_part
from torchtriage.telemetry.sampling.ring import Ring
from torchtriage.telemetry.sampling.row import (
    ALL,
    GRADS,
    LOSS,
    NUM_EXTRAS,
    NUM_LATE,
    WEIGHTS,
    Label,
    RowLayout,
    RowReader,
)
from torchtriage.telemetry.sampling.update_ratio import UpdateMeter
from torchtriage.telemetry.sharding.dtensor import ShardInfo, is_here, local, shard_infos
from torchtriage.telemetry.statistics.aten import accumulator
from torchtriage.telemetry.statistics.columns import NUM_STATS, is_dtensor, why_no_number, why_refused

_device, _is_cpu = attrgetter("device"), attrgetter("is_cpu")


class Track:
    """The parameters of an optimizer or a model, each once, with the ring that carries their statistics.

    `groups`: names with the parameters of each; a parameter in no group counts only towards the totals.
    """

    def __init__(
        self, named: Sequence[tuple[str, torch.Tensor]], groups: Mapping[str, Sequence[torch.Tensor]], *,
        main: str = "", num_slots: int | None = None,
    ) -> None:
        """`main`: appended to the names of totals where there are several tracks."""
        infos = shard_infos(named)
        self.refused: dict[str, str] = {}       # refused gradients are added later
        for name, p in named:
            if reason := infos[name].why_not or why_refused(local(p)):
                self.refused[name] = reason
        measured = [(name, p) for name, p in named if name not in self.refused]
        measured.sort(key=lambda pair: str(pair[1].device))
        self.names = tuple(name for name, _ in measured)
        self.parameters = [p for _, p in measured]
        self._ids = [id(p) for _, p in named]
        self.index = {id(p): i for i, p in enumerate(self.parameters)}
        self.groups = {}
        for name, members in groups.items():
            self.groups[name] = [self.index[id(p)] for p in members if id(p) in self.index]
        self.dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in self.parameters})
        self._find_shards([infos[name] for name in self.names])
        self._sort_by_device(measured)
        self._updates = self._new_updates()
        self._layout = RowLayout(
            num_tensors=len(self.names), num_groups=len(self.groups), part_starts=tuple(self._starts.values()),
            part_sizes=tuple(self._sizes), is_in_place=tuple(part.is_in_place for part in self._parts),
        )
        # The layout as plain numbers: properties would be computed again at every step.
        self._size, self._extras_at = self._layout.block_size, self._layout.extras_at
        self._norms_at, self._late_at = self._layout.norms_at, self._layout.late_at
        others = [device for device in self._starts if device.type != "cpu"]
        self.ring = Ring(self._layout.width, others, num_slots)
        self.reader = RowReader(
            ring=self.ring, layout=self._layout, names=self.names, groups=self.groups, ranks=self.ranks,
            shard_P=self.shard_P, counts_P=self.counts_P, main=main,
        )
        self._extras: torch.Tensor | None = None
        if self.device.type != "cpu":
            self._extras = torch.zeros(NUM_EXTRAS, dtype=accumulator(self.device), device=self.device)
        self._slot: int | None = None
        self.label = Label()

    def _find_shards(self, infos: Sequence[ShardInfo]) -> None:
        """Which parameters this rank holds only a part of, and which of its parts count towards totals over all
        ranks.
        """
        # The ranks that hold the parameters together.
        self.ranks = next((info.ranks for info in infos if info.ranks), ())
        self.place = self.ranks.index(torch.distributed.get_rank()) if self.ranks else 0
        self.shard_P = np.array([bool(info.ranks) for info in infos], dtype=bool)
        # A tensor that every rank holds in full is counted by the first rank only.
        self.counts_P = np.array([info.counts and (bool(info.ranks) or not self.place) for info in infos], dtype=bool)
        self._elements: dict[str, int] = {}
        for name, p, counts in zip(self.names, self.parameters, self.counts_P.tolist(), strict=True):
            if self.ranks and counts:
                self._elements[name] = int(local(p).numel())

    def _sort_by_device(self, measured: Sequence[tuple[str, torch.Tensor]]) -> None:
        """The parameters of each device are measured together, as one part."""
        self._devices = [p.device for p in self.parameters]
        self._starts = {device: self._devices.index(device) for device in dict.fromkeys(self._devices)}
        self._sizes = [self._devices.count(device) for device in self._starts]
        self.device = self._devices[0] if self._devices else torch.device("cpu")
        self._parts = []
        for device in self._starts:
            here = [pair for pair in measured if pair[1].device == device]
            self._parts.append(new_part(device, [name for name, _ in here], [p for _, p in here]))
        first = self._parts[0] if len(self._parts) == 1 else None
        self._host = first if isinstance(first, HostPart) else None     # set if all tensors are on the CPU

    def _new_updates(self) -> UpdateMeter | None:
        members = [[self.parameters[i] for i in of] for of in self.groups.values()]
        left_out = {id(p) for p, counts in zip(self.parameters, self.counts_P.tolist(), strict=True) if not counts}
        return UpdateMeter(members, left_out) if len(self._starts) == 1 and any(members) else None

    def is_of(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether these are the parameters it was made for."""
        return list(map(id, parameters)) == self._ids

    def is_still(self, first_only: bool = False) -> bool:
        """Whether the parameters are on the same devices as before.

        `first_only`: on the CPU only check the first parameter, because a model usually moves as one. Statistics of
        the others can be measured on any device.
        """
        if self._host is not None:
            return False not in map(_is_cpu, self.parameters[:1] if first_only else self.parameters)
        return list(map(_device, self.parameters)) == self._devices

    def release(self) -> None:
        """Release the parameters; rows in the ring can still be read."""
        self.drop()
        self.parameters, self._parts, self._host, self._updates = [], [], None, None

    @property
    def is_open(self) -> bool:
        return self._slot is not None

    def open(self, wanted: Callable[[], frozenset[str]] = lambda: ALL) -> bool:
        """Begin a row; False, counted as dropped, if the ring is full.

        The `take` methods skip categories not in `wanted`.
        """
        if self._slot is None:
            self._slot = self.ring.claim()
            self.label = Label(wanted=wanted() if self._slot is not None else ALL)
        return self._slot is not None

    def drop(self) -> None:
        """Discard the open row."""
        self._slot = None

    def add_loss(self, loss: torch.Tensor | float) -> str:
        """Add a loss to the row. Returns why it is not a number, or ""."""
        reason = why_no_number(loss)
        if not reason:
            self._add(LOSS, loss)
        return reason

    def put_extra(self, extra: int, value: torch.Tensor | float) -> None:
        self.label.extras.pop(extra, None)
        self.label.awaited -= {extra}
        self._add(extra, value)

    def _add(self, extra: int, value: torch.Tensor | float) -> None:
        """Add to the value in the row; a value on a device stays there."""
        label = self.label
        if type(value) is not torch.Tensor and is_dtensor(value):
            if not is_here(value):
                return
            value = local(value)
        if self._extras is None or not isinstance(value, torch.Tensor):
            label.extras[extra] = label.extras.get(extra, 0.0) + _number(value)
        elif extra in label.awaited:
            self._extras[extra].add_(value.detach().to(self._extras.device, non_blocking=True))
        else:
            self._extras[extra].copy_(value.detach(), non_blocking=True)
            label.awaited |= {extra}

    def put_metrics(self, metrics: Mapping[str, torch.Tensor | float]) -> dict[str, str]:
        """Add the program's own numbers and return the refused ones with the reason.

        A number on a device of these parameters arrives with the row.
        """
        assert self._slot is not None
        refused: dict[str, str] = {}
        for name, metric in metrics.items():
            if is_dtensor(metric) and not is_here(metric):
                continue
            value = local(metric)
            if reason := why_no_number(value):
                refused[name] = reason
                continue
            has_room = len(self.label.late) < NUM_LATE
            if isinstance(value, torch.Tensor) and value.device in self.ring.devices and has_room:
                at = self._late_at + len(self.label.late)
                self.ring.host_KW[self._slot, at].copy_(value.detach().reshape(()), non_blocking=True)
                self.label.late += (name,)
            else:
                self.label.metrics[name] = _number(value)
        return refused

    def forget_gradients(self) -> None:
        """Discard the gradients in the row, so that they are measured again."""
        self.label.present = {key: rows for key, rows in self.label.present.items() if key[0] == WEIGHTS}

    def take_gradients(self, block: int = GRADS, only: Sequence[int] | None = None) -> None:
        """Measure all gradients, or `only` those at these indices; gradients already in the row are kept."""
        if block == GRADS or RARE in self.label.wanted:
            self._take(block, only)

    def take_weights(self) -> None:
        if "weights" in self.label.wanted:
            self._take(WEIGHTS, None)

    def _take(self, block: int, only: Sequence[int] | None) -> None:
        assert self._slot is not None
        present = self.label.present
        if self._host is not None and only is None and (block, 0) not in present:
            limits = block == GRADS and DETAILED in self.label.wanted
            rows = self._host.take_all(self.ring.address(self._slot, block * self._size), block == WEIGHTS, limits)
            if rows is not None:
                present[block, 0] = rows
                return
        parts = zip(self._parts, self._starts.values(), self._sizes, strict=True)
        for number, (part, start, size) in enumerate(parts):
            mine = None if only is None else [i - start for i in only if start <= i < start + size]
            if mine is None or mine:
                rows_PS = self._rows(self._slot, part.is_in_place, block * len(self.names) + start, size)
                present[block, number] = part.take(rows_PS, present.get((block, number), ()), mine, block == WEIGHTS)
                self.refused |= part.refused

    def _rows(self, slot: int, is_array: bool, start: int, num: int) -> Any:
        row_W = self.ring.array(slot) if is_array else self.ring.host_KW[slot]
        return row_W[start * NUM_STATS : (start + num) * NUM_STATS].reshape(num, NUM_STATS)

    def begin_update(self) -> None:
        if self._updates is not None and "updates" in self.label.wanted:
            self._updates.begin()

    def end_update(self) -> None:
        if self._updates is None or self._slot is None or "updates" not in self.label.wanted:
            return
        if self._updates.end():
            norms_2G = self._updates.norms_2G
            row_W = self.ring.host_KW[self._slot]
            row_W[self._norms_at : self._late_at].view_as(norms_2G).copy_(norms_2G, non_blocking=True)
            self.label.has_updates = True

    def commit(self) -> None:
        """The row is complete."""
        if self._slot is None:
            return
        if self._extras is not None:
            for extra in self.label.awaited:
                self.ring.host_KW[self._slot, self._extras_at + extra].copy_(self._extras[extra], non_blocking=True)
        self.ring.commit(self._slot, self.label)
        self._slot = None

    def shard_facts(self) -> dict[str, Any]:
        """For merging the parts of all ranks: how many elements of each tensor count on this rank."""
        return {"ranks": list(self.ranks), "place": self.place, "elements": self._elements}


def _number(value: torch.Tensor | float) -> float:
    # float() of a tensor that requires gradients warns.
    return float(value.item() if isinstance(value, torch.Tensor) else value)

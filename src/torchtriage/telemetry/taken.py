"""What is taken at a step from one set of parameters: into a row of a ring on the training's side, out of it on the reader's.

P tensors, S statistics, G groups, W numbers a row.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from torchtriage.recording.shards import SHARD
from torchtriage.telemetry.aten_statistics import accumulator
from torchtriage.telemetry.levels import DETAILED, RARE
from torchtriage.telemetry.looks import AFTER, ALL, GRADS, LOSS, NUM_BLOCKS, NUM_EXTRAS, NUM_LATE, SCALE, SKIPPED, WEIGHTS, Label, Look
from torchtriage.telemetry.observation import Observation, unscaled, whole_norm
from torchtriage.telemetry.parts import HostPart, new_part
from torchtriage.telemetry.ring import Ring
from torchtriage.telemetry.sharding import is_here, local, pieces
from torchtriage.telemetry.table import NUM_STATS
from torchtriage.telemetry.tensors import is_dtensor, why_no_number, why_refused
from torchtriage.telemetry.updates import UpdateMeter

_device, _is_cpu = attrgetter("device"), attrgetter("is_cpu")


class Track:
    """The parameters of an optimizer or a model, each once, with the ring that their statistics go through.

    `groups`: names with the parameters of each; a parameter that is in none belongs to the whole only.
    """

    def __init__(self, named: Sequence[tuple[str, torch.Tensor]], groups: Mapping[str, Sequence[torch.Tensor]], *,
                 main: str = "", num_slots: int | None = None) -> None:
        found = pieces(named)
        # Gradients that are refused come later.
        self.refused = {name: reason for name, p in named if (reason := found[name].why_not or why_refused(local(p)))}
        kept = sorted(((name, p) for name, p in named if name not in self.refused), key=lambda pair: str(pair[1].device))
        self.names = tuple(name for name, _ in kept)
        self.parameters = [p for _, p in kept]
        held = [found[name] for name in self.names]
        self.ranks = next((piece.ranks for piece in held if piece.ranks), ())       # that hold its parameters together
        self.shard_P = np.array([bool(piece.ranks) for piece in held], dtype=bool)
        self.place = self.ranks.index(torch.distributed.get_rank()) if self.ranks else 0
        # Whether this rank's part goes into what all ranks hold together: what all have is the first one's to tell.
        self.counts_P = np.array([piece.counts and (bool(piece.ranks) or not self.place) for piece in held], dtype=bool)
        self._elements = {
            name: int(local(p).numel()) for name, p, counts in zip(self.names, self.parameters, self.counts_P.tolist(), strict=True)
            if self.ranks and counts
        }
        self.clips = False      # whether the program is known to clip gradients
        self.main = main        # put behind the names of the whole where there are several tracks
        self.index = {id(p): i for i, p in enumerate(self.parameters)}
        self._ids = [id(p) for _, p in named]
        self.groups = {name: [self.index[id(p)] for p in of if id(p) in self.index] for name, of in groups.items()}
        self.dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in self.parameters})
        self._devices = [p.device for p in self.parameters]
        self._starts = {device: self._devices.index(device) for device in dict.fromkeys(self._devices)}
        self.device = self._devices[0] if self._devices else torch.device("cpu")
        self._parts = [new_part(d, *zip(*[pair for pair in kept if pair[1].device == d], strict=True)) for d in self._starts]
        self._is_in_place = [part.is_in_place for part in self._parts]
        first = self._parts[0] if len(self._parts) == 1 else None
        self._host = first if isinstance(first, HostPart) else None     # where all tensors are on the CPU
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
        left_out = {id(p) for p, counts in zip(self.parameters, self.counts_P.tolist(), strict=True) if not counts}
        return UpdateMeter(members, left_out) if len(self._starts) == 1 and any(members) else None

    def is_of(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether these are the parameters it was made for."""
        return list(map(id, parameters)) == self._ids

    def is_still(self, first_only: bool = False) -> bool:
        """Whether its parameters are where they were. `first_only` asks only the first, with which a whole model moves, if all are on the
        CPU: there the others' statistics can be taken wherever they are."""
        if self._host is not None:
            return False not in map(_is_cpu, self.parameters[:1] if first_only else self.parameters)
        return list(map(_device, self.parameters)) == self._devices

    def release(self) -> None:
        """Let go of the parameters; what the ring holds can still be read."""
        self.drop()
        self.parameters, self._parts, self._host, self._updates = [], [], None, None

    @property
    def is_open(self) -> bool:
        return self._slot is not None

    def open(self, wanted: Callable[[], frozenset[str]] = lambda: ALL) -> bool:
        """Begin a row; False, and counted, if the ring is full. What is not `wanted` at this step is passed over by the `take` methods."""
        if self._slot is None:
            self._slot = self.ring.claim()
            self.label = Label(wanted=wanted() if self._slot is not None else ALL)
        return self._slot is not None

    def drop(self) -> None:
        """Forget the row that was begun."""
        self._slot = None

    def add_loss(self, loss: torch.Tensor | float) -> str:
        """"" if it is a number; else why it is none."""
        reason = why_no_number(loss)
        if not reason:
            self._add(LOSS, loss)
        return reason

    def put_extra(self, extra: int, value: torch.Tensor | float) -> None:
        self.label.extras.pop(extra, None)
        self.label.awaited -= {extra}
        self._add(extra, value)

    def _add(self, extra: int, value: torch.Tensor | float) -> None:
        """To what the row holds so far of it; a value on a device stays there."""
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
        """Numbers of the program's own; one on a device that rows are filled from arrives with the row. Returns what is none, and why."""
        assert self._slot is not None
        refused = {}
        for name, given in metrics.items():
            if is_dtensor(given) and not is_here(given):
                continue
            value = local(given)
            if why_no := why_no_number(value):
                refused[name] = why_no
                continue
            is_late = isinstance(value, torch.Tensor) and value.device in self.ring.devices and len(self.label.late) < NUM_LATE
            if is_late and isinstance(value, torch.Tensor):
                at = self._late + len(self.label.late)
                self.ring.host_KW[self._slot, at].copy_(value.detach().reshape(()), non_blocking=True)
                self.label.late += (name,)
            else:
                self.label.metrics[name] = _number(value)
        return refused

    def forget_gradients(self) -> None:
        """They will be taken anew."""
        self.label.present = {key: rows for key, rows in self.label.present.items() if key[0] == WEIGHTS}

    def take_gradients(self, block: int = GRADS, only: Sequence[int] | None = None) -> None:
        """Of all parameters that have one, or of `only` those by index; what the row holds already is left as it is."""
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
        if self._updates is not None and "updates" in self.label.wanted:
            self._updates.begin()

    def end_update(self) -> None:
        if self._updates is not None and self._slot is not None and "updates" in self.label.wanted and self._updates.end():
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
            for extra in self.label.awaited:
                self.ring.host_KW[self._slot, at + extra].copy_(self._extras[extra], non_blocking=True)
        self.ring.commit(self._slot, self.label)
        self._slot = None

    def shard_facts(self) -> dict[str, Any]:
        """What a reader needs to put the parts of all ranks together: how many elements of each tensor count here."""
        return {"ranks": list(self.ranks), "place": self.place, "elements": self._elements}

    # The reader's side: no torch operation, any thread.

    def observations(self, wait: bool = False) -> Iterable[Observation]:
        return map(self.observation, self.looks(wait))

    def looks(self, wait: bool = False) -> Iterable[Look]:
        for row_W, label in self.ring.drain(wait):
            extras = dict(label.extras)
            for e in label.awaited:
                extras[e] = extras.get(e, 0.0) + float(row_W[NUM_BLOCKS * self._size + e])
            tables = {block: self._table(row_W, label, block, extras.get(SCALE)) for block in (GRADS, AFTER, WEIGHTS)}
            norms_2G = row_W[NUM_BLOCKS * self._size + NUM_EXTRAS :][: 2 * len(self.groups)].reshape(2, -1).copy()
            yield Look(
                label=label, extras=extras, tables={block: table_PS for block, table_PS in tables.items() if table_PS is not None},
                late={name: float(row_W[self._late + number]) for number, name in enumerate(label.late)},
                norms_2G=norms_2G if label.has_updates else None,
            )

    def observation(self, look: Look, is_whole: bool = False) -> Observation:
        """`is_whole`: what is in the look is of all ranks that hold the parameters together."""
        label, extras, scale = look.label, look.extras, look.extras.get(SCALE)
        is_shard = bool(self.ranks) and not is_whole
        found = self._norms(look, is_shard)
        known = {self._called(SHARD + name if is_shard else name): value for name, value in found.items() if value is not None}
        if LOSS in extras:
            known[self._called("loss")] = extras[LOSS] / (scale or 1.0)
        behind = f"/group:{self.main}" if self.main else ""
        known |= {name + behind: extras[e] for name, e in (("scaler/scale", SCALE), ("scaler/skipped_total", SKIPPED)) if e in extras}
        return Observation(
            step=label.step, time=label.time, values=known | label.metrics | look.late, names=self.names,
            grad_PS=look.tables.get(GRADS), weight_PS=look.tables.get(WEIGHTS), has_tensors="group_gradients" in label.wanted,
            is_detailed=DETAILED in label.wanted, histograms=label.histograms or {},
            shard_P=self.shard_P if is_shard else None,
        )

    def _norms(self, look: Look, is_shard: bool) -> dict[str, float | None]:
        """Of all tensors and of groups; of shards those that count, so that the squares of all ranks add up to that of the whole."""
        grad_PS, after_PS = look.tables.get(GRADS), look.tables.get(AFTER)
        counted_P = self.counts_P if is_shard else slice(None)
        groups = self.groups if len(self.groups) > 1 and "group_gradients" in look.label.wanted else {}

        def norm(table_PS: Any, of_P: Any) -> float | None:
            found = None if table_PS is None else whole_norm(table_PS[of_P])
            return 0.0 if found is None and is_shard and table_PS is not None else found

        values = {"grad_norm": norm(grad_PS, counted_P), "grad_norm_after_clip": norm(after_PS, counted_P)}
        before, after = values.values()
        self.clips = self.clips or (None not in (before, after) and before != after and before == before)
        if not self.clips:      # as far as is known nobody does, and the same number twice would say nothing
            values["grad_norm_after_clip"] = None
        values["weight_norm"] = norm(look.tables.get(WEIGHTS), counted_P)
        for name, indices in groups.items():
            values[f"grad_norm/group:{name}"] = norm(grad_PS, [i for i in indices if self.counts_P[i]] if is_shard else indices)
        if look.norms_2G is not None:
            for name, change, weight in zip(self.groups, *look.norms_2G.tolist(), strict=True):
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
        part_PS = row_W[block * self._size : (block + 1) * self._size].reshape(-1, NUM_STATS)
        if self._is_in_place == [True] and len(present[0]) == len(self.names):
            return unscaled(part_PS, scale) if scale and block in label.scaled else part_PS.copy()
        table_PS = np.zeros((len(self.names), NUM_STATS))
        for number, start in enumerate(self._starts.values()):
            rows = present.get(number, ())
            for_rows = [start + i for i in rows]
            table_PS[for_rows] = part_PS[for_rows] if self._is_in_place[number] else part_PS[start : start + len(rows)]
        return unscaled(table_PS, scale) if scale and block in label.scaled else table_PS


def _number(value: torch.Tensor | float) -> float:
    return float(value.item() if isinstance(value, torch.Tensor) else value)        # float() of a tensor warns if it has a graph

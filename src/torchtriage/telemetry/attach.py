"""Telemetry of a program that knows nothing of it: what `torchtriage run` sees of any optimizer, by taps outside of this package."""

import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from torchtriage.recording.events import Event, StepSkipped, Tap
from torchtriage.recording.recording import Series
from torchtriage.telemetry.claims import is_claimed
from torchtriage.telemetry.levels import TelemetryConfig
from torchtriage.telemetry.looks import AFTER, GRADS, SCALE, SKIPPED
from torchtriage.telemetry.names import Namer
from torchtriage.telemetry.pace import Pace
from torchtriage.telemetry.program import HalfWatch, is_busy, learning_rates, listed_parameters, parameter_groups
from torchtriage.telemetry.scaling import Scaling
from torchtriage.telemetry.sinks.curves import Curves
from torchtriage.telemetry.taken import Track
from torchtriage.telemetry.writer import Writer

MAX_OPTIMIZERS = 16     # a program that makes a new one for each task is followed this far
MAX_LOSSES = 1024       # backward calls between two steps
MAX_REFUSED = 3         # tensors that are named; the rest are counted


class Entry:
    """One optimizer; it is not kept alive."""

    def __init__(self, optimizer: torch.optim.Optimizer, pace: Pace, label: str) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.kind = type(optimizer).__name__
        self.label = label
        self.pace = pace
        self.scaling = Scaling()
        self.track: Track | None = None
        self.is_clipped_unseen = False      # the program clips, and may have done so before there was a track
        self.is_left = False                # a Monitor of the program's own looks at these parameters


class Attached:
    """Everything that telemetry does in an observed process. The taps' methods run on the program's threads, the others do not."""

    def __init__(self, emit: Callable[[Event], None], step: Callable[[], int | None], config: TelemetryConfig | None = None) -> None:
        self._emit = emit
        self._step = step
        self.config = config or TelemetryConfig()
        self._namer = Namer()
        self._clip_seen = False
        self._start()
        if self.config.activation_monitoring:
            self._say_absent("activations", "no model is known here; use torchtriage.telemetry.Monitor in the loop")

    def _start(self) -> None:
        self.curves = Curves()
        self.writer = Writer(kept=[self.curves], emit=self._emit, on_anomaly=self.config.escalate)
        self.curves.on_work = self._on_work
        self._entries: dict[int, Entry] = {}
        self._all: list[Entry] = []         # also of optimizers that are gone; MAX_OPTIMIZERS at most
        self._is_idle = False               # no optimizer's next step is to be looked at
        self._is_scaled = False             # GradScaler is at work
        self._is_full = False               # there are more optimizers than are followed
        self._losses: list[torch.Tensor] = []
        self._dtypes: set[str] = set()
        self._halves = HalfWatch()
        self._refused: dict[str, str] = {}
        self._rates: list[float] = []       # of the first optimizer, at its newest look
        self._names: dict[str, int] = {}
        self._num_dropped = 0               # in rings that are gone
        self._shards: dict[str, Any] = {}   # what is known of parameters of which this rank holds a part

    def start_over(self) -> None:
        """In a forked child: its parent has the threads, and goes on with what was seen so far."""
        self._start()

    # What the taps see

    def backward(self, tensors: Sequence[Any]) -> None:
        if self._is_scaled:
            for entry in list(self._entries.values()):
                if entry.scaling.is_unscaled and entry.scaling.take_skipped():
                    self._step_was_skipped(entry)
        if self._is_idle:
            return
        is_loss = len(tensors) == 1 and isinstance(tensors[0], torch.Tensor) and tensors[0].numel() == 1
        if is_loss and len(self._losses) < MAX_LOSSES and not is_busy():
            self._losses.append(tensors[0].detach())
            if self._halves.look(tensors[0]):
                self.writer.detector.note_types(is_half=True)

    def clipping(self, parameters: Any) -> None:
        self._clip_seen = True
        if self._is_idle:
            return
        listed = listed_parameters(parameters)
        clipped = None if listed is None else {id(p) for p in listed}
        for entry in list(self._entries.values()):
            if not entry.pace.is_due or entry.track is None or is_busy():
                continue
            began = entry.pace.clock()
            only = [i for i, p in enumerate(entry.track.parameters) if clipped is None or id(p) in clipped]
            if only and entry.track.open(entry.pace.wanted):
                entry.scaling.clipping()
                entry.track.label.is_clipped = entry.track.clips = True
                entry.track.take_gradients(GRADS, only)
            entry.pace.spent(entry.pace.clock() - began)

    def unscaling(
        self, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor, is_check: bool, scale: torch.Tensor | None = None,
    ) -> None:
        entry = self._entry(optimizer)
        if entry is not None:
            if entry.scaling.is_unscaled and entry.scaling.take_skipped():
                self._step_was_skipped(entry)
            entry.scaling.unscaling(inv_scale, is_check, scale)
            self._is_scaled = True

    def step_begins(self, optimizer: torch.optim.Optimizer) -> None:
        entry = self._entry(optimizer)
        if entry is None or entry.is_left or not entry.pace.is_due or is_busy():
            return
        began = entry.pace.clock()
        if self._prepare(entry, optimizer):
            entry.pace.set_up(entry.pace.clock() - began)
            began = entry.pace.clock()
        if entry.track is not None and entry.track.open(entry.pace.wanted):
            if isinstance(getattr(optimizer, "grad_scale", None), torch.Tensor):
                self._take_gradients(entry, entry.track)    # a fused step takes the scale out of them, unless it skips
                entry.track.label.scaled |= {GRADS, AFTER}
            entry.track.take_weights()      # those that the gradients were, or in a closure will be, computed with
            entry.track.begin_update()
        entry.pace.spent(entry.pace.clock() - began)

    def step_ended(self, optimizer: torch.optim.Optimizer) -> None:
        entry = self._entry(optimizer)
        if entry is None:
            return
        began = entry.pace.clock()
        held, is_skipped = entry.scaling.step_ended(optimizer) if self._is_scaled else (None, False)
        looked = entry.track is not None and entry.track.is_open and not is_busy()
        if looked:
            self._look(entry, held)
        elif entry.track is not None:
            entry.track.drop()
        if is_skipped:
            self._tell_skipped(entry)
        self._losses.clear()
        entry.pace.spent(entry.pace.clock() - began)
        entry.pace.update_ended(looked)
        self._is_idle = not entry.pace.is_due and not any(other.pace.is_due for other in self._entries.values())

    def _look(self, entry: Entry, held: torch.Tensor | None) -> None:
        """The end of a step: gradients are as the optimizer used them, a closure's too."""
        track = entry.track
        assert track is not None
        label = track.label
        self._take_gradients(entry, track)
        track.end_update()
        for loss in self._losses:
            track.add_loss(loss)
        self._put_scale(entry, track, held)
        label.step = self._step() or entry.pace.num_updates + 1
        label.time = time.time()
        if not track.main:
            optimizer = entry.optimizer()
            self._rates = learning_rates(optimizer) if optimizer is not None else []
            label.metrics = {"telemetry/share": entry.pace.share, "telemetry/interval": float(entry.pace.interval)}
        track.commit()
        entry.is_clipped_unseen = False
        if track.refused:
            self._say_refused(track)
        self.writer.start(track.ring.is_filling)

    def _take_gradients(self, entry: Entry, track: Track) -> None:
        """What is not known yet of them; after clipping, all of them once more."""
        if entry.is_clipped_unseen:
            return
        track.take_gradients(GRADS)
        if track.label.is_clipped:
            track.take_gradients(AFTER)

    def _put_scale(self, entry: Entry, track: Track, held: torch.Tensor | None) -> None:
        scaling, label = entry.scaling, track.label
        if not scaling.is_used:
            return
        scale = scaling.scale(held)
        if scale is not None:
            track.put_extra(SCALE, scale)
        track.put_extra(SKIPPED, scaling.skipped_total())
        if label.is_clipped and scaling.was_clipped_scaled:
            label.scaled |= {GRADS}

    # Optimizers as they come and go

    def _entry(self, optimizer: torch.optim.Optimizer) -> Entry | None:
        entry = self._entries.get(id(optimizer))
        if entry is not None and entry.optimizer() is optimizer:
            return entry
        if len(self._all) >= MAX_OPTIMIZERS:
            if not self._is_full:
                self._is_full = True
                self._say_absent("gradients of more optimizers", f"the first {MAX_OPTIMIZERS} of a process are followed")
            return None
        label = f"{type(optimizer).__name__} {len(self._all) + 1}" if self._all else ""
        entry = Entry(optimizer, Pace(self.config, leads=not label), label)
        self._entries[id(optimizer)] = entry
        self._all.append(entry)
        weakref.finalize(optimizer, self._forget, id(optimizer), entry).atexit = False
        return entry

    def _forget(self, key: int, entry: Entry | None = None) -> None:
        """The optimizer is gone: let go of its parameters."""
        if entry is None or self._entries.get(key) is entry:
            gone = self._entries.pop(key, None)
            if gone is not None and gone.track is not None:
                self._retire(gone.track)
                gone.track = None

    def _retire(self, track: Track) -> None:
        self._num_dropped += track.ring.num_dropped
        self.writer.remove(track)
        track.release()

    def _prepare(self, entry: Entry, optimizer: torch.optim.Optimizer) -> bool:
        """Make a track for the parameters as they are now, if need be: groups may be added, a model may move to another device."""
        members = {id(p): p for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
        if entry.track is not None:
            if entry.track.is_of(members.values()) and entry.track.is_still():
                return False
            self._retire(entry.track)
            entry.track = None
        entry.is_left = is_claimed(members.values())
        if not members or entry.is_left:
            return False
        parameters = list(members.values())
        names = self._namer.names(optimizer, parameters, sys._getframe(1))
        names = [self._unique(name, id(p), entry.label) for name, p in zip(names, parameters, strict=True)]
        track = Track(list(zip(names, parameters, strict=True)), parameter_groups(optimizer, entry.label), main=entry.label)
        entry.is_clipped_unseen = self._clip_seen
        self._note(track)
        entry.track = track
        entry.pace.is_shared = bool(track.ranks)
        if track.ranks:     # no rank waits for another here: the reader of the recording puts together what each tells of its part
            shards = track.shard_facts()
            self._shards = {**shards, "elements": {**self._shards.get("elements", {}), **shards["elements"]}}
        self.writer.add(track, entry.pace.spent_behind)
        return True

    def _unique(self, name: str, key: int, label: str) -> str:
        """Two optimizers may have parameters of the same name."""
        if self._names.setdefault(name, key) == key or not label:
            return name
        return f"{name} ({label})"

    def _note(self, track: Track) -> None:
        new = set(track.dtypes) - self._dtypes
        self._dtypes |= new
        if new:
            halves = self._dtypes & {"float16", "bfloat16"}
            self.writer.detector.note_types(is_half=bool(halves), has_float16="float16" in halves)
        self._say_refused(track)

    def _say_refused(self, track: Track) -> None:
        missing = {name: reason for name, reason in track.refused.items() if name not in self._refused}
        self._refused |= missing
        if missing:
            listed = "; ".join(f"{name} {reason}" for name, reason in list(missing.items())[:MAX_REFUSED])
            left = f"; and {len(missing) - MAX_REFUSED} more" if len(missing) > MAX_REFUSED else ""
            self._say_absent("gradients of some tensors", listed + left)

    def _say_absent(self, name: str, detail: str) -> None:
        self._emit(Tap(name=name, state="absent", detail=detail, time=time.time(), pid=os.getpid()))

    # Skipped steps

    def _step_was_skipped(self, entry: Entry) -> None:
        """What was taken before it belongs to no step."""
        if entry.track is not None:
            entry.track.drop()
        self._losses.clear()
        self._tell_skipped(entry)

    def _tell_skipped(self, entry: Entry) -> None:
        optimizer = entry.optimizer()
        self.writer.tell(StepSkipped(
            optimizer=entry.label or type(optimizer).__name__, total=entry.scaling.num_skipped, time=time.time(), step=self._step(),
            pid=os.getpid(),
        ))

    # What the recorder asks for, on its own thread

    def _on_work(self, seconds: float) -> None:
        if self._all:
            self._all[0].pace.spent_behind(seconds)

    def series(self) -> Iterable[Series]:
        return self.curves.series()

    def facts(self) -> Mapping[str, Any]:
        if not self.writer.num_observed:
            return {}
        paces = [entry.pace for entry in self._all]
        rings = [entry.track.ring for entry in self._all if entry.track is not None]
        return {
            "grad_dtypes": sorted(self._dtypes), "optimizer_lr": self._rates,
            "optimizers": sorted({entry.kind for entry in self._all}), **self._halves.facts(),
            "telemetry": {
                **self.writer.facts(), "level": self.config.level.name, "num_tensors": len(self._names),
                "gradients": "before clipping" if self._clip_seen else "as the optimizer used them",
                "interval": max(pace.interval for pace in paces),
                "num_dropped": self._num_dropped + sum(ring.num_dropped for ring in rings), "num_left_out": self.curves.num_left_out,
                "num_escalations": self.config.num_escalations, "own_seconds": round(sum(pace.own_seconds for pace in paces), 6),
                "background_seconds": round(sum(pace.behind_seconds for pace in paces), 6),
                "setup_seconds": round(sum(pace.setup_seconds for pace in paces), 6),
                "share": round(sum(pace.share for pace in paces), 6),
                "num_skipped_steps": sum(entry.scaling.num_skipped for entry in self._all),
                **({"shards": self._shards} if self._shards else {}),
            },
        }

    def close(self) -> None:
        for entry in self._all:
            if entry.scaling.take_last_skipped():
                self._tell_skipped(entry)
        self.writer.close()

"""Telemetry of a program that knows nothing of it: what `torchtriage run` sees of any optimizer, by taps outside of this package."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from torchtriage.recording.events import Event, StepSkipped
from torchtriage.recording.recording import Series
from torchtriage.telemetry.levels import TelemetryConfig
from torchtriage.telemetry.looks import AFTER, GRADS, SCALE, SKIPPED
from torchtriage.telemetry.names import Namer
from torchtriage.telemetry.optimizers import Entry, Optimizers
from torchtriage.telemetry.program import HalfWatch, is_busy, learning_rates, listed_parameters
from torchtriage.telemetry.sinks.curves import Curves
from torchtriage.telemetry.taken import Track
from torchtriage.telemetry.writer import Writer

MAX_LOSSES = 1024       # backward calls between two steps


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
            self._optimizers.say_absent("activations", "no model is known here; use torchtriage.telemetry.Monitor in the loop")

    def _start(self) -> None:
        self.curves = Curves()
        self.writer = Writer(kept=[self.curves], emit=self._emit, on_anomaly=self.config.escalate)
        self.curves.on_work = self._on_work
        self._optimizers = Optimizers(self._emit, self.config, self.writer, self._namer)
        self._is_idle = False               # no optimizer's next step is to be looked at
        self._is_scaled = False             # GradScaler is at work
        self._losses: list[torch.Tensor] = []
        self._halves = HalfWatch()
        self._rates: list[float] = []       # of the first optimizer, at its newest look

    def start_over(self) -> None:
        """In a forked child: its parent has the threads, and goes on with what was seen so far."""
        self._start()

    # What the taps see

    def backward(self, tensors: Sequence[Any]) -> None:
        if self._is_scaled:
            for entry in list(self._optimizers.by_id.values()):
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
        for entry in list(self._optimizers.by_id.values()):
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
        entry = self._optimizers.entry(optimizer)
        if entry is not None:
            if entry.scaling.is_unscaled and entry.scaling.take_skipped():
                self._step_was_skipped(entry)
            entry.scaling.unscaling(inv_scale, is_check, scale)
            self._is_scaled = True

    def step_begins(self, optimizer: torch.optim.Optimizer) -> None:
        entry = self._optimizers.entry(optimizer)
        if entry is None or entry.is_left or not entry.pace.is_due or is_busy():
            return
        began = entry.pace.clock()
        if self._optimizers.prepare(entry, optimizer, self._clip_seen):
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
        entry = self._optimizers.entry(optimizer)
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
        self._is_idle = not entry.pace.is_due and not any(other.pace.is_due for other in self._optimizers.by_id.values())

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
            self._optimizers.say_refused(track)
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
        if self._optimizers.all:
            self._optimizers.all[0].pace.spent_behind(seconds)

    def series(self) -> Iterable[Series]:
        return self.curves.series()

    def facts(self) -> Mapping[str, Any]:
        if not self.writer.num_observed:
            return {}
        optimizers = self._optimizers
        return {
            "grad_dtypes": sorted(optimizers.dtypes), "optimizer_lr": self._rates,
            "optimizers": sorted({entry.kind for entry in optimizers.all}), **self._halves.facts(),
            "telemetry": {
                **self.writer.facts(), **optimizers.facts(), "level": self.config.level.name,
                "gradients": "before clipping" if self._clip_seen else "as the optimizer used them",
                "num_left_out": self.curves.num_left_out, "num_escalations": self.config.num_escalations,
            },
        }

    def close(self) -> None:
        for entry in self._optimizers.all:
            if entry.scaling.take_last_skipped():
                self._tell_skipped(entry)
        self.writer.close()

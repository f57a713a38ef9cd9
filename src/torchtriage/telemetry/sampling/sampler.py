"""Samples parameters at a pace for a writer; what Monitor has in common with the taps of `torchtriage run`."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from torchtriage.recording.events import StepSkipped
from torchtriage.recording.series import MONITOR_INTERVAL, MONITOR_SHARE
from torchtriage.telemetry.config import TelemetryConfig
from torchtriage.telemetry.sampling.pace import Pace
from torchtriage.telemetry.sampling.row import GRADS, SCALE, SKIPPED
from torchtriage.telemetry.sampling.scaler import AutocastWatch, ScalerWatch
from torchtriage.telemetry.sampling.track import Track
from torchtriage.telemetry.sinks.curves import Curves
from torchtriage.telemetry.writer import ObservationSource, TelemetryWriter

# Which gradients the statistics describe.
BEFORE_CLIPPING, AS_USED = "before clipping", "as the optimizer used them"
_HAS_CUDA = torch.backends.cuda.is_built()
_num_modes = torch._C._len_torch_dispatch_stack    # torchtriage: ignore[TT716] listed in CONTRIBUTING


def is_busy() -> bool:
    """Whether telemetry's operations would become part of the program's: in a dispatch mode, or during CUDA graph
    capture.
    """
    if _num_modes():
        return True
    return bool(_HAS_CUDA and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def is_profiled() -> bool:
    """Whether the program's profiler runs on this thread, whose trace would show telemetry's operations."""
    return bool(torch.autograd._profiler_enabled())    # torchtriage: ignore[TT716] listed in CONTRIBUTING


class Sampling:
    """The samplers of one Monitor, or of all optimizers under `torchtriage run`, with the writer that they share."""

    def __init__(
        self, config: TelemetryConfig, writer: TelemetryWriter, curves: Sequence[Curves], *,
        step: Callable[[], int | None], on_refused: Callable[[Mapping[str, str]], None],
    ) -> None:
        """`on_refused` receives the names of tensors without statistics with the reason, each once."""
        self.config, self.writer, self.step = config, writer, step
        self.samplers: list[Sampler] = []
        self.autocast = AutocastWatch()
        self.dtypes: set[str] = set()
        self._curves, self._on_refused = curves, on_refused
        self._refused: set[str] = set()
        for curve in curves:
            curve.on_work = self._on_work

    def note_loss(self, loss: Any) -> None:
        """Detect autocast: the rules judge some values differently in 16 bits."""
        if self.autocast.num_left and self.autocast.inspect(loss):
            self.writer.detector.note_types(is_half=True)

    def note_dtypes(self, dtypes: Iterable[str]) -> None:
        """Pass new 16-bit types of parameters on to the rules."""
        new = set(dtypes) - self.dtypes
        self.dtypes |= new
        halves = self.dtypes & {"float16", "bfloat16"}
        if new and halves:
            self.writer.detector.note_types(is_half=True, has_float16="float16" in halves)

    def report_refused(self, track: Track) -> None:
        new = {name: reason for name, reason in track.refused.items() if name not in self._refused}
        if new:
            self._refused |= new.keys()
            self._on_refused(new)

    def report_skipped(self, sampler: "Sampler") -> None:
        total = sampler.scaler.num_skipped if sampler.scaler is not None else 0
        self.writer.send(StepSkipped(
            optimizer=sampler.label or sampler.kind, total=total or 0, time=time.time(), step=self.step(),
            pid=os.getpid(),
        ))

    def facts(self, *, gradients: str, grad_dtypes: Iterable[str], rates: Sequence[float]) -> dict[str, Any]:
        """Facts for the recording: types and optimizers of the training, and the cost and gaps of telemetry."""
        paces = [sampler.pace for sampler in self.samplers]
        facts: dict[str, Any] = {
            "grad_dtypes": sorted(grad_dtypes), "optimizer_lr": rates,
            "optimizers": sorted({sampler.kind for sampler in self.samplers if sampler.kind}),
            "telemetry": {
                **self.writer.facts(), "level": self.config.level.name, "gradients": gradients,
                "num_escalations": self.config.num_escalations,
                "num_left_out": sum(curves.num_left_out for curves in self._curves),
                "num_dropped": sum(sampler.num_dropped for sampler in self.samplers),
                "interval": max(pace.interval for pace in paces),
                "own_seconds": round(sum(pace.own_seconds for pace in paces), 6),
                "background_seconds": round(sum(pace.background_seconds for pace in paces), 6),
                "setup_seconds": round(sum(pace.setup_seconds for pace in paces), 6),
                "share": round(sum(pace.share for pace in paces), 6),
            },
        }
        skipped = [sampler.scaler.num_skipped for sampler in self.samplers if sampler.scaler is not None]
        if skipped:
            facts["telemetry"]["num_skipped_steps"] = None if None in skipped else sum(count or 0 for count in skipped)
        if self.autocast.dtype:
            facts["autocast_dtype"] = self.autocast.dtype
        return facts

    def close(self) -> None:
        for sampler in self.samplers:
            if sampler.scaler is not None and sampler.scaler.end():
                self.report_skipped(sampler)
        self.writer.close()

    def _on_work(self, seconds: float) -> None:
        if self.samplers:
            self.samplers[0].pace.charge_background(seconds)


class Sampler:
    """Measures one set of parameters. It has a track while there are parameters to measure."""

    def __init__(self, sampling: Sampling, *, kind: str, label: str = "", scaler: ScalerWatch | None = None) -> None:
        """`kind`: the class of the optimizer; `label`: its name if it is not the first."""
        self.sampling = sampling
        self.kind, self.label, self.scaler = kind, label, scaler
        self.pace = Pace(sampling.config, leads=not label)
        self.track: Track | None = None
        self._source: ObservationSource | None = None
        self._num_dropped = 0           # in rings that were retired
        sampling.samplers.append(self)

    @property
    def num_dropped(self) -> int:
        return self._num_dropped + (self.track.ring.num_dropped if self.track is not None else 0)

    def start(self, track: Track, source: ObservationSource | None = None) -> None:
        """`source`: where observations come from, if not from the rows of the track alone."""
        self.track, self._source = track, source or track.reader
        self.pace.is_shared = bool(track.ranks)
        self.sampling.report_refused(track)
        self.sampling.writer.add(self._source, self.pace.charge_background)

    def retire(self) -> None:
        """Release the parameters; the writer still reads the rows in the ring."""
        track, self.track = self.track, None
        if track is not None and self._source is not None:
            self._num_dropped += track.ring.num_dropped
            self.sampling.writer.remove(self._source)
            track.release()

    def drop(self) -> None:
        """Discard the row of this step, if there is one."""
        if self.track is not None:
            self.track.drop()

    def finish(self, track: Track) -> None:
        """Complete the row of a step whose gradients have been measured."""
        label, pace = track.label, self.pace
        track.end_update()
        self._put_scale(track)
        if not self.label:
            label.metrics[MONITOR_SHARE], label.metrics[MONITOR_INTERVAL] = pace.share, float(pace.interval)
        label.step = self.sampling.step() or pace.num_updates + 1
        label.update, label.time = pace.num_updates, time.time()
        track.commit()
        if track.refused:
            self.sampling.report_refused(track)
        self.sampling.writer.start(track.ring.is_filling)

    def _put_scale(self, track: Track) -> None:
        scaler = self.scaler
        if scaler is None or not scaler.is_used:
            return
        scale = scaler.scale()
        if scale is not None:
            track.put_extra(SCALE, scale)
        track.put_extra(SKIPPED, scaler.skipped_total())
        if track.label.is_clipped and scaler.was_clipped_scaled:
            track.label.scaled |= {GRADS}

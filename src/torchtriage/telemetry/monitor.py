"""Watches the learning of one model: two calls in the training loop, statistics in the background."""

import atexit
import functools
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, ParamSpec

import torch

from torchtriage.recording.events import StepSkipped, TrainingEvent
from torchtriage.telemetry.activations import ActivationMeter, why_not
from torchtriage.telemetry.anomaly import AnomalyDetector
from torchtriage.telemetry.claims import claims
from torchtriage.telemetry.followed import Followed
from torchtriage.telemetry.histogram import exponent_histograms
from torchtriage.telemetry.levels import RARE, TelemetryConfig, TelemetryLevel
from torchtriage.telemetry.looks import AFTER, GRADS, SCALE, SKIPPED
from torchtriage.telemetry.pace import Pace
from torchtriage.telemetry.program import HalfWatch, is_busy, learning_rates
from torchtriage.telemetry.scaler import ScalerWatch
from torchtriage.telemetry.sharding import local
from torchtriage.telemetry.sinks import Sink
from torchtriage.telemetry.sinks.recording import RecordingSink
from torchtriage.telemetry.states import check_state
from torchtriage.telemetry.taken import Track
from torchtriage.telemetry.telemetry_events import TelemetryEvent
from torchtriage.telemetry.trained import Group
from torchtriage.telemetry.writer import Writer, checked_sinks

STATE_VERSION = 1
P = ParamSpec("P")


def _never_fails(method: Callable[P, None]) -> Callable[P, None]:
    """What goes wrong in here is said once, and the training goes on. Inside a compiled function it does nothing at all."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        if torch.compiler.is_dynamo_compiling():
            return
        self: Any = args[0]
        if self.is_off:
            return
        try:
            method(*args, **kwargs)
        except Exception as error:
            self.is_off = True
            self.warn_once("failed", f"it is off from here on: {type(error).__name__}: {error}")

    return call


class Monitor:
    """Statistics of gradients, weights and updates of a model, with the learning rules live on them.

        monitor = Monitor(model, optimizer, groups={"actor": model.actor, "critic": model.critic})
        loss.backward()
        monitor.after_backward(loss)        # before clipping
        clip_grad_norm_(...); optimizer.step()
        monitor.step({"ppo/kl": kl})        # before zero_grad(), so that the norm after clipping is known too
        optimizer.zero_grad()

    Metrics are floats, or tensors of one element, which are read later. Its methods never raise, and do nothing inside a compiled function.

    `groups`: names with modules, parameters, or beginnings of parameter names; by default the optimizer's parameter groups.
    `scaler`: a GradScaler; statistics are of unscaled gradients then, and skipped steps are counted (call `step` after its update()).
    `sinks`: objects with write, event and close, or texts: recording, jsonl:FILE, tensorboard:FOLDER, wandb:PROJECT, trackio:PROJECT,
    stdout.
    """

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, *, groups: Mapping[str, Group] | None = None,
        level: TelemetryLevel | str | None = None, sinks: Sequence[Sink | str] = ("recording",), scaler: Any = None,
        config: TelemetryConfig | None = None, detector: AnomalyDetector | None = None, histograms: bool = False,
    ) -> None:
        if isinstance(level, str):
            if level.upper() not in TelemetryLevel.__members__:
                raise ValueError(f"level must be one of {', '.join(TelemetryLevel.__members__)}, got {level!r}")
            level = TelemetryLevel[level.upper()]
        if config is not None and level is not None:
            raise ValueError("level and config were both given; set the level in the config: TelemetryConfig(level=...)")
        self.config = config or TelemetryConfig(level=TelemetryLevel.NORMAL if level is None else level)
        self.is_off = self.config.level is TelemetryLevel.OFF
        self._model, self._optimizer = model, optimizer
        self._warned: set[str] = set()
        self._step = 0
        self._histograms = histograms
        self._scaler = ScalerWatch(scaler, optimizer) if scaler is not None else None
        self._pace = Pace(self.config)
        self._gradients = "before clipping"
        self._activations: ActivationMeter | None = None
        self._halves = HalfWatch()
        self._pid = os.getpid()
        made = [RecordingSink() if sink == "recording" else sink for sink in sinks] if not self.is_off else []
        recordings = [sink for sink in made if isinstance(sink, RecordingSink)]
        self._curves = [recording.curves for recording in recordings]
        for recording in recordings:
            recording.tell_facts, recording.curves.on_work = self.facts, self._pace.spent_behind
            recording.before_close(lambda: self.writer.flush())
        others = checked_sinks(sink for sink in made if not isinstance(sink, RecordingSink))
        self.writer = Writer(
            kept=recordings, sinks=others, detector=detector or self._new_detector(), on_anomaly=self.config.escalate,
        )
        self._followed = Followed(
            model, optimizer, groups, pace=self._pace, writer=self.writer, warn=self.warn_once, on_ranks=self._close_before_python_ends,
        )
        claims.add(self)
        if not self.is_off:
            self._followed.prepare()

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left. A sink that is slow is given some seconds."""
        if self._scaler is not None:
            self._scaler.close()
        self.writer.close()
        claims.discard(self)
        atexit.unregister(self._close_at_exit)

    def _close_before_python_ends(self) -> None:
        """A thread that is in a collective while Python ends would abort the process."""
        atexit.unregister(self._close_at_exit)
        atexit.register(self._close_at_exit)

    def _close_at_exit(self) -> None:
        if os.getpid() == self._pid:        # a forked child has no part in what this process has promised other ranks
            self.close()

    # The training loop

    @_never_fails
    def before_step(self) -> None:
        """Only where backward, clipping and the optimizer's step are one compiled call: before it; `after_backward` comes after it then."""
        track = self._followed.track
        if not self._pace.is_due or track is None or is_busy():
            return
        began = self._pace.clock()
        if track.open(self._pace.wanted):
            track.take_weights()
            track.begin_update()
        self._pace.spent(self._pace.clock() - began)

    @_never_fails
    def after_backward(self, loss: torch.Tensor | float | None = None, *, has_stepped: bool = False) -> None:
        """After the last backward of a step and before clipping. Called again before `step`, it adds the loss and looks anew.

        `has_stepped`: the optimizer's step is part of the same compiled call, and the gradients are those before clipping all the same.
        """
        pace = self._pace
        if not pace.is_due or is_busy() or not self._followed.is_ready():
            return
        track = self._followed.track
        assert track is not None
        began = pace.clock()
        if track.open(pace.wanted):
            if track.label.present:
                track.forget_gradients()
            track.take_gradients(GRADS)
            if RARE in track.label.wanted:
                track.take_weights()
                if not has_stepped:
                    track.begin_update()
            if loss is not None:
                self._add_loss(track, loss)
            if self._scaler is not None and self._scaler.is_scaled():
                track.label.scaled |= {GRADS}
            track.label.is_clipped = not has_stepped        # what the optimizer used is looked at as well, in `step`
        pace.spent(pace.clock() - began)

    def _add_loss(self, track: Track, loss: torch.Tensor | float) -> None:
        if reason := track.add_loss(loss):
            self.warn_once("loss", f"the loss is left out: it {reason}")
        elif self._halves.num_left and self._halves.look(loss):
            self.writer.detector.note_types(is_half=True)

    @_never_fails
    def step(self, metrics: Mapping[str, torch.Tensor | float] | None = None) -> None:
        """After the optimizer's step, once a step: the numbers of the program's own go with the statistics."""
        self._step += 1
        pace = self._pace
        looked = False
        if pace.is_due or self._scaler is not None:
            if is_busy():       # the step counts all the same: on other ranks it may be seen
                if self._followed.track is not None:
                    self._followed.track.drop()
            else:
                if self._scaler is not None and self._scaler.step_ended():
                    self._tell_skipped(self._scaler)
                looked = pace.is_due and self._look(metrics or {})
        pace.update_ended(looked)
        if pace.is_due and self.config.activation_monitoring and "activations" in self.config.collected():
            self._watch_activations()

    def _look(self, metrics: Mapping[str, torch.Tensor | float]) -> bool:
        """The end of a step that is due; whether anything was there to look at."""
        pace = self._pace
        began = pace.clock()
        track = self._followed.track
        looked = track is not None and track.is_open
        if not looked and self._followed.is_ready():
            self._gradients = "as the optimizer used them"
            track = self._followed.track
            assert track is not None
            looked = track.open(pace.wanted)
            if looked:
                track.take_gradients(GRADS)
                track.take_weights()
        if track is not None and looked:
            self._finish(track, metrics)
        pace.spent(pace.clock() - began)
        return looked

    def _watch_activations(self) -> None:
        """Of the next step. Reading them waits for a device."""
        if reason := why_not(self._model):
            self.warn_once("activations", f"no statistics of activations: {reason}")
            return
        if self._activations is None:
            self._activations = ActivationMeter(self._model)
        self._activations.begin()

    def _finish(self, track: Track, metrics: Mapping[str, torch.Tensor | float]) -> None:
        label, pace = track.label, self._pace
        if RARE in label.wanted:
            if label.is_clipped:
                track.take_gradients(AFTER)
            track.end_update()
        if self._scaler is not None:
            track.put_extra(SCALE, self._scaler.scale())
            track.put_extra(SKIPPED, self._scaler.skipped_total())
        if metrics:
            for name, reason in track.put_metrics(metrics).items():
                self.warn_once(f"metric {name}", f"the metric {name!r} is left out: it {reason}")
        if self._histograms:
            label.histograms = self._exponents(track)
        if self._activations is not None and self._activations.is_on:
            label.metrics |= self._activations.end()
        label.metrics["telemetry/share"], label.metrics["telemetry/interval"] = pace.share, float(pace.interval)
        label.step, label.update, label.time = self._step, pace.num_updates, time.time()
        track.commit()
        if track.refused:
            self._followed.say_refused(track)
        self.writer.start(track.ring.is_filling)

    def _tell_skipped(self, scaler: ScalerWatch) -> None:
        name = type(self._optimizer).__name__ if self._optimizer is not None else ""
        total = scaler.num_skipped or 0
        self.writer.tell(StepSkipped(optimizer=name, total=total, time=time.time(), step=self._step, pid=os.getpid()))

    def _exponents(self, track: Track) -> dict[str, list[int]]:
        """On request: this reads from the device, and waits for it."""
        if track.ranks:
            self.warn_once("histograms", "no histograms of parameters that are spread over ranks")
        here = [(name, p) for name, p, is_shard in zip(track.names, track.parameters, track.shard_P.tolist(), strict=True) if not is_shard]
        with_grad = [(name, local(p.grad)) for name, p in here if p.grad is not None]
        with torch.no_grad():
            counts = exponent_histograms([grad for _, grad in with_grad])
        return {f"grad_exponents/{name}": row for (name, _), row in zip(with_grad, counts, strict=True)}

    @property
    def is_looking(self) -> bool:
        """Whether this step is looked at; what else a program measures for telemetry can wait for such a step."""
        return self._pace.is_due and not self.is_off

    def charge(self, seconds: float) -> None:
        """Time of this step that the program spent on telemetry itself: it counts towards the budget."""
        self._pace.spent(seconds)

    def tell(self, event: TelemetryEvent) -> None:
        """An event into the recording and to every sink, beside the observations: what a VectorizedEmitter takes as its sink."""
        self.writer.tell(TrainingEvent(
            time=event.time, step=self._step, pid=os.getpid(), name=event.kind, values=json.dumps(event.to_dict(), default=str),
        ))

    def _new_detector(self) -> AnomalyDetector:
        dtypes = {p.dtype for p in self._model.parameters()}
        return AnomalyDetector(is_half=bool(dtypes & {torch.float16, torch.bfloat16}), has_float16=torch.float16 in dtypes)

    def holds(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether these are its model's: then `torchtriage run` leaves them to it."""
        own = {id(p) for p in self._model.parameters()}
        return any(id(p) in own for p in parameters)

    # What it says of itself

    def warn_once(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(f"torchtriage Monitor: {text}", RuntimeWarning, stacklevel=4)

    def facts(self) -> dict[str, Any]:
        """Its own cost and what it could not do, as the recording keeps it."""
        return {
            "grad_dtypes": self._followed.dtypes(), **self._halves.facts(),
            "optimizer_lr": learning_rates(self._optimizer) if self._optimizer is not None else [],
            "optimizers": [type(self._optimizer).__name__] if self._optimizer is not None else [],
            "learning_limits": self.writer.detector.limits.changed(),
            "telemetry": {
                **self.writer.facts(), **self._followed.facts(), "level": self.config.level.name,
                "gradients": self._gradients, "interval": self._pace.interval, "num_escalations": self.config.num_escalations,
                **({"num_skipped_steps": self._scaler.num_skipped} if self._scaler is not None else {}),
                "num_left_out": sum(curves.num_left_out for curves in self._curves),
                "own_seconds": round(self._pace.own_seconds, 6), "background_seconds": round(self._pace.behind_seconds, 6),
                "setup_seconds": round(self._pace.setup_seconds, 6),
                "share": round(self._pace.share, 6), "pid": os.getpid(),
            },
        }

    def state_dict(self) -> dict[str, Any]:
        """What goes on after a checkpoint: steps, levels and what the rules remember. Settings are the program's."""
        return {
            "version": STATE_VERSION, "step": self._step, "config": self.config.state_dict(), "detector": self.writer.detector.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, STATE_VERSION, {"step": int, "config": dict, "detector": dict})
        before = self.config.state_dict()
        self.config.load_state_dict(state["config"])
        try:
            self.writer.detector.load_state_dict(state["detector"])
        except ValueError:
            self.config.load_state_dict(before)     # a state that does not fit changes nothing
            raise
        self._step = state["step"]

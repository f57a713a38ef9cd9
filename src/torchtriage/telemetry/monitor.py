"""Watches the learning of one model: two calls in the training loop, statistics in the background."""

import functools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeAlias

import torch

from torchtriage.telemetry.activations import ActivationMeter, why_not
from torchtriage.telemetry.anomaly import AnomalyDetector
from torchtriage.telemetry.claims import claims
from torchtriage.telemetry.histogram import exponent_histograms
from torchtriage.telemetry.levels import TelemetryConfig, TelemetryLevel
from torchtriage.telemetry.names import clean, unique
from torchtriage.telemetry.pace import Pace
from torchtriage.telemetry.program import is_busy, learning_rates
from torchtriage.telemetry.scaler import ScalerWatch
from torchtriage.telemetry.sinks import Sink
from torchtriage.telemetry.sinks.recording import RecordingSink
from torchtriage.telemetry.states import check_state
from torchtriage.telemetry.taken import AFTER, GRADS, SCALE, SKIPPED, Track
from torchtriage.telemetry.writer import Writer, checked_sinks

STATE_VERSION = 1
P = ParamSpec("P")
Group: TypeAlias = "torch.nn.Module | Iterable[torch.Tensor] | str"


def _never_fails(method: Callable[P, None]) -> Callable[P, None]:
    """What goes wrong in here is said once, and the training goes on. Inside a compiled function it does nothing at all."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        if torch.compiler.is_compiling():
            return
        self: Any = args[0]
        if self.is_off or is_busy():
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
        self._model, self._optimizer, self._groups = model, optimizer, groups
        self._warned: set[str] = set()
        self._step = 0
        self._histograms = histograms
        self._scaler = ScalerWatch(scaler, optimizer) if scaler is not None else None
        self._pace = Pace(self.config)
        self._gradients = "before clipping"
        self._activations: ActivationMeter | None = None
        self._num_dropped = 0
        self._track: Track | None = None
        made = [RecordingSink() if sink == "recording" else sink for sink in sinks] if not self.is_off else []
        recordings = [sink for sink in made if isinstance(sink, RecordingSink)]
        for recording in recordings:
            recording.tell_facts = self.facts
            recording.before_close(lambda: self.writer.flush())
        others = checked_sinks(sink for sink in made if not isinstance(sink, RecordingSink))
        self.writer = Writer(
            kept=recordings, sinks=others, detector=detector or self._new_detector(), on_anomaly=self.config.escalate,
            on_look=self._pace.spent_behind,
        )
        claims.add(self)
        if not self.is_off:
            self._prepare()

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left. A sink that is slow is given some seconds."""
        self.writer.close()
        claims.discard(self)

    # The training loop

    @_never_fails
    def after_backward(self, loss: torch.Tensor | float | None = None) -> None:
        """After the last backward of a step and before clipping. Called again before `step`, it adds the loss and looks anew."""
        pace = self._pace
        if not pace.is_due or not self._is_ready():
            return
        track = self._track
        assert track is not None
        began = pace.clock()
        is_new = not track.is_open
        if track.open():
            with torch.no_grad():
                track.forget_gradients()
                track.take_gradients(GRADS)
                if is_new and self._takes_weights():
                    track.take_weights()
                track.begin_update()
                if loss is not None:
                    track.add_loss(loss)
            if self._scaler is not None and self._scaler.is_scaled():
                track.label.scaled.add(GRADS)
            track.label.is_clipped = True       # what the optimizer used is looked at as well, in `step`
        pace.spent(pace.clock() - began)

    @_never_fails
    def step(self, metrics: Mapping[str, torch.Tensor | float] | None = None) -> None:
        """After the optimizer's step, once a step: the numbers of the program's own go with the statistics."""
        self._step += 1
        pace, track = self._pace, self._track
        began = pace.clock()
        skipped = self._scaler.step_ended() if self._scaler is not None else False
        if pace.is_due and not (track and track.is_open) and self._is_ready():
            self._gradients = "as the optimizer used them"
            track = self._track
            if track is not None and track.open():
                track.take_gradients(GRADS)
                if self._takes_weights():
                    track.take_weights()
        looked = track is not None and track.is_open
        if looked:
            assert track is not None
            self._finish(track, metrics or {}, skipped)
        pace.spent(pace.clock() - began)
        pace.update_ended(looked)
        if pace.is_due and self.config.activation_monitoring and self.config.effective_level >= TelemetryLevel.DEBUG:
            self._watch_activations()

    def _watch_activations(self) -> None:
        """Of the next step. Reading them waits for a device."""
        if reason := why_not(self._model):
            self.warn_once("activations", f"no statistics of activations: {reason}")
            return
        if self._activations is None:
            self._activations = ActivationMeter(self._model)
        self._activations.begin()

    def _finish(self, track: Track, metrics: Mapping[str, torch.Tensor | float], skipped: bool) -> None:
        label = track.label
        with torch.no_grad():
            if label.is_clipped and track.has_changed():
                track.take_gradients(AFTER)
            track.end_update()
            if self._scaler is not None:
                track.put_extra(SCALE, self._scaler.scale())
                track.put_extra(SKIPPED, self._scaler.skipped_total())
            track.put_metrics(metrics)
            if self._histograms:
                label.histograms = self._exponents(track)
        label.step, label.time = self._step, time.time()
        label.is_detailed = self.config.effective_level >= TelemetryLevel.DEBUG
        if self._activations is not None and self._activations.is_on:
            label.metrics |= self._activations.end()
        label.metrics |= {"telemetry/share": self._pace.share, "telemetry/interval": float(self._pace.interval)}
        track.commit()
        self._say_refused(track)
        self.writer.start()

    def _exponents(self, track: Track) -> dict[str, list[int]]:
        """On request: this reads from the device, and waits for it."""
        with_grad = [(name, p.grad) for name, p in zip(track.names, track.parameters, strict=True) if p.grad is not None]
        counts = exponent_histograms([grad for _, grad in with_grad])
        return {f"grad_exponents/{name}": row for (name, _), row in zip(with_grad, counts, strict=True)}

    # Parameters as they come and go

    def _is_ready(self) -> bool:
        """Whether there is something to look at; says once what is missing."""
        if self._track is None or not self._track.is_still(self._trained().values()):
            began = self._pace.clock()
            self._prepare()
            self._pace.set_up(self._pace.clock() - began)
        if self._track is None:
            return False
        if all(p.grad is None for p in self._track.parameters):
            self.warn_once("gradients", "no parameter has a gradient; call after_backward() after loss.backward() and before zero_grad()")
            return False
        return True

    def _trained(self) -> dict[str, torch.Tensor]:
        """By name the parameters that are trained: a frozen one is left out, a shared one is there once."""
        named = [(clean(name), p) for name, p in self._model.named_parameters() if p.requires_grad]
        return dict(zip(unique(name for name, _ in named), (p for _, p in named), strict=True))

    def _prepare(self) -> None:
        trained = self._trained()
        if self._track is not None:
            self._say_changes(self._track, trained)
            self._num_dropped += self._track.ring.num_dropped
            self.writer.remove(self._track)
            self._track.release()
            self._track = None
        if not trained:
            self.warn_once("parameters", f"{type(self._model).__name__} has no parameter that is trained; nothing can be recorded")
            return
        self._track = Track(list(trained.items()), self._members(trained))
        self._say_refused(self._track)
        self.writer.add(self._track)

    def _say_refused(self, track: Track) -> None:
        for name, reason in track.refused.items():
            self.warn_once(f"refused {name}", f"no statistics of {name}: it {reason}")

    def _say_changes(self, track: Track, trained: Mapping[str, torch.Tensor]) -> None:
        gone = [name for name in track.names if name not in trained]
        if gone:
            self.warn_once("gone", f"{gone[0]}{f' and {len(gone) - 1} more' if gone[1:] else ''} no longer trained or part of the model; "
                           "its curves end here")
        kept = [(p, trained[name]) for name, p in zip(track.names, track.parameters, strict=True) if name in trained]
        moved = sorted({f"{track.device} to {new.device}" for _, new in kept if new.device != track.device})
        if moved:
            self.warn_once("moved", f"the model moved from {moved[0]}; statistics go on there")

    def _members(self, trained: Mapping[str, torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        if self._groups is not None:
            return {name: _members_of(name, group, trained) for name, group in self._groups.items()}
        if self._optimizer is not None and len(self._optimizer.param_groups) > 1:
            return {str(group.get("name") or number): group["params"] for number, group in enumerate(self._optimizer.param_groups)}
        return {"all": list(trained.values())}

    def _takes_weights(self) -> bool:
        return self.config.weight_tracking and self.config.effective_level >= TelemetryLevel.NORMAL

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
        track = self._track
        return {
            "grad_dtypes": track.dtypes if track is not None else [],
            "optimizer_lr": learning_rates(self._optimizer) if self._optimizer is not None else [],
            "learning_limits": self.writer.detector.limits.changed(),
            "telemetry": {
                **self.writer.facts(), "level": self.config.level.name, "num_tensors": len(track.names) if track is not None else 0,
                "gradients": self._gradients, "interval": self._pace.interval, "num_escalations": self.config.num_escalations,
                "num_dropped": self._num_dropped + (track.ring.num_dropped if track is not None else 0),
                "own_seconds": round(self._pace.own_seconds, 6), "setup_seconds": round(self._pace.setup_seconds, 6),
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
        self.writer.detector.load_state_dict(state["detector"])
        self.config.load_state_dict(state["config"])
        self._step = state["step"]


def _members_of(name: str, group: Group, trained: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    if isinstance(group, str):
        found = [p for key, p in trained.items() if key == group or key.startswith(f"{group}.")]
    else:
        given = group.parameters() if isinstance(group, torch.nn.Module) else group
        wanted = {id(p) for p in given}
        found = [p for p in trained.values() if id(p) in wanted]
    if not found:
        do = "give a module, parameters, or the beginning of a name"
        raise ValueError(f"group {name!r} has no parameter of the model that is trained; {do}")
    return found


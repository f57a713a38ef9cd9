"""Monitors the training of one model: two calls in the training loop, statistics in the background."""

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

from torchtriage.errors import level_of_the_caller, pass_on_signals
from torchtriage.recording.events import StepSkipped, TrainingEvent
from torchtriage.recording.series import GRAD_EXPONENTS, series_of
from torchtriage.telemetry.actions.anomaly_calls import AnomalyCalls, AnomalyFunction
from torchtriage.telemetry.actions.step_skipper import StepSkipper, skipper_of
from torchtriage.telemetry.anomaly import AnomalyDetector
from torchtriage.telemetry.config import TelemetryConfig, TelemetryLevel, check_state
from torchtriage.telemetry.first_non_finite import FirstNonFinite
from torchtriage.telemetry.ppo.events import TelemetryEvent
from torchtriage.telemetry.sampling.activations import ActivationMeter, why_not
from torchtriage.telemetry.sampling.parameters import Group, claims, learning_rates
from torchtriage.telemetry.sampling.row import AFTER, GRADS
from torchtriage.telemetry.sampling.sampler import AS_USED, BEFORE_CLIPPING, Sampling, is_busy
from torchtriage.telemetry.sampling.scaler import MonitorScaler
from torchtriage.telemetry.sampling.track import Track
from torchtriage.telemetry.sampling.watched_model import WatchedModel
from torchtriage.telemetry.sharding.dtensor import local
from torchtriage.telemetry.sinks import Sink
from torchtriage.telemetry.sinks.recording import RecordingSink
from torchtriage.telemetry.statistics.histogram import exponent_histograms
from torchtriage.telemetry.writer import TelemetryWriter, checked_sinks
from torchtriage.text import listed

STATE_VERSION = 1
P = ParamSpec("P")


def _never_fails(method: Callable[P, None]) -> Callable[P, None]:
    """Decorate a method so that an internal error is reported once, disables the Monitor and never reaches the
    training.

    Inside a compiled function the method does nothing.
    """

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
            pass_on_signals(error)
            self.is_off = True
            reason = f"{type(error).__name__}: {error}"
            self.warn_once("failed", f"disabled for the rest of this run after an internal error ({reason})")

    return call


class Monitor:
    """Records statistics of a model's gradients, weights and updates, and checks them against the learning rules live.

        monitor = Monitor(model, optimizer, groups={"actor": model.actor, "critic": model.critic})
        loss.backward()
        monitor.after_backward(loss)        # before clipping
        clip_grad_norm_(...); optimizer.step()
        monitor.step({"ppo/kl": kl})        # before zero_grad(), so that the norm after clipping is recorded too
        optimizer.zero_grad()

    Metrics are floats, or tensors of one element, which are read later. Its methods never raise, but for what
    `on_anomaly` raises in `step`, and do nothing inside a compiled function.

    `groups`: names with modules, parameters, or prefixes of parameter names; by default the optimizer's parameter
    groups.
    `scaler`: a GradScaler. Statistics then describe unscaled gradients, and skipped steps are counted; call `step`
    after the scaler's update().
    `sinks`: objects with write, event and close, or texts: recording, jsonl:FILE, tensorboard:FOLDER, wandb:PROJECT,
    trackio:PROJECT, stdout.
    `on_anomaly`: a function, or several, that `step` calls with each anomaly once it is known: your own,
    `StopTraining()`, `ProfileSteps()`.
    `skip_non_finite`: a step with NaN or Inf among its gradients changes neither weights nor the optimizer's state.
    """

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, *,
        groups: Mapping[str, Group] | None = None, level: TelemetryLevel | str | None = None,
        sinks: Sequence[Sink | str] = ("recording",), scaler: Any = None, config: TelemetryConfig | None = None,
        detector: AnomalyDetector | None = None, histograms: bool = False,
        on_anomaly: AnomalyFunction | Sequence[AnomalyFunction] = (), skip_non_finite: bool = False,
    ) -> None:
        if isinstance(level, str):
            if level.upper() not in TelemetryLevel.__members__:
                raise ValueError(f"level must be one of {', '.join(TelemetryLevel.__members__)}, got {level!r}")
            level = TelemetryLevel[level.upper()]
        if config is not None and level is not None:
            raise ValueError("level and config were both given; set it in the config: TelemetryConfig(level=...)")
        self.config = config or TelemetryConfig(level=TelemetryLevel.NORMAL if level is None else level)
        self.is_off = self.config.level is TelemetryLevel.OFF
        self._model, self._optimizer = model, optimizer
        self._warned: set[str] = set()
        self._step = 0
        self._num_skipped = 0
        self._histograms = histograms
        self._scaler = MonitorScaler(scaler, optimizer) if scaler is not None else None
        self._gradients = BEFORE_CLIPPING
        self._activations: ActivationMeter | None = None
        self._pid = os.getpid()
        self._calls = AnomalyCalls(on_anomaly)
        recordings, others = self._make_sinks(sinks)
        self.writer = TelemetryWriter(
            direct_sinks=recordings, sinks=others, detector=detector, on_anomaly=self.config.escalate,
            emit=self._calls.put,
        )
        self._first_non_finite = FirstNonFinite(self.writer.send)
        self._sampling = Sampling(
            self.config, self.writer, [recording.curves for recording in recordings], step=lambda: self._step,
            on_refused=self._warn_refused,
        )
        if detector is None:
            self._sampling.note_dtypes(str(p.dtype).removeprefix("torch.") for p in model.parameters())
        self._watched = WatchedModel(
            self._sampling, model, optimizer, groups, scaler=self._scaler, warn=self.warn_once,
            on_ranks=self._close_before_python_ends,
        )
        self._pace = self._watched.pace
        claims.add(self)
        self._skipper: StepSkipper | None = None
        if not self.is_off:
            self._watched.prepare()
            if skip_non_finite:
                self._skipper = skipper_of(optimizer, self._report_skip, self.warn_once)

    def _make_sinks(self, sinks: Sequence[Sink | str]) -> tuple[list[RecordingSink], list[Sink]]:
        """Recordings, which the writer's own thread fills, and the other sinks."""
        recordings: list[RecordingSink] = []
        others: list[Sink | str] = []
        for sink in sinks if not self.is_off else ():
            if sink == "recording":
                sink = RecordingSink()
            if isinstance(sink, RecordingSink):
                sink.get_facts = self.facts
                sink.before_close(lambda: self.writer.flush())
                recordings.append(sink)
            else:
                others.append(sink)
        return recordings, checked_sinks(others)

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write all remaining observations, for at most a few seconds per slow sink."""
        if self._skipper is not None:
            self._skipper.close()
        self._calls.close()
        self._sampling.close()
        claims.discard(self)
        atexit.unregister(self._close_at_exit)

    def _close_before_python_ends(self) -> None:
        """Register to close at exit: a thread inside a collective when Python ends would abort the process."""
        atexit.unregister(self._close_at_exit)
        atexit.register(self._close_at_exit)

    def _close_at_exit(self) -> None:
        if os.getpid() == self._pid:        # a forked child must not keep this process's promises to other ranks
            self.close()

    # The training loop

    @_never_fails
    def before_step(self) -> None:
        """Only needed where backward, clipping and the optimizer's step are one compiled call.

        Call it before that call, and `after_backward` after it.
        """
        track = self._watched.track
        if not self._pace.is_due or track is None or is_busy():
            return
        began = self._pace.clock()
        if track.open(self._pace.wanted):
            track.take_weights()
            track.begin_update()
        self._pace.charge(self._pace.clock() - began)

    @_never_fails
    def after_backward(
        self, loss: torch.Tensor | float | None = None, *, has_stepped: bool = False, as_used: bool = False,
    ) -> None:
        """Call it after the last backward of a step and before clipping.

        A second call before `step` adds the loss and measures the gradients again.

        `as_used`: it is called right before the optimizer's step, after clipping if there is any.

        `has_stepped`: the optimizer's step is part of the same compiled call, but the gradients are those before
        clipping.
        """
        pace = self._pace
        if self._calls and loss is not None:
            self._test_loss(loss)
        if not pace.is_due or is_busy() or not self._watched.is_ready():
            return
        track = self._watched.track
        assert track is not None
        began = pace.clock()
        if track.open(pace.wanted):
            if track.label.present:
                track.forget_gradients()
            track.take_gradients(GRADS)
            track.take_weights()
            if not has_stepped:
                track.begin_update()
            if loss is not None:
                self._add_loss(track, loss)
            if self._scaler is not None and self._scaler.is_scaled():
                track.label.scaled |= {GRADS}
            # Then `step` measures the gradients as used by the optimizer.
            track.label.is_clipped = not (has_stepped or as_used)
            if as_used:
                self._gradients = AS_USED
        pace.charge(pace.clock() - began)

    def _add_loss(self, track: Track, loss: torch.Tensor | float) -> None:
        if reason := track.add_loss(loss):
            self.warn_once("loss", f"the loss is not recorded: it {reason}")
        else:
            self._sampling.note_loss(loss)

    def _test_loss(self, loss: torch.Tensor | float) -> None:
        """Test the loss of every step, on the CPU, so that an action does not wait for the next sample."""
        value = self._first_non_finite.value(loss) if isinstance(loss, torch.Tensor) else loss
        track = self._watched.track
        if value is not None and track is not None and self._optimizer is not None:
            parts = [(self._optimizer, track)]
            self._first_non_finite.test(value, self._step + 1, lambda: parts)

    def step(self, metrics: Mapping[str, torch.Tensor | float] | None = None) -> None:
        """Call it once per step, after the optimizer's step; `metrics` are recorded with the statistics."""
        self._end_step(metrics)
        if self._calls and not self.is_off and not torch.compiler.is_dynamo_compiling():
            self._calls.step()

    @_never_fails
    def _end_step(self, metrics: Mapping[str, torch.Tensor | float] | None) -> None:
        self._step += 1
        pace = self._pace
        is_sampled = False
        if pace.is_due or self._scaler is not None:
            if is_busy():       # the step still counts: other ranks may sample it
                self._watched.drop()
            else:
                if self._scaler is not None and self._scaler.step_ended():
                    self._sampling.report_skipped(self._watched)
                is_sampled = pace.is_due and self._sample(metrics or {})
        pace.update_ended(is_sampled)
        if pace.is_due and self.config.activation_monitoring and "activations" in self.config.collected():
            self._watch_activations()

    def _sample(self, metrics: Mapping[str, torch.Tensor | float]) -> bool:
        """Sample the step that ended; whether there was anything to measure."""
        pace = self._pace
        began = pace.clock()
        track = self._watched.track
        is_open = track is not None and track.is_open
        if not is_open and self._watched.is_ready():
            self._gradients = AS_USED
            track = self._watched.track
            assert track is not None
            is_open = track.open(pace.wanted)
            if is_open:
                track.take_gradients(GRADS)
                track.take_weights()
        if track is not None and is_open:
            self._finish(track, metrics)
        pace.charge(pace.clock() - began)
        return is_open

    def _watch_activations(self) -> None:
        """Measure activations in the next step. Reading them waits for the device."""
        if reason := why_not(self._model):
            self.warn_once("activations", f"no statistics of activations: {reason}")
            return
        if self._activations is None:
            self._activations = ActivationMeter(self._model)
        self._activations.begin()

    def _finish(self, track: Track, metrics: Mapping[str, torch.Tensor | float]) -> None:
        label = track.label
        if label.is_clipped:
            track.take_gradients(AFTER)
        if metrics:
            for name, reason in track.put_metrics(metrics).items():
                self.warn_once(f"metric {name}", f"the metric {name!r} is not recorded: it {reason}")
        if self._histograms:
            label.histograms = self._exponents(track)
        if self._activations is not None and self._activations.is_on:
            label.metrics |= self._activations.end()
        self._watched.finish(track)

    def _exponents(self, track: Track) -> dict[str, list[int]]:
        """Histograms of the gradients. Reading them waits for the device, so they are made only on request."""
        if track.ranks:
            self.warn_once("histograms", "no histograms of parameters that are sharded over ranks")
        with_grad = []
        for name, p, is_shard in zip(track.names, track.parameters, track.shard_P.tolist(), strict=True):
            if not is_shard and p.grad is not None:
                with_grad.append((name, local(p.grad)))
        with torch.no_grad():
            counts = exponent_histograms([grad for _, grad in with_grad])
        return {series_of(GRAD_EXPONENTS, name): row for (name, _), row in zip(with_grad, counts, strict=True)}

    @property
    def is_looking(self) -> bool:
        """Whether this step is sampled; a program can limit its own measurements for telemetry to such steps."""
        return self._pace.is_due and not self.is_off

    def charge(self, seconds: float) -> None:
        """Count time that the program itself spent on telemetry in this step towards the budget."""
        self._pace.charge(seconds)

    def tell(self, event: TelemetryEvent) -> None:
        """Send an event to the recording and every sink; give this method to a VectorizedEmitter as its sink."""
        values = json.dumps(event.to_dict(), default=str)
        self.writer.send(TrainingEvent(
            time=event.time, step=self._step, pid=os.getpid(), name=event.kind, values=values,
        ))

    def holds(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether any of these parameters belongs to its model; `torchtriage run` then leaves them to the Monitor."""
        own = {id(p) for p in self._model.parameters()}
        return any(id(p) in own for p in parameters)

    def _report_skip(self) -> None:
        self._num_skipped += 1
        self.writer.send(StepSkipped(
            optimizer=type(self._optimizer).__name__, total=self._num_skipped, time=time.time(), step=self._step + 1,
            pid=os.getpid(),
        ))

    @property
    def num_skipped(self) -> int:
        """How many steps `skip_non_finite` has skipped; reading it waits for the device."""
        return self._num_skipped + (self._skipper.num_undone() if self._skipper is not None else 0)

    # Reports about itself

    def warn_once(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(f"torchtriage Monitor: {text}", RuntimeWarning, stacklevel=level_of_the_caller())

    def _warn_refused(self, reasons: Mapping[str, str]) -> None:
        """Once per reason: a model may have thousands of tensors."""
        for reason in dict.fromkeys(reasons.values()):
            names = [name for name, reason_of in reasons.items() if reason_of == reason]
            self.warn_once(f"refused {names[0]}", f"no statistics of {listed(names, 1)}: it {reason}")

    def facts(self) -> dict[str, Any]:
        """Its cost and the parameters it could not measure, for the recording."""
        track = self._watched.track
        facts = self._sampling.facts(
            gradients=self._gradients, grad_dtypes=track.dtypes if track is not None else (),
            rates=learning_rates(self._optimizer) if self._optimizer is not None else [],
        )
        facts["learning_limits"] = self.writer.detector.limits.changed()
        facts["telemetry"] |= {**self._watched.facts(), "pid": os.getpid()}
        return facts

    def state_dict(self) -> dict[str, Any]:
        """The state to continue from after a checkpoint: steps, levels and the memory of the rules, without settings.
        """
        return {
            "version": STATE_VERSION, "step": self._step, "config": self.config.state_dict(),
            "detector": self.writer.detector.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, STATE_VERSION, {"step": int, "config": dict, "detector": dict})
        before = self.config.state_dict()
        self.config.load_state_dict(state["config"])
        try:
            self.writer.detector.load_state_dict(state["detector"])
        except ValueError:
            self.config.load_state_dict(before)     # a state that does not fit must change nothing
            raise
        self._step = state["step"]

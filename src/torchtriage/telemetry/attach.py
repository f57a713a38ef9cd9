"""Telemetry under `torchtriage run`: taps follow every optimizer of a program that does not call telemetry itself."""

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from torchtriage.errors import pass_on_signals
from torchtriage.findings.tap_state import PPO_UPDATES, RECURRENT_STATE
from torchtriage.recording.events import Event, Tap
from torchtriage.recording.recording import Series
from torchtriage.recording.series import LOSS
from torchtriage.telemetry.config import TelemetryConfig
from torchtriage.telemetry.contracts import Contracts
from torchtriage.telemetry.first_non_finite import FirstNonFinite, Part
from torchtriage.telemetry.logged_scalars import LoggedScalars
from torchtriage.telemetry.loss_course import LossCourse
from torchtriage.telemetry.ppo.followed_policy import FollowedPolicy
from torchtriage.telemetry.recurrent.followed_states import FollowedStates
from torchtriage.telemetry.sampling.parameters import (
    Namer,
    learning_rates,
    listed_parameters,
    modules_of_process,
    without_rate,
)
from torchtriage.telemetry.sampling.row import AFTER, GRADS
from torchtriage.telemetry.sampling.sampler import AS_USED, BEFORE_CLIPPING, Sampling, is_busy, is_profiled
from torchtriage.telemetry.sampling.track import Track
from torchtriage.telemetry.sampling.watched_optimizers import WatchedOptimizer, WatchedOptimizers
from torchtriage.telemetry.sinks.curves import Curves
from torchtriage.telemetry.training_settings import TrainingSettings
from torchtriage.telemetry.writer import TelemetryWriter
from torchtriage.text import and_more

MAX_LOSSES = 1024       # recorded backward calls between two steps
MIN_SCALE = 1e-30       # keeps its inverse finite
MAX_REFUSED = 3         # refused tensors that are named; the rest are counted


class Attached:
    """All telemetry of an observed process. Only the methods of the taps run on the program's threads."""

    def __init__(
        self, emit: Callable[[Event], None], step: Callable[[], int | None], config: TelemetryConfig | None = None,
        num_environment_steps: Callable[[], int] = lambda: 0,
    ) -> None:
        """`num_environment_steps`: those since the last backward pass."""
        self._emit = emit
        self._step = step
        self.config = config or TelemetryConfig()
        self._namer = Namer()
        self._num_environment_steps = num_environment_steps
        self._has_compiled = False
        self._clip_seen = False
        self._is_profiler_seen = False
        self._start()
        if self.config.activation_monitoring:
            self._report_absent("activations", "the model is unknown; use torchtriage.telemetry.Monitor in the loop")

    def _start(self) -> None:
        self.curves = Curves()
        self.writer = TelemetryWriter(direct_sinks=[self.curves], emit=self._emit, on_anomaly=self.config.escalate)
        self._sampling = Sampling(
            self.config, self.writer, [self.curves], step=self._step, on_refused=self._report_refused,
        )
        self._optimizers = WatchedOptimizers(self._sampling, self._namer, self._report_absent)
        self._first_non_finite = FirstNonFinite(self.writer.send)
        self._contracts = Contracts()
        self._course = LossCourse()
        self._settings = TrainingSettings()
        self._logged = LoggedScalars()
        self._is_reading_logs = True        # until it fails
        self._policy = FollowedPolicy()
        self._states = FollowedStates(modules_of_process, self._num_environment_steps)
        if self._has_compiled:
            self._states.stop()
            self._contracts.compile_called()
        self._are_states_read = False       # the writer reads their observations
        self._is_following = True           # the policy, until it fails
        self._is_policy_read = False        # the writer reads its observations
        self._is_idle = False               # no optimizer is due to be sampled in its next step
        self._is_scaled = False             # GradScaler is in use
        self._is_testing = True             # no loss was NaN or Inf yet
        self._num_alone = 0                 # backward passes before the first step of an optimizer
        self._losses: list[torch.Tensor] = []
        self._without_rate: dict[str, list[str]] = {}   # tensors and groups with a learning rate of 0, by optimizer
        self._rates: list[float] = []       # of the first optimizer, when it was last sampled

    def start_over(self) -> None:
        """Start again in a forked child: the threads and everything recorded so far belong to the parent."""
        self._states.stop()
        self._start()

    # The taps

    def loaded(self, module: torch.nn.Module, missing: Sequence[str], unexpected: Sequence[str]) -> None:
        self._contracts.loaded(module, missing, unexpected, self._step() or 0)

    def rollout(self, num_acts: int, steps: Sequence[tuple[Any, ...]]) -> None:
        """What the program did since its last backward pass: entries to no_grad(), and steps of environments."""
        if self._is_following:
            try:
                self._policy.rollout(num_acts, steps)
            except Exception as error:
                self._stop_following(error)
        self._follow_states(lambda: self._states.rollout(steps, (self._step() or 0) + 1))

    def compile_called(self) -> None:
        """What the program compiles must not contain a replaced method."""
        self._has_compiled = True
        self._states.stop()
        self._contracts.compile_called()

    def _follow_states(self, follow: Callable[[], None]) -> None:
        try:
            follow()
        except Exception as error:      # modules of the program may have any form
            pass_on_signals(error)
            self._states.stop()
            self._report_absent(RECURRENT_STATE, f"{type(error).__name__}: {error}")
            return
        if self._states.has_modules and not self._are_states_read:
            self._are_states_read = True
            self.writer.add(self._states)

    def _follow_policy(self, loss: torch.Tensor) -> None:
        try:
            self._policy.backward(loss, (self._step() or 0) + 1)
        except Exception as error:      # the graph of a loss may have any form
            self._stop_following(error)
            return
        if self._policy.is_found and not self._is_policy_read:
            self._is_policy_read = True
            self.writer.add(self._policy)

    def _stop_following(self, error: Exception) -> None:
        pass_on_signals(error)
        self._is_following = False
        self._report_absent(PPO_UPDATES, f"{type(error).__name__}: {error}")

    def logged(self, call: Any) -> None:
        """After the program has passed scalars to its own logger, on any of its threads."""
        if not self._is_reading_logs:
            return
        try:
            self._logged.add(call.kind.label, call.logger, call.scalars, self._step() or 0, call.kind.has_waited)
        except Exception as error:      # a value may be of any type
            pass_on_signals(error)
            self._is_reading_logs = False
            self._report_absent(f"scalars of {call.kind.label}", f"{type(error).__name__}: {error}")

    def backward(self, tensors: Sequence[Any]) -> None:
        if self._is_scaled:
            for watched in self._optimizers.alive():
                self._check_skipped(watched)
        is_loss = len(tensors) == 1 and isinstance(tensors[0], torch.Tensor) and tensors[0].numel() == 1
        if not is_loss:
            return
        self._settings.backward()
        if self._step() is None:
            if self._num_alone:     # without an optimizer each backward pass is a step
                self._course.step_ended(0, self._num_alone)
            self._num_alone += 1
        if self._is_testing:
            self._test(tensors[0])
        if self._is_following and self._may_sample():
            self._follow_policy(tensors[0])
        if self._may_sample():
            self._contracts.backward(tensors[0])
        if not self._is_idle and len(self._losses) < MAX_LOSSES and self._may_sample():
            self._losses.append(tensors[0].detach())
            self._sampling.note_loss(tensors[0])

    def _test(self, loss: torch.Tensor) -> None:
        """Test the loss of every step. GradScaler multiplies it, so an overflow is no fault there."""
        if is_busy() or is_profiled():
            self._course.interrupt()
            return
        value = self._first_non_finite.value(loss)
        if value is None:
            self._course.interrupt()
            return
        self._course.add(value)
        self._contracts.value(value)
        if self._is_scaled:
            return
        step = self._step()
        if self._first_non_finite.test(value, self._num_alone if step is None else step + 1, self._parts):
            self._is_testing = False
            self.config.escalate()      # the next steps are looked at one by one

    def _parts(self) -> list[Part]:
        parts = []
        for watched in self._optimizers.alive():
            optimizer = watched.optimizer()
            if optimizer is not None and watched.track is not None:
                parts.append((optimizer, watched.track))
        return parts

    def clipping(self, parameters: Any, max_norm: Any = None) -> None:
        self._clip_seen = True
        if not _is_measuring(max_norm):
            self._settings.clipping(max_norm)
        follows_order = self._contracts.follows_order and not _is_measuring(max_norm)
        if self._is_idle and not follows_order:
            return
        clipped_parameters = listed_parameters(parameters)
        if follows_order and clipped_parameters:
            self._contracts.clipping(clipped_parameters)
        if self._is_idle:
            return
        clipped = None if clipped_parameters is None else {id(p) for p in clipped_parameters}
        for watched in self._optimizers.alive():
            track, pace = watched.track, watched.pace
            if not pace.is_due or track is None or not self._may_sample():
                continue
            began = pace.clock()
            only = [i for i, p in enumerate(track.parameters) if clipped is None or id(p) in clipped]
            if only and track.open(pace.wanted):
                watched.tapped.clipping()
                track.label.is_clipped = track.reader.clips = True
                track.take_gradients(GRADS, only)
            pace.charge(pace.clock() - began)

    def unscaling(
        self, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor, is_check: bool,
        scale: torch.Tensor | None = None,
    ) -> None:
        watched = self._optimizers.find(optimizer)
        if watched is not None:
            self._check_skipped(watched)
            watched.tapped.unscaling(inv_scale, is_check, scale)
            self._is_scaled = True
            if scale is None or not scale.is_cpu:
                self._course.interrupt()
                return
            current = float(scale)
            self._course.unscale(1.0 / max(current, MIN_SCALE))
            if self._contracts.follows_order:
                self._contracts.unscaling(optimizer, current, (self._step() or 0) + 1)

    def step_begins(self, optimizer: torch.optim.Optimizer) -> None:
        watched = self._optimizers.find(optimizer)
        if watched is None or watched.is_left or not self._may_sample():
            return
        self._contracts.step_begins(optimizer, (self._step() or 0) + 1)
        pace = watched.pace
        if not pace.is_due:
            return
        began = pace.clock()
        if self._optimizers.prepare(watched, optimizer, self._clip_seen):
            pace.charge_setup(pace.clock() - began)
            began = pace.clock()
        track = watched.track
        if track is not None and track.open(pace.wanted):
            if isinstance(getattr(optimizer, "grad_scale", None), torch.Tensor):
                watched.take_gradients(track)       # a fused step removes the scale from them, unless it skips
                track.label.scaled |= {GRADS, AFTER}
            track.take_weights()        # the weights that the gradients belong to, including gradients of a closure
            track.begin_update()
        pace.charge(pace.clock() - began)

    def step_ended(self, optimizer: torch.optim.Optimizer) -> None:
        watched = self._optimizers.find(optimizer)
        if watched is None:
            return
        track, pace = watched.track, watched.pace
        began = pace.clock()
        if self._num_alone > 1:
            self._course.begin_anew()
        self._num_alone = 0
        self._course.step_ended(id(optimizer), self._step() or 0)
        self._follow_states(lambda: self._states.step_ended(self._step() or 0))
        if not watched.is_left and self._may_sample():
            self._contracts.step_ended(optimizer, self._step() or 0)
            self._settings.step_ended(optimizer, watched.label, self._step() or 0)
            pace.charge_setup(pace.clock() - began)     # nearly all of it is one search for modules
            began = pace.clock()
        is_skipped = self._is_scaled and watched.tapped.step_ended(optimizer)
        is_sampled = track is not None and track.is_open and self._may_sample()
        if track is not None and is_sampled:
            self._sample(watched, track)
        else:
            watched.drop()
        if is_skipped:
            self._sampling.report_skipped(watched)
        self._losses.clear()
        pace.charge(pace.clock() - began)
        pace.update_ended(is_sampled)
        self._is_idle = not pace.is_due and not any(other.pace.is_due for other in self._optimizers.alive())

    def _may_sample(self) -> bool:
        """Whether the operations of a sample stay our own; they would be in the trace of the program's profiler."""
        if is_busy():
            return False
        if is_profiled():
            if not self._is_profiler_seen:
                self._is_profiler_seen = True
                detail = "no sample is taken, so that its trace shows only the program"
                self._report_absent("gradients of steps under torch.profiler", detail)
            return False
        return True

    def _sample(self, watched: WatchedOptimizer, track: Track) -> None:
        """Complete the row: at the end of a step gradients are as the optimizer used them, also those of a closure."""
        watched.take_gradients(track)
        for loss in self._losses:
            track.add_loss(loss)
        optimizer = watched.optimizer()
        if optimizer is not None:
            names = dict(zip(map(id, track.parameters), track.names, strict=True))
            self._without_rate[watched.label] = without_rate(optimizer, watched.label, names)
        if not watched.label:
            self._rates = learning_rates(optimizer) if optimizer is not None else []
        watched.finish(track)
        watched.is_clipped_unseen = False

    def _check_skipped(self, watched: WatchedOptimizer) -> None:
        """Called when a new step begins: if GradScaler skipped the last one, its row belongs to no step."""
        if watched.tapped.is_unscaled and watched.tapped.take_skipped():
            watched.drop()
            self._losses.clear()
            self._sampling.report_skipped(watched)

    # Gaps

    def _report_refused(self, reasons: Mapping[str, str]) -> None:
        texts = [f"{name} {reason}" for name, reason in reasons.items()]
        detail = "; ".join(texts[:MAX_REFUSED]) + and_more(len(texts) - MAX_REFUSED)
        self._report_absent("gradients of some tensors", detail)

    def _report_absent(self, name: str, detail: str) -> None:
        self._emit(Tap(name=name, state="absent", detail=detail, time=time.time(), pid=os.getpid()))

    # For the recorder, on its own thread

    def facts(self) -> Mapping[str, Any]:
        contracts = [*self._contracts.facts().get("contracts", ()), *self._policy.contracts.facts()]
        contracts += self._states.resets.facts()
        kept: dict[str, Any] = self._first_non_finite.facts() | ({"contracts": contracts} if contracts else {})
        if logged := self._logged.labels(self._measured()):
            kept["logged_scalars"] = logged
        if not self._sampling.samplers or not self.writer.num_observed:
            return kept
        gradients = BEFORE_CLIPPING if self._clip_seen else AS_USED
        facts = self._sampling.facts(gradients=gradients, grad_dtypes=self._sampling.dtypes, rates=self._rates)
        facts["telemetry"] |= self._optimizers.facts()
        if without := [name for names in self._without_rate.values() for name in names]:
            facts["without_rate"] = without
        return facts | kept

    def series(self) -> Iterable[Series]:
        """All curves, with the loss of every step in place of the sampled ones, and scalars that only a log has."""
        series = self.curves.series()
        course = self._course.series() if series or self._num_alone else None
        if course is not None:
            series = [one for one in series if one.name != LOSS] + [course]
        return series + self._settings.series() + self._logged.series(self._measured())

    def _measured(self) -> set[str]:
        """The names of series that need no log of the program."""
        return self.curves.totals() | self._settings.names()

    def close(self) -> None:
        self._states.stop()
        self._sampling.close()
        self._settings.close()
        self._logged.close()


def _is_measuring(max_norm: Any) -> bool:
    """Whether a call of a clipping function only measures the norm, with a limit of Inf."""
    return isinstance(max_norm, int | float) and math.isinf(max_norm)

"""Sends the events of a vectorised PPO training to a sink; a failing sink or an unreadable gradient never stops it."""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchtriage.errors import TriageError, pass_on_signals
from torchtriage.telemetry.anomaly import AnomalyReport
from torchtriage.telemetry.config import DETAILED, TelemetryConfig, TelemetryLevel, check_state
from torchtriage.telemetry.gradients.collect import GradientCollector, PendingGradients, materialize_grad_stats
from torchtriage.telemetry.gradients.health import CLIP_NORM, GradientStats
from torchtriage.telemetry.gradients.layers import (
    LayerGradientHealth,
    aggregate_layer_gradient_health,
    collect_per_layer_gradients,
)
from torchtriage.telemetry.ppo import events
from torchtriage.text import times

STATE_VERSION = 1
WINDOW = 10             # batches in a rolling mean
MAX_PENDING = 64        # minibatches with unread gradients, so that memory stays bounded
DEGRADATION_MIN = 0.1   # lost share of the rolling mean from which a drop is reported
QUIET_UNTIL = 0.1       # share of the training in which a drop is ignored: learning has only begun
PLATEAU_BELOW = 0.5     # change of the mean, in its own units: percent of accuracy, or return
TREND_BEYOND = 2.0
_logger = logging.getLogger(__name__)


class VectorizedEmitter:
    """Sends events to `sink` as they happen.

    A sink is any function of one TelemetryEvent. Its errors are logged once per type and counted in `num_lost`. It is
    called on the training thread; if it is slow, give the `put_nowait` of a queue. With a `config`, nothing is sent at
    level OFF, and gradients are collected when `config.should_collect` allows it; the training calls `config.advance`.
    """

    def __init__(
        self, sink: Callable[[events.TelemetryEvent], object], *, config: TelemetryConfig | None = None,
        clip_norm: float = CLIP_NORM, clock: Callable[[], float] = time.time,
    ) -> None:
        self._sink, self._config, self._clock = sink, config, clock
        self._collector = GradientCollector(clip_norm=clip_norm)
        self._accuracies: deque[float] = deque(maxlen=2 * WINDOW)
        self._num_batches = 0       # with a finite accuracy
        self._pending: list[PendingGradients] = []
        self._gradients: GradientStats | None = None        # the worst since the last update
        self._layers: LayerGradientHealth | None = None
        self._troubles: set[tuple[str, str]] = set()       # (problem, type of the error)
        self.num_sent = self.num_lost = self.num_not_collected = 0

    def after_backward(self, model: torch.nn.Module) -> None:
        """Collect the gradients, after backward and before clipping. The next `on_ppo_update` reports the worst."""
        try:
            if self._config is None or self._config.should_collect("gradients"):
                self._pending.append(self._collector.collect_async(model))
            if self._config is not None and self._config.should_collect(DETAILED):
                layers = aggregate_layer_gradient_health(collect_per_layer_gradients(model))
                if self._layers is None or layers.score < self._layers.score:
                    self._layers = layers
        # A tensor without statistics; torch's memory, device and shape errors.
        except (TriageError, RuntimeError) as error:
            self._not_collected(error)
        if len(self._pending) >= MAX_PENDING:
            self._read_pending()

    def on_ppo_update(
        self, update: int, metrics: Mapping[str, float], *, seconds: float | None = None, skipped: bool = False,
        gradients: GradientStats | None = None,
    ) -> None:
        """`gradients`: statistics that the program has collected itself, instead of `after_backward`."""
        self._read_pending()
        self._gradients = gradients or self._gradients
        gradients, layers, self._gradients, self._layers = self._gradients, self._layers, None, None
        self._emit(events.PPOUpdateCompleted(
            time=self._clock(), update=update, metrics=dict(metrics), skipped=skipped, seconds=seconds,
            gradients=gradients, layers=layers,
        ))

    def on_epoch_completed(
        self, epoch: int, *, env_id: int | None = None, train_loss: float | None = None,
        train_accuracy: float | None = None, val_loss: float | None = None, val_accuracy: float | None = None,
        slots: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._emit(events.EpochCompleted(
            time=self._clock(), env_id=env_id, epoch=epoch, train_loss=train_loss, train_accuracy=train_accuracy,
            val_loss=val_loss, val_accuracy=val_accuracy,
            slots={name: dict(values) for name, values in (slots or {}).items()},
        ))

    def on_batch_completed(
        self, batch: int, accuracy: float, *, progress: float, episodes: int | None = None, reward: float | None = None,
    ) -> None:
        """Send a completed batch, and a drop below the rolling mean or a trend of it.

        `progress`: the completed share of the training. Trends are checked every ten batches: their mean is compared
        with that of the ten batches before.
        """
        before = list(self._accuracies)[-WINDOW:]
        rolling = _mean(before) if before else None
        now = self._clock()
        self._emit(events.BatchCompleted(
            time=now, batch=batch, accuracy=accuracy, rolling_accuracy=rolling, progress=progress,
            episodes=episodes, reward=reward,
        ))
        if not math.isfinite(accuracy):     # it is reported above; in the mean it would hide every later batch
            return
        drop = None if rolling is None else check_performance_degradation(accuracy, rolling, progress)
        if drop is not None and rolling is not None:
            self._emit(events.PerformanceDegraded(
                time=now, batch=batch, accuracy=accuracy, rolling_accuracy=rolling, drop=drop,
            ))
        self._accuracies.append(accuracy)
        self._num_batches += 1
        if self._num_batches % WINDOW == 0 and self._num_batches >= 2 * WINDOW:
            self._emit_trend(batch, now)

    def on_analytics_snapshot(self, name: str, values: Mapping[str, Any], *, env_id: int | None = None) -> None:
        self._emit(events.AnalyticsSnapshot(time=self._clock(), env_id=env_id, name=name, values=dict(values)))

    def on_ablations(
        self, slots: Sequence[str], accuracies: Mapping[tuple[bool, ...], float], *, env_id: int | None = None,
    ) -> None:
        """Send the accuracies that were measured with some slots on and the others off.

        `accuracies`: by one boolean per slot. `on_counterfactual_matrix` is another name of this method.
        """
        results = [events.AblationResult(enabled=enabled, accuracy=value) for enabled, value in accuracies.items()]
        self._emit(events.AblationsMeasured(
            time=self._clock(), env_id=env_id, slots=tuple(slots), configurations=tuple(results),
        ))

    on_counterfactual_matrix = on_ablations

    def on_anomaly(self, report: AnomalyReport) -> None:
        """Send one event per anomaly that began with this report; continuing anomalies were sent before."""
        now = self._clock()
        for breach in report.started:
            self._emit(events.AnomalyDetected(
                time=now, code=breach.code, type=breach.type, text=breach.text, subject=breach.key[1],
                value=breach.value, limit=breach.limit, step=breach.step,
            ))

    @property
    def trouble(self) -> str:
        """All problems so far, as a sentence; "" without any."""
        parts = []
        if self.num_lost:
            parts.append(f"{self.num_lost} of {self.num_lost + self.num_sent} events were lost, the sink failed")
        if self.num_not_collected:
            parts.append(f"gradients were not collected {times(self.num_not_collected)}")
        if not parts:
            return ""
        kinds = sorted({kind for _, kind in self._troubles})
        return f"{'; '.join(parts)} ({', '.join(kinds)})"

    def close(self) -> None:
        """Log all problems."""
        if self.trouble:
            _logger.warning("%s", self.trouble)

    def __enter__(self) -> "VectorizedEmitter":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """The state that later events depend on; save it between two updates."""
        return {"version": STATE_VERSION, "accuracies": list(self._accuracies), "num_batches": self._num_batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a saved state; a state that does not fit changes nothing."""
        check_state(self, state, STATE_VERSION, {"accuracies": list, "num_batches": int})
        values, num_batches = state["accuracies"], state["num_batches"]
        are_finite = all(isinstance(value, (int, float)) and math.isfinite(value) for value in values)
        if len(values) != min(num_batches, 2 * WINDOW) or not are_finite:
            raise ValueError(
                f"VectorizedEmitter expects the finite accuracies of the last {2 * WINDOW} of {num_batches} batches, "
                f"found {values}; take the state from VectorizedEmitter.state_dict(), or start without it"
            )
        self._accuracies, self._num_batches = deque(values, maxlen=2 * WINDOW), num_batches

    def _read_pending(self) -> None:
        pending, self._pending = self._pending, []
        try:
            stats = [materialize_grad_stats(gradients) for gradients in pending]
        except RuntimeError as error:       # errors on a GPU show when it is read
            self._not_collected(error)
            return
        candidates = stats if self._gradients is None else [self._gradients, *stats]
        self._gradients = max(candidates, key=_norm_or_inf, default=None)

    def _emit_trend(self, batch: int, now: float) -> None:
        values = list(self._accuracies)
        mean = _mean(values[WINDOW:])
        change = mean - _mean(values[:WINDOW])
        trend = trend_of(change)
        if trend is not None:
            self._emit(events.TrendDetected(
                time=now, batch=batch, trend=trend, change=change, mean=mean, num_batches=WINDOW,
            ))

    def _emit(self, event: events.TelemetryEvent) -> None:
        if self._config is not None and self._config.effective_level is TelemetryLevel.OFF:
            return
        try:
            self._sink(event)
        except Exception as error:  # the sink is user code: whatever it raises must not stop the training
            self._report("the sink failed; events are lost", error)
            self.num_lost += 1
        else:
            self.num_sent += 1

    def _not_collected(self, error: Exception) -> None:
        self._report("gradients were not collected", error)
        self.num_not_collected += 1

    def _report(self, problem: str, error: Exception) -> None:
        """Log the error with its traceback, once per type: a sink that fails at every event must not fill the log."""
        pass_on_signals(error)
        trouble = problem, type(error).__name__
        if trouble not in self._troubles:
            self._troubles.add(trouble)
            _logger.warning("%s: %s", problem, error, exc_info=error)


def _norm_or_inf(stats: GradientStats) -> float:
    return math.inf if math.isnan(stats.gradient_norm) else stats.gradient_norm


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def check_performance_degradation(current: float, rolling: float, progress: float) -> float | None:
    """The lost share of the rolling mean if it is large; None early in the training or if the mean is not positive."""
    if not (math.isfinite(current) and math.isfinite(rolling)) or rolling <= 0 or progress < QUIET_UNTIL:
        return None
    drop = (rolling - current) / rolling
    return drop if drop >= DEGRADATION_MIN else None


def trend_of(change: float) -> events.Trend | None:
    """The trend that a change of the mean shows; None between a plateau and a trend."""
    if abs(change) < PLATEAU_BELOW:
        return "plateau"
    if abs(change) > TREND_BEYOND:
        return "improvement" if change > 0 else "degradation"
    return None

"""Tells a sink what happens in a vectorised PPO training; a sink that fails, or a gradient that cannot be read, never stops it."""

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
from torchtriage.telemetry.gradients.collect import PendingGradients, SeedGradientCollector, materialize_grad_stats
from torchtriage.telemetry.gradients.health import CLIP_NORM, GradientStats
from torchtriage.telemetry.gradients.layers import (
    LayerGradientHealth,
    aggregate_layer_gradient_health,
    collect_per_layer_gradients,
)
from torchtriage.telemetry.ppo import events

STATE_VERSION = 1
WINDOW = 10             # batches in a rolling mean
MAX_PENDING = 64        # minibatches whose gradients wait to be read, so that memory stays bounded
DEGRADATION_MIN = 0.1   # lost share of the rolling mean from which a drop is reported
QUIET_UNTIL = 0.1       # share of the training in which a drop means nothing: it has only begun to learn
PLATEAU_BELOW = 0.5     # in points of the averaged value: percent of accuracy, or return
TREND_BEYOND = 2.0
_logger = logging.getLogger(__name__)


class VectorizedEmitter:
    """Gives events to `sink` as they happen.

    A sink is any function of one TelemetryEvent; what it raises is logged once a kind and counted in `num_lost`. It is called in the
    training thread: give a queue's `put_nowait` if it is slow. With a `config` nothing is sent at level OFF, and gradients are looked at
    when `config.should_collect` says so; `config.advance` is the business of the training.
    """

    def __init__(
        self, sink: Callable[[events.TelemetryEvent], object], *, config: TelemetryConfig | None = None, clip_norm: float = CLIP_NORM,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sink, self._config, self._clock = sink, config, clock
        self._collector = SeedGradientCollector(clip_norm=clip_norm)
        self._accuracies: deque[float] = deque(maxlen=2 * WINDOW)
        self._num_batches = 0       # that had a finite accuracy
        self._pending: list[PendingGradients] = []
        self._gradients: GradientStats | None = None        # the worst since the last update
        self._layers: LayerGradientHealth | None = None
        self._troubles: set[tuple[str, str]] = set()       # (what went wrong, the kind of error)
        self.num_sent = self.num_lost = self.num_not_collected = 0

    def after_backward(self, model: torch.nn.Module) -> None:
        """Look at the gradients, after backward and before clipping; the next `on_ppo_update` tells of the worst since the last one."""
        try:
            if self._config is None or self._config.should_collect("gradients"):
                self._pending.append(self._collector.collect_async(model))
            if self._config is not None and self._config.should_collect(DETAILED):
                layers = aggregate_layer_gradient_health(collect_per_layer_gradients(model))
                self._layers = layers if self._layers is None else min(self._layers, layers, key=lambda health: health.score)
        except (TriageError, RuntimeError) as error:    # a tensor without statistics; what torch raises of memory, devices and shapes
            self._not_collected(error)
        if len(self._pending) >= MAX_PENDING:
            self._read_pending()

    def on_ppo_update(
        self, update: int, metrics: Mapping[str, float], *, seconds: float | None = None, skipped: bool = False,
        gradients: GradientStats | None = None,
    ) -> None:
        """`gradients`: for who has collected them already, in the place of `after_backward`."""
        self._read_pending()
        self._gradients = gradients or self._gradients
        gradients, layers, self._gradients, self._layers = self._gradients, self._layers, None, None
        self._emit(events.PPOUpdateCompleted(
            time=self._clock(), update=update, metrics=dict(metrics), skipped=skipped, seconds=seconds, gradients=gradients, layers=layers,
        ))

    def on_epoch_completed(
        self, epoch: int, *, env_id: int | None = None, train_loss: float | None = None, train_accuracy: float | None = None,
        val_loss: float | None = None, val_accuracy: float | None = None, slots: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._emit(events.EpochCompleted(
            time=self._clock(), env_id=env_id, epoch=epoch, train_loss=train_loss, train_accuracy=train_accuracy, val_loss=val_loss,
            val_accuracy=val_accuracy, slots={name: dict(values) for name, values in (slots or {}).items()},
        ))

    def on_batch_completed(
        self, batch: int, accuracy: float, *, progress: float, episodes: int | None = None, reward: float | None = None,
    ) -> None:
        """`progress`: the share of the training that is done. Tells as well of a drop below the rolling mean, and of a trend of it.

        A trend is looked for whenever ten more batches are complete: their mean against that of the ten before.
        """
        before = list(self._accuracies)[-WINDOW:]
        rolling = _mean(before) if before else None
        now = self._clock()
        self._emit(events.BatchCompleted(
            time=now, batch=batch, accuracy=accuracy, rolling_accuracy=rolling, progress=progress, episodes=episodes, reward=reward,
        ))
        if not math.isfinite(accuracy):     # told above; in the mean it would hide every batch after it
            return
        drop = None if rolling is None else check_performance_degradation(accuracy, rolling, progress)
        if drop is not None and rolling is not None:
            self._emit(events.PerformanceDegraded(time=now, batch=batch, accuracy=accuracy, rolling_accuracy=rolling, drop=drop))
        self._accuracies.append(accuracy)
        self._num_batches += 1
        if self._num_batches % WINDOW == 0 and self._num_batches >= 2 * WINDOW:
            self._emit_trend(batch, now)

    def on_analytics_snapshot(self, name: str, values: Mapping[str, Any], *, env_id: int | None = None) -> None:
        self._emit(events.AnalyticsSnapshot(time=self._clock(), env_id=env_id, name=name, values=dict(values)))

    def on_counterfactual_matrix(
        self, slots: Sequence[str], accuracies: Mapping[tuple[bool, ...], float], *, env_id: int | None = None,
    ) -> None:
        """`accuracies`: what was measured, by which slots were on."""
        self._emit(events.CounterfactualMatrixComputed(
            time=self._clock(), env_id=env_id, slots=tuple(slots),
            configurations=tuple(events.Configuration(enabled=enabled, accuracy=value) for enabled, value in accuracies.items()),
        ))

    def on_anomaly(self, report: AnomalyReport) -> None:
        """One event for each anomaly that began with this report; what goes on has been told."""
        now = self._clock()
        for breach in report.started:
            self._emit(events.AnomalyDetected(
                time=now, code=breach.code, type=breach.type, text=breach.text, subject=breach.key[1], value=breach.value,
                limit=breach.limit, step=breach.step,
            ))

    @property
    def trouble(self) -> str:
        """What went wrong so far, in a sentence; "" if nothing did."""
        parts = []
        if self.num_lost:
            parts.append(f"{self.num_lost} of {self.num_lost + self.num_sent} events were lost, the sink failed")
        if self.num_not_collected:
            parts.append(f"gradients were not collected {self.num_not_collected} times")
        return "; ".join(parts) + (f" ({', '.join(sorted({kind for _, kind in self._troubles}))})" if parts else "")

    def close(self) -> None:
        """Say at the end what went wrong."""
        if self.trouble:
            _logger.warning("%s", self.trouble)

    def __enter__(self) -> "VectorizedEmitter":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """All that later events depend on; take it between two updates."""
        return {"version": STATE_VERSION, "accuracies": list(self._accuracies), "num_batches": self._num_batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where the state was taken; a state that does not fit changes nothing."""
        check_state(self, state, STATE_VERSION, {"accuracies": list, "num_batches": int})
        values, num_batches = state["accuracies"], state["num_batches"]
        if len(values) != min(num_batches, 2 * WINDOW) or not all(isinstance(v, (int, float)) and math.isfinite(v) for v in values):
            raise ValueError(
                f"VectorizedEmitter expects the finite accuracies of the last {2 * WINDOW} of {num_batches} batches, found {values}; "
                "take the state from VectorizedEmitter.state_dict(), or start without it"
            )
        self._accuracies, self._num_batches = deque(values, maxlen=2 * WINDOW), num_batches

    def _read_pending(self) -> None:
        pending, self._pending = self._pending, []
        try:
            stats = [materialize_grad_stats(one) for one in pending]
        except RuntimeError as error:       # what went wrong on a GPU shows when it is read
            self._not_collected(error)
            return
        known = stats if self._gradients is None else [self._gradients, *stats]
        self._gradients = max(known, key=lambda s: math.inf if math.isnan(s.gradient_norm) else s.gradient_norm, default=None)

    def _emit_trend(self, batch: int, now: float) -> None:
        values = list(self._accuracies)
        mean = _mean(values[WINDOW:])
        change = mean - _mean(values[:WINDOW])
        trend = trend_of(change)
        if trend is not None:
            self._emit(events.TrendDetected(time=now, batch=batch, trend=trend, change=change, mean=mean, num_batches=WINDOW))

    def _emit(self, event: events.TelemetryEvent) -> None:
        if self._config is not None and self._config.effective_level is TelemetryLevel.OFF:
            return
        try:
            self._sink(event)
        except Exception as error:  # the sink is the user's: it may raise anything, and none of it may stop a training
            self._tell("the sink failed; events are lost", error)
            self.num_lost += 1
        else:
            self.num_sent += 1

    def _not_collected(self, error: Exception) -> None:
        self._tell("gradients were not collected", error)
        self.num_not_collected += 1

    def _tell(self, what: str, error: Exception) -> None:
        """With its traceback, once a kind: a sink that fails at every event must not fill the log."""
        pass_on_signals(error)
        trouble = what, type(error).__name__
        if trouble not in self._troubles:
            self._troubles.add(trouble)
            _logger.warning("%s: %s", what, error, exc_info=error)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def check_performance_degradation(current: float, rolling: float, progress: float) -> float | None:
    """The share of the rolling mean that is lost, if that is too much; None early in the training or if there is nothing to lose."""
    if not (math.isfinite(current) and math.isfinite(rolling)) or rolling <= 0 or progress < QUIET_UNTIL:
        return None
    drop = (rolling - current) / rolling
    return drop if drop >= DEGRADATION_MIN else None


def trend_of(change: float) -> events.Trend | None:
    """What the change of a mean over batches says; None between a plateau and a trend."""
    if abs(change) < PLATEAU_BELOW:
        return "plateau"
    if abs(change) > TREND_BEYOND:
        return "improvement" if change > 0 else "degradation"
    return None

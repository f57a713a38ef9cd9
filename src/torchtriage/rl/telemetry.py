"""All telemetry of a PPO training, behind one call before each update, one after it.

Shape suffixes: L layers, N environments, H hidden units, S numbers of recurrent state, T steps, B sequences or rows.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchtriage.recording.series import (
    EPISODE_RETURN_MEAN,
    GRAD_HEALTH,
    GRAD_NORM,
    GRAD_NORM_AFTER_CLIP,
    GRAD_RATIO,
    GROWTH_GRADIENT_RATIO,
    GROWTH_PREFIX,
    LOSS,
    PPO_CLIP_FRACTION,
    PPO_ENTROPY_NATS,
    PPO_EXPLAINED_VARIANCE,
    PPO_FIRST_RATIO_DEVIATION,
    PPO_KL,
    PPO_MINIBATCHES_SKIPPED,
    PPO_POLICY_LOSS,
    PPO_PREFIX,
    PPO_RATIO_MAX,
    PPO_RATIO_MIN,
    PPO_VALUE_LOSS,
    series_of,
)
from torchtriage.rl.config import TrainConfig
from torchtriage.rl.policy.policy import Policy
from torchtriage.rl.ppo.rollout import Minibatch
from torchtriage.telemetry import (
    AnomalyDetector,
    GradientEMATracker,
    GroupGradientCollector,
    GroupGradientStats,
    Monitor,
    RatioExplosionDiagnostic,
    TelemetryConfig,
    TelemetryLevel,
    VectorizedEmitter,
    check_numerical_stability,
    compute_lstm_health,
)
from torchtriage.telemetry.sinks.recording import RunFacts, is_recorded

STATE_VERSION = 1
# Updates from one sample to the next, after the first 20. A sample takes 0.5 ms with warm caches, about twice that in
# a training, and a compiled update of CartPole about 25 ms: sampling every tenth update costs less than 1 %.
NORMAL_INTERVAL, MINIMAL_INTERVAL = 10, 50
# These metrics keep the worst of the updates between two samples, so that a spike is not missed; others keep the
# newest.
WORST: dict[str, Callable[[float, float], float]] = {
    PPO_KL: max,
    PPO_RATIO_MAX: max,
    PPO_RATIO_MIN: min,
    PPO_FIRST_RATIO_DEVIATION: max,
    PPO_CLIP_FRACTION: max,
    PPO_MINIBATCHES_SKIPPED: max,
}
CRITIC = ("critic", "value_head")  # prefixes of the critic's parameter names; all others are the actor's
LOSS_OF_UPDATE, GRAD_NORM_OF_UPDATE = PPO_PREFIX + LOSS, PPO_PREFIX + GRAD_NORM
# The monitor records the first two as `loss` and `grad_norm`; the others are constant.
NOT_RECORDED = frozenset({LOSS_OF_UPDATE, GRAD_NORM_OF_UPDATE, f"{PPO_PREFIX}rows", f"{PPO_PREFIX}minibatches"})
# The metrics of an update under the names of Stable-Baselines3; docs/metrics.md has the table.
ALIASES = {
    "train/approx_kl": PPO_KL,
    "train/clip_fraction": PPO_CLIP_FRACTION,
    "train/explained_variance": PPO_EXPLAINED_VARIANCE,
    "train/value_loss": PPO_VALUE_LOSS,
    "train/policy_gradient_loss": PPO_POLICY_LOSS,
    "train/loss": LOSS_OF_UPDATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOutcome:
    """The outcome of one update: `metrics` as returned by Update.read(), `last` its last minibatch."""

    number: int
    progress: float
    metrics: Mapping[str, float]
    rollout: Mapping[str, float]  # rollout/..., time/... and train/..., names as in Stable-Baselines3
    state_NS: Tensor
    last: Minibatch
    seconds: float
    num_episodes: int
    is_skipped: bool


class Watch:
    """Runs the monitor, drift tracking, LSTM health, PPO checks and the emitter; `seconds` is their total time."""

    def __init__(self, policy: Policy, config: TrainConfig, return_threshold: float | None = None) -> None:
        self.policy = policy
        self.level = TelemetryConfig(
            level=TelemetryLevel[config.telemetry_level],
            minimal_interval=MINIMAL_INTERVAL,
            normal_interval=NORMAL_INTERVAL,
        )
        named = list(policy.named_parameters())
        groups = {
            "actor": [p for name, p in named if not name.startswith(CRITIC)],
            "critic": [p for name, p in named if name.startswith(CRITIC)],
        }
        sinks = [*(["recording"] if is_recorded() else []), *([f"jsonl:{config.jsonl}"] if config.jsonl else [])]
        self.monitor = Monitor(policy, groups=groups, config=self.level, sinks=sinks)
        clip_norm = config.max_grad_norm or math.inf
        self.emitter = VectorizedEmitter(self.monitor.tell, config=self.level, clip_norm=clip_norm)
        self.gradients = GroupGradientCollector(groups, clip_norm=clip_norm)
        self.drift = GradientEMATracker()
        self.facts = RunFacts()  # after the monitor, which does not know the learning rate
        self.facts.put(optimizer_lr=[config.lr], optimizers=["Adam"], return_threshold=return_threshold)
        self.seconds = 0.0
        self._max_grad_norm = config.max_grad_norm
        self._worst: dict[str, float] = {}  # since the last sample

    def before_last_minibatch(self) -> None:
        """Measure how much the last minibatch's step changes the weights."""
        began = time.perf_counter()
        self.monitor.before_step()
        self.seconds += time.perf_counter() - began

    def after_update(self, outcome: UpdateOutcome, environments: Any = None) -> None:
        """Sample the update.

        The compiled step leaves the gradients of the last minibatch, before clipping, in p.grad.
        """
        began = time.perf_counter()
        row = self._row(outcome)
        if outcome.is_skipped and not self.monitor.is_off:
            self.level.escalate()  # two more skipped updates end the run, so the next ones are sampled
            self._report_skipped_update(outcome)
        if self.monitor.is_looking:
            self._worst = {}
            self.monitor.after_backward(outcome.metrics.get(LOSS_OF_UPDATE), has_stepped=True)
            self._sample(outcome, row, environments)
        self.monitor.step(row)
        self.seconds += time.perf_counter() - began

    def _sample(self, outcome: UpdateOutcome, row: dict[str, float], environments: Any) -> None:
        """Compute metrics that only telemetry needs, within the time budget of the monitor."""
        own = time.perf_counter()
        is_detailed = self.level.effective_level is TelemetryLevel.DEBUG
        if is_detailed:
            self.emitter.after_backward(self.policy)  # every layer
        stats = self.gradients.collect()
        row |= self._groups(stats)
        row |= self._recurrent(outcome.state_NS)
        row |= self._growth(environments) if hasattr(environments, "episode_reports") else {}
        aliases = {name: outcome.metrics[ours] for name, ours in ALIASES.items() if ours in outcome.metrics}
        aliases |= self._drift(outcome.metrics.get(GRAD_NORM_OF_UPDATE, math.nan), stats.overall.gradient_health)
        if PPO_ENTROPY_NATS in outcome.metrics:  # Stable-Baselines3 reports minus the entropy
            aliases["train/entropy_loss"] = -outcome.metrics[PPO_ENTROPY_NATS]
        self.emitter.on_ppo_update(
            outcome.number,
            {**outcome.rollout, **aliases},
            seconds=outcome.seconds,
            skipped=outcome.is_skipped,
            gradients=stats.overall,
        )
        if not math.isnan(mean := outcome.rollout.get(EPISODE_RETURN_MEAN, math.nan)):
            self.emitter.on_batch_completed(
                outcome.number, mean, progress=outcome.progress, episodes=outcome.num_episodes
            )
        if is_detailed:
            self._report_ratios(outcome)
        self.monitor.charge(time.perf_counter() - own)

    def _row(self, outcome: UpdateOutcome) -> dict[str, float]:
        """The metrics by the series names that the rules read; returns come first, so that a report shows them first.
        """
        row = {name: value for name, value in outcome.metrics.items() if name not in NOT_RECORDED}
        if math.isnan(row.get(PPO_EXPLAINED_VARIANCE, 0.0)):  # it is undefined if returns do not vary
            del row[PPO_EXPLAINED_VARIANCE]
        for name, pick in WORST.items():
            if name in row:
                before = self._worst.get(name, row[name])
                worst = math.nan if math.isnan(before + row[name]) else pick(before, row[name])
                row[name] = self._worst[name] = worst
        return {**outcome.rollout, **row}

    def _groups(self, stats: GroupGradientStats) -> dict[str, float]:
        values = {
            GRAD_HEALTH: stats.overall.gradient_health,
            series_of(GRAD_RATIO, "actor:critic"): stats.normalized_ratio("actor", "critic"),
        }
        if self._max_grad_norm:
            values[GRAD_NORM_AFTER_CLIP] = min(stats.overall.gradient_norm, self._max_grad_norm)
        return {name: value for name, value in values.items() if not math.isnan(value)}

    def _drift(self, norm: float, health: float) -> dict[str, float]:
        """The drift of the mean norm over all minibatches, for information only.

        In PPO single norms often deviate from their average. TT410 therefore leaves such trainings out, and TT411 uses
        a smoothed drift that the rule computes itself.
        """
        if not (math.isfinite(norm) and math.isfinite(health)):  # other rules report it; an average must not contain it
            return {}
        drift = self.drift.update(norm, health)
        return {"train/grad_norm_drift": drift.norm_drift, "train/grad_health_drift": drift.health_drift}

    def _recurrent(self, state_NS: Tensor) -> dict[str, float]:
        """The health of the state at the end of the rollout; actor and critic are two layers."""
        if not self.policy.state_size:
            return {}
        parts = state_NS.detach().chunk(self.policy.num_states, 1)
        h_LNH, c_LNH = torch.stack(parts[0::2]), torch.stack(parts[1::2])
        health = compute_lstm_health((h_LNH, c_LNH))
        return health.to_dict() if health is not None else {}

    def _report_skipped_update(self, outcome: UpdateOutcome) -> None:
        """A non-finite loss left the weights unchanged: report which gradients were not finite."""
        stability = check_numerical_stability(self.policy, outcome.metrics.get(LOSS_OF_UPDATE))
        values = {name: str(getattr(stability, name)) for name in stability.__dataclass_fields__}
        self.emitter.on_analytics_snapshot("update_skipped", values)
        self.emitter.on_anomaly(
            AnomalyDetector().check_numerical_stability(stability.has_nan, stability.has_inf, step=outcome.number)
        )

    def _report_ratios(self, outcome: UpdateOutcome) -> None:
        """Report the samples whose probability ratio is out of range, at DEBUG."""
        limits = self.monitor.writer.detector.limits
        most, least = outcome.metrics.get(PPO_RATIO_MAX, 1.0), outcome.metrics.get(PPO_RATIO_MIN, 1.0)
        if most <= limits.ratio_max and least >= limits.ratio_min:  # false for NaN as well
            return
        minibatch = outcome.last
        with torch.no_grad():
            log_prob_TB, _, _ = self.policy.evaluate(
                minibatch.observation_TBO,
                minibatch.state_BS,
                minibatch.keep_TB,
                minibatch.action_TB,
            )
        live_TB = minibatch.weight_TB > 0
        old, new, actions = minibatch.log_prob_TB[live_TB], log_prob_TB[live_TB], minibatch.action_TB[live_TB]
        diagnostic = RatioExplosionDiagnostic.from_batch(
            (new - old).exp(), old, new, actions, limits.ratio_max, limits.ratio_min
        )
        self.emitter.on_analytics_snapshot("ratio_explosion", diagnostic.to_dict())

    def _growth(self, environments: Any) -> dict[str, float]:
        """Report an epoch, its ablations and a snapshot of one growth environment (of all at DEBUG); return the
        means.
        """
        reports = environments.episode_reports()
        is_detailed = self.level.effective_level is TelemetryLevel.DEBUG
        for report in reports if is_detailed else reports[:1]:
            report.emit(self.emitter)
        series: dict[str, list[float]] = {GROWTH_GRADIENT_RATIO: []}
        for row in environments.gradient_stats():
            series[GROWTH_GRADIENT_RATIO] += [stats.normalized_ratio for stats in row if stats is not None]
        for name in ("accuracy", "host_accuracy", "kept_accuracy", "rent"):
            series[GROWTH_PREFIX + name] = [getattr(report, name) for report in reports]
        return {name: statistics.fmean(values) for name, values in series.items() if values}

    def snapshot(self, name: str, values: Mapping[str, Any]) -> None:
        self.emitter.on_analytics_snapshot(name, values)

    def close(self) -> None:
        self.emitter.close()
        self.monitor.close()

    def state_dict(self) -> dict[str, Any]:
        self.monitor.writer.flush()  # pending rows belong to earlier updates
        return {
            "version": STATE_VERSION,
            "monitor": self.monitor.state_dict(),
            "emitter": self.emitter.state_dict(),
            "drift": self.drift.state_dict(),
            "worst": dict(self._worst),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.monitor.load_state_dict(state["monitor"])
        self.emitter.load_state_dict(state["emitter"])
        self.drift.load_state_dict(state["drift"])
        self._worst = dict(state["worst"])

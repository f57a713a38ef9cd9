"""The learning rules on live numbers, one call per update; without torch, threads or files."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torchtriage.diagnosis.learning.limits import LearningLimits, limits_for
from torchtriage.diagnosis.learning.rule import Breach, short
from torchtriage.diagnosis.learning.rules import non_finite as checks
from torchtriage.diagnosis.learning.rules.ppo import is_normalised, phase
from torchtriage.diagnosis.learning.watch import LearningWatch, is_quantity
from torchtriage.recording.events import Anomaly
from torchtriage.recording.series import (
    GRAD_HEALTH_DRIFT,
    GRAD_NORM_DRIFT,
    PPO_BELLMAN_ERROR,
    PPO_ENTROPY,
    PPO_EXPLAINED_VARIANCE,
    PPO_KL,
    PPO_RATIO_MAX,
    PPO_RATIO_MIN,
    PPO_RETURNS_STD,
    PPO_VALUE_LOSS,
)
from torchtriage.telemetry.config import check_state

STATE_VERSION = 1


class RecurrentHealth(Protocol):
    """The interface of LSTMHealthMetrics."""

    def to_dict(self) -> dict[str, float]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyReport:
    """The result of one check.

    `started`: breaches that were not open before; `diagnostics`: notes that are not anomalies.
    """

    breaches: tuple[Breach, ...] = ()
    started: tuple[Breach, ...] = ()
    diagnostics: tuple[str, ...] = ()

    @property
    def has_anomaly(self) -> bool:
        return bool(self.breaches)

    @property
    def anomaly_types(self) -> list[str]:
        return list(dict.fromkeys(breach.type for breach in self.breaches))

    @property
    def codes(self) -> list[str]:
        return list(dict.fromkeys(breach.code for breach in self.breaches))

    @property
    def details(self) -> dict[str, list[str]]:
        """All texts by type of anomaly."""
        details: dict[str, list[str]] = {}
        for breach in self.breaches:
            details.setdefault(breach.type, []).append(breach.text)
        return details

    def events(self, time: float, rank: int | None = None) -> list[Anomaly]:
        """Anomalies that began now, as events of the recording: a continuing anomaly is reported once."""
        return [
            Anomaly(
                time=time, step=breach.step, rank=rank, code=breach.code, subject=breach.key[1], value=breach.value,
                threshold=breach.limit, text=breach.text,
            )
            for breach in self.started
        ]


class AnomalyDetector:
    """Runs every rule of TT4xx, TT5xx and TT6xx whose inputs are given, by hand or by a Monitor.

    Limits are those of `preset` ("default" or "sagemaker"); any field of LearningLimits can be changed by name:
    `AnomalyDetector(ratio_max=4.0)`. `is_half`: the model computes in 16 bits; `has_float16`: its gradients are
    float16.
    """

    def __init__(
        self, preset: str = "default", *, is_half: bool = False, has_float16: bool = False, **limits: float,
    ) -> None:
        self._watch = LearningWatch(limits_for(preset, **limits), is_half=is_half, has_float16=has_float16)
        # (code, subject) of continuing anomalies -> quantity that can end it.
        self._open: dict[tuple[str, str], str] = {}

    @property
    def limits(self) -> LearningLimits:
        return self._watch.limits

    def note_types(self, *, is_half: bool = False, has_float16: bool = False) -> None:
        """Add types that are detected during the run; types that are already noted stay noted."""
        self._watch.is_half |= is_half
        self._watch.has_float16 |= has_float16

    def check_ratios(self, max_ratio: float, min_ratio: float, *, step: int | None = None) -> AnomalyReport:
        """Check the largest and the smallest probability ratio of an update."""
        return self.check_all(max_ratio=max_ratio, min_ratio=min_ratio, step=step)

    def check_value_function(
        self, explained_variance: float | None = None, current_episode: int | None = None,
        total_episodes: int | None = None, *, value_loss: float | None = None, bellman_error: float | None = None,
        returns_std: float | None = None, step: int | None = None,
    ) -> AnomalyReport:
        """Check for a value loss or Bellman error out of range.

        Explained variance is a diagnostic only. It is NaN, and ignored, where returns do not vary.
        """
        return self.check_all(
            explained_variance=explained_variance, current_episode=current_episode, total_episodes=total_episodes,
            value_loss=value_loss, bellman_error=bellman_error, returns_std=returns_std, step=step,
        )

    def check_numerical_stability(
        self, has_nan: bool, has_inf: bool, *, where: str = "gradients", step: int | None = None,
    ) -> AnomalyReport:
        """Check for NaN and Inf; `where` is loss, gradients or weights."""
        return self.check_all(has_nan=has_nan, has_inf=has_inf, where=where, step=step)

    def check_entropy_collapse(self, entropy: float | Mapping[str, float], *, step: int | None = None) -> AnomalyReport:
        """Check the entropy, of the policy or per head, divided by that of a uniform policy (0 to 1).

        An anomaly needs several low updates in a row.
        """
        return self.check_all(entropy=entropy, step=step)

    def check_kl_divergence(self, kl: float, *, step: int | None = None) -> AnomalyReport:
        return self.check_all(kl=kl, step=step)

    def check_gradient_drift(
        self, norm_drift: float | None = None, health_drift: float | None = None, *, step: int | None = None,
    ) -> AnomalyReport:
        """Check the drifts that GradientEMATracker returns."""
        return self.check_all(norm_drift=norm_drift, health_drift=health_drift, step=step)

    def check_lstm_health(
        self, health: RecurrentHealth | Mapping[str, float], *, step: int | None = None,
    ) -> AnomalyReport:
        """Check the result of compute_lstm_health, or the same numbers by name: `{"lstm/h_rms_max": 3.2}`."""
        return self.check_all(lstm=health, step=step)

    def check_metrics(self, metrics: Mapping[str, float], *, step: int | None = None) -> AnomalyReport:
        """Check quantities by series name (docs/metrics.md); names that no rule reads are ignored."""
        return self.check_all(metrics=metrics, step=step)

    def check_tensors(self, tensors: Mapping[str, Mapping[str, float]], *, step: int | None = None) -> AnomalyReport:
        """Check tensors: by name `grad_norm`, `weight_norm`, `grad_nan`, `grad_inf`, `weight_nan`,
        `grad_zero_fraction` and so on.
        """
        return self.check_all(tensors=tensors, step=step)

    def check_all(
        self, *, max_ratio: float | None = None, min_ratio: float | None = None,
        explained_variance: float | None = None, current_episode: int | None = None, total_episodes: int | None = None,
        value_loss: float | None = None, bellman_error: float | None = None, returns_std: float | None = None,
        has_nan: bool | None = None, has_inf: bool | None = None, where: str = "gradients",
        entropy: float | Mapping[str, float] | None = None, kl: float | None = None, norm_drift: float | None = None,
        health_drift: float | None = None, lstm: RecurrentHealth | Mapping[str, float] | None = None,
        metrics: Mapping[str, float] | None = None, tensors: Mapping[str, Mapping[str, float]] | None = None,
        step: int | None = None,
    ) -> AnomalyReport:
        """Run every check whose inputs are given, each once."""
        inputs = {
            PPO_RATIO_MAX: max_ratio, PPO_RATIO_MIN: min_ratio, PPO_EXPLAINED_VARIANCE: explained_variance,
            PPO_VALUE_LOSS: value_loss, PPO_BELLMAN_ERROR: bellman_error, PPO_RETURNS_STD: returns_std, PPO_KL: kl,
            GRAD_NORM_DRIFT: norm_drift, GRAD_HEALTH_DRIFT: health_drift,
            **_entropies(entropy), **_recurrent(lstm), **(metrics or {}),
        }
        row = {name: value for name, value in inputs.items() if value is not None and is_quantity(name)}
        diagnostics = self._phase(row.get(PPO_EXPLAINED_VARIANCE), current_episode, total_episodes)
        breaches = self._watch.observe(row, step) if row else []
        checked = set(row)
        if has_nan is not None or has_inf is not None:
            breaches += checks.stability(bool(has_nan), bool(has_inf), where, step)
            checked.add(checks.STABILITY[where][1])
        if tensors:
            breaches += self._watch.observe_tensors(tensors, step)
            checked.update(quantity for quantity in self._open.values() if _is_of(quantity, tensors))
        return AnomalyReport(
            breaches=tuple(breaches), started=self._started(breaches, checked), diagnostics=diagnostics,
        )

    def state_dict(self) -> dict[str, Any]:
        """The memory of the rules. Limits are settings of the program and not included."""
        return {
            "version": STATE_VERSION, "memory": self._watch.memory.state_dict(), "is_policy": self._watch.is_policy,
            "open": [[code, subject, quantity] for (code, subject), quantity in self._open.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a saved state; a state that does not fit changes nothing."""
        check_state(self, state, STATE_VERSION, {"memory": dict, "is_policy": bool, "open": list})
        self._watch.memory.load_state_dict(state["memory"])
        self._watch.is_policy = state["is_policy"]
        self._open = {(code, subject): quantity for code, subject, quantity in state["open"]}

    def _started(self, breaches: Iterable[Breach], checked: Collection[str]) -> tuple[Breach, ...]:
        """The new breaches. An anomaly whose quantity was checked without a breach has ended."""
        now = {breach.key: breach for breach in breaches}
        started = tuple(breach for key, breach in now.items() if key not in self._open)
        self._open = {key: quantity for key, quantity in self._open.items() if quantity not in checked}
        self._open.update((key, breach.quantity) for key, breach in now.items())
        return started

    def _phase(self, explained_variance: float | None, episode: int | None, total: int | None) -> tuple[str, ...]:
        """A note if the explained variance is below its expected minimum for this phase of the training."""
        if episode is None and total is None:
            return ()
        if episode is None or total is None or episode <= 0 or total <= 0:
            raise ValueError(
                f"current_episode and total_episodes must be given together and be above 0, got {episode} and {total}"
            )
        name, least = phase(episode / total, self.limits)
        if explained_variance is None or not explained_variance < least:
            return ()
        value = short(explained_variance)
        return (f"explained variance {value} is below {short(least)}, the minimum expected in the {name} phase",)


def _entropies(entropy: float | Mapping[str, float] | None) -> dict[str, float]:
    if entropy is None:
        return {}
    heads = {f"/{head}": value for head, value in entropy.items()} if isinstance(entropy, Mapping) else {"": entropy}
    by_name = {PPO_ENTROPY + head: value for head, value in heads.items()}
    for name, value in by_name.items():
        if math.isfinite(value) and not is_normalised(value):
            raise ValueError(
                f"{name} must be normalised to 0..1, got {value}; divide it by the logarithm of the number of actions"
            )
    return by_name


def _is_of(quantity: str, tensors: Mapping[str, Mapping[str, float]]) -> bool:
    statistic, _, name = quantity.partition("/")
    return statistic in tensors.get(name, ())


def _recurrent(health: RecurrentHealth | Mapping[str, float] | None) -> Mapping[str, float]:
    if health is None:
        return {}
    return health if isinstance(health, Mapping) else health.to_dict()

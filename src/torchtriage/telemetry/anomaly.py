"""The learning rules while the program runs: numbers of an update in, anomalies out; no torch, no thread, no file."""

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
    """What LSTMHealthMetrics offers."""

    def to_dict(self) -> dict[str, float]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyReport:
    """What one check found; `started` has the breaches that were not there the time before, `diagnostics` what is worth a look only."""

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
        """Every text of each type."""
        return {type: [breach.text for breach in self.breaches if breach.type == type] for type in self.anomaly_types}

    def events(self, time: float, rank: int | None = None) -> list[Anomaly]:
        """What began now, as the recording keeps it: an anomaly that goes on is told once."""
        return [
            Anomaly(time=time, step=b.step, rank=rank, code=b.code, subject=b.key[1], value=b.value, threshold=b.limit, text=b.text)
            for b in self.started
        ]


class AnomalyDetector:
    """Every rule of TT4xx, TT5xx and TT6xx, fed by hand or by a Monitor; a check runs if its inputs are given.

    Limits are those of `preset` ("default" or "sagemaker") with any field of LearningLimits changed by name:
    `AnomalyDetector(ratio_max=4.0)`. `is_half`: the model computes in 16 bits; `has_float16`: its gradients are float16.
    """

    def __init__(self, preset: str = "default", *, is_half: bool = False, has_float16: bool = False, **limits: float) -> None:
        self._watch = LearningWatch(limits_for(preset, **limits), is_half=is_half, has_float16=has_float16)
        self._open: dict[tuple[str, str], str] = {}     # (code, subject) of what goes on, and the quantity that can end it

    @property
    def limits(self) -> LearningLimits:
        return self._watch.limits

    def note_types(self, *, is_half: bool = False, has_float16: bool = False) -> None:
        """What is learned of the model while it runs; what was known stays known."""
        self._watch.is_half |= is_half
        self._watch.has_float16 |= has_float16

    def check_ratios(self, max_ratio: float, min_ratio: float, *, step: int | None = None) -> AnomalyReport:
        """Of the probability ratios of an update the largest and the smallest."""
        return self.check_all(max_ratio=max_ratio, min_ratio=min_ratio, step=step)

    def check_value_function(
        self, explained_variance: float | None = None, current_episode: int | None = None, total_episodes: int | None = None, *,
        value_loss: float | None = None, bellman_error: float | None = None, returns_std: float | None = None, step: int | None = None,
    ) -> AnomalyReport:
        """A value loss or Bellman error out of range. Explained variance is a diagnostic; NaN, where returns do not vary, says nothing."""
        return self.check_all(
            explained_variance=explained_variance, current_episode=current_episode, total_episodes=total_episodes, value_loss=value_loss,
            bellman_error=bellman_error, returns_std=returns_std, step=step,
        )

    def check_numerical_stability(
        self, has_nan: bool, has_inf: bool, *, where: str = "gradients", step: int | None = None,
    ) -> AnomalyReport:
        """`where` is loss, gradients or weights."""
        return self.check_all(has_nan=has_nan, has_inf=has_inf, where=where, step=step)

    def check_entropy_collapse(self, entropy: float | Mapping[str, float], *, step: int | None = None) -> AnomalyReport:
        """Entropy over that of a uniform policy, 0 to 1: of the policy, or by head. It fires when several updates in a row are low."""
        return self.check_all(entropy=entropy, step=step)

    def check_kl_divergence(self, kl: float, *, step: int | None = None) -> AnomalyReport:
        return self.check_all(kl=kl, step=step)

    def check_gradient_drift(
        self, norm_drift: float | None = None, health_drift: float | None = None, *, step: int | None = None,
    ) -> AnomalyReport:
        """As GradientEMATracker gives them."""
        return self.check_all(norm_drift=norm_drift, health_drift=health_drift, step=step)

    def check_lstm_health(self, health: RecurrentHealth | Mapping[str, float], *, step: int | None = None) -> AnomalyReport:
        """What compute_lstm_health returned, or the same numbers by name: `{"lstm/h_rms_max": 3.2}`."""
        return self.check_all(lstm=health, step=step)

    def check_metrics(self, metrics: Mapping[str, float], *, step: int | None = None) -> AnomalyReport:
        """Quantities by the names of their series (docs/metrics.md); a name that no rule reads is passed over."""
        return self.check_all(metrics=metrics, step=step)

    def check_tensors(self, tensors: Mapping[str, Mapping[str, float]], *, step: int | None = None) -> AnomalyReport:
        """By tensor its `grad_norm`, `weight_norm`, `grad_nan`, `grad_inf`, `weight_nan`, `grad_zero_fraction` and so on."""
        return self.check_all(tensors=tensors, step=step)

    def check_all(
        self, *, max_ratio: float | None = None, min_ratio: float | None = None, explained_variance: float | None = None,
        current_episode: int | None = None, total_episodes: int | None = None, value_loss: float | None = None,
        bellman_error: float | None = None, returns_std: float | None = None, has_nan: bool | None = None, has_inf: bool | None = None,
        where: str = "gradients", entropy: float | Mapping[str, float] | None = None, kl: float | None = None,
        norm_drift: float | None = None, health_drift: float | None = None, lstm: RecurrentHealth | Mapping[str, float] | None = None,
        metrics: Mapping[str, float] | None = None, tensors: Mapping[str, Mapping[str, float]] | None = None, step: int | None = None,
    ) -> AnomalyReport:
        """Every check whose inputs are given, each once."""
        given = {
            PPO_RATIO_MAX: max_ratio, PPO_RATIO_MIN: min_ratio, PPO_EXPLAINED_VARIANCE: explained_variance,
            PPO_VALUE_LOSS: value_loss, PPO_BELLMAN_ERROR: bellman_error, PPO_RETURNS_STD: returns_std, PPO_KL: kl,
            GRAD_NORM_DRIFT: norm_drift, GRAD_HEALTH_DRIFT: health_drift, **_entropies(entropy), **_recurrent(lstm), **(metrics or {}),
        }
        row = {name: value for name, value in given.items() if value is not None and is_quantity(name)}
        diagnostics = self._phase(row.get(PPO_EXPLAINED_VARIANCE), current_episode, total_episodes)
        found = self._watch.observe(row, step) if row else []
        looked_at = set(row)
        if has_nan is not None or has_inf is not None:
            found += checks.stability(bool(has_nan), bool(has_inf), where, step)
            looked_at.add(checks.STABILITY[where][1])
        if tensors:
            found += self._watch.observe_tensors(tensors, step)
            looked_at.update(quantity for quantity in self._open.values() if _is_of(quantity, tensors))
        return AnomalyReport(breaches=tuple(found), started=self._started(found, looked_at), diagnostics=diagnostics)

    def state_dict(self) -> dict[str, Any]:
        """All that the rules remember. Limits are settings of the program, and not part of it."""
        return {
            "version": STATE_VERSION, "memory": self._watch.memory.state_dict(), "is_policy": self._watch.is_policy,
            "open": [[code, subject, quantity] for (code, subject), quantity in self._open.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where the state was taken; a state that does not fit changes nothing."""
        check_state(self, state, STATE_VERSION, {"memory": dict, "is_policy": bool, "open": list})
        self._watch.memory.load_state_dict(state["memory"])
        self._watch.is_policy = state["is_policy"]
        self._open = {(code, subject): quantity for code, subject, quantity in state["open"]}

    def _started(self, found: Iterable[Breach], looked_at: Collection[str]) -> tuple[Breach, ...]:
        """The breaches that are new; what was looked at and is well again is closed."""
        now = {breach.key: breach for breach in found}
        started = tuple(breach for key, breach in now.items() if key not in self._open)
        self._open = {key: quantity for key, quantity in self._open.items() if quantity not in looked_at}
        self._open.update((key, breach.quantity) for key, breach in now.items())
        return started

    def _phase(self, explained_variance: float | None, episode: int | None, total: int | None) -> tuple[str, ...]:
        """A word on the explained variance, if it is below what the phase of the training lets expect."""
        if episode is None and total is None:
            return ()
        if episode is None or total is None or episode <= 0 or total <= 0:
            raise ValueError(f"current_episode and total_episodes must be given together and be above 0, got {episode} and {total}")
        name, least = phase(episode / total, self.limits)
        if explained_variance is None or not explained_variance < least:
            return ()
        return (f"explained variance {short(explained_variance)} is below {short(least)}, the least in the {name} phase",)


def _entropies(entropy: float | Mapping[str, float] | None) -> dict[str, float]:
    if entropy is None:
        return {}
    heads = {f"/{head}": value for head, value in entropy.items()} if isinstance(entropy, Mapping) else {"": entropy}
    by_name = {PPO_ENTROPY + head: value for head, value in heads.items()}
    for name, value in by_name.items():
        if math.isfinite(value) and not is_normalised(value):
            raise ValueError(f"{name} must be normalised to 0..1, got {value}; divide it by the logarithm of the number of actions")
    return by_name


def _is_of(quantity: str, tensors: Mapping[str, Mapping[str, float]]) -> bool:
    of, _, name = quantity.partition("/")
    return of in tensors.get(name, ())


def _recurrent(health: RecurrentHealth | Mapping[str, float] | None) -> Mapping[str, float]:
    if health is None:
        return {}
    return health if isinstance(health, Mapping) else health.to_dict()

"""The events that a VectorizedEmitter sends to its sink: one type per event, plain data that `to_dict` prepares for
JSON.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torchtriage.telemetry.gradients.health import GradientStats
from torchtriage.telemetry.gradients.layers import LayerGradientHealth
from torchtriage.text import counted

Trend = Literal["plateau", "improvement", "degradation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryEvent:
    """An event of a training. `time` is in seconds since the epoch; `env_id` is set if it concerns one environment."""

    kind: ClassVar[str] = ""

    time: float
    env_id: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **dataclasses.asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCompleted(TelemetryEvent):
    kind: ClassVar[str] = "epoch_completed"

    epoch: int
    train_loss: float | None = None
    train_accuracy: float | None = None
    val_loss: float | None = None
    val_accuracy: float | None = None
    slots: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)     # values of each slot, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOUpdateCompleted(TelemetryEvent):
    kind: ClassVar[str] = "ppo_update_completed"

    update: int
    metrics: Mapping[str, float]
    skipped: bool = False
    seconds: float | None = None
    gradients: GradientStats | None = None          # before clipping, of the minibatch with the largest norm
    layers: LayerGradientHealth | None = None       # before clipping, of the minibatch with the lowest score


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCompleted(TelemetryEvent):
    kind: ClassVar[str] = "batch_completed"

    batch: int
    accuracy: float
    rolling_accuracy: float | None      # of the batches before this one; None for the first
    progress: float
    episodes: int | None = None
    reward: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsSnapshot(TelemetryEvent):
    """Any named values of interest: the last action, the throughput, the rewards."""

    kind: ClassVar[str] = "analytics_snapshot"

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationResult:
    """The accuracy with some slots on and the others off. `Configuration` is another name of this class."""

    enabled: tuple[bool, ...]
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationsMeasured(TelemetryEvent):
    """The accuracies of a network with parts of it (slots) switched off.

    `CounterfactualMatrixComputed` is another name of this class.
    """

    kind: ClassVar[str] = "counterfactual_matrix_computed"

    slots: tuple[str, ...]
    configurations: tuple[AblationResult, ...]      # only those that were measured

    def __post_init__(self) -> None:
        for configuration in self.configurations:
            if len(configuration.enabled) != len(self.slots):
                raise ValueError(
                    f"a configuration must say on or off for each of the {counted(len(self.slots), 'slot')}, "
                    f"got {configuration.enabled}"
                )


Configuration = AblationResult
CounterfactualMatrixComputed = AblationsMeasured


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyDetected(TelemetryEvent):
    kind: ClassVar[str] = "anomaly_detected"

    code: str           # of the rule, `torchtriage explain CODE`
    type: str
    text: str
    subject: str
    value: float
    limit: float
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceDegraded(TelemetryEvent):
    kind: ClassVar[str] = "performance_degradation"

    batch: int
    accuracy: float
    rolling_accuracy: float
    drop: float         # share of the rolling accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendDetected(TelemetryEvent):
    kind: ClassVar[str] = "trend"

    batch: int
    trend: Trend
    change: float       # from the mean of the batches before to `mean`
    mean: float
    num_batches: int    # in each of the two means

"""Telemetry of a training: statistics of gradients or weights, with the monitors, rules, events built on them.

Public names load on first use: some of them import torch.compile's machinery, which takes seconds.
"""

import importlib.util
from typing import TYPE_CHECKING

from torchtriage.lazy import lazy_names

if TYPE_CHECKING:
    from torchtriage.telemetry.actions.anomaly_calls import ProfileSteps as ProfileSteps
    from torchtriage.telemetry.actions.anomaly_calls import StopTraining as StopTraining
    from torchtriage.telemetry.actions.anomaly_calls import TrainingStoppedError as TrainingStoppedError
    from torchtriage.telemetry.anomaly import AnomalyDetector as AnomalyDetector
    from torchtriage.telemetry.anomaly import AnomalyReport as AnomalyReport
    from torchtriage.telemetry.config import TelemetryConfig as TelemetryConfig
    from torchtriage.telemetry.config import TelemetryLevel as TelemetryLevel
    from torchtriage.telemetry.gradients.collect import GradientCollector as GradientCollector
    from torchtriage.telemetry.gradients.collect import GroupGradientCollector as GroupGradientCollector
    from torchtriage.telemetry.gradients.collect import PendingGradients as PendingGradients
    from torchtriage.telemetry.gradients.collect import SeedGradientCollector as SeedGradientCollector
    from torchtriage.telemetry.gradients.collect import collect_gradients as collect_gradients
    from torchtriage.telemetry.gradients.collect import collect_seed_gradients as collect_seed_gradients
    from torchtriage.telemetry.gradients.collect import compute_grad_norm_surrogate as compute_grad_norm_surrogate
    from torchtriage.telemetry.gradients.collect import global_grad_norm as global_grad_norm
    from torchtriage.telemetry.gradients.collect import materialize_grad_stats as materialize_grad_stats
    from torchtriage.telemetry.gradients.drift import GradientDrift as GradientDrift
    from torchtriage.telemetry.gradients.drift import GradientEMATracker as GradientEMATracker
    from torchtriage.telemetry.gradients.health import DualGradientStats as DualGradientStats
    from torchtriage.telemetry.gradients.health import GradientHealthMetrics as GradientHealthMetrics
    from torchtriage.telemetry.gradients.health import GradientStats as GradientStats
    from torchtriage.telemetry.gradients.health import GroupGradientStats as GroupGradientStats
    from torchtriage.telemetry.gradients.layers import LayerGradientHealth as LayerGradientHealth
    from torchtriage.telemetry.gradients.layers import LayerGradients as LayerGradients
    from torchtriage.telemetry.gradients.layers import LayerGradientStats as LayerGradientStats
    from torchtriage.telemetry.gradients.layers import (
        aggregate_layer_gradient_health as aggregate_layer_gradient_health,
    )
    from torchtriage.telemetry.gradients.layers import collect_per_layer_gradients as collect_per_layer_gradients
    from torchtriage.telemetry.gradients.layers import layer_score as layer_score
    from torchtriage.telemetry.gradients.stability import NumericalStability as NumericalStability
    from torchtriage.telemetry.gradients.stability import check_numerical_stability as check_numerical_stability
    from torchtriage.telemetry.monitor import Monitor as Monitor
    from torchtriage.telemetry.ppo.emitter import VectorizedEmitter as VectorizedEmitter
    from torchtriage.telemetry.ppo.emitter import check_performance_degradation as check_performance_degradation
    from torchtriage.telemetry.ppo.events import AblationResult as AblationResult
    from torchtriage.telemetry.ppo.events import AblationsMeasured as AblationsMeasured
    from torchtriage.telemetry.ppo.events import AnalyticsSnapshot as AnalyticsSnapshot
    from torchtriage.telemetry.ppo.events import AnomalyDetected as AnomalyDetected
    from torchtriage.telemetry.ppo.events import BatchCompleted as BatchCompleted
    from torchtriage.telemetry.ppo.events import Configuration as Configuration
    from torchtriage.telemetry.ppo.events import CounterfactualMatrixComputed as CounterfactualMatrixComputed
    from torchtriage.telemetry.ppo.events import EpochCompleted as EpochCompleted
    from torchtriage.telemetry.ppo.events import PerformanceDegraded as PerformanceDegraded
    from torchtriage.telemetry.ppo.events import PPOUpdateCompleted as PPOUpdateCompleted
    from torchtriage.telemetry.ppo.events import TelemetryEvent as TelemetryEvent
    from torchtriage.telemetry.ppo.events import TrendDetected as TrendDetected
    from torchtriage.telemetry.ppo.lstm_health import LSTMHealthMetrics as LSTMHealthMetrics
    from torchtriage.telemetry.ppo.lstm_health import compute_lstm_health as compute_lstm_health
    from torchtriage.telemetry.ppo.lstm_health import lstm_health_tensor as lstm_health_tensor
    from torchtriage.telemetry.ppo.ratio_explosion import RatioExplosionDiagnostic as RatioExplosionDiagnostic
    from torchtriage.telemetry.profiler import TrainingProfiler as TrainingProfiler
    from torchtriage.telemetry.profiler import training_profiler as training_profiler
    from torchtriage.telemetry.statistics.columns import Stat as Stat
    from torchtriage.telemetry.statistics.in_graph import new_statistics_ring as new_statistics_ring
    from torchtriage.telemetry.statistics.in_graph import record_statistics as record_statistics

if importlib.util.find_spec("numpy") is None:
    raise ModuleNotFoundError(
        "torchtriage.telemetry needs numpy, which is not installed; install it with: pip install numpy"
    )

_HOMES = {
    "actions.anomaly_calls": ("ProfileSteps", "StopTraining", "TrainingStoppedError"),
    "anomaly": ("AnomalyDetector", "AnomalyReport"),
    "gradients.collect": (
        "GradientCollector", "GroupGradientCollector", "PendingGradients", "SeedGradientCollector",
        "collect_gradients", "collect_seed_gradients", "compute_grad_norm_surrogate", "global_grad_norm",
        "materialize_grad_stats",
    ),
    "gradients.drift": ("GradientDrift", "GradientEMATracker"),
    "ppo.emitter": ("VectorizedEmitter", "check_performance_degradation"),
    "gradients.health": ("DualGradientStats", "GradientHealthMetrics", "GradientStats", "GroupGradientStats"),
    "gradients.layers": (
        "LayerGradientHealth", "LayerGradientStats", "LayerGradients", "aggregate_layer_gradient_health",
        "collect_per_layer_gradients", "layer_score",
    ),
    "config": ("TelemetryConfig", "TelemetryLevel"),
    "ppo.lstm_health": ("LSTMHealthMetrics", "compute_lstm_health", "lstm_health_tensor"),
    "monitor": ("Monitor",),
    "profiler": ("TrainingProfiler", "training_profiler"),
    "ppo.ratio_explosion": ("RatioExplosionDiagnostic",),
    "gradients.stability": ("NumericalStability", "check_numerical_stability"),
    "ppo.events": (
        "AblationResult", "AblationsMeasured", "AnalyticsSnapshot", "AnomalyDetected", "BatchCompleted",
        "Configuration", "CounterfactualMatrixComputed", "EpochCompleted", "PPOUpdateCompleted", "PerformanceDegraded",
        "TelemetryEvent", "TrendDetected",
    ),
    "statistics.columns": ("Stat",),
    "statistics.in_graph": ("new_statistics_ring", "record_statistics"),
}
__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)

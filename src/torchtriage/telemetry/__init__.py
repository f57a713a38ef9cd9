"""What the learning did: statistics of gradients and weights, and what is built on them.

Public names load on first use: some of them import torch.compile's machinery, which takes seconds.
"""

import importlib.util
from typing import TYPE_CHECKING

from torchtriage.lazily import lazy_names

if TYPE_CHECKING:
    from torchtriage.telemetry.anomaly import AnomalyDetector as AnomalyDetector
    from torchtriage.telemetry.anomaly import AnomalyReport as AnomalyReport
    from torchtriage.telemetry.collectors import GroupGradientCollector as GroupGradientCollector
    from torchtriage.telemetry.collectors import PendingGradients as PendingGradients
    from torchtriage.telemetry.collectors import SeedGradientCollector as SeedGradientCollector
    from torchtriage.telemetry.collectors import collect_seed_gradients as collect_seed_gradients
    from torchtriage.telemetry.collectors import compute_grad_norm_surrogate as compute_grad_norm_surrogate
    from torchtriage.telemetry.collectors import materialize_grad_stats as materialize_grad_stats
    from torchtriage.telemetry.drift import GradientDrift as GradientDrift
    from torchtriage.telemetry.drift import GradientEMATracker as GradientEMATracker
    from torchtriage.telemetry.dual import DualGradientStats as DualGradientStats
    from torchtriage.telemetry.emitters import VectorizedEmitter as VectorizedEmitter
    from torchtriage.telemetry.gradient_stats import GradientHealthMetrics as GradientHealthMetrics
    from torchtriage.telemetry.gradient_stats import GradientStats as GradientStats
    from torchtriage.telemetry.gradient_stats import GroupGradientStats as GroupGradientStats
    from torchtriage.telemetry.layer_gradients import LayerGradients as LayerGradients
    from torchtriage.telemetry.layer_gradients import LayerGradientStats as LayerGradientStats
    from torchtriage.telemetry.layer_gradients import collect_per_layer_gradients as collect_per_layer_gradients
    from torchtriage.telemetry.levels import TelemetryConfig as TelemetryConfig
    from torchtriage.telemetry.levels import TelemetryLevel as TelemetryLevel
    from torchtriage.telemetry.lstm_health import LSTMHealthMetrics as LSTMHealthMetrics
    from torchtriage.telemetry.lstm_health import compute_lstm_health as compute_lstm_health
    from torchtriage.telemetry.lstm_health import lstm_health_tensor as lstm_health_tensor
    from torchtriage.telemetry.monitor import Monitor as Monitor
    from torchtriage.telemetry.profiler import TrainingProfiler as TrainingProfiler
    from torchtriage.telemetry.profiler import training_profiler as training_profiler
    from torchtriage.telemetry.ratio_explosion import RatioExplosionDiagnostic as RatioExplosionDiagnostic
    from torchtriage.telemetry.scores import LayerGradientHealth as LayerGradientHealth
    from torchtriage.telemetry.scores import aggregate_layer_gradient_health as aggregate_layer_gradient_health
    from torchtriage.telemetry.scores import check_performance_degradation as check_performance_degradation
    from torchtriage.telemetry.scores import layer_score as layer_score
    from torchtriage.telemetry.stability import NumericalStability as NumericalStability
    from torchtriage.telemetry.stability import check_numerical_stability as check_numerical_stability
    from torchtriage.telemetry.telemetry_events import AnalyticsSnapshot as AnalyticsSnapshot
    from torchtriage.telemetry.telemetry_events import AnomalyDetected as AnomalyDetected
    from torchtriage.telemetry.telemetry_events import BatchCompleted as BatchCompleted
    from torchtriage.telemetry.telemetry_events import Configuration as Configuration
    from torchtriage.telemetry.telemetry_events import CounterfactualMatrixComputed as CounterfactualMatrixComputed
    from torchtriage.telemetry.telemetry_events import EpochCompleted as EpochCompleted
    from torchtriage.telemetry.telemetry_events import PerformanceDegraded as PerformanceDegraded
    from torchtriage.telemetry.telemetry_events import PPOUpdateCompleted as PPOUpdateCompleted
    from torchtriage.telemetry.telemetry_events import TelemetryEvent as TelemetryEvent
    from torchtriage.telemetry.telemetry_events import TrendDetected as TrendDetected

if importlib.util.find_spec("numpy") is None:
    raise ModuleNotFoundError("torchtriage.telemetry needs numpy, which is not installed; install it with: pip install numpy")

_HOMES = {
    "anomaly": ("AnomalyDetector", "AnomalyReport"),
    "collectors": (
        "GroupGradientCollector", "PendingGradients", "SeedGradientCollector", "collect_seed_gradients",
        "compute_grad_norm_surrogate", "materialize_grad_stats",
    ),
    "drift": ("GradientDrift", "GradientEMATracker"),
    "dual": ("DualGradientStats",),
    "emitters": ("VectorizedEmitter",),
    "gradient_stats": ("GradientHealthMetrics", "GradientStats", "GroupGradientStats"),
    "layer_gradients": ("LayerGradientStats", "LayerGradients", "collect_per_layer_gradients"),
    "levels": ("TelemetryConfig", "TelemetryLevel"),
    "lstm_health": ("LSTMHealthMetrics", "compute_lstm_health", "lstm_health_tensor"),
    "monitor": ("Monitor",),
    "profiler": ("TrainingProfiler", "training_profiler"),
    "ratio_explosion": ("RatioExplosionDiagnostic",),
    "scores": ("LayerGradientHealth", "aggregate_layer_gradient_health", "check_performance_degradation", "layer_score"),
    "stability": ("NumericalStability", "check_numerical_stability"),
    "telemetry_events": (
        "AnalyticsSnapshot", "AnomalyDetected", "BatchCompleted", "Configuration", "CounterfactualMatrixComputed", "EpochCompleted",
        "PPOUpdateCompleted", "PerformanceDegraded", "TelemetryEvent", "TrendDetected",
    ),
}
__all__, __getattr__ = lazy_names(__name__, _HOMES)

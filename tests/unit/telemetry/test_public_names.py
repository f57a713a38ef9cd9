"""The names that torchtriage.telemetry offers: each leads somewhere, none is loaded before it is asked for."""

import subprocess
import sys

import pytest

from torchtriage import telemetry

ASKED_FOR = [
    "AnomalyDetector", "AnomalyReport", "DualGradientStats", "GradientEMATracker", "GradientHealthMetrics", "GroupGradientCollector",
    "LSTMHealthMetrics", "LayerGradientStats", "RatioExplosionDiagnostic", "SeedGradientCollector", "TelemetryConfig", "TelemetryLevel",
    "VectorizedEmitter", "check_numerical_stability", "collect_per_layer_gradients", "collect_seed_gradients",
    "compute_grad_norm_surrogate", "compute_lstm_health", "materialize_grad_stats", "training_profiler",
]


def test_every_name_leads_to_what_bears_it() -> None:
    assert set(ASKED_FOR) <= set(telemetry.__all__)
    for name in telemetry.__all__:
        assert getattr(telemetry, name).__name__ == name


def test_a_name_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'collect_gradients'; it has: .*collect_per_layer_gradients"):
        telemetry.collect_gradients     # noqa: B018


def test_importing_the_package_imports_no_torch() -> None:
    program = "import sys, torchtriage.telemetry; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

"""The public names of torchtriage.telemetry: each exists, and none is loaded before it is used."""

import subprocess
import sys

import pytest

from torchtriage import telemetry

REQUIRED = [
    "AnomalyDetector", "AnomalyReport", "DualGradientStats", "GradientCollector", "GradientEMATracker",
    "GradientHealthMetrics", "GroupGradientCollector", "LSTMHealthMetrics", "LayerGradientStats",
    "RatioExplosionDiagnostic", "SeedGradientCollector", "Stat", "TelemetryConfig", "TelemetryLevel",
    "VectorizedEmitter", "check_numerical_stability", "collect_gradients", "collect_per_layer_gradients",
    "collect_seed_gradients", "compute_grad_norm_surrogate", "compute_lstm_health", "global_grad_norm",
    "materialize_grad_stats", "new_statistics_ring", "record_statistics", "training_profiler",
]
ALIASES = {
    "Configuration": "AblationResult",
    "CounterfactualMatrixComputed": "AblationsMeasured",
    "SeedGradientCollector": "GradientCollector",
    "collect_seed_gradients": "collect_gradients",
    "compute_grad_norm_surrogate": "global_grad_norm",
}


def test_every_public_name_exists() -> None:
    assert set(REQUIRED) <= set(telemetry.__all__)
    for name in telemetry.__all__:
        assert getattr(telemetry, name).__name__ == ALIASES.get(name, name)


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_alias_is_the_same_object_and_documented(alias: str, name: str) -> None:
    assert getattr(telemetry, alias) is getattr(telemetry, name)
    assert f"`{alias}` is another name" in getattr(telemetry, name).__doc__


def test_dir_lists_the_public_names() -> None:
    assert dir(telemetry) == telemetry.__all__


def test_unknown_name_is_refused_with_the_list_of_names() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'collect_grads'; it has: .*collect_per_layer_gradients"):
        telemetry.collect_grads     # noqa: B018


def test_importing_the_package_imports_no_torch() -> None:
    program = "import sys, torchtriage.telemetry; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)

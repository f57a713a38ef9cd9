"""The gradient of one part relative to another."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.telemetry import DualGradientStats

norms, counts = st.floats(1e-6, 1e6), st.integers(1, 10**9)


def dual(host_norm: float, host_count: int, seed_norm: float, seed_count: int) -> DualGradientStats:
    return DualGradientStats(host_norm=host_norm, host_count=host_count, seed_norm=seed_norm, seed_count=seed_count)


def test_ratio_is_that_of_root_mean_squares() -> None:
    assert dual(10.0, 10_000, 0.1, 100).normalized_ratio == pytest.approx((0.1 / 10) / (10.0 / 100 + 1e-8))


@given(norms, counts)
def test_equal_root_mean_squares_have_ratio_one_whatever_their_size(norm: float, count: int) -> None:
    quarter = dual(norm, 4 * count, norm / 2, count)
    rms = norm / math.sqrt(4 * count)
    assert quarter.normalized_ratio == pytest.approx(rms / (rms + 1e-8), rel=1e-9)


@pytest.mark.parametrize(
    "values", [(1e-9, 10, 1.0, 10), (1.0, 10, 1e-9, 10), (1.0, 0, 1.0, 10), (1.0, 10, 1.0, 0), (0.0, 0, 0.0, 0)]
)
def test_without_gradients_the_ratio_is_zero(values: tuple[float, int, float, int]) -> None:
    assert dual(*values).normalized_ratio == 0.0


@pytest.mark.parametrize("values", [(math.nan, 10, 1.0, 10), (1.0, 10, math.inf, 10), (math.inf, 10, math.inf, 10)])
def test_non_finite_norm_makes_the_ratio_nan_and_unhealthy(values: tuple[float, int, float, int]) -> None:
    stats = dual(*values)
    assert math.isnan(stats.normalized_ratio)
    assert (stats.is_healthy, stats.is_dormant) == (False, False)


@pytest.mark.parametrize(("seed_norm", "is_healthy", "is_dormant"), [
    (0.005, False, True), (0.02, False, False), (0.06, True, False), (0.19, True, False), (0.3, False, False),
])
def test_ratio_decides_healthy_or_dormant(seed_norm: float, is_healthy: bool, is_dormant: bool) -> None:
    stats = dual(1.0, 100, seed_norm, 100)
    assert (stats.is_healthy, stats.is_dormant) == (is_healthy, is_dormant)

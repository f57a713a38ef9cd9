"""The histogram of magnitudes counts every number by its power of two."""

import math

import pytest
import torch

from torchtriage.telemetry.statistics.histogram import FIRST_EXPONENT, NUM_BINS, exponent_histogram


@pytest.mark.parametrize(
    ("value", "bin_number"),
    [
        (1.0, 1 - FIRST_EXPONENT),
        (1.5, 1 - FIRST_EXPONENT),
        (-0.5, 0 - FIRST_EXPONENT),
        (2.0, 2 - FIRST_EXPONENT),
        (0.0, 0),
        (1e-30, 0),
        (2.0**-51, 1),
        (2.0**11, NUM_BINS - 1),
        (1e30, NUM_BINS - 1),
        (math.inf, NUM_BINS - 1),
        (math.nan, NUM_BINS - 1),
    ],
)
def test_number_is_counted_by_its_power_of_two(value: float, bin_number: int) -> None:
    counts = exponent_histogram(torch.tensor([value, value]))
    assert counts[bin_number] == 2
    assert counts.sum() == 2


def test_every_type_is_counted() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert exponent_histogram(torch.ones(3, 4, dtype=dtype)[:, ::2])[1 - FIRST_EXPONENT] == 6

"""How much a step changes a group, and how magnitudes spread."""

import math

import pytest
import torch

from torchtriage.telemetry.sampling.update_ratio import MAX_ELEMENTS, UpdateMeter
from torchtriage.telemetry.statistics.histogram import FIRST_EXPONENT, NUM_BINS, exponent_histogram


def test_a_small_group_is_measured_whole() -> None:
    torch.manual_seed(0)
    groups = [[torch.randn(10, 5), torch.randn(3)], [torch.randn(7)]]
    meter = UpdateMeter(groups)
    meter.begin()
    for group in groups:
        for p in group:
            p.mul_(1.01)
    assert meter.end()
    change, weight = meter.norms_2G
    assert (change / weight).tolist() == pytest.approx([0.01 / 1.01] * 2, rel=1e-4)


def test_a_large_tensor_is_measured_on_elements_spread_over_it() -> None:
    torch.manual_seed(0)
    p = torch.randn(1000, 1000)
    meter = UpdateMeter([[p]])
    meter.begin()
    p[500:] += 0.02
    meter.end()
    change, weight = meter.norms_2G[:, 0].tolist()
    assert change / weight == pytest.approx(0.02 * math.sqrt(0.5), rel=0.05)
    assert meter._before_N.numel() <= MAX_ELEMENTS + 1


def test_a_small_tensor_beside_a_large_one_counts_for_what_it_is() -> None:
    """The weights of a norm layer are large, and its few elements are all chosen."""
    torch.manual_seed(0)
    large, small = torch.randn(2000, 1024) * 0.01, torch.ones(256)
    before = [large.clone(), small.clone()]
    meter = UpdateMeter([[large, small]])
    meter.begin()
    large += 1e-3
    small += 1e-3
    meter.end()
    change, weight = meter.norms_2G[:, 0].tolist()
    true_change = math.sqrt(sum((a - b).square().sum().item() for a, b in zip(before, (large, small), strict=True)))
    assert change == pytest.approx(true_change, rel=0.02)
    assert weight == pytest.approx(math.sqrt(sum(p.square().sum().item() for p in (large, small))), rel=0.02)


@pytest.mark.parametrize("width", [64, 128, 256, 1024])
def test_elements_are_not_all_of_one_column(width: int) -> None:
    p = torch.zeros(4_000_000 // width, width)
    meter = UpdateMeter([[p]])
    meter.begin()
    p[:, 0] = 1.0
    meter.end()
    assert meter.norms_2G[0, 0].item() == pytest.approx(math.sqrt(len(p)), rel=0.3)


def test_an_end_without_a_beginning_measures_nothing() -> None:
    assert not UpdateMeter([[torch.ones(3)]]).end()


def test_memory_layouts_and_types() -> None:
    images = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    half = torch.ones(64, dtype=torch.bfloat16)
    meter = UpdateMeter([[images], [half], [torch.zeros(0)]])
    meter.begin()
    images.mul_(2)
    half.mul_(2)
    meter.end()
    change, weight = meter.norms_2G
    assert (change / weight).tolist()[:2] == pytest.approx([0.5, 0.5])
    assert change[2] == weight[2] == 0


@pytest.mark.parametrize(("value", "place"), [
    (1.0, 1 - FIRST_EXPONENT), (1.5, 1 - FIRST_EXPONENT), (-0.5, 0 - FIRST_EXPONENT), (2.0, 2 - FIRST_EXPONENT), (0.0, 0), (1e-30, 0),
    (2.0**-51, 1), (2.0**11, NUM_BINS - 1), (1e30, NUM_BINS - 1), (math.inf, NUM_BINS - 1), (math.nan, NUM_BINS - 1),
])
def test_a_number_is_counted_by_its_power_of_two(value: float, place: int) -> None:
    counts = exponent_histogram(torch.tensor([value, value]))
    assert counts[place] == 2
    assert counts.sum() == 2


def test_every_type_is_counted() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert exponent_histogram(torch.ones(3, 4, dtype=dtype)[:, ::2])[1 - FIRST_EXPONENT] == 6

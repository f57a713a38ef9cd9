"""The update-to-weight ratio of a group."""

import math

import pytest
import torch

from torchtriage.telemetry.sampling.update_ratio import MAX_ELEMENTS, UpdateMeter


def test_small_group_is_measured_completely() -> None:
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


def test_small_tensor_next_to_a_large_one_has_its_true_weight() -> None:
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
def test_elements_are_not_all_from_one_column(width: int) -> None:
    p = torch.zeros(4_000_000 // width, width)
    meter = UpdateMeter([[p]])
    meter.begin()
    p[:, 0] = 1.0
    meter.end()
    assert meter.norms_2G[0, 0].item() == pytest.approx(math.sqrt(len(p)), rel=0.3)


def test_end_without_begin_measures_nothing() -> None:
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

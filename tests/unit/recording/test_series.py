"""Every series has one name, which can be split into its parts."""

import math

import pytest

from torchtriage.recording import series
from torchtriage.recording.series import SeriesParts, parts_of, series_of, series_of_group, total_norm


@pytest.mark.parametrize(("name", "parts"), [
    ("loss", SeriesParts("loss")),
    ("ppo/kl", SeriesParts("ppo/kl")),
    ("ppo/entropy/op", SeriesParts("ppo/entropy", "op")),
    (series_of(series.GRAD_NORM, "fc.weight"), SeriesParts("grad_norm", "fc.weight")),
    (series_of_group(series.LOSS, "Adam 2"), SeriesParts("loss", "Adam 2", is_group=True)),
    (series_of_group(series.SCALER_SCALE, "Adam 2"), SeriesParts("scaler/scale", "Adam 2", is_group=True)),
    (
        series.SHARD + series_of_group(series.GRAD_NORM, "a"),
        SeriesParts("grad_norm", "a", is_group=True, is_shard=True),
    ),
    ("mine/own", SeriesParts("mine", "own")),
])
def test_a_name_is_split_into_its_parts(name: str, parts: SeriesParts) -> None:
    assert parts_of(name) == parts


def test_no_quantity_is_defined_twice() -> None:
    patterns = [quantity.pattern for quantity in series.quantities()]
    assert len(patterns) == len(set(patterns))


def test_a_subject_belongs_to_one_quantity() -> None:
    assert series.is_of("grad_norm/fc", series.GRAD_NORM)
    assert not series.is_of("grad_norm_after_clip", series.GRAD_NORM)


@pytest.mark.parametrize(("norms", "expected"), [
    ([3.0, 4.0], 5.0), ([], 0.0), ([1e200, 1e200], math.sqrt(2) * 1e200), ([math.inf, 1.0], math.inf),
])
def test_the_total_norm_is_that_of_all_tensors_together(norms: list[float], expected: float) -> None:
    assert total_norm(norms) == pytest.approx(expected)


def test_nan_takes_precedence_over_infinity_in_a_total_norm() -> None:
    assert math.isnan(total_norm([math.inf, math.nan]))

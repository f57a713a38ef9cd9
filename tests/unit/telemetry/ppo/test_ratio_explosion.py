"""Bad ratios of a batch are listed, with the change of their log-probabilities."""

import inspect
import json
import math
from typing import Any

import pytest
import torch
import torch._dynamo

import torchtriage
from torchtriage.telemetry.ppo.ratio_explosion import MAX_LISTED, RatioExplosionDiagnostic

from_batch = RatioExplosionDiagnostic.from_batch


def batch(ratios: list[float]) -> dict[str, torch.Tensor]:
    ratio = torch.tensor(ratios, dtype=torch.float64)
    old = torch.linspace(-2, -1, len(ratios), dtype=torch.float64)
    return {
        "ratio": ratio,
        "old_log_probs": old,
        "new_log_probs": old + ratio.log(),
        "actions": torch.arange(len(ratios)) * 10,
    }


def test_ratios_out_of_range_are_listed_with_place_value_and_action() -> None:
    found = from_batch(**batch([1.0, 6.0, 0.05, 5.0, 0.1, 2.0]))
    assert (found.indices, found.values, found.actions) == ((1, 2), (6.0, 0.05), (10, 20))
    assert (found.num_ratios, found.num_bad, found.num_non_finite) == (6, 2, 0)
    diffs = [abs(math.log(r)) for r in (1.0, 6.0, 0.05, 5.0, 0.1, 2.0)]
    assert found.log_prob_diff_mean == pytest.approx(sum(diffs) / 6)
    assert found.log_prob_diff_max == pytest.approx(max(diffs))


def test_non_finite_ratios_are_bad_and_left_out_of_the_differences() -> None:
    found = from_batch(**batch([1.0, math.nan, math.inf, 2.0]))
    assert (found.indices, found.num_bad, found.num_non_finite) == ((1, 2), 2, 2)
    assert (found.log_prob_diff_mean, found.log_prob_diff_max) == pytest.approx((math.log(2) / 2, math.log(2)))


def test_the_first_hundred_are_listed_and_all_are_counted() -> None:
    found = from_batch(**batch([10.0] * 250))
    assert found.indices == tuple(range(MAX_LISTED))
    assert (len(found.values), len(found.actions), found.num_bad, MAX_LISTED) == (100, 100, 250, 100)


def test_a_healthy_and_an_empty_batch_list_nothing() -> None:
    found = from_batch(**batch([1.0, 1.1]))
    assert (found.indices, found.values, found.actions, found.num_bad) == ((), (), (), 0)
    empty = from_batch(**batch([]))
    assert (empty.num_ratios, empty.log_prob_diff_mean, empty.log_prob_diff_max) == (0, None, None)


def test_batches_of_any_shape_and_actions_of_several_parts() -> None:
    ratio = torch.ones(3, 4)
    ratio[1, 2] = 9.0
    log_probs = torch.zeros(3, 4, requires_grad=True)
    found = from_batch(ratio, log_probs, log_probs, torch.arange(24.0).view(3, 4, 2))
    assert (found.indices, found.actions) == ((6,), ((12.0, 13.0),))


def test_every_parameter_matters_and_none_is_reserved() -> None:
    usual = batch([1.0, 6.0, 0.05, 2.0])
    others: dict[str, Any] = {
        "ratio": usual["ratio"] * 10,
        "old_log_probs": usual["old_log_probs"] * 2,
        "new_log_probs": usual["new_log_probs"] * 2,
        "actions": usual["actions"] + 1,
        "max_threshold": 1.5,
        "min_threshold": 0.01,
    }
    assert list(inspect.signature(from_batch).parameters) == list(others)
    for name, other in others.items():
        assert from_batch(**usual | {name: other}) != from_batch(**usual), name


def test_its_dictionary_is_strict_json() -> None:
    words = json.loads(json.dumps(from_batch(**batch([1.0, math.nan, math.inf, 7.0])).to_dict(), allow_nan=False))
    assert words["values"] == ["nan", "inf", 7.0]
    assert words["actions"] == [10, 20, 30]
    assert set(words) == {
        "num_ratios",
        "num_bad",
        "num_non_finite",
        "indices",
        "values",
        "actions",
        "log_prob_diff_mean",
        "log_prob_diff_max",
    }


@pytest.mark.parametrize(("name", "words"), [
    ("old_log_probs", r"old_log_probs must have the shape of ratio, \(2,\), got \(3,\)"),
    ("new_log_probs", r"new_log_probs must have the shape of ratio"),
    ("actions", r"actions must begin with the shape of ratio, \(2,\), got \(3,\)"),
])
def test_shapes_that_do_not_fit_are_refused(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_batch(**batch([1.0, 2.0]) | {name: torch.ones(3)})


def test_inside_a_compiled_function_it_stays_outside_the_graph() -> None:
    torch._dynamo.reset()

    def step(ratio: torch.Tensor) -> torch.Tensor:
        from_batch(ratio, ratio, ratio, ratio)
        return ratio + 1

    with torchtriage.watch() as seen:
        compiled = torch.compile(step, backend="eager")
        for i in range(5):
            compiled(torch.full((8,), float(i)))
    assert len(seen.graph_breaks) == 1
    assert "reads a batch back to the host" in seen.graph_breaks[0].reason
    assert not seen.recompiles

"""Policies are compared from an empty start each, in turn, on calls that are the same for all."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import torchtriage
from torchtriage.errors import TriageError
from torchtriage.findings.shape_study import ShapeStudy
from torchtriage.integrations.compare import compare_policies
from torchtriage.shapes.functions import compare
from torchtriage.shapes.functions.call_inputs import Calls, sizes_of
from torchtriage.shapes.runs.trial import Lane, Trial

RAGGED = (5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)


def scaled(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return torch.relu(x) * scale


def ragged() -> list[tuple[Any, ...]]:
    return [(torch.ones(2, size),) for size in RAGGED]


def compare_eager(fn: Any, inputs: Any, **options: Any) -> ShapeStudy:
    return compare_policies(fn, inputs, **{"backend": "eager", "rounds": 1, **options})


@pytest.fixture(autouse=True)
def _forget_compiled() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def compiles(study: ShapeStudy) -> dict[str, int | None]:
    return {row.name: row.num_compiles for row in study.policies}


def test_every_policy_is_measured_and_counted() -> None:
    inputs = ragged()
    study = compare_eager(scaled, inputs, buckets=2)
    assert compiles(study) == {"dynamic=False": 8, "dynamic=None": 2, "dynamic=True": 1, "marked": 1, "bucketed": 2}
    assert study.policies[0].num_eager_calls == 2       # after the one that met torch's limit of 8
    assert (study.unit, study.num_units, study.num_planned) == ("call", 11, 11)
    assert study.sizes[0].source == "L['x']"
    assert (study.sizes[0].dim, study.sizes[0].num_values, study.sizes[0].num_calls) == (1, 11, 11)
    assert not any(hasattr(x, "_dynamo_weak_dynamic_indices") for x, in inputs)
    assert not study.advice.policy                      # one round settles nothing
    assert study.advice.needs


def test_the_exact_lines_to_set_are_given() -> None:
    study = compare_eager(scaled, ragged()[-2:], buckets={"dim": 1, "sizes": (10, 15)}, fullgraph=True)
    settings = {row.name: list(row.setting) for row in study.policies}
    assert settings == {
        "dynamic=False": ["torch.compile(scaled, backend='eager', fullgraph=True, dynamic=False)"],
        "dynamic=None": ["torch.compile(scaled, backend='eager', fullgraph=True)"],
        "dynamic=True": ["torch.compile(scaled, backend='eager', fullgraph=True, dynamic=True)"],
        "marked": ["torch.compile(scaled, backend='eager', fullgraph=True)",
                   "torch._dynamo.maybe_mark_dynamic(x, 1)    # before each call"],
        "bucketed": ["torchtriage.bucketed(scaled, dim=1, sizes=(10, 15), backend='eager', fullgraph=True)"],
    }


def test_its_repr_is_a_table_and_it_round_trips_through_json() -> None:
    study = compare_eager(scaled, ragged(), policies=["dynamic=None", "dynamic=True"])
    shown = repr(study)
    assert "SHAPES" in shown
    assert "dynamic=None" in shown
    assert "measured in one process" in shown
    assert ShapeStudy.from_dict(study.to_dict()).policies[0].name == "dynamic=None"
    assert torchtriage.compare_policies is compare_policies


def test_a_fixed_shape_leaves_nothing_to_mark() -> None:
    study = compare_eager(scaled, [(torch.ones(2, 3),)] * 4)
    assert compiles(study) == {"dynamic=False": 1, "dynamic=None": 1, "dynamic=True": 1}
    assert study.branches[0].answer.startswith("yes")


def test_a_policy_that_fails_does_not_stop_the_others() -> None:
    study = compare_eager(scaled, [(torch.ones(2, size),) for size in (5, 6)], buckets={"dim": 1, "sizes": (4,)})
    failed = {row.name: row.failed for row in study.policies if row.failed}
    assert list(failed) == ["bucketed"]
    assert failed["bucketed"].startswith("TriageError: size 5 is above the largest bucket, 4")
    assert len(study.policies) == 5


def test_buckets_that_change_the_result_are_not_measured() -> None:
    study = compare_eager(lambda x: x - x.mean(), ragged()[:2], policies=["dynamic=True"], buckets=1)
    why = study.policies[1].failed
    assert why.startswith(
        "PaddingChangesResultError: padding 5 to 6 changes 1 of 2 tensors: result: greatest difference"
    )
    assert not study.policies[1].num_runs


def test_a_marked_size_that_is_specialized_is_noted() -> None:
    def special(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[1] == 5 else x + 2

    study = compare_eager(special, ragged()[:3], policies=["marked"])
    assert study.policies[0].num_recompiles == 1
    assert "one is specialized to a constant" in study.policies[0].notes[0]


def test_a_function_that_always_fails_is_an_error() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such size")

    with pytest.raises(TriageError, match=r"fails failed under every policy: dynamic=False: .*"):
        compare_eager(fails, ragged())


def test_a_compiled_function_is_unwrapped_with_a_note() -> None:
    study = compare_eager(torch.compile(scaled, backend="eager", dynamic=True), ragged(), policies=["dynamic=False"])
    assert compiles(study) == {"dynamic=False": 8}
    assert any("already compiled" in note for note in study.notes)


def test_calls_may_come_from_a_function_as_keywords_or_as_single_arguments() -> None:
    asked = []

    def inputs() -> Iterator[Any]:
        asked.append(1)
        yield {"x": torch.ones(2, 3), "scale": 2.0}
        yield torch.ones(2, 4)

    study = compare_eager(scaled, inputs, policies=["dynamic=False"], rounds=2)
    assert study.num_units == 2
    assert len(asked) == 4      # once for the sizes, once to load torch, twice measured


def test_the_order_rotates_and_policies_far_behind_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def trial(candidate: Any, calls: Any, function: str, number: int, is_cached: bool) -> Trial:
        ran.append(candidate.name)
        seconds = {"slow": 9.0, "quick": 1.0, "near": 1.01 + 0.1 * (number % 2)}[candidate.name]
        return Trial(
            policy=candidate.name, round=number, functions={function: Lane.of([seconds, seconds])}, seconds=seconds
        )

    monkeypatch.setattr(compare, "_trial", trial)
    candidates = [compare.Candidate(name=name, make=lambda: scaled) for name in ("slow", "quick", "near")]
    trials, failures = compare._measure(candidates, Calls(["x"], ragged()), "f", 4, is_cached=False)
    assert ran == ["slow", "quick", "near", "quick", "near", "slow", "near", "quick", "quick", "near"]
    assert {name: len(runs) for name, runs in trials.items()} == {"slow": 2, "quick": 4, "near": 4}
    assert not failures


def test_sizes_and_numbers_of_the_calls_are_counted() -> None:
    calls = Calls(["batch", "n"], [({"x": torch.ones(2, size), "n": size}, size, True) for size in (3, 4, 4)])
    seen = sizes_of(calls)
    assert {key: dict(counts) for key, counts in seen.varying().items()} == {
        ("batch['x']", 1): {3: 1, 4: 2},
        ("n", None): {3: 1, 4: 2},
    }
    assert seen.dims() == {"batch['x']": [1]}
    listed = {size.source: size for size in seen.as_study(scaled, is_marked=True)}
    assert (listed["L['batch']['x']"].is_marked, listed["L['n']"].is_marked) == (True, False)
    assert listed["L['n']"].why_not == "a Python number cannot be marked"
    assert listed["L['n']"].function == "scaled"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"policies": ["dynamic=Maybe"]}, "'dynamic=False', 'dynamic=None', 'dynamic=True', 'marked'"),
        ({"policies": "marked"}, "unknown"),
        ({"rounds": 0}, "at least 1 round"),
        ({"dynamic": True}, "leave it out"),
    ],
)
def test_an_invalid_comparison_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TriageError, match=said):
        compare_eager(scaled, ragged(), **options)


def test_no_calls_and_no_varying_size_are_refused() -> None:
    with pytest.raises(TriageError, match="inputs= contains no call"):
        compare_eager(scaled, [])
    with pytest.raises(TriageError, match="no size varies"):
        compare_eager(scaled, [(torch.ones(2, 3),)], buckets=2)

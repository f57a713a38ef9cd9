"""TT445: what two ranks recorded of their replicas, made by hand."""

from collections.abc import Sequence

import pytest

from tests.unit.diagnosis.learning.samples import a_training
from tests.unit.samples import a_recording
from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.findings.model import Finding
from torchtriage.recording.recording import Process

STILL, LEFT, RIGHT = [2.0, 2.1, 2.2, 2.3], [2.0, 2.1, 2.2, 2.4], [3.0, 3.1, 3.2, 3.3]
GRADIENT, OTHER = [1.0, 0.9, 0.8, 0.7], [0.5, 0.6, 0.8, 0.9]


def rank(number: int, weight: Sequence[float], gradient: Sequence[float]) -> Process:
    return a_training(weight_norm__fc=weight, grad_norm__fc=gradient, facts={"rank": number})


def found(*processes: Process) -> list[Finding]:
    return [finding for finding in diagnose(a_recording(*processes)) if finding.code == "TT445"]


@pytest.mark.parametrize(("weights", "gradients", "words"), [
    ((STILL, LEFT), (GRADIENT, GRADIENT), "skips or adds a step"),
    ((STILL, LEFT), (GRADIENT, OTHER), "not its .module"),
    ((STILL, RIGHT), (GRADIENT, GRADIENT), "broadcast the weights of one rank"),
])
def test_replicas_that_differ_are_reported_by_what_the_gradients_show(
    weights: tuple[Sequence[float], Sequence[float]], gradients: tuple[Sequence[float], Sequence[float]], words: str,
) -> None:
    (finding,) = found(rank(0, weights[0], gradients[0]), rank(1, weights[1], gradients[1]))
    assert words in finding.fix.text
    assert finding.ranks == (0, 1)


def test_the_step_and_the_norms_of_each_rank_are_named() -> None:
    (finding,) = found(rank(0, STILL, GRADIENT), rank(1, LEFT, GRADIENT))
    assert finding.steps == (4,)
    assert "2.3 (rank 0), 2.4 (rank 1) at the beginning of step 4" in finding.cause


def test_equal_replicas_separate_trainings_and_one_rank_alone_are_not_reported() -> None:
    assert found(rank(0, STILL, GRADIENT), rank(1, STILL, GRADIENT)) == []
    assert found(rank(0, STILL, GRADIENT), rank(1, RIGHT, OTHER)) == []
    assert found(rank(0, STILL, GRADIENT)) == []
    assert found(rank(0, STILL, GRADIENT), rank(0, LEFT, GRADIENT)) == []

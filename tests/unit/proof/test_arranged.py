"""Which arrangement of random draws may make those of both sides the same, and what it proves."""

from dataclasses import replace
from pathlib import Path

import pytest

from torchtriage.capture.proof.arranged_draws import BY_MODULE, BY_ROW, MIRRORED, SWAPPED
from torchtriage.findings.proof.verdict import NumbersState, ReasonKind
from torchtriage.proof import judge_numbers, verify
from torchtriage.proof.budget import TimeLimit
from torchtriage.proof.experiment import ProofRuns, Runs, SideRun
from torchtriage.proof.numbers.compare import NumberComparison
from torchtriage.proof.numbers.printed import PrintedComparison
from torchtriage.proof.numbers.rows import RunNumbers, StepRow
from torchtriage.proof.sides import Side
from torchtriage.recording.recording import Process, Recording


def run(shift: float = 0.0, keys: int = 1, **elements: int) -> SideRun:
    """Five steps of a weight that moves by 0.1 per step; `shift` is added to it."""
    rows = [
        StepRow(optimizer=0, step=step, time=0.0, losses=[[1.0 / step + shift, 1e-7]], draws=[0, 0, step, 0],
                weights={"w": [0.1 * step + shift, *[0.1 * step + shift] * 4, 1e-7]})
        for step in range(1, 6)
    ]
    numbers = RunNumbers(rows=rows, num_steps=5, draw_keys=keys, drawn_elements=elements, is_there=True)
    return SideRun(recording=Recording(processes=(Process(),)), numbers=numbers)


def paired(one: SideRun) -> SideRun:
    """A run that draws the same shape twice in a step."""
    return replace(one, numbers=replace(one.numbers, draw_pairs=frozenset({12, 7}), repeats_shapes=True))


def drawing(one: SideRun, digest: int) -> SideRun:
    rows = [replace(row, drawn=[digest, 64]) for row in one.numbers.rows]
    return replace(one, numbers=replace(one.numbers, rows=rows))


@pytest.mark.parametrize(("before", "after", "is_same"), [
    (drawing(run(), 7), drawing(run(0.5), 7), True),
    (drawing(run(), 7), drawing(run(0.5), 8), False),
    (paired(drawing(run(), 7)), paired(drawing(run(0.5), 7)), False),    # the two may be exchanged
    (run(), run(0.5), False),                                           # not noted
])
def test_draws_that_are_the_same_in_the_same_order_need_no_arrangement(
    before: SideRun, after: SideRun, is_same: bool,
) -> None:
    side = Side(label="train.py", command=["python", "train.py"], cwd=Path())
    evidence = ProofRuns(before=side, after=side, runs={"eager": before, "after eager": after})
    found = judge_numbers.agreement(before, after)
    assert judge_numbers.draws_are_the_same(evidence, found) == is_same
    printed = replace(found, tensors=NumberComparison(), printed=PrintedComparison(different=("a 1", "a 2")))
    assert not judge_numbers.draws_are_the_same(evidence, printed)      # drawn after the last step


@pytest.mark.parametrize(("before", "after", "expected"), [
    (run(keys=1, normal=60), run(keys=1, normal=60), []),
    (run(keys=1, normal=60), run(keys=2, normal=60), [BY_ROW]),
    (run(keys=1, normal=60), run(keys=2, normal=30), []),
    (paired(run(keys=1, normal=60)), paired(run(keys=1, normal=60)), [f"{SWAPPED}:7,12", BY_MODULE]),
    (run(keys=1, normal=60, bernoulli=9), run(keys=1, normal=60, uniform=9), [MIRRORED]),
])
def test_draws_are_arranged_otherwise_only_where_that_may_help(
    before: SideRun, after: SideRun, expected: list[str],
) -> None:
    side = Side(label="train.py", command=["python", "train.py"], cwd=Path())
    evidence = ProofRuns(before=side, after=side, runs={"keyed before": before, "keyed after": after})
    assert judge_numbers.other_arrangements(evidence) == expected


class SameRuns(Runs):
    """The arranged runs were made before."""

    def keyed(self, arrangement: str) -> None:
        assert arrangement


@pytest.mark.parametrize(("noise", "state", "kinds"), [
    (0.0, NumbersState.SAME_DRAWS, []),
    (0.1, NumbersState.UNDECIDED, [ReasonKind.TOO_NOISY]),
])
def test_arranged_runs_that_agree_prove_nothing_where_rounding_moves_weights_far(
    noise: float, state: NumbersState, kinds: list[ReasonKind], tmp_path: Path,
) -> None:
    side = Side(label="train.py", command=["python", "train.py"], cwd=Path())
    other = {name: run(0.5) for name in ("after", "after eager")}
    runs = {name: run() for name in ("before", "before again", "eager", "moved 1", "keyed before", "keyed after")}
    evidence = ProofRuns(before=side, after=side, runs={**runs, **other, "keyed moved": run(noise)})
    found = judge_numbers.first_agreement(evidence)
    assert found is not None
    arranged = SameRuns(evidence, tmp_path, TimeLimit(seconds=1.0), steps=0, seed=0, stdin=None, say=lambda _: None)
    change, reasons = verify._numbers_with_draws(evidence, arranged, found)
    assert (change.state, [reason.kind for reason in reasons]) == (state, kinds)

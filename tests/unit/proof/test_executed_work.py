"""A change that executes clearly more operations needs a step time that excludes a slowdown."""

from dataclasses import replace
from pathlib import Path

import pytest

from torchtriage.findings.proof.verdict import ProofTime, ProofVerdict, ReasonKind
from torchtriage.findings.shape_study import Interval
from torchtriage.proof.executed_work import clipping_reasons, is_in_question, work_reasons
from torchtriage.proof.experiment import ProofRuns, SideRun
from torchtriage.proof.numbers.rows import RunNumbers
from torchtriage.proof.sides import Side
from torchtriage.recording.recording import Recording

UNTIMED = ProofTime(why_not="3 steady steps, 20 are needed")
WIDE = ProofTime(ratio=Interval(middle=1.02, low=0.8, high=1.3))
EQUAL = ProofTime(ratio=Interval(middle=1.0, low=0.97, high=1.03))
REFUTED, UNDECIDED = ProofVerdict.REFUTED, ProofVerdict.UNDECIDED


def runs(before: int, after: int, *, calls: int = 10, eager: bool = False, was_stopped: bool = False) -> ProofRuns:
    def run(eager_ops: int) -> SideRun:
        numbers = RunNumbers(eager_ops=eager_ops, graph_calls=calls, is_there=True)
        return SideRun(recording=Recording(processes=()), numbers=numbers, was_stopped=was_stopped)

    side = Side(label="train.py", command=["python", "train.py"], cwd=Path(), eager=eager)
    named = {"after": run(0), "eager": run(before), "after eager": run(after)}
    return ProofRuns(before=side, after=side, runs=named)


@pytest.mark.parametrize(("before", "after", "time", "verdict"), [
    (420, 960, WIDE, REFUTED),
    (420, 960, UNTIMED, REFUTED),
    (420, 960, EQUAL, None),
    (420, 560, WIDE, UNDECIDED),
    (420, 560, UNTIMED, None),
    (420, 700, UNTIMED, UNDECIDED),
    (420, 440, WIDE, None),
    (420, 300, WIDE, None),
    (30, 80, UNTIMED, None),        # five operations per call: both sides of a branch
    (0, 80, WIDE, None),            # not counted
])
def test_more_operations_need_a_time_that_is_not_longer(
    before: int, after: int, time: ProofTime, verdict: ProofVerdict | None,
) -> None:
    reasons = list(work_reasons(runs(before, after), time))
    assert [(reason.kind, reason.verdict) for reason in reasons] == (
        [] if verdict is None else [(ReasonKind.MORE_WORK, verdict)])


@pytest.mark.parametrize(("before", "after", "num"), [(30, 0, 1), (30, 20, 0), (0, 0, 0), (0, 30, 0)])
def test_clipping_that_is_gone_leaves_it_undecided(before: int, after: int, num: int) -> None:
    evidence = runs(10, 10)
    for name, clipping_ops in (("eager", before), ("after eager", after)):
        one = evidence.runs[name]
        evidence.runs[name] = replace(one, numbers=replace(one.numbers, clipping_ops=clipping_ops))
    reasons = list(clipping_reasons(evidence))
    assert [(r.kind, r.verdict) for r in reasons] == [(ReasonKind.CLIPPING_LOST, UNDECIDED)] * num


def test_the_reason_names_both_counts_and_the_end_of_the_interval() -> None:
    reason, = work_reasons(runs(420, 960), WIDE)
    assert (reason.value_before, reason.value_after, reason.allowed) == (420, 960, 1.3)


def test_a_run_that_was_stopped_counts_nothing() -> None:
    assert list(work_reasons(runs(420, 960, was_stopped=True), WIDE)) == []


def test_the_operations_are_in_question_unless_the_time_excludes_a_slowdown() -> None:
    assert [is_in_question(runs(1, 1), time) for time in (WIDE, UNTIMED, EQUAL)] == [True, True, False]
    assert not is_in_question(runs(1, 1, eager=True), WIDE)

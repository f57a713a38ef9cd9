"""What speaks against a change is named, and what decides comes first."""

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchtriage.findings.model import Category, Evidence, Finding, Fix, Location, Severity
from torchtriage.findings.proof.verdict import (
    FindingsChange,
    NumbersChange,
    Proof,
    ProofTime,
    ProofVerdict,
    ReasonKind,
    SideFacts,
    VerdictReason,
)
from torchtriage.findings.shape_study import Interval
from torchtriage.proof import judge
from torchtriage.proof.experiment import ProofRuns, SideRun
from torchtriage.proof.findings_change import findings_change
from torchtriage.proof.numbers.rows import RunNumbers, StepRow
from torchtriage.proof.sides import Side
from torchtriage.proof.step_times import is_round_needed
from torchtriage.recording.events import CompileCall, GraphBreak, Recompile
from torchtriage.recording.recording import Process, Recording, Series
from torchtriage.recording.series import STEP_SECONDS


def finding(code: str = "TT101", severity: Severity = Severity.P3, fingerprint: str = "a") -> Finding:
    return Finding(
        code=code, slug="s", title="print() breaks f", severity=severity, category=Category.COMPILE, cause="c",
        fix=Fix(text="t"), location=Location(path="/x/train.py", line=3, function="f"), fingerprint=fingerprint)


def run(num_rows: int = 3, *, graph_ops: int = 100, eager_ops: int = 0, status: int = 0, **more: Any) -> SideRun:
    rows = [StepRow(optimizer=0, step=n, time=0.0) for n in range(1, num_rows + 1)]
    numbers = RunNumbers(rows=rows, num_steps=num_rows, graph_ops=graph_ops, eager_ops=eager_ops, is_there=True)
    return SideRun(
        recording=Recording(processes=(Process(),)), numbers=numbers, exit_status=status, last_lines="E: no", **more)


def runs(**named: SideRun) -> ProofRuns:
    side = Side(label="train.py", command=["python", "train.py"], cwd=Path())
    return ProofRuns(before=side, after=side, runs={name.replace("_", " "): r for name, r in named.items()})


def kinds(reasons: Any) -> list[ReasonKind]:
    return [reason.kind for reason in reasons]


def with_breaks(number: int) -> SideRun:
    events = tuple(
        GraphBreak(time=0.0, path="a.py", line=n, function="f", type=f"b{n}", compile_id=f"{n}/0")
        for n in range(number))
    return replace(run(), recording=Recording(processes=(Process(events=events),)))


def test_a_side_that_fails_alone_is_refuted_or_undecided() -> None:
    good, bad = run(), run(status=1)
    assert kinds(judge.failure_reasons(runs(before=good, after=bad))) == [ReasonKind.AFTER_FAILS]
    assert kinds(judge.failure_reasons(runs(before=bad, after=bad))) == [ReasonKind.BOTH_FAIL]
    assert kinds(judge.failure_reasons(runs(before=bad, after=good))) == [ReasonKind.BEFORE_FAILS]
    assert kinds(judge.failure_reasons(runs(before=bad, after=good, eager=good))) == []


def test_a_side_at_its_time_limit_is_undecided() -> None:
    stopped = run(status=130, was_stopped=True)
    reasons = list(judge.failure_reasons(runs(before=run(), after=stopped)))
    assert [(r.kind, r.subject, r.step) for r in reasons] == [(ReasonKind.BUDGET_ENDED, "AFTER", 3)]
    later = runs(before=run(), after=run(), moved_1=stopped, moved_2=stopped)
    reasons = list(judge.failure_reasons(later))
    assert [(r.kind, r.subject, r.step) for r in reasons] == [(ReasonKind.BUDGET_ENDED, "", 3)]
    assert (judge.was_cut_short(later), judge.was_cut_short(runs(before=run(), after=run()))) == (True, False)


@pytest.mark.parametrize(("num", "kind"), [(2, ReasonKind.FEWER_STEPS), (4, ReasonKind.MORE_STEPS)])
def test_another_number_of_steps_is_refuted(num: int, kind: ReasonKind) -> None:
    assert kinds(judge.step_reasons(runs(before=run(3), after=run(num)))) == [kind]
    assert kinds(judge.step_reasons(runs(before=run(3), after=run(3)))) == []


def test_steps_inside_a_compiled_function_are_counted_in_the_eager_run() -> None:
    unseen = runs(before=run(0), after=run(3), eager=run(3), after_eager=run(3))
    assert kinds(judge.step_reasons(unseen)) == []
    result = unseen.result("before")
    assert result is not None
    assert len(result.numbers.rows) == 3
    fewer = runs(before=run(0), after=run(2), eager=run(3), after_eager=run(2))
    assert kinds(judge.step_reasons(fewer)) == [ReasonKind.FEWER_STEPS]
    both = runs(before=run(0), after=run(0), eager=run(3), after_eager=run(2))
    assert kinds(judge.step_reasons(both)) == [ReasonKind.FEWER_STEPS]
    of_eager = runs(before=run(3), after=run(0))
    assert kinds(judge.step_reasons(replace(of_eager, before=replace(of_eager.before, eager=True)))) == []


@pytest.mark.parametrize(("code", "left", "expected"), [
    ("TT109", 35, []), ("TT109", 15, [ReasonKind.LESS_COMPILED]), ("TT101", 35, [ReasonKind.LESS_COMPILED]),
])
def test_the_operations_of_an_optimizer_that_the_cure_takes_out_of_a_graph_do_not_count(
    code: str, left: int, expected: list[ReasonKind], monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = run(graph_ops=600, eager_ops=900)
    before = replace(before, numbers=replace(before.numbers, optimizer_ops=550))
    evidence = runs(before=before, after=run(graph_ops=left), eager=before, after_eager=run(eager_ops=900))
    monkeypatch.setattr(judge, "all_findings", lambda _: findings_change([[finding(code=code)]], [[]]))
    assert kinds(judge.compile_reasons(evidence)) == expected


def test_a_change_that_compiles_nothing_is_refuted() -> None:
    assert kinds(judge.compile_reasons(runs(before=run(), after=run(graph_ops=0)))) == [ReasonKind.LESS_COMPILED]


def test_operations_that_left_the_graphs_are_told_from_those_that_are_gone() -> None:
    still = runs(before=run(), after=run(graph_ops=50), eager=run(eager_ops=300), after_eager=run(eager_ops=300))
    gone = runs(before=run(), after=run(graph_ops=50), eager=run(eager_ops=300), after_eager=run(eager_ops=150))
    assert kinds(judge.compile_reasons(still)) == [ReasonKind.LESS_COMPILED]
    assert kinds(judge.compile_reasons(gone)) == []


@pytest.mark.parametrize(("num_eager", "num_as_compiled", "is_refuted"), [(1000, 950, False), (1000, 1000, True)])
def test_operations_that_only_eager_code_executes_are_not_missing_from_the_graphs(
    num_eager: int, num_as_compiled: int, is_refuted: bool,
) -> None:
    evidence = runs(
        before=run(), after=run(graph_ops=50), eager=run(eager_ops=1000), after_eager=run(eager_ops=num_eager),
        before_as_compiled=run(eager_ops=1000), after_as_compiled=run(eager_ops=num_as_compiled))
    assert (kinds(judge.compile_reasons(evidence)) == [ReasonKind.LESS_COMPILED]) == is_refuted


@pytest.mark.parametrize(("left", "verdict"), [(49, ProofVerdict.REFUTED), (50, ProofVerdict.UNDECIDED)])
def test_less_than_half_in_graphs_refutes_and_more_leaves_it_undecided(left: int, verdict: ProofVerdict) -> None:
    whole = run(eager_ops=300)
    reason, = judge.compile_reasons(runs(before=run(), after=run(graph_ops=left), eager=whole, after_eager=whole))
    assert (reason.kind, reason.verdict) == (ReasonKind.LESS_COMPILED, verdict)


def test_a_finding_that_comes_and_goes_by_itself_is_neither_fixed_nor_new() -> None:
    a, b = finding(fingerprint="a"), finding(code="TT203", fingerprint="b")
    change = findings_change([[a, b], [a]], [[]])
    assert [mark.code for mark in change.fixed] == ["TT101"]
    change = findings_change([[a]], [[a, b], [a]])
    assert (change.new, [mark.code for mark in change.unchanged]) == ([], ["TT101"])


@pytest.mark.parametrize(("code", "severity", "is_refuted"), [
    ("TT104", Severity.P3, True), ("TT104", Severity.P4, False), ("TT306", Severity.P2, False),
    ("TT901", Severity.P1, False),
])
def test_a_new_finding_refutes_if_it_matters(code: str, severity: Severity, is_refuted: bool) -> None:
    fixed, new = finding(), finding(code=code, severity=severity, fingerprint="n")
    fewer = runs(before=with_breaks(1), after=run())
    reasons = list(judge.finding_reasons(fewer, findings_change([[fixed]], [[new]]), ()))
    assert (kinds(reasons) == [ReasonKind.NEW_FINDING]) == is_refuted


@pytest.mark.parametrize(("before", "after", "expected"), [
    (1, 1, [ReasonKind.NEW_FINDING]), (2, 3, [ReasonKind.NEW_FINDING]), (3, 1, []),
])
def test_a_mild_break_refutes_where_it_takes_the_place_of_the_one_that_is_fixed(
    before: int, after: int, expected: list[ReasonKind],
) -> None:
    change = findings_change([[finding()]], [[finding(code="TT120", severity=Severity.P4, fingerprint="n")]])
    sides = runs(before=with_breaks(before), after=with_breaks(after))
    assert kinds(judge.finding_reasons(sides, change, ())) == expected


def test_a_change_that_fixes_nothing_is_refuted_but_not_without_a_finding() -> None:
    same = findings_change([[finding()]], [[finding()]])
    assert kinds(judge.finding_reasons(runs(), same, ())) == [ReasonKind.NOT_FIXED]
    assert kinds(judge.finding_reasons(runs(), FindingsChange(), ())) == []


def test_the_finding_that_is_asked_for_must_be_gone() -> None:
    change = findings_change([[finding(), finding(code="TT104", fingerprint="b")]], [[finding()]])
    assert kinds(judge.finding_reasons(runs(), change, ["TT104"])) == []
    assert kinds(judge.finding_reasons(runs(), change, ["b"])) == []
    assert kinds(judge.finding_reasons(runs(), change, ["TT101"])) == [ReasonKind.NOT_FIXED]


def test_the_reason_that_decides_comes_first() -> None:
    undecided = VerdictReason(kind=ReasonKind.NOTHING_COMPARED, verdict=ProofVerdict.UNDECIDED)
    refuted = VerdictReason(kind=ReasonKind.FEWER_STEPS, verdict=ProofVerdict.REFUTED)
    assert judge.verdict_of([]) is ProofVerdict.VERIFIED
    assert judge.verdict_of([undecided]) is ProofVerdict.UNDECIDED
    assert judge.verdict_of([undecided, refuted]) is ProofVerdict.REFUTED
    proof = Proof(
        verdict=ProofVerdict.REFUTED, before=SideFacts(label="a"), after=SideFacts(label="b"),
        reasons=(undecided, refuted),
        numbers=NumbersChange())
    assert judge.sorted_reasons(proof)[0] is refuted


def test_a_file_that_is_not_written_any_more_leaves_it_undecided() -> None:
    evidence = runs(before=run(), after=run())
    evidence.files = {"before": ["out/model.pt", "log-17.txt"], "after": ["log-18.txt"]}
    [reason] = judge.file_reasons(evidence)
    assert (reason.kind, reason.verdict, reason.subject) == (ReasonKind.FILE_LOST, ProofVerdict.UNDECIDED, "model.pt")
    evidence.files = {"before": ["log-17.txt"], "after": ["model.pt", "log-18.txt"]}
    assert not list(judge.file_reasons(evidence))


@pytest.mark.parametrize(("before", "after", "expected"), [
    (["inductor"], ["eager"], [("eager", "inductor")]),
    (["inductor"], ["inductor", "aot_eager"], [("aot_eager", "inductor")]),
    (["inductor", "eager"], ["eager"], []),
    (["eager"], ["inductor"], []),
    (["my_backend"], ["inductor"], []),
])
def test_a_backend_that_generates_no_code_instead_of_one_that_does(
    before: list[str], after: list[str], expected: list[tuple[str, str]],
) -> None:
    def compiled_by(backends: list[str]) -> SideRun:
        events = tuple(CompileCall(path="t.py", line=1, function="", backend=name) for name in backends)
        return replace(run(), recording=Recording(processes=(Process(events=events),)))

    evidence = runs(before=compiled_by(before), after=compiled_by(after))
    assert [(r.subject, r.detail) for r in judge.backend_reasons(evidence, ProofTime())] == expected
    fast = ProofTime(ratio=Interval(middle=0.9, low=0.85, high=0.95))
    assert not list(judge.backend_reasons(evidence, fast))


def timed(*seconds: float, **more: Any) -> SideRun:
    """A run with these step times, of which the second half is steady."""
    series = {STEP_SECONDS: Series(name=STEP_SECONDS, steps=range(len(seconds)), values=list(seconds))}
    return replace(run(**more), recording=Recording(processes=(Process(series=series),)))


@pytest.mark.parametrize(("after", "expected"), [
    ([0.01, 0.01, 0.01, 0.05, 0.06, 0.05], [ReasonKind.SLOWER]),
    ([0.01, 0.01, 0.01, 0.02, 0.05, 0.05], []),     # the fastest is not clearly slower than the slowest of BEFORE
    ([0.01, 0.01, 0.01, 0.01, 0.01, 0.01], []),
])
def test_a_few_steps_refute_only_a_clear_slowdown(after: list[float], expected: list[ReasonKind]) -> None:
    own, other = timed(0.2, 0.01, 0.01, 0.01, 0.02, 0.01), timed(*after)
    assert is_round_needed(own.recording, other.recording) == (statistics.median(after[3:]) > 0.015)
    time, reasons = judge.time_of(runs(before=own, after=other, before_again=own, after_again=other))
    assert (kinds(reasons), time.ratio is not None) == (expected, bool(expected))
    assert kinds(judge.time_of(runs(before=own, after=other))[1]) == []
    eager = replace(runs().before, eager=True)
    both = replace(runs(before=own, after=other, before_again=own, after_again=other), before=eager)
    assert kinds(judge.time_of(both)[1]) == []


def test_steps_that_are_shown_to_be_faster_need_no_second_round() -> None:
    own, faster, equal = (timed(*[seconds + 1e-4 * (n % 7) for n in range(60)]) for seconds in (0.02, 0.01, 0.02))
    assert not is_round_needed(own.recording, faster.recording)
    assert is_round_needed(own.recording, equal.recording)
    assert is_round_needed(faster.recording, own.recording)
    assert judge.time_of(runs(before=own, after=faster))[0].ratio is not None


def test_a_finding_that_stays_and_happens_more_often_refutes() -> None:
    def recompiled(number: int) -> Finding:
        return replace(finding(code="TT203", fingerprint="r"), evidence=Evidence(num_events=number))

    def with_recompiles(number: int) -> SideRun:
        events = tuple(
            Recompile(time=0.0, compile_id=f"0/{n}", path="a.py", line=3, function="f", reasons=("size",))
            for n in range(1, number + 1))
        return replace(run(), recording=Recording(processes=(Process(events=events),)))

    def reasons(number: int, *, seen: int | None = None) -> list[ReasonKind]:
        change = findings_change([[finding(), recompiled(1)]], [[recompiled(number if seen is None else seen)]])
        sides = runs(before=with_recompiles(1), after=with_recompiles(number))
        return kinds(judge.finding_reasons(sides, change, ()))

    assert reasons(1) == []
    assert reasons(2) == []
    assert reasons(6) == [ReasonKind.MORE_EVENTS]
    assert reasons(1, seen=6) == []     # they were counted with another finding before

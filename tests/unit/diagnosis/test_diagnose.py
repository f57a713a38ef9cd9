"""From events to ranked findings: weighed by cost, merged over the ranks, a limit linked with its recompiles."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.samples import a_finding, a_process, a_recording, source_lines
from torchtriage.diagnosis.diagnose import diagnose, linked, merged, weighed
from torchtriage.findings.model import Cost, CostKind, Evidence, Finding, Location, Severity
from torchtriage.recording.events import (
    CompileCall,
    CompileEnd,
    CompileStart,
    Event,
    GraphBreak,
    LimitHit,
    Recompile,
    StackEntry,
)
from torchtriage.recording.recording import Process, Recording, Series, Source

APP = "/app/train.py"
FACTS: dict[str, Any] = {"your_roots": ["/app"], "end": 1000.0, "start": 0.0}


def place_of(function: str, line: int) -> dict[str, Any]:
    return {
        "path": APP, "line": line, "function": function, "stack": (StackEntry(path=APP, line=line, function=function),),
    }


F, G = place_of("f", 3), place_of("g", 30)


def int_recompiles(
    place: dict[str, Any], frame: int, number: int, source: str = "k", at_limit: bool = False, stride: int = 1,
) -> list[Event]:
    """A frame that is compiled again for every value of an int, until it is refused."""
    events: list[Event] = [CompileStart(**place, compile_id=f"{frame}/0")]
    for n in range(1, number + 1):
        reason = f"{frame}/{n - 1}: {source} == {(n - 1) * stride % 11}"
        events += [
            Recompile(**place, compile_id=f"{frame}/{n}", reasons=(reason,)),
            CompileStart(**place, compile_id=f"{frame}/{n}"),
        ]
    if at_limit:
        reason = f"{frame}/{number}: {source} == {number * stride % 11}"
        events.append(LimitHit(**place, compile_id=f"{frame}/{number + 1}", limit=number + 1, reasons=(reason,)))
    return events


def a_break(line: int = 5, **fields: Any) -> GraphBreak:
    return GraphBreak(
        **{**place_of("f", line), "type": "print", "explanation": "builtin `print`", "compile_id": "0/0", **fields}
    )


def by_code(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.code: finding for finding in findings}


def test_an_empty_recording_has_no_findings() -> None:
    assert diagnose(a_recording(a_process(CompileStart(**F, compile_id="0/0"), **FACTS), end=1000.0)) == []


def test_a_limit_and_its_recompiles_name_each_other_and_share_the_fix() -> None:
    findings = diagnose(a_recording(a_process(*int_recompiles(F, 0, 7, at_limit=True), **FACTS), end=1000.0))
    limit = by_code(findings)["TT301"]
    [cause] = [finding for finding in findings if finding.code.startswith("TT2")]
    assert limit.related == (cause.fingerprint,)
    assert cause.related == (limit.fingerprint,)
    assert limit.fix == cause.fix
    assert limit.cause == f"{cause.cause} ({cause.code})"
    assert limit.evidence.values == cause.evidence.values


def test_a_limit_that_raises_under_fullgraph_has_the_fix_of_its_recompiles() -> None:
    events = [*int_recompiles(F, 0, 7), CompileStart(**F, compile_id="0/8")]
    failed = CompileEnd(**F, compile_id="0/8", fail_type="FailOnRecompileLimitHit", fail_reason="fullgraph=True")
    findings = diagnose(a_recording(a_process(*events, failed, **FACTS), end=1000.0))
    [cause] = [finding for finding in findings if finding.code.startswith("TT2")]
    assert by_code(findings)["TT308"].fix == cause.fix


def test_a_limit_that_can_be_raised_is_an_option_behind_those_of_its_recompiles() -> None:
    facts = {**FACTS, "eager_calls": {"eager": 2, "misses": 2, "recompiles": 0, "hits": 9}}
    events = int_recompiles(F, 0, 7, at_limit=True, stride=3)
    findings = diagnose(a_recording(a_process(*events, **facts), end=1000.0))
    limit = by_code(findings)["TT301"]
    [cause] = [finding for finding in findings if finding.code.startswith("TT2")]
    assert limit.fix.edits[:-1] == cause.fix.edits
    assert limit.fix.text.startswith(f"{cause.fix.text}; or {limit.fix.edits[-1].text}: ")


def test_no_limit_is_offered_for_a_value_that_only_grows() -> None:
    facts = {**FACTS, "eager_calls": {"eager": 2, "misses": 2, "recompiles": 0, "hits": 9}}
    findings = diagnose(a_recording(a_process(*int_recompiles(F, 0, 7, at_limit=True), **facts), end=1000.0))
    assert "recompile_limit" not in by_code(findings)["TT301"].fix.text


def test_every_finding_has_its_source_lines_if_they_were_recorded() -> None:
    sources = {(APP, 3): Source(first_line=2, lines=("", "def f(k):", "    return k"))}
    findings = diagnose(
        a_recording(a_process(*int_recompiles(F, 0, 7, at_limit=True), sources=sources, **FACTS), end=1000.0)
    )
    assert len(findings) == 2
    assert {finding.evidence.source for finding in findings} == {
        source_lines("", "def f(k):", "    return k", first=2, at=3)
    }


def test_a_limit_without_a_recompile_keeps_its_text() -> None:
    [limit] = diagnose(a_recording(a_process(LimitHit(**F, compile_id="0/8", limit=8), **FACTS), end=1000.0))
    assert limit.related == ()
    assert limit.cause.startswith("Dynamo stops compiling")


def test_recompiles_of_another_frame_are_not_linked() -> None:
    events = [*int_recompiles(F, 0, 3, at_limit=True), *int_recompiles(G, 1, 9, "m")]
    findings = diagnose(a_recording(a_process(*events, **FACTS), end=1000.0))
    assert {finding.location.function for finding in findings if finding.related} == {"f"}


def test_after_a_reset_a_frame_with_the_same_number_is_not_linked() -> None:
    """torch._dynamo.reset() numbers frames from 0 again, so 0/1 is f before it and g after it."""
    events = [*int_recompiles(F, 0, 3, at_limit=True), *int_recompiles(G, 0, 9, "m")]
    findings = diagnose(a_recording(a_process(*events, **FACTS), end=1000.0))
    limit = by_code(findings)["TT301"]
    assert {finding.location.function for finding in findings if finding.fingerprint in limit.related} == {"f"}
    assert " m " not in limit.cause


def test_linking_does_not_change_other_findings() -> None:
    other = a_finding("TT101", evidence=Evidence(compile_ids=("0/1",)), fingerprint="x")
    assert linked([other]) == [other]


def test_the_same_problem_on_several_ranks_is_one_finding() -> None:
    ranks = [a_process(a_break(step=rank, compile_id=f"0/{rank}"), rank=rank, **FACTS) for rank in (2, 0, 1)]
    [finding] = diagnose(a_recording(*ranks, end=1000.0))
    assert finding.ranks == (0, 1, 2)
    assert finding.steps == (0, 1, 2)
    assert finding.evidence.num_events == 3


def test_a_finding_of_only_some_runs_names_them() -> None:
    def runs(*num_breaks: int) -> Recording:
        events = [[a_break(compile_id=f"{seed}/{n}") for n in range(num)] for seed, num in enumerate(num_breaks)]
        quiet = CompileStart(**G, compile_id="9/0")
        return a_recording(
            *(a_process(quiet, *of, name=f"seed {seed}", **FACTS) for seed, of in enumerate(events)), end=1000.0,
        )

    [some] = diagnose(runs(1, 0, 2))
    assert some.evidence.notes == ("only in seed 0, seed 2 of 3 runs",)
    [every] = diagnose(runs(1, 1, 1))
    assert every.evidence.notes == ()
    [many] = diagnose(runs(*[1] * 7, 0))
    assert many.evidence.notes == ("only in seed 0, seed 1, seed 2, seed 3, seed 4 and 2 more of 8 runs",)


def test_merged_findings_keep_the_largest_cost_and_the_worst_severity() -> None:
    one = a_finding(severity=Severity.P1, cost=Cost(seconds=1.0, kind=CostKind.OBSERVED), related=("a",))
    two = a_finding(
        severity=Severity.P3, cost=Cost(seconds=3.0, kind=CostKind.OBSERVED), related=("b",), cause="on the slow rank",
    )
    [finding] = merged([one, two])
    assert (finding.severity, finding.cost.seconds, finding.cause, finding.related) == (
        Severity.P1, 3.0, "on the slow rank", ("a", "b"),
    )


def test_findings_of_other_codes_or_fingerprints_stay_separate() -> None:
    assert len(merged([a_finding(), a_finding("TT102"), a_finding(fingerprint="other")])) == 3


def test_the_number_of_listed_steps_is_bounded() -> None:
    [finding] = merged([a_finding(steps=tuple(range(40))), a_finding(steps=tuple(range(40, 80)))])
    assert finding.steps == tuple(range(50))


def timed_process(num_steps: int, seconds: float = 0.010) -> Process:
    series = {"step_seconds": Series(name="step_seconds", steps=range(num_steps), values=[seconds] * num_steps)}
    return a_process(series=series, num_steps=num_steps, **FACTS)


@pytest.mark.parametrize(("milliseconds", "share", "severity"), [
    (0.4, 0.04, Severity.P3), (0.5, 0.05, Severity.P2), (2.0, 0.2, Severity.P1), (10.0, 1.0, Severity.P1),
])
def test_the_cost_of_a_break_per_step_decides_its_severity(
    milliseconds: float, share: float, severity: Severity,
) -> None:
    finding = weighed(a_finding(cost=Cost(ms_per_step=milliseconds, kind=CostKind.OBSERVED)), timed_process(50))
    assert finding.cost.share == pytest.approx(share)
    assert finding.severity is severity


def test_a_cost_longer_than_a_step_has_no_share() -> None:
    finding = weighed(a_finding(cost=Cost(ms_per_step=11.0, kind=CostKind.OBSERVED)), timed_process(50))
    assert (finding.cost.share, finding.severity) == (None, Severity.P3)


def test_the_default_severity_is_kept_with_few_steps() -> None:
    finding = weighed(a_finding(cost=Cost(ms_per_step=9.0, kind=CostKind.OBSERVED)), timed_process(19))
    assert (finding.cost.share, finding.severity) == (None, Severity.P3)


def test_a_cost_that_was_not_measured_changes_nothing() -> None:
    assert weighed(a_finding(), timed_process(50)) == a_finding()


def storm(num_steps: int) -> Process:
    """A recompile of 0.3 s every step of one second."""
    first = [CompileStart(**F, compile_id="0/0"), CompileEnd(**F, compile_id="0/0", time=0.0, step=0, seconds=0.3)]
    events: list[Event] = []
    for n in range(1, num_steps):
        columns: dict[str, Any] = {"compile_id": f"0/{n}", "time": float(n), "step": n}
        events.append(Recompile(**F, **columns, reasons=(f"0/{n - 1}: k == {n - 1}",)))
        events += [CompileStart(**F, **columns), CompileEnd(**F, **columns, seconds=0.3)]
    return a_process(*first, *events, your_roots=["/app"], start=0.0, end=float(num_steps), num_steps=num_steps)


@pytest.mark.parametrize("num_steps", [50, 1000])
def test_a_storm_has_the_same_severity_in_a_short_and_a_long_run(num_steps: int) -> None:
    [finding] = diagnose(a_recording(storm(num_steps), end=1e9))
    assert finding.severity is Severity.P1
    assert finding.cost.share == pytest.approx(0.3, rel=0.05)


def test_what_needs_no_change_comes_last_among_its_equals() -> None:
    calls = [CompileCall(path=APP, line=31, target="f", target_path=APP, target_line=3)]
    grown = "tensor 'x' size mismatch at index 0. expected 4, actual 5"
    settled = Recompile(**F, compile_id="0/1", reasons=(f"0/0: {grown}",))
    bounded = Recompile(**F, compile_id="0/2", reasons=("0/1: 2 <= x.size()[0] <= 6  # if n > 6:  # train.py:4 in f",))
    run = a_recording(a_process(*calls, CompileStart(**F, compile_id="0/0"), settled, bounded, **FACTS))
    assert [(f.code, f.severity) for f in diagnose(run)] == [("TT225", Severity.P4), ("TT201", Severity.P4)]


def test_the_most_severe_and_costly_findings_come_first() -> None:
    findings = diagnose(a_recording(
        a_process(
            a_break(9, type="Failed to trace builtin operator", explanation="builtin operator `print`"),
            *int_recompiles(G, 1, 7, at_limit=True), dropped={"tap": 1}, **FACTS,
        ), end=1000.0,
    ))
    assert [finding.severity for finding in findings] == sorted(finding.severity for finding in findings)
    assert findings[0].code == "TT301"


@pytest.mark.parametrize(("first", "second"), [
    ({"severity": Severity.P1}, {"cost": Cost(share=0.9)}),
    ({"cost": Cost(share=0.2)}, {"cost": Cost(share=0.1, seconds=99.0)}),
    ({"cost": Cost(seconds=20.0)}, {"cost": Cost(seconds=1.0), "evidence": Evidence(num_events=9)}),
    ({"evidence": Evidence(num_events=2)}, {"evidence": Evidence(num_events=1)}),
    ({"code": "TT101"}, {"code": "TT102"}),
    ({"location": Location(path="a.py", line=1)}, {"location": Location(path="b.py", line=1)}),
], ids=["severity", "share", "seconds", "events", "code", "place"])
def test_findings_are_ordered_by_severity_cost_events_code_and_place(
    first: dict[str, Any], second: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = [a_finding(**{"fingerprint": "1", **first}), a_finding(**{"fingerprint": "2", **second})]
    for order in (pair, pair[::-1]):
        monkeypatch.setattr("torchtriage.diagnosis.diagnose.RUN_RULES", [lambda recording, order=order: iter(order)])
        assert diagnose(a_recording()) == pair


def test_the_cause_of_a_limit_comes_from_its_frame_not_from_a_fold() -> None:
    call, layer, mask = (Location(path=path, line=9) for path in (APP, "/lib/layer.py", "/lib/mask.py"))

    def finding(code: str, raised_at: Location, events: int, fingerprint: str) -> Finding:
        evidence = Evidence(num_events=events, compile_ids=("4/1",))
        return a_finding(
            code, location=call, raised_at=raised_at, cause=fingerprint, evidence=evidence, fingerprint=fingerprint,
        )

    found = linked([
        finding("TT301", layer, 1, "limit"), finding("TT221", mask, 20, "folds"), finding("TT224", layer, 2, "own"),
    ])
    assert by_code(found)["TT301"].cause == "own (TT224)"


def test_a_long_settled_recompile_is_not_cosmetic() -> None:
    call = CompileCall(path="/app/t.py", line=3, target="f", target_path="/app/t.py", target_line=9)
    place = {"path": "/app/t.py", "line": 9, "function": "f"}
    reason = "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5"
    again = Recompile(**place, compile_id="0/1", reasons=(reason,))
    end = CompileEnd(**place, compile_id="0/1", seconds=451.0, time=600.0)
    events = (call, CompileStart(**place, compile_id="0/0"), again, end)
    process = a_process(*events, start=1.0, end=818.0, your_roots=["/app"])
    findings = {finding.code: finding.severity for finding in diagnose(a_recording(process))}
    assert findings["TT201"] is Severity.P2


def in_a_helper(source: str) -> list[Event]:
    """Recompiles of f for a value that a function below it reads at line 50."""
    stack = f'  File "{APP}", line 4, in f\n    tick(x)\n  File "{APP}", line 50, in tick\n    n += 1'
    events = int_recompiles(F, 0, 7, source, at_limit=True)
    return [
        replace(event, reasons=tuple(f"{reason}\nUser stack trace:\n{stack}" for reason in event.reasons))
        if isinstance(event, (Recompile, LimitHit)) else event
        for event in events
    ]


def test_recompiles_for_state_are_shown_at_the_line_that_reads_it() -> None:
    for source in ("self.n", "G['STATS']['calls']"):
        found = by_code(diagnose(a_recording(a_process(*in_a_helper(source), **FACTS), end=1000.0)))
        assert {(finding.location.line, finding.location.function) for finding in found.values()} == {(50, "tick")}
        assert "TT301" in found


def test_recompiles_for_an_argument_are_shown_at_the_compiled_function() -> None:
    found = diagnose(a_recording(a_process(*in_a_helper("k"), **FACTS), end=1000.0))
    assert {finding.location.line for finding in found} == {3}

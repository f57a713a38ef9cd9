"""The Chrome trace: valid for a strict reader, complete, and without invented times."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reporters.traces import of_phase, read_trace, tracks
from tests.unit.samples import a_finding, taps
from torchtriage.findings.history import Curve, History, Moment, MomentKind, ProcessHistory
from torchtriage.findings.report import Report
from torchtriage.reporters import chrome


def moment(
    kind: MomentKind = MomentKind.COMPILE, time: float = 1.0, seconds: float | None = 0.5, **fields: Any
) -> Moment:
    return Moment(**{"kind": kind, "time": time, "process": 0, "seconds": seconds, "label": "Policy.forward", **fields})


def traced(
    *moments: Moment, processes: int = 1, curves: tuple[Curve, ...] = (), num_steps: int | None = None, **fields: Any,
) -> dict[str, Any]:
    """The trace of these moments, read back by a strict reader."""
    own = tuple(ProcessHistory(name=f"rank {number}", rank=number, num_steps=num_steps) for number in range(processes))
    history = History(start=1000.0, seconds=60.0, processes=own, moments=moments, curves=curves)
    return read_trace(chrome.render(Report(**{"findings": [], "history": history, **fields})))


def test_a_compile_is_a_slice_with_its_reason_step_and_finding() -> None:
    trace = traced(
        moment(
            MomentKind.RECOMPILE, time=2.5, seconds=0.25, step=7, detail="k == 2", compile_id="0/1", fingerprint="f1"
        ),
        findings=[a_finding("TT204", fingerprint="f1")],
    )
    [row] = of_phase(trace, "X")
    assert (row["name"], row["cat"], row["ts"], row["dur"]) == ("Policy.forward", "recompile", 2_500_000, 250_000)
    assert row["args"] == {"reason": "k == 2", "step": 7, "compile_id": "0/1", "finding": "TT204"}


def test_a_break_is_an_instant_on_its_own_thread() -> None:
    trace = traced(moment(), moment(MomentKind.BREAK, time=1.2, seconds=None, label="print() at policy.py:52"))
    [row] = of_phase(trace, "i")
    assert (row["name"], row["ts"], row["s"]) == ("print() at policy.py:52", 1_200_000, "t")
    assert row["tid"] != of_phase(trace, "X")[0]["tid"]


def test_a_moment_whose_finding_is_hidden_has_no_code() -> None:
    [row] = of_phase(traced(moment(fingerprint="f1")), "X")
    assert row["args"] == {}


def test_a_compile_without_an_end_is_a_point_in_time() -> None:
    trace = traced(moment(seconds=None))
    assert of_phase(trace, "X") == []
    assert [row["cat"] for row in of_phase(trace, "i")] == ["compile"]


def test_nested_compiles_share_a_thread_and_overlapping_ones_do_not() -> None:
    trace = traced(moment(time=1.0, seconds=0.5, label="with a"), moment(time=1.0, seconds=4.0, label="a"),
                   moment(time=2.0, seconds=1.0, label="in a"), moment(time=4.0, seconds=3.0, label="beside a"),
                   moment(time=8.0, seconds=1.0, label="later"))
    threads = {row["name"]: row["tid"] for row in of_phase(trace, "X")}
    assert threads["a"] == threads["with a"] == threads["in a"] == threads["later"] != threads["beside a"]
    assert tracks(trace, "thread_name")[-2:] == ["compile", "compile (2)"]


TIMES = st.floats(0, 20) | st.integers(0, 8)    # integers, so that some begin or end together
SPANS = st.lists(st.tuples(TIMES, st.none() | TIMES, st.integers(0, 1)), max_size=30)


@given(SPANS)
def test_any_compiles_are_all_drawn_and_nest(spans: list[tuple[float, float | None, int]]) -> None:
    trace = traced(
        *(
            moment(time=time, seconds=seconds, process=process)
            for time, seconds, process in sorted(spans, key=lambda s: s[0])
        ),
        processes=2,
    )
    drawn = Counter((row["pid"] - 1, row["ph"]) for row in trace["traceEvents"] if row.get("cat") == "compile")
    assert drawn == Counter((process, "i" if seconds is None else "X") for _, seconds, process in spans)


def test_every_kind_of_moment_has_its_thread() -> None:
    trace = traced(*(moment(kind, seconds=None) for kind in MomentKind))
    names = {row["tid"]: row["args"]["name"] for row in trace["traceEvents"] if row["name"] == "thread_name"}
    assert {row["cat"]: names[row["tid"]] for row in of_phase(trace, "i")} == {
        "compile": "compile",
        "recompile": "compile",
        "graph break": "graph breaks",
        "recompile limit": "limits and skips",
        "frame skipped": "limits and skips",
        "anomaly": "anomalies",
    }


def test_each_process_is_a_track_in_the_order_of_ranks() -> None:
    trace = traced(moment(), moment(process=1), processes=2)
    assert tracks(trace) == ["rank 0", "rank 1"]
    assert [row["args"]["sort_index"] for row in trace["traceEvents"] if row["name"] == "process_sort_index"] == [0, 1]
    assert [row["pid"] for row in of_phase(trace, "X")] == [1, 2]


# steps

def test_steps_are_drawn_where_they_happened() -> None:
    curve = Curve(
        name="step_seconds", process=0, steps=[2.0, 3.0, 4.0], values=[0.5, 0.25, 1.0], times=[3.0, 3.5, 3.75]
    )
    trace = traced(curves=(curve,), num_steps=4)
    assert [(row["name"], row["ts"], row["dur"]) for row in of_phase(trace, "X", "step")] == [
        ("step 2", 3_000_000, 500_000), ("step 3", 3_500_000, 250_000), ("step 4", 3_750_000, 1_000_000),
    ]
    assert [(row["ts"], row["args"]["ms"]) for row in of_phase(trace, "C")] == [
        (3_000_000, 500.0),
        (3_500_000, 250.0),
        (3_750_000, 1000.0),
    ]


def test_a_point_that_averages_several_steps_is_one_slice() -> None:
    curve = Curve(name="step_seconds", process=0, steps=[2.0, 6.0], values=[0.5, 0.25], times=[3.0, 5.0])
    trace = traced(curves=(curve,), num_steps=7)
    assert [(row["name"], row["dur"]) for row in of_phase(trace, "X", "step")] == [
        ("steps 2 to 5", 2_000_000),
        ("steps 6 to 7", 500_000),
    ]


def test_steps_without_times_have_a_separate_axis() -> None:
    trace = traced(
        moment(), curves=(Curve(name="step_seconds", process=0, steps=[2.0, 3.0], values=[0.5, float("nan")]),)
    )
    assert of_phase(trace, "X", "step") == []
    [row] = of_phase(trace, "C")
    assert (row["ts"], row["args"]) == (2000, {"ms": 500.0})
    assert tracks(trace) == ["rank 0", "rank 0 by step: 1 ms on the axis is one step"]
    assert row["pid"] != 1


def test_values_that_are_not_finite_are_left_out() -> None:
    nan = float("nan")
    curve = Curve(name="step_seconds", process=0, steps=[2.0, 3.0, 4.0], values=[0.5, nan, 0.5], times=[1.0, 1.5, nan])
    assert len(of_phase(traced(curves=(curve,)), "X")) == 1


def test_a_run_without_steps_or_moments_is_still_a_trace() -> None:
    empty = Curve(name="step_seconds", process=0, steps=[], values=[])
    assert {row["ph"] for row in traced(curves=(empty,))["traceEvents"]} == {"M"}
    assert read_trace(chrome.render(Report(findings=[])))["traceEvents"] == []


def test_a_step_ends_where_the_next_begins_to_the_microsecond() -> None:
    curve = Curve(name="step_seconds", process=0, steps=[2.0, 3.0], values=[8e-7, 8e-7], times=[6e-7, 14e-7])
    assert {row["name"]: (row["ts"], row["dur"]) for row in of_phase(traced(curves=(curve,)), "X")} == {
        "step 2": (1, 0),
        "step 3": (1, 1),
    }


# the rest

def test_the_totals_are_those_of_the_report() -> None:
    trace = traced(totals={"compiles": 3, "eager_calls": None}, not_seen=taps("caches"))
    other = trace["otherData"]
    assert (other["totals"]["compiles"], other["totals"]["eager_calls"], other["not_seen"]) == (3, None, ["caches"])
    assert (other["run_start"], other["run_seconds"]) == (1000.0, 60.0)


@pytest.mark.parametrize("name", ["</script>", 'a"b\\c\n', "naïve", "\udce9.py", ""])
def test_names_from_the_program_cannot_break_the_file(name: str) -> None:
    trace = traced(moment(label=name, detail=name), not_seen=taps(name))
    expected = name.replace("\udce9", "\\udce9") or "compile"
    assert of_phase(trace, "X")[0]["name"] == expected

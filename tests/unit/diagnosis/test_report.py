"""The facts beside the findings: totals, what ran, what was watched and what could not be seen."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.samples import a_process, a_recording
from torchtriage.diagnosis.report import build_report, event_rows, not_seen, run_facts, totals, watched
from torchtriage.findings.report import TOTALS
from torchtriage.recording.events import CompileEnd, CompileStart, GapTime, GraphBreak, LimitHit, Recompile, Tap
from torchtriage.recording.recording import Process, Recording, Series
from torchtriage.reporters.summary import tap_text

F: dict[str, Any] = {"path": "/app/a.py", "line": 3, "function": "f"}
COUNTED = {"eager": 12, "misses": 12, "recompiles": 0, "hits": 0}


def watched_texts(recording: Recording) -> list[str]:
    return [tap_text(tap) for tap in watched(recording)]


def not_seen_texts(recording: Recording) -> list[str]:
    return [tap_text(tap) for tap in not_seen(recording)]


def busy(**facts: Any) -> Process:
    return a_process(
        CompileStart(**F, compile_id="0/0"), CompileEnd(**F, compile_id="0/0", time=5.0, seconds=2.0),
        GraphBreak(**F, type="print"), GraphBreak(**F, type="print"), GraphBreak(**F, type="item"),
        Recompile(**F, compile_id="0/1"), CompileStart(**F, compile_id="0/1"),
        CompileEnd(**F, compile_id="0/1", time=6.0, seconds=2.0), LimitHit(**F), LimitHit(**F), **facts,
    )


def test_totals_count_what_happened() -> None:
    assert totals(a_recording(busy(num_steps=7, eager_calls=COUNTED, start=1.0, end=9.5))) == {
        "compiles": 2, "graph_breaks": 3, "distinct_graph_breaks": 2, "recompiles": 1, "frames_at_limit": 1,
        "eager_calls": 12,
        "compile_seconds": 3.0, "steps": 7, "run_seconds": 8.5,
    }


def test_totals_of_processes_add_up_except_for_time_and_steps() -> None:
    counts = totals(a_recording(busy(num_steps=7, eager_calls=COUNTED), busy(num_steps=9, eager_calls=COUNTED)))
    assert (counts["compiles"], counts["graph_breaks"], counts["recompiles"], counts["eager_calls"]) == (4, 6, 2, 24)
    assert (counts["distinct_graph_breaks"], counts["frames_at_limit"]) == (2, 2)
    assert (counts["compile_seconds"], counts["steps"]) == (3.0, 9)


def test_totals_of_an_empty_recording_are_zero_or_unknown() -> None:
    assert totals(a_recording()) == {
        "compiles": 0, "graph_breaks": 0, "distinct_graph_breaks": 0, "recompiles": 0, "frames_at_limit": 0,
        "eager_calls": 0,
        "compile_seconds": None, "steps": None, "run_seconds": None,
    }
    assert list(totals(a_recording())) == list(TOTALS)


@pytest.mark.parametrize(("process", "origin", "expected"), [
    (a_process(), "recording", 0),
    (busy(), "recording", None),
    (a_process(), "trace", None),
    (a_process(), "log", None),
    (busy(eager_calls=COUNTED), "recording", 12),
], ids=["healthy", "limit without a meter", "trace", "log", "counted"])
def test_eager_calls_are_none_if_they_were_not_counted(process: Process, origin: str, expected: int | None) -> None:
    assert totals(a_recording(process, origin=origin))["eager_calls"] == expected


def test_facts_of_the_run_come_from_the_launcher_and_first_process() -> None:
    first = a_process(argv=["worker"], torch="2.13.0", start=4.0, rank=1, cwd="/x")
    facts = run_facts(a_recording(first, a_process(start=3.0, rank=0), argv=["train.py"], exit_status=3, end=9.0))
    assert (facts["argv"], facts["torch"], facts["cwd"], facts["exit_status"], facts["end"]) == (
        ["train.py"], "2.13.0", "/x", 3, 9.0,
    )
    assert (facts["start"], facts["num_processes"], facts["ranks"], facts["origin"]) == (4.0, 2, [0, 1], "recording")


def test_a_run_without_processes_has_facts_too() -> None:
    assert run_facts(a_recording())["num_processes"] == 0


def test_the_watched_list_has_the_armed_taps_of_all_processes() -> None:
    one = a_process(Tap(name="trace"), Tap(name="steps", state="absent", detail="gone"))
    assert watched_texts(
        a_recording(one, a_process(Tap(name="compile calls"), Tap(name="trace")))
    ) == ["compile calls", "trace"]


@pytest.mark.parametrize("origin", ["trace", "log"])
def test_a_trace_or_log_lists_its_content_and_its_gaps(origin: str) -> None:
    assert watched_texts(a_recording(a_process(), origin=origin))[0].startswith("graph breaks, recompiles")
    assert "skipped frames" in not_seen_texts(a_recording(a_process(), origin=origin))
    assert ("compile times" in not_seen_texts(a_recording(a_process(), origin=origin))) is (origin == "log")


def test_a_trace_counts_the_compiles_that_failed_silently() -> None:
    gave_up = [CompileEnd(**F, compile_id=f"{n}/0", fail_type="Unsupported") for n in range(3)]
    trace = a_recording(
        a_process(*gave_up, GraphBreak(**F, compile_id="1/0"), CompileEnd(**F, compile_id="4/0")), origin="trace",
    )
    assert [text for text in not_seen_texts(trace) if "gave up" in text] == [
        "why 2 compiles gave up (add TORCH_LOGS=graph_breaks to TORCH_TRACE, or torchtriage run)"]
    assert not any("gave up" in text for text in not_seen_texts(a_recording(a_process(*gave_up))))


def test_absent_and_lost_taps_are_listed_once_as_not_seen() -> None:
    taps = [
        Tap(name="steps", state="absent", detail="gone"), Tap(name="trace", state="lost", detail="cleared"),
        Tap(name="compile calls"),
    ]
    missing = not_seen_texts(a_recording(a_process(*taps), a_process(*taps)))
    assert missing == ["steps: gone", "trace: cleared", "run-time cost of graph breaks (torchtriage run --measure)"]


def test_samples_that_telemetry_dropped_are_summed_over_processes() -> None:
    full, rich = a_process(telemetry={"num_dropped": 3, "num_left_out": 5}), a_process(telemetry={"num_left_out": 2})
    missing = not_seen_texts(a_recording(full, rich))
    assert [line.partition(" (")[0] for line in missing if line.startswith("learning: ")] == [
        "learning: 3 samples could not be read in time", "learning: 7 values of further metrics"]
    assert not any(
        line.startswith("learning: ") for line in not_seen_texts(a_recording(a_process(telemetry={"num_dropped": 0})))
    )


def test_a_measured_quantity_is_not_listed_as_not_seen() -> None:
    assert not_seen_texts(a_recording(a_process(GapTime(calls=1)))) == []


def test_what_run_cannot_see_of_a_training_is_listed_as_not_seen() -> None:
    watched_gradients = a_process(Tap(name="gradients"), GapTime(calls=1))
    remedy = "(report it with torchtriage.telemetry.Monitor; torchtriage train does)"
    assert not_seen_texts(a_recording(watched_gradients)) == [f"recurrent state {remedy}", f"PPO updates {remedy}"]
    reported = {name: Series(name=name, steps=(1.0,), values=(1.0,)) for name in ("lstm/h_rms", "ppo/ratio_max")}
    assert not_seen_texts(a_recording(replace(watched_gradients, series=reported))) == []


def test_quantities_that_only_a_logger_shows_are_named_beside_what_was_not_seen() -> None:
    def process(*logged: str) -> Process:
        process = a_process(Tap(name="gradients"), GapTime(calls=1), logged_scalars=dict.fromkeys(logged, "wandb"))
        names = ("lstm/h_rms", "ppo/clip_fraction", "ppo/kl")
        return replace(process, series={name: Series(name=name, steps=(1.0,), values=(1.0,)) for name in names})

    only_logged = not_seen_texts(a_recording(process("ppo/kl", "ppo/clip_fraction")))
    assert only_logged == ["PPO updates, except what the program logs: clip fraction, kl (wandb)"]
    assert not_seen_texts(a_recording(process("ppo/kl"))) == []     # the graph of the loss shows the other


def test_events_are_listed_at_the_places_that_torch_reports() -> None:
    events = [
        GraphBreak(**F, gb_id="GB0059", type="print", explanation="why", compile_id="0/0", step=2, time=1.0),
        Recompile(**F, reasons=("k == 2",), compile_id="0/1", rank=5),
    ]
    place = {"path": "/app/a.py", "line": 3, "function": "f"}
    assert event_rows(a_recording(a_process(*events, rank=1))) == {
        "graph_breaks": [
            {
                **place, "compile_id": "0/0", "step": 2, "rank": 1, "time": 1.0, "gb_id": "GB0059", "type": "print",
                "reason": "print: why",
            },
        ],
        "recompiles": [{**place, "compile_id": "0/1", "step": None, "rank": 5, "time": 0.0, "reasons": ["k == 2"],
                        "num_reasons_omitted": 0}],
    }


def test_a_report_has_events_only_if_asked() -> None:
    recording = a_recording(busy(end=5.0), end=6.0)
    assert build_report(recording).events == {}
    report = build_report(recording, with_events=True)
    assert {name: len(rows) for name, rows in report.events.items()} == {"graph_breaks": 3, "recompiles": 1}
    assert report.findings
    json.dumps(report.events)

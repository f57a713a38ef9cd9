"""The history in the HTML report: timeline, frames, processes and curves, as compact data and as text."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reporters.page import Page, data_of, words_of
from tests.unit.reporters.report_samples import STORM, a_frame, a_history, a_report
from torchtriage.findings.history import Curve, History, Moment, MomentKind, ProcessHistory
from torchtriage.reporters.html import render
from torchtriage.reporters.html.data import (
    MAX_LANES,
    MAX_MOMENTS,
    NOT_FINITE,
    Strings,
    drawn_moments,
    drawn_points,
    heat_map,
    step_curve,
)
from torchtriage.reporters.html.frames import MAX_FRAMES, changing_sources


@pytest.mark.parametrize(
    ("origin", "sentence"),
    [
        ("log", "This log does not contain the times of events"),
        ("watch", "watch() records findings, not the timeline of the run"),
        ("recording", "The timeline of the run was not recorded."),
    ],
)
def test_an_empty_history_says_why(origin: str, sentence: str) -> None:
    text = words_of(history=History(), run={"origin": origin})
    assert text.count(sentence) == 2
    assert "No telemetry was recorded." in text
    assert "Processes side by side" not in text


def test_a_run_without_compiles_says_so() -> None:
    text = words_of(
        findings=[], history=History(start=1.0, seconds=1.0, processes=(ProcessHistory(name="main process"),))
    )
    assert "Nothing was compiled and no steps were recorded." in text
    assert "No frame was compiled." in text


def test_the_timeline_is_also_a_sentence_and_a_table() -> None:
    text = words_of()
    assert (
        "The run took 20.0 s: 2 first compiles, 14 recompiles, 16 graph breaks, 2 recompile limits reached, 1 anomaly."
        in text
    )
    assert "ended after 3.90 s, before the end of the first step: 14 recompiles follow." in text
    assert "recompile Policy.forward 14 4.90 s 10.30 s 1 7 9.80 s TT202" in text


def test_the_backward_of_a_compile_is_not_counted_as_a_compile() -> None:
    moments = tuple(Moment(kind=MomentKind.COMPILE, time=1.0, process=0, is_backward=flag) for flag in (False, True))
    assert "The run took 20.0 s: 1 first compile." in words_of(history=replace(a_history(), moments=moments))


def test_moments_come_back_from_their_columns() -> None:
    report = a_report()
    columns = data_of(render(report))["moments"]
    times = [sum(columns["time"][: i + 1]) / 10_000 for i in range(len(columns["time"]))]
    assert times == pytest.approx([m.time for m in report.history.moments], abs=1e-4)
    assert [columns["strings"][i] for i in columns["label"]] == [m.label for m in report.history.moments]
    assert [columns["finding"][i] for i, m in enumerate(report.history.moments) if m.fingerprint == STORM] == [1] * 14
    assert len(columns["strings"]) == len(set(columns["strings"]))


def many_moments(number_: int) -> History:
    return replace(
        a_history(num_ranks=1),
        moments=tuple(
            Moment(
                kind=list(MomentKind)[n % 3],
                time=n * 0.0137,
                process=0,
                seconds=0.001 * (n % 90),
                step=n // 7,
                fingerprint=STORM,
                label=f"Frame{n % 40}.forward",
                compile_id=f"{n % 40}/{n // 40}",
                detail=f"tensor 'x' size mismatch at index 0. expected {n}, actual {n + 1}",
            )
            for n in range(number_)
        ),
    )


def test_twenty_thousand_events_stay_below_two_megabytes() -> None:
    text = render(a_report(history=many_moments(20_000)))
    assert len(text.encode()) < 2_000_000
    assert len(data_of(text)["moments"]["kind"]) == 20_000
    assert "not drawn" not in text


def test_too_many_moments_are_thinned_evenly_and_counted() -> None:
    history = many_moments(MAX_MOMENTS * 2 + 1)
    drawn = drawn_moments(history)
    assert len(drawn) <= MAX_MOMENTS
    assert drawn[0].time < 0.1
    assert drawn[-1].time > history.moments[-1].time - 1
    said = f"{len(history.moments) - len(drawn):,} marks of {len(history.moments):,} not drawn"
    assert said in Page(render(a_report(history=history))).text


def test_details_of_marks_beyond_the_budget_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Strings.__init__, "__defaults__", (100,))
    assert re.search(r"\d details of marks left out", words_of())
    monkeypatch.undo()
    assert "left out" not in words_of()


def test_too_many_processes_are_not_drawn_but_listed() -> None:
    text = words_of(history=a_history(num_ranks=MAX_LANES + 3, num_steps=75))
    assert f"3 of {MAX_LANES + 3} processes not drawn" in text
    assert f"rank {MAX_LANES + 2} {4711 + MAX_LANES + 2}" in text


def test_strings_beyond_the_budget_are_counted() -> None:
    strings = Strings(budget=6)
    assert [strings.number(word) for word in ("abc", "def", "ghi", "abc", "")] == [1, 2, 0, 1, 0]
    assert (strings.all, strings.num_dropped) == (["", "abc", "def"], 1)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=300), st.integers(4, 50))
def test_drawn_points_keep_the_ends_the_extremes_and_the_order(values: list[float], most: int) -> None:
    points = drawn_points(values, most)
    assert points == sorted(set(points))
    assert len(points) <= most
    assert {0, len(values) - 1} <= set(points)
    finite = [v for v in values if math.isfinite(v)]
    if len(finite) == len(values):
        assert {min(values), max(values)} <= {values[i] for i in points}


LOSS = Curve(name="loss", process=0, steps=[1, 2, 3, 4], values=[4.55, 2.0, 7.5, 4.69])
EAGER = History(start=1.0, seconds=9.0, processes=(ProcessHistory(name="main process"),), curves=(LOSS,))


def test_a_chart_names_the_first_and_the_last_value() -> None:
    assert "loss 4.55 → 4.69, between 2 and 7.5 over steps 1 to 4" in words_of(findings=[], history=EAGER)


def test_a_run_without_compiles_leads_with_its_learning_curves() -> None:
    def sections(**totals: int) -> list[str]:
        return re.findall(r'<section id="(\w+)"', render(a_report(findings=[], history=EAGER, totals=totals)))

    assert sections(compiles=0)[:3] == ["verdict", "health", "timeline"]
    assert sections(compiles=1)[:2] == ["verdict", "timeline"]


def test_a_recorded_run_without_compiles_does_not_lack_compile_times() -> None:
    def words(origin: str) -> str:
        return words_of(history=EAGER, totals={"compiles": 0, "compile_seconds": None}, run={"origin": origin})

    assert "Nothing was compiled." in words("recording")
    assert "Compile times are not known" not in words("recording")
    assert "Compile times are not known" in words("log")    # a log does not hold every compile


def test_an_anomaly_without_a_finding_is_counted_and_not_drawn() -> None:
    marks = [Moment(kind=MomentKind.ANOMALY, time=2.0, process=0, step=2, label="TT401 loss", fingerprint="gone")]
    report = a_report(findings=[], history=replace(EAGER, moments=tuple(marks)))
    assert data_of(render(report))["anomalies"] == []
    assert "1 anomaly noted during the run has no finding here" in words_of(findings=[], history=report.history)


def test_step_times_are_drawn_by_time_only_if_times_are_known() -> None:
    history = a_history(num_ranks=1)
    curve = step_curve(history, 0)
    assert curve is not None
    assert curve["times"][0] == 4
    without = replace(history, curves=tuple(replace(c, times=()) for c in history.curves))
    assert step_curve(without, 0) == {**curve, "times": None}
    assert step_curve(history, 1) is None


def test_a_cell_of_the_heat_map_is_the_largest_value_in_it() -> None:
    steps = list(range(1000))
    curve = Curve(
        name="grad_norm/a",
        process=0,
        steps=steps,
        values=[100.0 if s == 500 else math.nan if s == 999 else 1.0 for s in steps],
    )
    heat = heat_map(History(curves=(curve,)))
    assert heat is not None
    assert sorted(set(heat["rows"][0])) == [NOT_FINITE, 1, 100]
    assert heat["rows"][0][-1] == NOT_FINITE
    assert heat["names"] == ["a"]


def test_processes_are_compared_and_the_largest_value_is_bold() -> None:
    text = render(a_report())
    assert "<b>10.0 s</b>" in text.split('aria-label="Processes"')[1]
    assert "<b>9.0 s</b>" not in text
    assert "Processes side by side" not in words_of(history=a_history(num_ranks=1))


def test_a_frame_shows_its_chain_and_its_compiles() -> None:
    text = words_of()
    assert "Policy.forward at its limit 8 compiles, 5.60 s compiling, 1 break, rank 0" in text
    assert "print() at x.py:9 Failed to trace builtin operator" in text
    assert "obs.size(0)" in text
    assert "2 older versions failed too" in text


def test_only_values_that_change_get_a_column() -> None:
    assert changing_sources(a_frame().compiles) == ["obs.size(0)"]


def test_frames_beyond_the_limit_are_counted() -> None:
    frames = tuple(replace(a_frame(), name=f"frame{n}") for n in range(MAX_FRAMES + 5))
    text = render(a_report(history=replace(a_history(), frames=frames)))
    assert "5 more frames not listed." in text
    assert len(text.encode()) < 2_000_000


def test_compiles_missing_from_the_history_are_counted() -> None:
    frame = replace(a_frame(), num_compiles=80)
    assert "72 more compiles not listed." in words_of(history=replace(a_history(), frames=(frame,)))


def test_health_charts_have_a_fixed_order_and_show_the_cost_of_telemetry() -> None:
    names = [
        "telemetry/share",
        "telemetry/interval",
        *(f"lstm/{n}" for n in range(14)),
        "lr",
        *(f"ppo/{n}" for n in range(14)),
        "grad_norm/group:actor", "update_ratio/actor", "weight_norm", "grad_norm_after_clip", "grad_norm",
        "scaler/scale", "loss",
    ]
    curves = tuple(
        Curve(name=name, process=0, steps=[1, 2], values=[0.001, 10.0 if "interval" in name else 0.004])
        for name in names
    )
    report = a_report(history=replace(a_history(num_ranks=1), curves=curves))
    drawn = [chart["name"] for chart in data_of(render(report))["lines"]]
    assert sorted(drawn) == sorted(names)
    assert drawn[:4] == ["loss", "grad_norm", "grad_norm_after_clip", "weight_norm"]
    assert drawn[4:7] == ["update_ratio/actor", "grad_norm/group:actor", "scaler/scale"]
    assert drawn[-3:] == ["lr", "telemetry/share", "telemetry/interval"]
    text = words_of(history=report.history)
    assert "Telemetry itself took 0.40% of the run's time (observed); at the end it sampled one step in 10." in text
    assert "Telemetry itself" not in words_of()

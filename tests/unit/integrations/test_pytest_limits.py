"""The limit markers: their arguments, the events that count against them, and the message of an exceeded one."""

from typing import Any

import pytest

from tests.unit.samples import a_finding, a_process
from torchtriage.errors import CommandError
from torchtriage.findings.model import Evidence, Finding, Location, Severity
from torchtriage.findings.report import Report
from torchtriage.integrations.pytest_limits import excess_message, limit_of
from torchtriage.recording.events import GraphBreak, Recompile
from torchtriage.recording.recording import Process

NOTHING = a_process()


def with_events(code: str, num_events: int = 1, compile_ids: tuple[str, ...] = (), **fields: Any) -> Finding:
    return a_finding(
        code, evidence=Evidence(num_events=num_events, compile_ids=compile_ids), title=f"title of {code}", **fields
    )


def excess(name: str, *args: Any, findings: list[Finding], process: Process = NOTHING, **kwargs: Any) -> str:
    return excess_message([limit_of(name, args, kwargs)], process, Report(findings=findings))


@pytest.mark.parametrize(("name", "args", "kwargs", "said"), [
    ("limit_graph_breaks", (), {}, "missing a required argument: 'most'"),
    ("limit_graph_breaks", (-1,), {}, "limit_graph_breaks(-1): the number of graph breaks must be 0 or more, got -1"),
    ("limit_graph_breaks", ("0",), {}, "must be 0 or more, got '0'"),
    ("limit_graph_breaks", (True,), {}, "must be 0 or more, got True"),
    ("limit_graph_breaks", (0,), {"alow": []}, "got an unexpected keyword argument 'alow'"),
    ("limit_graph_breaks", (0,), {"allow": "TT101"}, "allow must be a list, got 'TT101'"),
    ("limit_graph_breaks", (0,), {"allow": ["TT999"]}, "no rule or place 'TT999' for allow, did you mean"),
    ("limit_graph_breaks", (0, 1), {}, "too many positional arguments"),
    ("limit_recompiles", (1,), {"warmup": -2}, "limit_recompiles(1, warmup=-2): warmup must be 0 or more, got -2"),
    ("limit_recompiles", (1.5,), {}, "the number of recompiles must be 0 or more, got 1.5"),
    ("limit_findings", ("P9",), {}, "the severity must be P0, P1, P2, P3, P4, got 'P9'"),
    ("limit_findings", (2,), {}, "the severity must be P0, P1, P2, P3, P4, got 2"),
    ("limit_findings", (["P2"],), {}, "the severity must be P0, P1, P2, P3, P4, got ['P2']"),
])
def test_a_wrong_marker_shows_its_arguments_and_an_example(name: str, args: Any, kwargs: Any, said: str) -> None:
    with pytest.raises(CommandError) as refused:
        limit_of(name, args, kwargs)
    assert said in str(refused.value)
    assert f"; write it like {name}(" in str(refused.value)


def test_graph_breaks_are_counted_by_event_and_by_place() -> None:
    breaks = [
        with_events("TT101", 2),
        with_events("TT104", 1, location=Location(path="/app/model.py", line=20)),
        with_events("TT202", 5),
    ]
    assert excess("limit_graph_breaks", 3, findings=breaks) == ""
    text = excess("limit_graph_breaks", 2, findings=breaks)
    assert text.startswith("limit_graph_breaks(2): 3 graph breaks at 2 places\n\nTT101 P3  title of TT101")
    assert "title of TT104" in text
    assert "torchtriage explain TT101" in text
    assert "TT202" not in text


def test_an_allowed_finding_neither_counts_nor_shows() -> None:
    breaks = [with_events("TT101", 2), with_events("TT104", 1)]
    assert excess("limit_graph_breaks", 0, allow=["TT101", "TT104"], findings=breaks) == ""
    text = excess("limit_graph_breaks", 0, allow=["TT101"], findings=breaks)
    assert text.startswith("limit_graph_breaks(0, allow=['TT101']): 1 graph break at 1 place\n")
    assert "title of TT101" not in text


@pytest.mark.parametrize(("most", "warmup", "exceeds"), [
    (3, 0, False), (2, 0, True), (2, 1, True),      # the first compile is not a recompile, so warmup=1 changes nothing
    (2, 2, False), (1, 2, True), (1, 3, False), (0, 3, True), (0, 4, False),
])
def test_the_first_compiles_of_a_frame_are_warm_up(most: int, warmup: int, exceeds: bool) -> None:
    again = [with_events("TT202", 3, ("0/1", "0/2", "0/3"))]
    assert bool(excess("limit_recompiles", most, warmup=warmup, findings=again)) is exceeds


def test_warm_up_is_counted_frame_by_frame_and_the_rest_is_summed() -> None:
    again = [with_events("TT202", 3, ("0/1", "0/2", "!0/0/3")), with_events("TT204", 2, ("1/1", "1/2"))]
    assert excess("limit_recompiles", 3, warmup=2, findings=again) == ""
    text = excess("limit_recompiles", 2, warmup=2, findings=again)
    assert text.startswith("limit_recompiles(2, warmup=2): 3 recompiles after the warm-up\n")


def test_a_recompile_without_a_compile_id_is_never_warm_up() -> None:
    assert excess("limit_recompiles", 0, warmup=9, findings=[with_events("TT202", 1)])


def test_a_frame_at_torchs_limit_exceeds_any_number_of_recompiles() -> None:
    refused = [with_events("TT301", 1), with_events("TT202", 7, fingerprint="b" * 16)]
    assert excess("limit_recompiles", 100, findings=refused).startswith(
        "limit_recompiles(100): 7 recompiles, and 1 frame at torch's recompile limit\n")
    assert excess("limit_recompiles", 100, allow=["TT301"], findings=refused) == ""


def resumed(*compile_ids: str) -> Process:
    """A break at line 14 of `forward`, and recompiles of the frame that it made."""
    cut = GraphBreak(path="/app/model.py", line=14, function="forward", compile_id="0/0")
    again = [
        Recompile(path="/app/model.py", line=14, function="torch_dynamo_resume_in_forward_at_14", compile_id=c)
        for c in compile_ids
    ]
    return a_process(cut, *again)


def test_recompiles_of_resume_frames_count() -> None:
    broken = [with_events("TT101")]
    process = resumed("1/1", "1/2")
    assert excess("limit_recompiles", 2, findings=broken, process=process) == ""
    text = excess("limit_recompiles", 1, findings=broken, process=process)
    assert text.startswith("limit_recompiles(1): 2 recompiles\n\nTT101")
    assert excess("limit_recompiles", 1, warmup=2, findings=broken, process=process) == ""
    assert excess("limit_recompiles", 0, allow=["TT101"], findings=broken, process=process) == ""
    assert excess("limit_recompiles", 0, findings=[], process=process) == ""     # the break is accepted by a comment


def test_findings_are_limited_by_severity() -> None:
    findings = [with_events("TT303", severity=Severity.P1), with_events("TT101", severity=Severity.P3)]
    assert excess("limit_findings", "P0", findings=findings) == ""
    text = excess("limit_findings", "P2", findings=findings)
    assert text.startswith("limit_findings('P2'): 1 finding at P2 or worse\n\nTT303 P1")
    assert "TT101" not in text
    assert "2 findings at P3 or worse" in excess("limit_findings", "P3", findings=findings)


def test_each_limit_has_its_line_and_each_finding_is_shown_once() -> None:
    findings = [with_events("TT101", 2, severity=Severity.P1)]
    limits = [
        limit_of("limit_graph_breaks", (0,), {}),
        limit_of("limit_recompiles", (0,), {}),
        limit_of("limit_findings", ("P2",), {}),
    ]
    text = excess_message(limits, NOTHING, Report(findings=findings))
    assert text.startswith(
        "limit_graph_breaks(0): 2 graph breaks at 1 place\nlimit_findings('P2'): 1 finding at P2 or worse\n\n"
    )
    assert text.count("title of TT101") == 1


@pytest.mark.parametrize(
    ("name", "argument"), [("limit_graph_breaks", 5), ("limit_recompiles", 5), ("limit_findings", "P0")]
)
def test_a_limit_cannot_be_checked_after_a_tap_was_lost(name: str, argument: Any) -> None:
    assert "cannot be checked" in excess(name, argument, findings=[with_events("TT901")])
    assert excess(name, argument, allow=["TT901"], findings=[with_events("TT901")]) == ""

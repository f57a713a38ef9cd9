"""TT9xx: what the recording could not see is reported; a complete recording gives no finding."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.unit.samples import a_process, a_recording
from torchtriage.diagnosis import recording_health as health
from torchtriage.findings.model import Finding
from torchtriage.recording.events import Recompile, Tap, Unparsed
from torchtriage.recording.recording import Recording

RULES = [
    health.tap_lost, health.run_did_not_end, health.nothing_joined, health.recording_not_written,
    health.unreadable_input, health.events_dropped,
]


def the_one(rule: Callable[[Recording], Iterator[Finding]], recording: Recording) -> Finding:
    [finding] = rule(recording)
    return finding


@pytest.mark.parametrize("rule", RULES)
def test_a_complete_recording_has_no_finding(rule: Callable[[Recording], Iterator[Finding]]) -> None:
    taps = (Tap(name="trace"), Tap(name="skipped frames", state="absent"))
    process = a_process(*taps, end=5.0, dropped={}, recorder_error="", num_unparsed=0)
    assert list(rule(a_recording(process, end=6.0, joined=True, unreadable_files=[]))) == []


def test_a_lost_tap_is_reported_with_its_step() -> None:
    finding = the_one(
        health.tap_lost, a_recording(a_process(Tap(name="trace", state="lost", step=9, detail="handlers replaced"))),
    )
    assert (finding.code, finding.cause, finding.steps) == ("TT901", "handlers replaced", (9,))
    assert finding.title == "the trace tap was lost since step 9: events may be missing from then on"


def test_a_failure_of_the_recorder_itself_has_another_code() -> None:
    finding = the_one(
        health.tap_lost, a_recording(a_process(Tap(name="recorder", state="lost", detail="KeyError: 'x'"))),
    )
    assert (finding.code, finding.cause, finding.steps) == ("TT905", "KeyError: 'x'", ())


def test_a_process_without_an_end_is_reported_once_the_run_is_over() -> None:
    recording = a_recording(
        a_process(end=5.0), a_process(Recompile(time=time.time()), pid=77, rank=1), end=9.0, exit_status=137,
    )
    finding = the_one(health.run_did_not_end, recording)
    assert (finding.code, finding.ranks, finding.evidence.notes) == ("TT902", (1,), ("exit status 137",))
    assert "process 77 did not end" in finding.title


@pytest.mark.parametrize(
    ("age", "is_reported"), [(0.0, False), (health.STALE_SECONDS - 5, False), (health.STALE_SECONDS + 5, True)],
)
def test_without_a_launcher_a_process_counts_as_dead_after_a_while(age: float, is_reported: bool) -> None:
    now = time.time()
    assert bool(list(health.run_did_not_end(a_recording(a_process(Recompile(time=now - age)))))) is is_reported
    assert bool(list(health.run_did_not_end(a_recording(a_process(start=now - age))))) is is_reported


def test_a_process_that_still_runs_is_not_reported_and_one_elsewhere_may_still_run() -> None:
    old = Recompile(time=time.time() - 3600)
    running, dead, elsewhere = (a_process(old, is_running=known) for known in (True, False, None))
    assert list(health.run_did_not_end(a_recording(running))) == []
    assert "did not end" in the_one(health.run_did_not_end, a_recording(dead)).title
    assert "may still run" in the_one(health.run_did_not_end, a_recording(elsewhere)).title
    assert "did not end" in the_one(health.run_did_not_end, a_recording(elsewhere, end=9.0)).title


@pytest.mark.parametrize("origin", ["trace", "log", "watch"])
def test_a_source_that_records_no_end_is_not_reported_as_unfinished(origin: str) -> None:
    assert list(health.run_did_not_end(a_recording(a_process(Recompile()), origin=origin))) == []
    assert list(health.nothing_joined(a_recording(origin=origin, end=3.0))) == []


def test_a_run_that_no_process_joined_is_reported() -> None:
    finding = the_one(health.nothing_joined, a_recording(end=3.0, joined=False))
    assert (finding.code, finding.title) == ("TT903", "no process joined the recording")
    assert "install torchtriage in the environment" in finding.fix.text


def test_a_run_without_torch_is_reported_as_such() -> None:
    assert the_one(health.nothing_joined, a_recording(end=3.0, joined=True)).title == "torch was never imported"


def test_a_run_that_continues_may_still_be_joined() -> None:
    assert list(health.nothing_joined(a_recording(joined=False))) == []


def test_a_recording_that_could_not_be_written_is_reported() -> None:
    finding = the_one(
        health.recording_not_written, a_recording(a_process(recorder_error="OSError: No space left on device")),
    )
    assert (finding.code, finding.cause) == ("TT904", "OSError: No space left on device")


def test_unreadable_lines_are_counted_and_the_first_is_shown() -> None:
    finding = the_one(
        health.unreadable_input,
        a_recording(a_process(Unparsed(text="first"), Unparsed(text="x" * 999), num_unparsed=50)),
    )
    assert (finding.code, finding.title, finding.evidence.num_events) == ("TT906", "50 lines could not be read", 50)
    assert finding.cause == "first: 'first'"
    assert finding.evidence.reasons == ("first", "x" * 200)


def test_one_unreadable_line_is_singular() -> None:
    assert the_one(
        health.unreadable_input, a_recording(a_process(Unparsed(text="x"))),
    ).title == "1 line could not be read"


def test_an_unreadable_file_is_reported_with_its_reason() -> None:
    finding = the_one(health.unreadable_input, a_recording(a_process(), unreadable_files=["rank1.sqlite is empty"]))
    assert (finding.code, finding.title, finding.cause) == (
        "TT906", "a file of the recording could not be read", "rank1.sqlite is empty",
    )


def test_dropped_events_are_reported_with_their_counts() -> None:
    finding = the_one(health.events_dropped, a_recording(a_process(dropped={"recompile": 3, "graph_break": 2})))
    assert (finding.code, finding.title) == ("TT907", "5 events were counted but not kept")
    assert finding.cause == "graph_break 2, recompile 3"


def test_each_rule_reports_every_process() -> None:
    lost = a_process(Tap(name="trace", state="lost"), dropped={"tap": 1}, recorder_error="x")
    recording = a_recording(lost, lost, end=3.0)
    assert [len(list(rule(recording))) for rule in RULES] == [2, 0, 0, 2, 0, 2]
    killed = a_process()
    assert [len(list(rule(a_recording(killed, killed, end=3.0)))) for rule in RULES] == [0, 2, 0, 0, 0, 0]


def test_a_process_whose_end_could_not_be_written_does_not_count_as_killed() -> None:
    recording = a_recording(a_process(recorder_error="OSError: [Errno 28] No space left on device"), end=3.0)
    assert not list(health.run_did_not_end(recording))
    assert the_one(health.recording_not_written, recording).code == "TT904"

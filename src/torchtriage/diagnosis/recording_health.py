"""TT9xx: what the recording itself could not see, so that silence is never mistaken for health."""

import time
from collections.abc import Iterator

from torchtriage.diagnosis.rules import finding, fingerprint_of, run_rule
from torchtriage.findings.model import Evidence, Finding, Fix
from torchtriage.recording.events import Tap, Unparsed
from torchtriage.recording.recording import Process, Recording

_NOWHERE = Process()
STALE_SECONDS = 30.0    # a live process writes when it has something to say; this only tells "still running" from "died"


@run_rule
def tap_lost(recording: Recording) -> Iterator[Finding]:
    """A tap was removed or silenced, or failed, while the program ran."""
    for process in recording.processes:
        for tap in process.of(Tap):
            if tap.state != "lost":
                continue
            code = "TT905" if tap.name == "recorder" else "TT901"
            since = "" if tap.step is None else f" since step {tap.step}"
            yield finding(
                code, title=f"the {tap.name} tap was lost{since}: events may be missing from then on", cause=tap.detail,
                fix=Fix(text="report it with this text; the program itself was not touched" if code == "TT905" else
                        "find what removes the handlers of the logger torch.__trace, and record again"),
                evidence=Evidence(num_events=1), steps=() if tap.step is None else (tap.step,),
                fingerprint=fingerprint_of(code, None, tap.name, _NOWHERE),
            )


@run_rule
def run_did_not_end(recording: Recording) -> Iterator[Finding]:
    """A process of the run was killed or crashed, so its recording stops early."""
    if recording.origin != "recording":
        return
    for process in recording.processes:
        if process.recorder.end:
            continue
        seen = max((e.time for e in process.events), default=process.program.start or 0.0)
        if recording.launcher.end is None and time.time() - seen < STALE_SECONDS:
            continue
        pid = process.program.pid
        yield finding(
            "TT902", title=f"process {pid} did not end: its recording stops early",
            cause="the process was killed, crashed or lost its machine; at most the last quarter of a second before that is missing",
            fix=Fix(text="nothing to do for the recording; look at the exit status and the system log for why the process died"),
            evidence=Evidence(num_events=1, notes=(f"exit status {recording.launcher.exit_status}",)),
            ranks=() if process.rank is None else (process.rank,), fingerprint=fingerprint_of("TT902", None, "", _NOWHERE),
        )


@run_rule
def nothing_joined(recording: Recording) -> Iterator[Finding]:
    """No process of the run joined the recording."""
    if recording.origin != "recording" or recording.processes or recording.launcher.end is None:
        return
    if recording.folder.joined:
        title, cause = "torch was never imported", "Python ran under observation, and no process of it imported torch"
        fix = "check that the command is the one that trains; nothing else is wrong"
    else:
        title, cause = "no process joined the recording", "no Python with torchtriage installed ran below this command"
        fix = "install torchtriage in the environment that the command uses (python -S and other interpreters are not seen)"
    yield finding("TT903", title=title, cause=cause, fix=Fix(text=fix), fingerprint=fingerprint_of("TT903", None, title, _NOWHERE))


@run_rule
def recording_not_written(recording: Recording) -> Iterator[Finding]:
    """The recorder could not write; the program ran on."""
    for process in recording.processes:
        error = process.recorder.recorder_error
        if error:
            yield finding(
                "TT904", title="part of the recording could not be written", cause=str(error),
                fix=Fix(text="record into a folder with space and write permission: torchtriage run -o DIR/NAME.triage ..."),
                evidence=Evidence(num_events=1), fingerprint=fingerprint_of("TT904", None, str(error), _NOWHERE),
            )


@run_rule
def unreadable_input(recording: Recording) -> Iterator[Finding]:
    """Files, lines or events that could not be read."""
    for problem in recording.folder.unreadable_files:
        yield finding(
            "TT906", title="a file of the recording could not be read", cause=str(problem),
            fix=Fix(text="nothing to do for this recording: what the other processes left is reported here"),
            evidence=Evidence(num_events=1), fingerprint=fingerprint_of("TT906", None, "file", _NOWHERE),
        )
    unparsed = list(recording.of(Unparsed))
    counted = sum(p.trace.num_unparsed for p in recording.processes)
    number = max(len(unparsed), counted)
    if number:
        yield finding(
            "TT906", title=f"{number} line{'s' if number != 1 else ''} could not be read",
            cause=f"first: {unparsed[0].text[:200]!r}" if unparsed else "see the counts",
            fix=Fix(text="check that the file is a whole TORCH_TRACE or TORCH_LOGS output; what could be read is reported here"),
            evidence=Evidence(num_events=number, reasons=tuple(u.text[:200] for u in unparsed[:5])),
            fingerprint=fingerprint_of("TT906", None, "", _NOWHERE),
        )


@run_rule
def damaged_fact(recording: Recording) -> Iterator[Finding]:
    """A part of the recording has another form than it was written in, and is left out."""
    launcher = [("the launcher", damage, None) for damage in recording.damage]
    processes = [(_called(process), damage, process.rank) for process in recording.processes for damage in process.damage]
    for owner, damage, rank in launcher + processes:
        yield finding(
            "TT908", title=f"{damage.name} of {owner} is damaged and was left out", cause=damage.problem,
            fix=Fix(text="copy the recording again from where it was made, or record again; everything else in it is reported here"),
            evidence=Evidence(num_events=1), ranks=() if rank is None else (rank,),
            fingerprint=fingerprint_of("TT908", None, damage.name, _NOWHERE),
        )


def _called(process: Process) -> str:
    return "a process" if process.program.pid is None else f"process {process.program.pid}"


@run_rule
def events_dropped(recording: Recording) -> Iterator[Finding]:
    """The bound on kept events was reached; later ones are only counted."""
    for process in recording.processes:
        dropped = process.recorder.dropped
        if dropped:
            listing = ", ".join(f"{kind} {number}" for kind, number in sorted(dropped.items()))
            yield finding(
                "TT907", title=f"{sum(dropped.values())} events were counted but not kept", cause=listing,
                fix=Fix(text="cure the storm that made them; the findings here come from the events before"),
                evidence=Evidence(num_events=sum(dropped.values())), fingerprint=fingerprint_of("TT907", None, "", _NOWHERE),
            )

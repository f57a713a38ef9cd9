"""TT9xx: gaps in the recording itself, so that missing events are never mistaken for a healthy run."""

import time
from collections.abc import Iterator

from torchtriage.diagnosis.rules import finding, fingerprint_of, run_rule
from torchtriage.findings.model import Evidence, Finding, Fix
from torchtriage.recording.events import Tap, Unparsed
from torchtriage.recording.facts import Damage
from torchtriage.recording.recording import Process, Recording
from torchtriage.text import counted, row

_NO_PROCESS = Process()     # these findings have no place, so their fingerprints need no roots
STALE_SECONDS = 30.0    # a live process writes only when it has events; after this time it counts as dead


@run_rule
def tap_lost(recording: Recording) -> Iterator[Finding]:
    """A tap was removed or silenced, or failed, while the program ran."""
    for process in recording.processes:
        for tap in process.of(Tap):
            if tap.state != "lost":
                continue
            code = "TT905" if tap.name == "recorder" else "TT901"
            since = "" if tap.step is None else f" since step {tap.step}"
            if code == "TT905":
                fix = "report this text as a bug of torchtriage; the program itself was not affected"
            else:
                fix = "find the code that removes the handlers of the logger torch.__trace, and record again"
            yield finding(
                code,
                title=f"the {tap.name} tap was lost{since}: events may be missing from then on",
                cause=tap.detail,
                fix=Fix(text=fix),
                evidence=Evidence(num_events=1),
                steps=() if tap.step is None else (tap.step,),
                fingerprint=fingerprint_of(code, None, tap.name, _NO_PROCESS),
            )


@run_rule
def run_did_not_end(recording: Recording) -> Iterator[Finding]:
    """A process of the run was killed or crashed, so its recording stops early."""
    if recording.origin != "recording":
        return
    for process in recording.processes:
        recorder = process.recorder
        if recorder.end or recorder.recorder_error or recorder.is_running:      # TT904 reports the error
            continue
        last_event = max((e.time for e in process.events), default=process.program.start or 0.0)
        if recording.launcher.end is None and time.time() - last_event < STALE_SECONDS:
            continue
        may_run = recorder.is_running is None and recording.launcher.end is None
        title, also = "did not end: its recording stops early", ""
        if may_run:
            title, also = "left no end: it may still run", f", or still runs on {process.program.host}"
        yield finding(
            "TT902",
            title=f"process {process.program.pid} {title}",
            cause=f"the process was killed, crashed or lost its machine{also}; "
                  "at most the last quarter of a second before that is missing",
            fix=Fix(text="the recording needs no fix; "
                         "the exit status and the system log may show why the process died"),
            evidence=Evidence(num_events=1, notes=(f"exit status {recording.launcher.exit_status}",)),
            ranks=() if process.rank is None else (process.rank,),
            fingerprint=fingerprint_of("TT902", None, "", _NO_PROCESS),
        )


@run_rule
def nothing_joined(recording: Recording) -> Iterator[Finding]:
    """No process of the run joined the recording."""
    if recording.origin != "recording" or recording.processes or recording.launcher.end is None:
        return
    if recording.folder.joined:
        title = "torch was never imported"
        cause = "Python ran under observation, but none of its processes imported torch"
        fix = "check that this command is the one that trains; nothing else is wrong"
    else:
        title = "no process joined the recording"
        cause = "this command started no Python that has torchtriage installed"
        fix = ("install torchtriage in the environment that the command uses "
               "(python -S and other interpreters cannot be observed)")
    yield finding(
        "TT903", title=title, cause=cause, fix=Fix(text=fix),
        fingerprint=fingerprint_of("TT903", None, title, _NO_PROCESS),
    )


@run_rule
def recording_not_written(recording: Recording) -> Iterator[Finding]:
    """The recorder could not write; the program continued."""
    for process in recording.processes:
        error = process.recorder.recorder_error
        if error:
            yield finding(
                "TT904",
                title="part of the recording could not be written",
                cause=str(error),
                fix=Fix(text="record into a folder with free space and write permission: "
                             "torchtriage run -o DIR/NAME.triage ..."),
                evidence=Evidence(num_events=1),
                fingerprint=fingerprint_of("TT904", None, str(error), _NO_PROCESS),
            )


@run_rule
def unreadable_input(recording: Recording) -> Iterator[Finding]:
    """Files, lines or events that could not be read."""
    for problem in recording.folder.unreadable_files:
        yield finding(
            "TT906",
            title="a file of the recording could not be read",
            cause=str(problem),
            fix=Fix(text="this recording needs no fix: the files of the other processes are reported here"),
            evidence=Evidence(num_events=1),
            fingerprint=fingerprint_of("TT906", None, "file", _NO_PROCESS),
        )
    unparsed = list(recording.of(Unparsed))
    number = max(len(unparsed), sum(p.trace.num_unparsed for p in recording.processes))
    if number:
        yield finding(
            "TT906",
            title=f"{counted(number, 'line')} could not be read",
            cause=f"first: {unparsed[0].text[:200]!r}" if unparsed else "see the counts",
            fix=Fix(text="check that the file is a complete TORCH_TRACE or TORCH_LOGS output; "
                         "its readable lines are reported here"),
            evidence=Evidence(num_events=number, reasons=tuple(u.text[:200] for u in unparsed[:5])),
            fingerprint=fingerprint_of("TT906", None, "", _NO_PROCESS),
        )


@run_rule
def damaged_fact(recording: Recording) -> Iterator[Finding]:
    """A part of the recording does not have the form in which it was written, and is left out."""
    for damage in recording.damage:
        yield _damage_finding("the launcher", damage, None)
    for process in recording.processes:
        name = "a process" if process.program.pid is None else f"process {process.program.pid}"
        for damage in process.damage:
            yield _damage_finding(name, damage, process.rank)


def _damage_finding(owner: str, damage: Damage, rank: int | None) -> Finding:
    return finding(
        "TT908",
        title=f"{damage.name} of {owner} is damaged and was left out",
        cause=damage.problem,
        fix=Fix(text="copy the recording again from where it was made, or record again; "
                     "everything else in it is reported here"),
        evidence=Evidence(num_events=1),
        ranks=() if rank is None else (rank,),
        fingerprint=fingerprint_of("TT908", None, damage.name, _NO_PROCESS),
    )


@run_rule
def events_dropped(recording: Recording) -> Iterator[Finding]:
    """The limit on recorded events was reached; later events are only counted."""
    for process in recording.processes:
        dropped = process.recorder.dropped
        if dropped:
            number = sum(dropped.values())
            yield finding(
                "TT907",
                title=f"{number} events were counted but not kept",
                cause=row(f"{kind} {count}" for kind, count in sorted(dropped.items())),
                fix=Fix(text="fix the storm that caused these events; the findings here come from the earlier events"),
                evidence=Evidence(num_events=number),
                fingerprint=fingerprint_of("TT907", None, "", _NO_PROCESS),
            )

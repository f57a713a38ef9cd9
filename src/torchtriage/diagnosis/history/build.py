"""The history of a run: its timeline, compiled functions, curves per process, for the reports that draw them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torchtriage.diagnosis.compiles.frames import Compile, CompileHistory
from torchtriage.diagnosis.history.finding_index import FindingIndex
from torchtriage.diagnosis.history.frames import frame_histories
from torchtriage.diagnosis.history.timeline import after, moments
from torchtriage.diagnosis.totals import is_idle, last_first_compile, step_milliseconds, totals
from torchtriage.findings.history import Curve, FrameHistory, History, Moment, ProcessHistory
from torchtriage.findings.model import Finding
from torchtriage.recording.recording import Process, Recording, Series
from torchtriage.recording.series import STEP_SECONDS


def history(recording: Recording, findings: Sequence[Finding]) -> History:
    """Everything that has a time, per process; a source without times has only frames and counts."""
    present = [process for process in recording.processes if process.events]
    # A launcher such as torchrun imports torch and then only waits for the ranks.
    processes = sorted([process for process in present if not is_idle(process)] or present, key=_rank_order)
    compiles = [CompileHistory.of(process).compiles for process in processes]
    start, end = _span(recording, compiles)
    reported = {finding.fingerprint for finding in findings}
    timeline: list[Moment] = []
    frames: list[FrameHistory] = []
    curves: list[Curve] = []
    for number, process in enumerate(processes):
        index = FindingIndex(process, reported)
        frames += frame_histories(process, number, compiles[number], index, start)
        curves += _curves(process, number, start)
        if start is not None:
            timeline += moments(process, number, compiles[number], index, start)
    names = _names(processes)
    return History(
        start=start, seconds=None if start is None or end is None else after(start, end),
        processes=tuple(_process(recording, *named, start) for named in zip(processes, names, strict=True)),
        moments=tuple(sorted(timeline, key=lambda moment: moment.time)),
        frames=tuple(sorted(frames, key=lambda frame: -(frame.compile_seconds or 0.0))), curves=tuple(curves),
    )


def _rank_order(process: Process) -> tuple[bool, int, float]:
    return process.rank is None, process.rank or 0, _first_time(process) or 0.0


def _span(recording: Recording, compiles: Sequence[Sequence[Compile]]) -> tuple[float | None, float | None]:
    """The first and the last known time of a run, in seconds since the epoch."""
    starts = [recording.launcher.start, *(_first_time(process) for process in recording.processes)]
    for of_process in compiles:
        starts += [compile_.begin for compile_ in of_process]
    ends = [recording.launcher.end, *(_last_time(process) for process in recording.processes)]
    known_starts = [time for time in starts if time]
    if not known_starts:
        return None, None
    return min(known_starts), max((time for time in ends if time), default=None)


def _first_time(process: Process) -> float | None:
    return process.program.start or min((e.time for e in process.events if e.time > 0), default=None)


def _last_time(process: Process) -> float | None:
    return process.recorder.end or max((e.time for e in process.events if e.time > 0), default=None)


def _names(processes: Sequence[Process]) -> list[str]:
    """`rank 0`, with the process id if a rank has several processes; by process id if there are no ranks."""
    if len(processes) == 1 and processes[0].rank is None:
        return ["main process"]
    num_of_rank = Counter(process.rank for process in processes)
    names = []
    for number, process in enumerate(processes, start=1):
        pid = _pid(process)
        name = process.name or f"process {number if pid is None else pid}"
        if process.rank is not None:
            name = f"rank {process.rank}" if num_of_rank[process.rank] == 1 else f"rank {process.rank}, {name}"
        names.append(name)
    return names


def _pid(process: Process) -> int | None:
    return process.program.pid or next((e.pid for e in process.events if e.pid is not None), None)


def _process(recording: Recording, process: Process, name: str, start: float | None) -> ProcessHistory:
    """The counts are those of the report, for this process alone."""
    counts = totals(replace(recording, processes=(process,)))
    eager_calls = counts["eager_calls"]
    last = last_first_compile(process)
    return ProcessHistory(
        name=name, rank=process.rank, pid=_pid(process), start=_after(start, _first_time(process)),
        end=_after(start, _last_time(process)), num_steps=process.num_steps,
        num_compiles=int(counts["compiles"] or 0), num_recompiles=int(counts["recompiles"] or 0),
        num_breaks=int(counts["graph_breaks"] or 0), compile_seconds=counts["compile_seconds"],
        step_milliseconds=step_milliseconds(process), eager_calls=None if eager_calls is None else int(eager_calls),
        steady_time=_after(start, last.time) if last and last.time > 0 else None,
        steady_step=(last.step or 0) if last and process.num_steps is not None else None,
    )


def _after(start: float | None, time: float | None) -> float | None:
    return None if start is None or time is None else after(start, time)


def _curves(process: Process, number: int, start: float | None) -> Iterator[Curve]:
    """Every series; that of the steps has times if the recording says when the first step ended."""
    first = process.steps.first_step_time
    for series in process.series.values():
        times: Sequence[float] = ()
        if series.name == STEP_SECONDS and first and start is not None:
            times = _step_times(series, first - start)
        yield Curve(name=series.name, process=number, steps=series.steps, values=series.values, times=times)


def _step_times(series: Series, first: float) -> list[float]:
    """When the first step of each point began: steps follow each other without a gap, and a point is their mean."""
    if not len(series.steps):
        return []
    times = [first]
    for begin, end, seconds in zip(series.steps, series.steps[1:], series.values, strict=False):
        times.append(times[-1] + (end - begin) * seconds)
    return times

"""What happened when: the timeline, the compiled frames and the processes of a run, for the reports that draw them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from torchtriage.diagnosis.attempts import Attempt, attempts
from torchtriage.diagnosis.frame_histories import frame_histories
from torchtriage.diagnosis.marks import Marks
from torchtriage.diagnosis.steady import last_first_compile, step_milliseconds
from torchtriage.diagnosis.timeline import after, moments
from torchtriage.diagnosis.totals import totals
from torchtriage.findings.history import Curve, FrameHistory, History, Moment, ProcessHistory
from torchtriage.findings.model import Finding
from torchtriage.recording.events import Tap
from torchtriage.recording.recording import Process, Recording, Series


def history(recording: Recording, findings: Sequence[Finding]) -> History:
    """All that has a time, by process; a source without times gives frames and counts only."""
    present = [p for p in recording.processes if p.events]
    # A launcher such as torchrun imports torch and then only waits for the ranks.
    processes = sorted([p for p in present if not _is_idle(p)] or present, key=_by_rank)
    compiles = [attempts(process) for process in processes]
    start, end = _span(recording, compiles)
    told = {finding.fingerprint for finding in findings}
    marked: list[Moment] = []
    frames: list[FrameHistory] = []
    for index, (process, found) in enumerate(zip(processes, compiles, strict=True)):
        marks = Marks(process, told)
        frames += frame_histories(process, index, found, marks, start)
        if start is not None:
            marked += moments(process, index, found, marks, start)
    names = _names(processes)
    return History(
        start=start, seconds=None if start is None or end is None else after(start, end),
        processes=tuple(_process(recording, process, name, start) for process, name in zip(processes, names, strict=True)),
        moments=tuple(sorted(marked, key=lambda moment: moment.time)),
        frames=tuple(sorted(frames, key=lambda frame: -(frame.compile_seconds or 0.0))),
        curves=tuple(curve for index, process in enumerate(processes) for curve in _curves(process, index, start)),
    )


def _is_idle(process: Process) -> bool:
    return not process.series and all(isinstance(event, Tap) for event in process.events)


def _by_rank(process: Process) -> tuple[bool, int, float]:
    return process.rank is None, process.rank or 0, _first_time(process) or 0.0


def _span(recording: Recording, compiles: Sequence[Sequence[Attempt]]) -> tuple[float | None, float | None]:
    """The first and the last known time of a run, in seconds since the epoch."""
    told = [recording.facts.get("start"), *(_first_time(p) for p in recording.processes), *(a.begin for found in compiles for a in found)]
    ends = [recording.facts.get("end"), *(_last_time(p) for p in recording.processes)]
    starts = [time for time in told if time]
    return (min(starts), max((time for time in ends if time), default=None)) if starts else (None, None)


def _first_time(process: Process) -> float | None:
    return process.facts.get("start") or min((e.time for e in process.events if e.time > 0), default=None)


def _last_time(process: Process) -> float | None:
    return process.facts.get("end") or max((e.time for e in process.events if e.time > 0), default=None)


def _names(processes: Sequence[Process]) -> list[str]:
    """`rank 0`, with the process id where a rank has several processes; by process id where there are no ranks."""
    shared = Counter(process.rank for process in processes)
    names = []
    for number, process in enumerate(processes, start=1):
        pid = _pid(process)
        own = process.facts.get("name") or f"process {number if pid is None else pid}"
        if process.rank is not None:
            own = f"rank {process.rank}" if shared[process.rank] == 1 else f"rank {process.rank}, {own}"
        names.append("main process" if len(processes) == 1 and process.rank is None else own)
    return names


def _pid(process: Process) -> int | None:
    return process.facts.get("pid") or next((e.pid for e in process.events if e.pid is not None), None)


def _process(recording: Recording, process: Process, name: str, start: float | None) -> ProcessHistory:
    """The counts are those of the report, taken over this process alone."""
    counts = totals(replace(recording, processes=(process,)))
    last = last_first_compile(process)
    begin, end = (None if start is None or time is None else after(start, time) for time in (_first_time(process), _last_time(process)))
    return ProcessHistory(
        name=name, rank=process.rank, pid=_pid(process), start=begin, end=end, num_steps=process.num_steps,
        num_compiles=int(counts["compiles"] or 0), num_recompiles=int(counts["recompiles"] or 0),
        num_breaks=int(counts["graph_breaks"] or 0), compile_seconds=counts["compile_seconds"],
        step_milliseconds=step_milliseconds(process), eager_calls=None if counts["eager_calls"] is None else int(counts["eager_calls"]),
        steady_time=after(start, last.time) if last and start is not None and last.time > 0 else None,
        steady_step=(last.step or 0) if last and process.num_steps is not None else None,
    )


def _curves(process: Process, index: int, start: float | None) -> Iterator[Curve]:
    """Every series; that of the steps with their times, where the recording tells when the first step ended."""
    first = process.facts.get("first_step_time")
    for series in process.series.values():
        times = _step_times(series, first - start) if series.name == "step_seconds" and first and start is not None else ()
        yield Curve(name=series.name, process=index, steps=series.steps, values=series.values, times=times)


def _step_times(series: Series, first: float) -> list[float]:
    """When the first step of each point began: steps follow each other without a gap, and a point is their mean."""
    if not len(series.steps):
        return []
    widths = [end - begin for begin, end in zip(series.steps, series.steps[1:], strict=False)]
    return list(accumulate((width * value for width, value in zip(widths, series.values, strict=False)), initial=first))

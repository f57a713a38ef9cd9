"""The cost of a graph break: the compile time of its resume frames, the measured gaps at run time."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.frames import CompileHistory, Frame
from torchtriage.diagnosis.compiles.resume_frames import BreakKey, breaks_of_resume_frames
from torchtriage.findings.model import Cost, CostKind
from torchtriage.recording.events import GapTime, PieceTime
from torchtriage.recording.recording import Process
from torchtriage.text import counted, duration, row, times

MAX_LISTED = 20     # a finding is read by people; the counts above the list stay complete
MEASURE = "run-time cost not measured; measure it with: torchtriage run --measure ..."
NO_GAP = "run-time cost not measured: no compiled piece runs on one side of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedFrames:
    """The resume frames of one break; `shared` ones fit several breaks, so their time counts for none."""

    own: tuple[Frame, ...] = ()
    shared: tuple[Frame, ...] = ()

    def lines(self) -> tuple[str, ...]:
        return tuple(_described(frame) for frame in (*self.own, *self.shared))[:MAX_LISTED]

    def notes(self) -> tuple[str, ...]:
        shared = self.shared[:MAX_LISTED]
        note = "fits several breaks: listed under each, its time counted under none"
        return tuple(f"{frame.function} {note}" for frame in shared)

    def compile_seconds(self) -> float | None:
        timed = [seconds for frame in self.own if (seconds := frame.seconds) is not None]
        return sum(timed) if timed else None

    def compile_ids(self) -> set[str]:
        ids = {compile_.compile_id for frame in self.own for compile_ in frame.compiles}
        return {compile_id for compile_id in ids if compile_id is not None}


NOTHING_FOLDED = FoldedFrames()


def folded_frames(process: Process) -> Mapping[BreakKey, FoldedFrames]:
    """For each break the resume frames that it made."""
    by_key = CompileHistory.of(process).frames
    own: dict[BreakKey, list[Frame]] = defaultdict(list)
    shared: dict[BreakKey, list[Frame]] = defaultdict(list)
    for frame_key, break_keys in breaks_of_resume_frames(process).items():
        for key in break_keys:
            (own if len(break_keys) == 1 else shared)[key].append(by_key[frame_key])
    return {key: FoldedFrames(own=tuple(own[key]), shared=tuple(shared[key])) for key in {*own, *shared}}


def cost_of(process: Process, folded: FoldedFrames, broken_ids: Iterable[str]) -> Cost:
    """Observed run time in the gaps where it was measured, else observed compile time of the resume frames."""
    compiling = folded.compile_seconds()
    broken, resumed = set(broken_ids), folded.compile_ids()
    gaps = [gap for gap in process.of(GapTime) if gap.compile_id in broken and gap.to_compile_id in resumed]
    if gaps:
        seconds = sum(gap.seconds for gap in gaps)
        steps = process.num_steps
        also = f"; its resume frames took {duration(compiling)} to compile" if compiling is not None else ""
        return Cost(
            seconds=seconds, ms_per_step=1000.0 * seconds / steps if steps else None, kind=CostKind.OBSERVED,
            note=f"time between the compiled pieces, {times(sum(gap.calls for gap in gaps))}{also}",
        )
    unmeasured = NO_GAP if any(True for _ in process.of(PieceTime)) else MEASURE
    if compiling is None:
        return Cost(note=unmeasured)
    frames = "the resume frame" if len(folded.own) == 1 else counted(len(folded.own), "resume frame")
    note = f"compiling {frames} that it makes; {unmeasured}"
    return Cost(seconds=compiling, kind=CostKind.OBSERVED, note=note)


def _described(frame: Frame) -> str:
    seconds = frame.seconds
    parts = [counted(len(frame.starts) or len(frame.ends), "compile")]
    if frame.recompiles:
        parts.append(counted(len(frame.recompiles), "recompile"))
    if seconds is not None:
        parts.append(duration(seconds))
    return f"{frame.function}: {row(parts)}"

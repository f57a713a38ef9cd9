"""From the runs of both sides to the verdict."""

import os
import re
from collections.abc import Iterator, Sequence

from torchtriage.diagnosis.diagnose import START_UP
from torchtriage.diagnosis.effects import TRAINING_STEP
from torchtriage.diagnosis.totals import totals
from torchtriage.findings.model import Severity
from torchtriage.findings.proof.verdict import (
    FindingMark,
    FindingsChange,
    Proof,
    ProofTime,
    ProofVerdict,
    ReasonKind,
    SideFacts,
    VerdictReason,
)
from torchtriage.proof.experiment import ProofRuns, SideRun
from torchtriage.proof.findings_change import findings_change
from torchtriage.proof.sides import Side
from torchtriage.proof.step_times import (
    CLEARLY_SLOWER,
    FEW_STEPS,
    has_enough,
    is_shown_not_slower,
    is_slower,
    step_times,
)
from torchtriage.recording.events import CompileCall, CompileEnd, GraphBreak, Recompile
from torchtriage.recording.recording import Recording
from torchtriage.text import listed

WORST_NEW = Severity.P3     # a new finding at this severity or worse refutes
MIN_GROWTH = 2      # of the events of a finding: a cure may move one, such as the first recompile of a dimension
MIN_SHARE = 0.8             # of the operations of BEFORE that must still be in graphs, relative to what AFTER executes
# Below it a change is refuted, above it undecided. A right cure may compile a small model alone, 3 of the 5 operations
# of its training step, or the body of a loop whose end depends on data, half of them.
REFUTING_SHARE = 0.5
MAX_MOMENTS = 500
MAX_FILES = 5       # in a reason
PLAIN_BACKENDS = frozenset({    # of torch, for debugging: they run the operations of a graph as they are
    "eager", "eager_noexcept", "eager_debug", "pre_dispatch_eager", "aot_eager", "aot_eager_decomp_partition",
    "aot_eager_default_partitioner",
})
_FIRST = ("before", "after")
_BREAK, _OWN = "TT1", "TT9"     # graph breaks; findings about the recording
_REFUTED, _UNDECIDED = ProofVerdict.REFUTED, ProofVerdict.UNDECIDED


def all_findings(evidence: ProofRuns) -> FindingsChange:
    before = [run.findings for run in evidence.of("before", "before again")] or [evidence.runs["before"].findings]
    after = [run.findings for run in evidence.of("after", "after again")] or [evidence.runs["after"].findings]
    return findings_change(before, after)


def is_bad_news(findings: FindingsChange) -> bool:
    return any(_counts(mark.code) and mark.severity <= WORST_NEW for mark in findings.new)


def _counts(code: str) -> bool:
    """Start-up findings depend on the seconds of one run; TT9xx are about the recording."""
    return code not in START_UP and not code.startswith(_OWN)


def failure_reasons(evidence: ProofRuns) -> Iterator[VerdictReason]:
    before, after = evidence.runs["before"], evidence.runs["after"]
    if before.has_failed and after.has_failed:
        yield VerdictReason(kind=ReasonKind.BOTH_FAIL, verdict=_UNDECIDED, detail=after.last_lines)
    elif after.has_failed:
        yield VerdictReason(
            kind=ReasonKind.AFTER_FAILS, verdict=_REFUTED, value_after=after.exit_status, detail=after.last_lines)
    elif before.has_failed and not evidence.of("eager"):
        yield VerdictReason(kind=ReasonKind.BEFORE_FAILS, verdict=_UNDECIDED, detail=before.last_lines)
    stopped = {name: run for name, run in evidence.runs.items() if run.was_stopped}
    for name in [name for name in stopped if name in _FIRST] or list(stopped)[:1]:
        yield VerdictReason(
            kind=ReasonKind.BUDGET_ENDED, verdict=_UNDECIDED, subject=name.upper() if name in _FIRST else "",
            step=stopped[name].numbers.num_steps)
    for name, run in (("BEFORE", before), ("AFTER", after)):
        if not run.was_stopped and not run.recording.processes and not run.has_failed:
            yield VerdictReason(kind=ReasonKind.UNOBSERVED, verdict=_UNDECIDED, subject=name)


def was_cut_short(evidence: ProofRuns) -> bool:
    """Whether a run was stopped at its time limit, so that its counts and numbers are those of a part of it."""
    return any(run.was_stopped for run in evidence.runs.values())


def step_reasons(evidence: ProofRuns) -> Iterator[VerdictReason]:
    """Fewer or more optimizer steps than BEFORE, which are counted where it ends by itself."""
    base, after = evidence.result("before"), evidence.result("after")
    if base is None or after is None or base.was_stopped or after.was_stopped:
        return
    if evidence.before.eager and not after.numbers.rows:
        return      # steps inside a compiled function are not seen
    own, other = len(base.numbers.rows), len(after.numbers.rows)
    if own != other:
        kind = ReasonKind.FEWER_STEPS if other < own else ReasonKind.MORE_STEPS
        yield VerdictReason(kind=kind, verdict=_REFUTED, value_before=own, value_after=other)


def file_reasons(evidence: ProofRuns) -> Iterator[VerdictReason]:
    """Files that AFTER does not write any more; numbers in their names, such as a time, do not count."""
    names = {_without_numbers(path) for path in evidence.files.get("after", ())}
    lost = [path for path in evidence.files.get("before", ()) if _without_numbers(path) not in names]
    if lost and not evidence.runs["after"].has_failed and not was_cut_short(evidence):
        yield VerdictReason(
            kind=ReasonKind.FILE_LOST, verdict=_UNDECIDED,
            subject=listed([os.path.basename(path) for path in lost[:MAX_FILES]]))


def _without_numbers(path: str) -> str:
    return re.sub(r"\d+", "#", os.path.basename(path))


def needs_eager_after(evidence: ProofRuns) -> bool:
    """Whether fewer operations are in graphs, so that it must be seen whether the program still executes them."""
    own, other, share = graph_ops(evidence)
    return other < share * own and bool(other)


def graph_ops(evidence: ProofRuns) -> tuple[int, int, float]:
    """The operations in graphs of both sides, and the share of them that must stay.

    Where the cure takes the training step out of a compiled function, those of optimizers do not count, and the loss
    may leave with it.
    """
    own, other = (evidence.runs[name].numbers for name in _FIRST)
    if own.optimizer_ops and any(mark.code in TRAINING_STEP for mark in all_findings(evidence).fixed):
        return own.graph_ops - own.optimizer_ops, other.graph_ops - other.optimizer_ops, REFUTING_SHARE
    return own.graph_ops, other.graph_ops, MIN_SHARE


def is_less_compiled(evidence: ProofRuns) -> bool:
    """Whether operations left the graphs that the program still executes.

    They are counted in eager runs. Compiled code skips what is under `if not torch.compiler.is_compiling():`, so runs
    that skip it too are preferred.
    """
    if not needs_eager_after(evidence):
        return False
    own, other, least = graph_ops(evidence)
    for names in (("before as compiled", "after as compiled"), ("eager", "after eager")):
        exact = [run.numbers.eager_ops for run in evidence.of(*names)]
        if len(exact) == 2 and all(exact):
            # Backward and the optimizer are executed outside of these graphs, so the share alone is too large.
            share, num_gone = min(1.0, exact[1] / exact[0]), max(0, exact[0] - exact[1])
            return other < least * own * share and other + num_gone < least * own
    return True


def compile_reasons(evidence: ProofRuns) -> Iterator[VerdictReason]:
    """Less is compiled: fewer operations in graphs although AFTER executes them, or more calls that run eager."""
    before, after = evidence.runs["before"], evidence.runs["after"]
    if evidence.before.eager or after.has_failed or before.has_failed:
        return
    own, other, _ = graph_ops(evidence)
    if own and not other:
        yield VerdictReason(kind=ReasonKind.LESS_COMPILED, verdict=_REFUTED, value_before=own, value_after=0.0)
    elif own and is_less_compiled(evidence):
        verdict = _REFUTED if other < REFUTING_SHARE * own else _UNDECIDED
        yield VerdictReason(kind=ReasonKind.LESS_COMPILED, verdict=verdict, value_before=own, value_after=other)
    own_calls, calls = (_total(run.recording, "eager_calls") for run in (before, after))
    if own_calls is not None and calls is not None and calls > own_calls:
        yield VerdictReason(
            kind=ReasonKind.MORE_EAGER_CALLS, verdict=_REFUTED, value_before=own_calls, value_after=calls)


def backend_reasons(evidence: ProofRuns, time: ProofTime) -> Iterator[VerdictReason]:
    """A backend that only runs the graph instead of one that generates code, unless its steps are shown to be fast."""
    own, other = ({call.backend for call in evidence.runs[name].recording.of(CompileCall)} for name in _FIRST)
    generating, plain = sorted(own - PLAIN_BACKENDS - {""}), sorted((other - own) & PLAIN_BACKENDS)
    if generating and plain and not is_shown_not_slower(time):
        yield VerdictReason(
            kind=ReasonKind.WEAKER_BACKEND, verdict=_REFUTED, subject=plain[0], detail=generating[0])


def finding_reasons(evidence: ProofRuns, findings: FindingsChange, must_fix: Sequence[str]) -> Iterator[VerdictReason]:
    if evidence.before.eager:
        return
    for mark in findings.new:
        if _counts(mark.code) and (mark.severity <= WORST_NEW or _is_moved_break(evidence, findings, mark)):
            yield VerdictReason(
                kind=ReasonKind.NEW_FINDING, verdict=_REFUTED, subject=f"{mark.code} {mark.severity.name}",
                detail=f"{mark.title} ({mark.place})")
    yield from _grown_reasons(evidence, findings)
    fixed = {name for mark in findings.fixed for name in (mark.code, mark.fingerprint)}
    missing = [name for name in must_fix if name not in fixed]
    present = [mark for mark in findings.unchanged if _counts(mark.code)]
    if missing:
        yield VerdictReason(kind=ReasonKind.NOT_FIXED, verdict=_REFUTED, subject=", ".join(missing))
    elif not must_fix and present and not any(_counts(mark.code) for mark in findings.fixed):
        yield VerdictReason(
            kind=ReasonKind.NOT_FIXED, verdict=_REFUTED, subject=f"{present[0].code} {present[0].severity.name}",
            detail=f"{present[0].title} ({present[0].place})")


def _is_moved_break(evidence: ProofRuns, findings: FindingsChange, new: FindingMark) -> bool:
    """Whether this break, however mild, takes the place of one that is fixed: the program breaks as often as before."""
    if not new.code.startswith(_BREAK) or not any(mark.code.startswith(_BREAK) for mark in findings.fixed):
        return False
    runs = [evidence.runs[name].recording for name in _FIRST]
    own, other = (_total(run, "distinct_graph_breaks") or 0 for run in runs)
    return other >= own


def _grown_reasons(evidence: ProofRuns, findings: FindingsChange) -> Iterator[VerdictReason]:
    """A finding that stays and happens more often, where the program as a whole breaks or recompiles more often."""
    own, other = (
        sum(_total(evidence.runs[name].recording, kind) or 0 for kind in ("graph_breaks", "recompiles"))
        if name in evidence.runs else 0 for name in _FIRST
    )
    for mark in findings.unchanged:
        growth = (mark.num_events_after or 0) - mark.num_events
        if _counts(mark.code) and mark.severity <= WORST_NEW and min(growth, other - own) >= MIN_GROWTH:
            yield VerdictReason(
                kind=ReasonKind.MORE_EVENTS, verdict=_REFUTED, subject=f"{mark.code} {mark.severity.name}",
                value_before=mark.num_events, value_after=mark.num_events_after,
                detail=f"{mark.title} ({mark.place})")


def time_of(evidence: ProofRuns) -> tuple[ProofTime, list[VerdictReason]]:
    runs = [
        (evidence.runs[a].recording, evidence.runs[b].recording)
        for a, b in (("before", "after"), ("before again", "after again")) if len(evidence.of(a, b)) == 2
    ]
    rounds = [pair for pair in runs if has_enough(*pair)]
    few = [pair for pair in runs if has_enough(*pair, least=FEW_STEPS)]
    if not rounds and len(few) > 1 and not evidence.before.eager:
        time = step_times([a for a, _ in few], [b for _, b in few], in_turns=evidence.in_turns, least=2 * FEW_STEPS)
        if is_slower(time, few, CLEARLY_SLOWER):
            return time, [_slower(time)]
    if not rounds:
        first = [evidence.runs[name].recording for name in _FIRST]
        return step_times(first[:1], first[1:], in_turns=evidence.in_turns), []
    time = step_times([a for a, _ in rounds], [b for _, b in rounds], in_turns=evidence.in_turns)
    is_refuted = is_slower(time, rounds) and not evidence.before.eager
    return time, [_slower(time)] if is_refuted else []


def _slower(time: ProofTime) -> VerdictReason:
    middle = time.ratio.middle if time.ratio is not None else None
    return VerdictReason(kind=ReasonKind.SLOWER, verdict=_REFUTED, difference=middle)


def side_facts(side: Side, run: SideRun, files: Sequence[str]) -> SideFacts:
    counts = totals(run.recording)
    starts = [process.program.start for process in run.recording.processes if process.program.start is not None]
    seconds = counts["compile_seconds"]
    return SideFacts(
        label=side.label, command=tuple(side.command), exit_status=run.exit_status, seconds=run.seconds or None,
        num_steps=run.numbers.num_steps or _total(run.recording, "steps"),
        graph_breaks=_total(run.recording, "graph_breaks"), recompiles=_total(run.recording, "recompiles"),
        compiles=_total(run.recording, "compiles"), eager_calls=_total(run.recording, "eager_calls"),
        compile_seconds=float(seconds) if seconds is not None else None,
        graph_ops=run.numbers.graph_ops if run.numbers.is_there else None,
        graph_calls=run.numbers.graph_calls if run.numbers.is_there else None,
        peak_memory_bytes=run.numbers.peak_memory_bytes, torch=run.numbers.torch, files=tuple(files),
        moments=_moments(run.recording, min(starts)) if starts else (),
    )


def _total(recording: Recording, name: str) -> int | None:
    value = totals(recording)[name]
    return int(value) if value is not None else None


def _moments(recording: Recording, start: float) -> list[tuple[str, float, float]]:
    """(kind, seconds after the start, how long) of compiles, breaks and recompiles."""
    moments = []
    for end in recording.of(CompileEnd):
        seconds = end.seconds or 0.0
        moments.append(("compile", max(0.0, end.time - seconds - start), seconds))
    for kind, name in ((GraphBreak, "graph break"), (Recompile, "recompile")):
        moments += [(name, max(0.0, event.time - start), 0.0) for event in recording.of(kind)]
    return sorted(moments, key=lambda moment: moment[1])[:MAX_MOMENTS]


def verdict_of(reasons: Sequence[VerdictReason]) -> ProofVerdict:
    """Refuted if any reason refutes; else undecided if any is left; else verified."""
    verdicts = {reason.verdict for reason in reasons}
    return next((verdict for verdict in (_REFUTED, _UNDECIDED) if verdict in verdicts), ProofVerdict.VERIFIED)


def sorted_reasons(proof: Proof) -> list[VerdictReason]:
    """Those that decide first."""
    return sorted(proof.reasons, key=lambda reason: reason.verdict is not proof.verdict)

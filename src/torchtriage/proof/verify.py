"""`verify`: whether a change cures a finding without other effects."""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from torchtriage.capture.proof.arranged_draws import BY_STEP
from torchtriage.findings.proof.location import DifferencePlace
from torchtriage.findings.proof.verdict import (
    NumbersChange,
    NumbersState,
    Proof,
    ProofVerdict,
    ReasonKind,
    VerdictReason,
)
from torchtriage.proof import executed_work, judge, judge_numbers, sides
from torchtriage.proof.budget import TimeLimit, parse_duration
from torchtriage.proof.experiment import ProofRuns, Runs, read_recorded
from torchtriage.proof.locate.locate import Locator
from torchtriage.proof.numbers.compare import draws_differ
from torchtriage.proof.numbers.repeated_draws import repeated_draws
from torchtriage.proof.runs.surroundings import kept_stdin
from torchtriage.proof.sides import Side

DEFAULT_BUDGET = "10m"
LOCATED_REASONS = (ReasonKind.NUMBERS_DIFFER, ReasonKind.OUTPUT_DIFFERS)


def _silent(text: str) -> None:
    """Progress is not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofOptions:
    """How a proof is run."""

    budget: str | float = DEFAULT_BUDGET
    steps: int | None = None            # end both sides after this many optimizer steps
    seed: int = 0
    must_fix: Sequence[str] = ()        # codes or fingerprints of findings that must be gone; empty: any one of them
    say: Callable[[str], None] = _silent
    locate: bool = False                # name the first operation that differs, where the numbers differ
    keep_stdin: bool = False            # give every run the stdin of this process

    @property
    def seconds(self) -> float:
        return parse_duration(self.budget) if isinstance(self.budget, str) else float(self.budget)


def verify(
    before: str | os.PathLike[str], after: str | os.PathLike[str], *, arguments: Sequence[str] = (),
    budget: str | float = DEFAULT_BUDGET, steps: int | None = None, seed: int = 0, must_fix: Sequence[str] = (),
    say: Callable[[str], None] = _silent,
) -> Proof:
    """Run two scripts and prove, or refute, that the second one cures a finding of the first without other harm.

    `before` and `after` may also be two recordings, of which only what they hold is compared. `arguments` are those of
    both scripts; `must_fix` names the codes or fingerprints of findings that must be gone. A relative path is below
    the working folder, which is copied: the scripts overwrite no file in it.
    """
    options = ProofOptions(budget=budget, steps=steps, seed=seed, must_fix=must_fix, say=say)
    one, other = os.fspath(before), os.fspath(after)
    if sides.are_recordings(one, other):
        return verify_recordings(one, other, options)
    with work_folder() as work:
        return prove(*sides.script_sides(one, other, arguments, work), work, options)


@contextmanager
def work_folder() -> Iterator[Path]:
    """A temporary folder; SIGTERM ends with an exception, so that it is removed and no process is left."""
    is_main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, _end) if is_main else None
    try:
        with tempfile.TemporaryDirectory(prefix="torchtriage-verify-", ignore_cleanup_errors=True) as work:
            yield Path(work)
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, previous)


def _end(received: int, frame: FrameType | None) -> None:
    sys.exit(128 + received)


def prove(before: Side, after: Side, work: Path, options: ProofOptions) -> Proof:
    """Run both sides and judge them."""
    limit = TimeLimit(seconds=options.seconds)
    stdin, note = kept_stdin(work / "stdin") if options.keep_stdin else (None, "")
    evidence = ProofRuns(before=before, after=after)
    runs = Runs(
        evidence, work, limit, steps=options.steps or 0, seed=options.seed, stdin=stdin, say=options.say)
    runs.first()
    reasons = list(judge.failure_reasons(evidence))
    numbers = NumbersChange()
    if not evidence.runs["after"].has_failed and not judge.was_cut_short(evidence):
        runs.second_round()
        if not (before.eager or all(evidence.runs[name].numbers.rows for name in ("before", "after"))):
            runs.eager_sides()      # the steps of an optimizer inside a compiled function are seen there alone
        if not judge_numbers.is_equal(evidence):
            runs.noise()
        if judge.is_bad_news(judge.all_findings(evidence)) and not before.eager:
            runs.after_again()
        reasons = list(judge.failure_reasons(evidence))
        numbers, found = _numbers(evidence, runs)
        reasons += [*judge.step_reasons(evidence), *found, *judge.file_reasons(evidence)]
        reasons += _compared_work(evidence, runs, is_refuted=judge.verdict_of(reasons) is ProofVerdict.REFUTED)
    findings = judge.all_findings(evidence)
    reasons += judge.finding_reasons(evidence, findings, options.must_fix)
    time, slower = judge.time_of(evidence)
    reasons += [*slower, *judge.backend_reasons(evidence, time)]
    if judge.was_cut_short(evidence):
        reasons = list(judge.failure_reasons(evidence))     # nothing else is shown by a run that did not end
    location = None
    if options.locate and any(reason.kind in LOCATED_REASONS for reason in reasons):
        location = _location(evidence, runs, numbers, options)
    proof = Proof(
        verdict=judge.verdict_of(reasons), reasons=tuple(reasons), findings=findings, numbers=numbers, time=time,
        location=location, before=judge.side_facts(before, evidence.runs["before"], evidence.files["before"]),
        after=judge.side_facts(after, evidence.runs["after"], evidence.files["after"]),
        notes=(*_notes(evidence), *([note] if note else [])), seconds=limit.spent, num_runs=len(evidence.runs),
        steps_limit=options.steps,
    )
    return replace(proof, reasons=tuple(judge.sorted_reasons(proof)))


def _compared_work(evidence: ProofRuns, runs: Runs, *, is_refuted: bool) -> list[VerdictReason]:
    """What is compiled and executed; the operations are counted where that may decide."""
    time, slower = judge.time_of(evidence)
    is_open = not is_refuted and not slower and executed_work.is_in_question(evidence, time)
    if judge.needs_eager_after(evidence) or is_open:
        runs.eager_sides()
    if judge.is_less_compiled(evidence):
        runs.compiled_branches()
    return [
        *judge.compile_reasons(evidence), *executed_work.work_reasons(evidence, time),
        *executed_work.clipping_reasons(evidence),
    ]


def _location(evidence: ProofRuns, runs: Runs, numbers: NumbersChange, options: ProofOptions) -> DifferencePlace:
    """The first operation that differs, as far as it can be shown."""
    step = numbers.first_step if numbers.num_steps else None
    locator = Locator(
        work=runs.work / "locate", limit=runs.limit, say=options.say, step=step, seed=options.seed, stdin=runs.stdin)
    if evidence.before.eager:
        return locator.compiled(evidence.after)
    return locator.programs(evidence.before, evidence.after)


def _numbers(evidence: ProofRuns, runs: Runs) -> tuple[NumbersChange, list[VerdictReason]]:
    """The judgement on the numbers, with further runs where it needs them."""
    found = judge_numbers.first_agreement(evidence)
    if found is None:
        return judge_numbers.numbers_change(evidence, None, NumbersState.NOT_COMPARED), []
    if found.is_empty:
        reason = VerdictReason(kind=ReasonKind.NOTHING_COMPARED, verdict=ProofVerdict.UNDECIDED)
        return judge_numbers.numbers_change(evidence, found, NumbersState.NOT_COMPARED), [reason]
    if not found.holds:
        eager = judge_numbers.eager_agreement(evidence)
        if eager is None or not eager.holds or eager.is_empty:
            return _numbers_with_draws(evidence, runs, found)
        found = eager
    noise = judge_numbers.noise_reason(evidence, found)
    if noise is not None:
        return judge_numbers.numbers_change(evidence, found, NumbersState.UNDECIDED), [noise]
    hidden = _hidden_lines(found)
    state = NumbersState.EQUAL if found.is_equal else NumbersState.ROUNDING
    return judge_numbers.numbers_change(evidence, found, state), hidden


def _hidden_lines(found: judge_numbers.Agreement) -> list[VerdictReason]:
    """Without optimizer steps, numbers printed in other words on each side are numbers that were not compared."""
    if found.tensors.num_rows or not found.printed.only_before or not found.printed.only_after:
        return []
    return [VerdictReason(
        kind=ReasonKind.NOTHING_COMPARED, verdict=ProofVerdict.UNDECIDED, subject=found.printed.only_before[0],
        detail=found.printed.only_after[0])]


def _numbers_with_draws(
    evidence: ProofRuns, runs: Runs, found: judge_numbers.Agreement,
) -> tuple[NumbersChange, list[VerdictReason]]:
    """Numbers that differ: other random draws, or other arithmetic?"""
    differ = judge_numbers.difference_reason(found)
    is_of_draws = found.tensors.first is None or found.tensors.first.kind != "optimizer"    # a setting is not drawn
    if len(evidence.of("before", "eager")) == 0 or evidence.before.eager or not is_of_draws:
        return judge_numbers.numbers_change(evidence, found, NumbersState.DIFFER), [differ]
    runs.eager_sides()
    if judge_numbers.draws_are_the_same(evidence, found):
        return judge_numbers.numbers_change(evidence, found, NumbersState.DIFFER), [differ]
    pair = _with_same_draws(evidence, runs)
    if pair is not None and pair[0].holds and pair[1].holds and not pair[0].is_empty:
        repeated = repeated_draws(evidence.runs["eager"].numbers, evidence.runs["after eager"].numbers)
        if repeated is not None:
            reason = VerdictReason(kind=ReasonKind.DRAWS_REPEATED, verdict=ProofVerdict.REFUTED, step=repeated)
            return judge_numbers.numbers_change(evidence, found, NumbersState.DIFFER), [reason]
        noise = next(filter(None, (judge_numbers.noise_reason(evidence, one) for one in pair)), None)
        if noise is not None:
            return judge_numbers.numbers_change(evidence, pair[0], NumbersState.UNDECIDED), [noise]
        return judge_numbers.numbers_change(evidence, pair[0], NumbersState.SAME_DRAWS), []
    base, after = judge_numbers.baseline(evidence), evidence.runs["after"]
    moved = base is not None and draws_differ(base.numbers, after.numbers)
    if moved is not None and (pair is None or judge_numbers.python_draws_moved(evidence)):
        reason = replace(differ, kind=ReasonKind.DRAWS_MOVED, verdict=ProofVerdict.UNDECIDED)
        return judge_numbers.numbers_change(evidence, found, NumbersState.UNDECIDED), [reason]
    return judge_numbers.numbers_change(evidence, found, NumbersState.DIFFER), [differ]


def _with_same_draws(
    evidence: ProofRuns, runs: Runs,
) -> tuple[judge_numbers.Agreement, judge_numbers.Agreement] | None:
    """The agreement of both sides with arranged draws, by the arrangement under which it holds if there is one."""
    runs.keyed(BY_STEP)
    pair = judge_numbers.keyed_agreement(evidence)
    for arrangement in judge_numbers.other_arrangements(evidence):
        if pair is None or pair[0].holds:
            break
        runs.keyed(arrangement)
        pair = judge_numbers.keyed_agreement(evidence)
    return pair


def _notes(evidence: ProofRuns) -> Iterator[str]:
    """What limits the proof."""
    for name, side in (("before", evidence.before), ("after", evidence.after)):
        files = evidence.files.get(name, ())
        if files and not side.is_copy:
            yield f"{name.upper()} was run in place and writes {', '.join(files[:5])}"
        problem = evidence.runs[name].numbers.problem
        if problem:
            yield f"the numbers of {name.upper()} are incomplete: {problem}"
        run, result = evidence.runs[name], evidence.result(name)
        if not run.has_failed and not run.numbers.rows and result is not None and result.numbers.rows:
            yield f"{name.upper()} steps inside a compiled function, which is not seen: its weights are of an eager run"
        num_ranks = evidence.runs[name].numbers.num_ranks
        if num_ranks > 1:
            yield f"{name.upper()} trains in {num_ranks} processes; all of them are compared"


def verify_recordings(before: str, after: str, options: ProofOptions) -> Proof:
    """Only what the recordings hold; nothing is run."""
    one, other = sides.recording_sides(before, after)
    evidence = ProofRuns(before=one, after=other, files={"before": (), "after": ()})
    for name, folder in (("before", before), ("after", after)):
        evidence.runs[name] = read_recorded(Path(folder))
    findings = judge.all_findings(evidence)
    reasons = list(judge.finding_reasons(evidence, findings, options.must_fix))
    reasons.append(VerdictReason(kind=ReasonKind.NO_NUMBERS, verdict=ProofVerdict.UNDECIDED))
    time, _ = judge.time_of(evidence)
    proof = Proof(
        verdict=judge.verdict_of(reasons), reasons=tuple(reasons), findings=findings, time=time,
        before=judge.side_facts(one, evidence.runs["before"], ()),
        after=judge.side_facts(other, evidence.runs["after"], ()),
    )
    return replace(proof, reasons=tuple(judge.sorted_reasons(proof)))

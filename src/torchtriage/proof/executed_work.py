"""Whether AFTER executes clearly more operations than BEFORE, where its step time does not show that they are cheap."""

from collections.abc import Iterator

from torchtriage.findings.proof.verdict import ProofTime, ProofVerdict, ReasonKind, VerdictReason
from torchtriage.proof.experiment import ProofRuns
from torchtriage.proof.step_times import is_shown_not_slower

SUGGESTS_SLOWDOWN = 1.1     # operations of AFTER / BEFORE; a step time must exclude that it is slower then
SUGGESTS_UNTIMED = 1.5      # without step times: a right cure that pads, or splits a product, adds up to a third
REFUTES = 2.0               # computing both sides of a branch at most doubles the operations
FEW_PER_CALL = 8.0          # extra operations per compiled call that a cure needs, such as torch.where


def is_in_question(evidence: ProofRuns, time: ProofTime) -> bool:
    """Whether the operations must be counted. `--eager` compares a program with itself."""
    return not evidence.before.eager and not is_shown_not_slower(time)


def work_reasons(evidence: ProofRuns, time: ProofTime) -> Iterator[VerdictReason]:
    """More operations, counted in an eager run of each side, because a cure moves operations into graphs."""
    counts = [run.numbers.eager_ops for run in evidence.of("eager", "after eager") if not run.was_stopped]
    if not is_in_question(evidence, time) or len(counts) < 2 or not all(counts):
        return
    before, after = counts
    growth, extra = after / before, (after - before) / max(1, evidence.runs["after"].numbers.graph_calls)
    is_timed = time.ratio is not None
    if growth <= (SUGGESTS_SLOWDOWN if is_timed else SUGGESTS_UNTIMED) or (extra <= FEW_PER_CALL and not is_timed):
        return
    is_clear = growth >= REFUTES and extra > FEW_PER_CALL
    yield VerdictReason(
        kind=ReasonKind.MORE_WORK, verdict=ProofVerdict.REFUTED if is_clear else ProofVerdict.UNDECIDED,
        value_before=before, value_after=after, difference=growth,
        allowed=time.ratio.high if time.ratio is not None else None)


def clipping_reasons(evidence: ProofRuns) -> Iterator[VerdictReason]:
    """Gradients that are not clipped any more: where none reaches the limit, the numbers stay equal."""
    counts = [run.numbers.clipping_ops for run in evidence.of("eager", "after eager") if not run.was_stopped]
    if len(counts) == 2 and counts[0] and not counts[1]:
        yield VerdictReason(kind=ReasonKind.CLIPPING_LOST, verdict=ProofVerdict.UNDECIDED)

"""The judgement on the numbers: equal, rounding, other random draws, or different."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchtriage.capture.proof.arranged_draws import BY_MODULE, BY_ROW, MIRRORED, SWAPPED
from torchtriage.findings.proof.verdict import (
    LossCurve,
    NumbersChange,
    NumbersState,
    ProofVerdict,
    ReasonKind,
    VerdictReason,
)
from torchtriage.proof.experiment import ProofRuns, SideRun
from torchtriage.proof.numbers.compare import (
    NumberComparison,
    RoundingNoise,
    compare,
    draws_differ,
    relative_difference,
)
from torchtriage.proof.numbers.printed import PrintedComparison, compare_printed
from torchtriage.proof.numbers.rows import RunNumbers, StepRow

MAX_POINTS = 2000       # of a loss curve in the result
PYTHON_AND_NUMPY = 2    # of the digests of a row: generators whose draws cannot be arranged
LARGE = 1e-3            # relative: two runs of BEFORE that differ by more are not a matter of rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How two runs compare, in their tensors and in what they print."""

    tensors: NumberComparison
    printed: PrintedComparison = field(default_factory=PrintedComparison)

    @property
    def holds(self) -> bool:
        return self.tensors.agrees and self.printed.different is None

    @property
    def is_equal(self) -> bool:
        """To the last bit and the last printed digit."""
        return self.tensors.is_equal and not self.tensors.unlike and not self.printed.num_unequal

    @property
    def is_empty(self) -> bool:
        return not self.tensors.num_rows and not self.printed.num_compared


def baseline(evidence: ProofRuns) -> SideRun | None:
    """The run whose numbers AFTER must have: BEFORE, or BEFORE run eager if it fails compiled."""
    return evidence.result("before")


def agreement(
    one: SideRun, other: SideRun, *, again: Sequence[SideRun] = (), eager: SideRun | None = None,
    moved: Sequence[SideRun] = (),
) -> Agreement:
    """`again` repeats `one`; `moved` are runs of `eager` with every result moved by one rounding."""
    pairs = [(one.numbers, run.numbers) for run in again]
    if eager is not None:
        pairs += [(eager.numbers, run.numbers) for run in moved]
    printed = compare_printed(
        one.output, other.output, [run.output for run in again], eager.output if eager is not None else None,
        [run.output for run in moved])
    return Agreement(tensors=compare(one.numbers, other.numbers, RoundingNoise(pairs)), printed=printed)


def first_agreement(evidence: ProofRuns) -> Agreement | None:
    """AFTER against BEFORE; None if one of them has no numbers."""
    base, after = baseline(evidence), evidence.result("after")
    if base is None or after is None:
        return None
    again = evidence.of("before again") if evidence.of("before") else []
    return agreement(base, after, again=again, eager=_exact(evidence), moved=evidence.of("moved 1", "moved 2"))


def is_equal(evidence: ProofRuns) -> bool:
    """Whether all numbers are equal already, so that it need not be measured what rounding does."""
    own, other = evidence.result("before"), evidence.result("after")
    if own is None or other is None or len(own.numbers.rows) != len(other.numbers.rows):
        return False
    found = agreement(own, other)
    has_numbers = found.tensors.num_rows > 0 or (found.printed.num_compared > 0 and not found.printed.only_after)
    return found.holds and found.is_equal and has_numbers


def _exact(evidence: ProofRuns) -> SideRun | None:
    """BEFORE run eager, whose moved runs measure the noise."""
    name = "before" if evidence.before.eager else "eager"
    return next(iter(evidence.of(name)), None)


def eager_agreement(evidence: ProofRuns) -> Agreement | None:
    """AFTER against BEFORE run eager: where BEFORE is compiled wrongly, a right AFTER agrees with this."""
    exact, after = evidence.of("eager"), evidence.result("after")
    if not exact or after is None or draws_differ(exact[0].numbers, after.numbers) is not None:
        return None
    return agreement(exact[0], after, eager=exact[0], moved=evidence.of("moved 1", "moved 2"))


def keyed_agreement(evidence: ProofRuns) -> tuple[Agreement, Agreement] | None:
    """(both sides eager with the same draws, AFTER compiled against AFTER eager); None if one of the runs failed."""
    runs = evidence.of("keyed before", "keyed after", "keyed moved")
    after, eager = evidence.result("after"), evidence.of("after eager")
    if len(runs) < 3 or after is None or not eager:
        return None
    keyed = agreement(runs[0], runs[1], eager=runs[0], moved=[runs[2]])
    exact = _exact(evidence)
    pairs = [(exact.numbers, run.numbers) for run in evidence.of("moved 1", "moved 2")] if exact is not None else []
    compiled = compare(eager[0].numbers, after.numbers, RoundingNoise(pairs))
    printed = compare_printed(eager[0].output, after.output, [], None, [])
    # Without tensors the compiled side is judged by what it prints, which has no measured noise.
    return keyed, Agreement(tensors=compiled, printed=PrintedComparison() if compiled.num_rows else printed)


def other_arrangements(evidence: ProofRuns) -> list[str]:
    """The arrangements under which the draws of both sides may be the same, where they are not by step."""
    runs = evidence.of("keyed before", "keyed after")
    if len(runs) < 2:
        return []
    own, other = (dict(run.numbers.drawn_elements) for run in runs)
    masks = own.pop("bernoulli", 0), other.pop("bernoulli", 0)
    if masks[0] != masks[1]:
        return [MIRRORED]
    if own != other:
        return []
    if runs[0].numbers.draw_keys != runs[1].numbers.draw_keys:
        return [BY_ROW]
    pairs = frozenset.intersection(*(run.numbers.draw_pairs for run in runs))
    by_module = [BY_MODULE] if all(run.numbers.repeats_shapes for run in runs) else []
    swapped = [f"{SWAPPED}:{','.join(map(str, sorted(pairs)))}"] if pairs else []
    return [*swapped, *by_module]       # the first needs the runs by step


def draws_are_the_same(evidence: ProofRuns, found: Agreement) -> bool:
    """Whether both sides, run eager, draw the same values in the same order, so that arranging them is no use.

    This is known of the optimizer steps; a difference after them may be one of draws.
    """
    runs = evidence.of("eager", "after eager")
    is_in_steps = found.tensors.first is not None and found.tensors.first.kind != "saved tensor"
    if len(runs) < 2 or not is_in_steps or runs[0].numbers.repeats_shapes:
        return False
    own, other = ([(row.step, row.draws, row.drawn) for row in run.numbers.rows] for run in runs)
    return own == other and any(drawn for *_, drawn in own)


def python_draws_moved(evidence: ProofRuns) -> bool:
    """Whether Python's or NumPy's generator is in another state: their draws cannot be arranged."""
    runs = evidence.of("keyed before", "keyed after")
    if len(runs) < 2:
        return False
    pairs = zip(runs[0].numbers.rows, runs[1].numbers.rows, strict=False)
    return any(a.draws[:PYTHON_AND_NUMPY] != b.draws[:PYTHON_AND_NUMPY] for a, b in pairs)


def numbers_change(evidence: ProofRuns, found: Agreement | None, state: NumbersState) -> NumbersChange:
    """The result in fields."""
    base, after = baseline(evidence), evidence.result("after")
    own = None
    if base is not None and evidence.of("before again"):
        own = relative_difference(base.numbers, evidence.runs["before again"].numbers)
    curves = [loss_curve(run.numbers) if run is not None else LossCurve() for run in (base, after)]
    if found is None:
        return NumbersChange(own_difference=own, before=curves[0], after=curves[1])
    tensors, printed = found.tensors, found.printed
    largest, first = tensors.largest, tensors.first
    return NumbersChange(
        state=state, compared=_compared(found), num_steps=tensors.num_rows, num_tensors=tensors.num_tensors,
        num_printed=printed.num_compared, num_varying=printed.num_varying,
        largest=largest.ratio if largest is not None else None,
        largest_relative=largest.relative if largest is not None else None,
        first_step=first.step if first is not None else None,
        first_tensor=f"{first.kind} {first.name}" if first is not None else "",
        own_difference=own, eager_difference=_of_eager(evidence), before=curves[0], after=curves[1],
    )


def _compared(found: Agreement) -> list[str]:
    kinds = ["losses", "gradients", "weights"] if found.tensors.num_rows else []
    return [*kinds, *(["printed numbers"] if found.printed.num_compared else [])]


def _of_eager(evidence: ProofRuns) -> float | None:
    """How far BEFORE compiled is from BEFORE eager, in multiples of what is allowed."""
    runs = evidence.of("before", "eager")
    if len(runs) < 2:
        return None
    pairs = [(runs[1].numbers, run.numbers) for run in evidence.of("moved 1", "moved 2")]
    largest = compare(runs[1].numbers, runs[0].numbers, RoundingNoise(pairs)).largest
    return largest.ratio if largest is not None else None


def loss_curve(numbers: RunNumbers) -> LossCurve:
    """The first loss of each step, thinned."""
    rows: list[StepRow] = [row for row in numbers.rows if row.losses]
    rows = rows[::max(1, len(rows) // MAX_POINTS)]
    return LossCurve(
        steps=[row.step for row in rows], values=[row.losses[0][0] for row in rows], times=[row.time for row in rows])


def difference_reason(found: Agreement) -> VerdictReason:
    """Why the numbers do not agree, by the first difference."""
    first = found.tensors.first
    if found.tensors.unlike:
        return VerdictReason(kind=ReasonKind.NUMBERS_DIFFER, verdict=ProofVerdict.REFUTED, detail=found.tensors.unlike)
    if first is not None:
        return VerdictReason(
            kind=ReasonKind.NUMBERS_DIFFER, verdict=ProofVerdict.REFUTED, step=first.step,
            subject=_subject(first.kind, first.name),
            value_before=first.before, value_after=first.after, difference=first.relative,
            allowed=first.allowed / first.size if first.size and first.kind != "optimizer" else None)
    before, after = found.printed.different or ("", "")
    return VerdictReason(kind=ReasonKind.OUTPUT_DIFFERS, verdict=ProofVerdict.REFUTED, subject=before, detail=after)


def _subject(kind: str, name: str) -> str:
    return name if kind == "loss" else f"{kind} {name}"


def noise_reason(evidence: ProofRuns, found: Agreement) -> VerdictReason | None:
    """Why numbers that agree prove little: the program's own noise is too large from some step on."""
    step = found.tensors.too_noisy_from
    if step is None:
        return None
    runs = evidence.of("before", "before again")
    own = relative_difference(runs[0].numbers, runs[1].numbers) if len(runs) == 2 else None
    kind = ReasonKind.NOT_DETERMINISTIC if own is not None and own > LARGE else ReasonKind.TOO_NOISY
    return VerdictReason(kind=kind, verdict=ProofVerdict.UNDECIDED, step=step, difference=own)

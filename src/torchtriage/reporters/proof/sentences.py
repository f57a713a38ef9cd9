"""The sentences of a proof, made from its fields."""

from collections.abc import Callable, Iterator

from torchtriage.findings.proof.verdict import (
    FindingMark,
    NumbersChange,
    NumbersState,
    Proof,
    ProofTime,
    ProofVerdict,
    ReasonKind,
    SideFacts,
    VerdictReason,
)
from torchtriage.text import counted, duration, factor, listed, shortened

MAX_QUOTE = 300


def number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def share(value: float | None) -> str:
    """A relative difference: 3 % or 2e-06."""
    if value is None or value == float("inf"):
        return "entirely"
    return f"{100 * value:.3g} %" if value >= 1e-3 else f"{value:.1e} of it"


def reason_sentence(reason: VerdictReason) -> str:
    """Why the verdict is not `verified`, with what would settle it."""
    return _SENTENCES[reason.kind](reason)


def _numbers_differ(reason: VerdictReason) -> str:
    if reason.detail:
        return f"the numbers differ: {reason.detail}"
    values = f"{number(reason.value_before)} before, {number(reason.value_after)} after"
    allowed = f"; rounding moves it by {share(reason.allowed)} at most" if reason.allowed is not None else ""
    return (f"the numbers differ from step {reason.step} on: {reason.subject} by {share(reason.difference)} "
            f"({values}){allowed}")


def _after_fails(reason: VerdictReason) -> str:
    return f"AFTER fails with status {number(reason.value_after)}, BEFORE does not: {_last(reason.detail)}"


def _less_compiled(reason: VerdictReason) -> str:
    if not reason.value_after:
        return "nothing of AFTER is compiled: 0 operations ran in compiled graphs"
    what = (f"less is compiled: {number(reason.value_after)} operations ran in compiled graphs, "
            f"{number(reason.value_before)} before, and the program still executes them")
    if reason.verdict is ProofVerdict.UNDECIDED:
        what += "; compile the rest too, or compare the time of a long run if it cannot be compiled"
    return what


def _more_work(reason: VerdictReason) -> str:
    counted_text = (f"AFTER executes {factor(reason.difference or 1.0)} the operations: "
                    f"{number(reason.value_after)}, {number(reason.value_before)} before")
    if reason.allowed is None:
        return f"{counted_text}; its step time is not measured, so give the program more steps"
    return (f"{counted_text}; its step may take {factor(reason.allowed)} as long, "
            "so give the program more steps, or a machine that is not busy")


def _not_fixed(reason: VerdictReason) -> str:
    if not reason.detail:
        return f"{reason.subject} is not fixed"
    return f"no finding is fixed; the first one: {reason.subject}  {reason.detail}"


def _budget_ended(reason: VerdictReason) -> str:
    steps = reason.step or 0
    advice = f"give --steps {max(1, steps // 3)}" if steps > 1 else "raise --budget"
    subject = reason.subject or "a further run of the proof"
    return f"{subject} was stopped at its time limit after {counted(steps, 'step')}; {advice}"


def _nothing_compared(reason: VerdictReason) -> str:
    if reason.subject:
        return (f"no optimizer step, and the printed numbers cannot be matched: {reason.subject!r} before, "
                f"{reason.detail!r} after; print them in the same words")
    return "there is nothing to compare: no optimizer step and no printed number; print a result"


def _too_noisy(reason: VerdictReason) -> str:
    step = reason.step or 1
    return (f"from step {step} on rounding alone moves the weights by a quarter of the way that they have gone; "
            f"give --steps {max(1, step - 1)} to judge the steps before it")


def _not_deterministic(reason: VerdictReason) -> str:
    return (f"BEFORE is not deterministic by itself: two runs of it with the same seed differ by "
            f"{share(reason.difference)}, too much from step {reason.step} on; seed it, or give --steps")


def _draws_moved(reason: VerdictReason) -> str:
    return ("the random draws of Python or NumPy moved, and the same draws could not be arranged; "
            f"the numbers differ from step {reason.step} on; draw with torch, or in the same order")


def _draws_repeated(reason: VerdictReason) -> str:
    if not reason.step:
        return "AFTER draws the same random numbers more often than BEFORE: is it seeded in a loop?"
    return (f"step {reason.step} draws the same random numbers as an earlier step, or as another rank, and does not in "
            "BEFORE: is it seeded in a loop, or alike in all ranks?")


def _no_numbers(_: VerdictReason) -> str:
    return "the recordings do not hold the numbers of every step; give the two scripts to compare them"


def _last(text: str) -> str:
    return shortened((text.strip().splitlines() or ["(nothing on stderr)"])[-1].strip(), MAX_QUOTE)


_SENTENCES: dict[ReasonKind, Callable[[VerdictReason], str]] = {
    ReasonKind.AFTER_FAILS: _after_fails,
    ReasonKind.NUMBERS_DIFFER: _numbers_differ,
    ReasonKind.OUTPUT_DIFFERS: lambda r: f"the results differ: {r.detail!r}, and {r.subject!r} before",
    ReasonKind.DRAWS_REPEATED: _draws_repeated,
    ReasonKind.LESS_COMPILED: _less_compiled,
    ReasonKind.WEAKER_BACKEND: lambda r: (
        f"AFTER compiles with backend {r.subject!r}, which runs the operations one by one; "
        f"BEFORE generates code with {r.detail!r}"),
    ReasonKind.MORE_EAGER_CALLS: lambda r: (
        f"{number(r.value_after)} calls of compiled functions ran eager, {number(r.value_before)} before"),
    ReasonKind.NEW_FINDING: lambda r: f"new finding: {r.subject}  {r.detail}",
    ReasonKind.MORE_EVENTS: lambda r: (
        f"{r.subject} stays and happens more often: {number(r.value_after)} times, {number(r.value_before)} before: "
        f"{r.detail}"),
    ReasonKind.FEWER_STEPS: lambda r: (
        f"fewer optimizer steps: {number(r.value_after)}, {number(r.value_before)} before"),
    ReasonKind.MORE_STEPS: lambda r: (
        f"more optimizer steps: {number(r.value_after)}, {number(r.value_before)} before"),
    ReasonKind.SLOWER: lambda r: f"a step takes {factor(r.difference or 1.0)} as long",
    ReasonKind.MORE_WORK: _more_work,
    ReasonKind.NOT_FIXED: _not_fixed,
    ReasonKind.UNOBSERVED: lambda r: (
        f"{r.subject} was not observed: it never imported torch, or its Python has no torchtriage"),
    ReasonKind.BOTH_FAIL: lambda r: f"both sides fail; AFTER ends with: {_last(r.detail)}",
    ReasonKind.BEFORE_FAILS: lambda r: (
        f"BEFORE fails, also eager, so there are no numbers to keep; it ends with: {_last(r.detail)}"),
    ReasonKind.TOO_NOISY: _too_noisy,
    ReasonKind.NOT_DETERMINISTIC: _not_deterministic,
    ReasonKind.DRAWS_MOVED: _draws_moved,
    ReasonKind.NOTHING_COMPARED: _nothing_compared,
    ReasonKind.CLIPPING_LOST: lambda _: (
        "AFTER does not clip its gradients by torch.nn.utils, BEFORE does; no gradient reaches the limit in these "
        "steps, so give the program steps in which one does"),
    ReasonKind.FILE_LOST: lambda r: f"AFTER does not write {r.subject}, which BEFORE writes; write it too",
    ReasonKind.NO_NUMBERS: _no_numbers,
    ReasonKind.BUDGET_ENDED: _budget_ended,
    ReasonKind.OTHER_PROGRAMS: lambda r: f"the recordings are of different programs: {r.subject} and {r.detail}",
}


def headline(proof: Proof) -> str:
    """One line: the verdict with what decides it."""
    if proof.verdict is not ProofVerdict.VERIFIED:
        return reason_sentence(proof.reasons[0])
    num_fixed = len(proof.findings.fixed)
    cured = f"{counted(num_fixed, 'finding')} fixed" if num_fixed else "no finding in BEFORE, nothing to fix"
    if not num_fixed and proof.findings.unchanged:
        cured = "no finding asked for"
    return f"{cured}, nothing new; {numbers_sentence(proof.numbers)}"


def numbers_sentence(numbers: NumbersChange) -> str:
    what = listed(numbers.compared)
    steps = f" of {counted(numbers.num_steps, 'step')}" if numbers.num_steps else ""
    exactly = "bit for bit" if numbers.num_steps else "to the last digit"
    sentences = {
        NumbersState.EQUAL: f"numbers equal {exactly} ({what}{steps})",
        NumbersState.ROUNDING: f"numbers equal within rounding ({what}{steps})",
        NumbersState.SAME_DRAWS: f"random draws moved; with the same draws arranged, numbers equal ({what}{steps})",
        NumbersState.DIFFER: "numbers differ",
        NumbersState.UNDECIDED: "numbers undecided",
        NumbersState.NOT_COMPARED: "numbers not compared",
    }
    return sentences[numbers.state]


def number_notes(numbers: NumbersChange) -> Iterator[str]:
    if numbers.own_difference is not None:
        own = numbers.own_difference
        yield "two runs of BEFORE are equal" if own == 0 else f"two runs of BEFORE differ by {share(own)}"
    if numbers.largest is not None and numbers.state in (NumbersState.ROUNDING, NumbersState.SAME_DRAWS):
        yield f"largest difference: {share(numbers.largest)} of what the measured rounding allows".replace(
            " of it of", " of")
    if numbers.eager_difference is not None and numbers.eager_difference > 1:
        yield (f"BEFORE compiled differs from BEFORE eager by {numbers.eager_difference:.3g} times what rounding "
               "allows: see torchtriage verify --eager")
    if numbers.num_varying:
        them = "it" if numbers.num_varying == 1 else "them"
        yield f"{counted(numbers.num_varying, 'printed number')} left out: two runs of BEFORE differ in {them}"
    if not numbers.num_steps and numbers.num_printed:
        yield "there was no optimizer step: the numbers that the program prints were compared"


def time_sentence(time: ProofTime) -> str:
    if time.before_seconds is None or time.after_seconds is None or time.ratio is None:
        return f"not measured: {time.why_not}" if time.why_not else "not measured"
    ratio = time.ratio
    interval = f" ({ratio.low:.3g} to {ratio.high:.3g})" if ratio.low is not None and ratio.high is not None else ""
    return (f"step {duration(time.before_seconds)} -> {duration(time.after_seconds)}, "
            f"ratio {ratio.middle:.3g}{interval} over {counted(time.num_steps, 'step')} "
            f"{'in turns' if time.in_turns else 'one after the other'}")


def change(before: float | None, after: float | None, unit: str = "") -> str:
    def text(value: float | None) -> str:
        if value is None:
            return "unknown"
        return duration(value) if unit == "s" else f"{value:,.0f}"

    return text(before) if before == after else f"{text(before)} -> {text(after)}"


def counts(before: SideFacts, after: SideFacts) -> list[tuple[str, str]]:
    """(what, before -> after) of everything that was counted on both sides."""
    rows = [
        ("graph breaks", before.graph_breaks, after.graph_breaks, ""),
        ("recompiles", before.recompiles, after.recompiles, ""),
        ("compiles", before.compiles, after.compiles, ""),
        ("compile time", before.compile_seconds, after.compile_seconds, "s"),
        ("operations in graphs", before.graph_ops, after.graph_ops, ""),
        ("eager calls", before.eager_calls, after.eager_calls, ""),
        ("steps", before.num_steps, after.num_steps, ""),
        ("peak memory (MiB)", _mebibytes(before), _mebibytes(after), ""),
    ]
    return [(name, change(a, b, unit)) for name, a, b, unit in rows if a is not None or b is not None]


def _mebibytes(side: SideFacts) -> float | None:
    return side.peak_memory_bytes / 2 ** 20 if side.peak_memory_bytes is not None else None


def finding_line(mark: FindingMark) -> str:
    return f"{mark.code} {mark.severity.name}  {mark.title}  ({mark.place})"

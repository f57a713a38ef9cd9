"""Whether a program draws the same random values again where it drew others before the change.

With the same draws arranged, a program that seeds in every step is equal to one that seeds once.
"""

from torchtriage.capture.proof.operations import MIN_BITS
from torchtriage.proof.numbers.rows import RunNumbers


def repeated_draws(before: RunNumbers, after: RunNumbers) -> int | None:
    """The first step of AFTER that draws what an earlier row drew, if BEFORE repeats fewer; both runs are eager.

    0 if only single draws are repeated, and not all of a step.
    """
    repeats = _repeats(after)
    if len(repeats) > len(_repeats(before)):
        return repeats[0]
    return 0 if after.repeated_draws > before.repeated_draws else None


def _repeats(numbers: RunNumbers) -> list[int]:
    """The steps of rows whose values another row before them drew too, of the same or of another rank."""
    known, steps = set[int](), []
    for row in numbers.rows:
        if len(row.drawn) == 2 and row.drawn[1] >= MIN_BITS:
            if row.drawn[0] in known:
                steps.append(row.step)
            known.add(row.drawn[0])
    return steps

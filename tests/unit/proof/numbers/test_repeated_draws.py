"""A step that draws the values of an earlier one is found, unless it did so before the change."""

import pytest

from torchtriage.proof.numbers.repeated_draws import repeated_draws
from torchtriage.proof.numbers.rows import RunNumbers, StepRow


def run(*digests: int, bits: int = 256, repeats: int = 0) -> RunNumbers:
    rows = [StepRow(optimizer=0, step=step, time=0.0, drawn=[d, bits]) for step, d in enumerate(digests, 1)]
    return RunNumbers(rows=rows, repeated_draws=repeats)


@pytest.mark.parametrize(("before", "after", "step"), [
    (run(1, 2, 3), run(4, 5, 6), None),
    (run(1, 2, 3), run(4, 5, 5), 3),
    (run(1, 1, 1), run(4, 4, 4), None),             # it was so before
    (run(1, 2, 3), run(4, 4, 4, bits=3), None),     # by chance
    (run(), run(repeats=2), 0),
    (run(repeats=2), run(repeats=2), None),
    (RunNumbers(rows=[StepRow(optimizer=0, step=1, time=0.0)] * 2), RunNumbers(), None),    # not recorded
])
def test_repeated_values_of_a_step_are_found(before: RunNumbers, after: RunNumbers, step: int | None) -> None:
    assert repeated_draws(before, after) == step

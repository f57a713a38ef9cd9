"""Printed numbers agree within their digits and the measured noise; those that vary by themselves are left out."""

import pytest

from torchtriage.proof.numbers.printed import PrintedComparison, compare_printed, parse

BEFORE = "step 1 loss 0.50000 took 12.1 ms\nstep 2 loss 0.25000 took 11.9 ms\ndone\n"


def compared(after: str, *, again: str = BEFORE, eager: str | None = BEFORE, moved: str = BEFORE) -> PrintedComparison:
    return compare_printed(BEFORE, after, [again], eager, [moved])


def test_numbers_and_words_of_a_line_are_told_apart() -> None:
    line, = parse("epoch 3: loss=-1.5e-03, x2 nan")
    assert [number.value for number in line.numbers][:2] == [3.0, -0.0015]
    assert line.numbers[1].unit == pytest.approx(1e-4)
    assert line.words.startswith("epoch #: loss=#, x2")


def test_equal_output_agrees() -> None:
    found = compared(BEFORE)
    assert (found.num_compared, found.num_unequal, found.different) == (6, 0, None)


def test_timings_are_left_out() -> None:
    other = BEFORE.replace("12.1", "45.6").replace("11.9", "44.0")
    found = compared(other, again=BEFORE.replace("12.1", "13.0").replace("11.9", "10.2"))
    assert (found.num_compared, found.num_varying, found.different) == (4, 2, None)


def test_a_last_digit_may_differ_but_not_more() -> None:
    near = compared(BEFORE.replace("0.25000", "0.25001"))
    assert (near.num_unequal, near.different) == (1, None)
    found = compared(BEFORE.replace("0.25000", "0.25100"))
    assert found.different == ("step 2 loss 0.25000 took 11.9 ms", "step 2 loss 0.25100 took 11.9 ms")


def test_measured_rounding_widens_what_is_allowed() -> None:
    assert compared(BEFORE.replace("0.25000", "0.25100"), moved=BEFORE.replace("0.25000", "0.25020")).different is None


def test_a_whole_number_must_be_the_same() -> None:
    assert compared(BEFORE.replace("step 2", "step 3")).different is not None


def test_numbers_about_the_compiler_are_left_out() -> None:
    """Run eager, BEFORE prints another one."""
    eager = BEFORE.replace("step 2", "step 0")
    found = compared(eager, eager=eager, moved=eager)
    assert (found.num_of_compiler, found.different) == (1, None)


def test_lines_of_one_side_alone_are_listed() -> None:
    found = compared(BEFORE.replace("step 2 loss", "second loss"))
    assert found.only_before == ["step 2 loss 0.25000 took 11.9 ms"]
    assert found.only_after == ["second loss 0.25000 took 11.9 ms"]

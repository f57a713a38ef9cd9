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


def test_a_number_that_is_printed_with_fewer_digits_is_compared_in_those() -> None:
    assert compared(BEFORE.replace("0.25000", "0.25")).different is None
    assert compared(BEFORE.replace("0.25000", "0.26")).different is None
    assert compared(BEFORE.replace("0.25000", "0.28")).different is not None
    assert compared(BEFORE.replace("step 2", "step 3.0")).different is not None


@pytest.mark.parametrize("text", [
    "tensor(0.2500)", "tensor(0.2500, grad_fn=<MeanBackward0>)", "tensor(0.2500, dtype=torch.float64)",
    "tensor(0.2500, device='cuda:0', requires_grad=True)",
])
def test_a_tensor_of_one_element_is_the_number_that_item_gives(text: str) -> None:
    found = compared(BEFORE.replace("0.25000", text))
    assert (found.num_compared, found.different, list(found.only_before)) == (6, None, [])
    found = compared(BEFORE.replace("0.25000", text.replace("25", "27")))
    assert found.different is not None

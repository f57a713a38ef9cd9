"""The loss of every step as a series."""

from torchtriage.recording.recording import Series
from torchtriage.telemetry.loss_course import LossCourse


def points(series: Series | None) -> list[tuple[float, float]]:
    assert series is not None
    return list(zip(series.steps, series.values, strict=True))


def test_the_losses_of_a_step_are_added_up() -> None:
    course = LossCourse()
    for step in range(1, 4):
        course.add(0.5)
        course.add(float(step))
        course.step_ended(7, step)
    assert points(course.series()) == [(1, 1.5), (2, 2.5), (3, 3.5)]


def test_a_long_training_keeps_a_bounded_number_of_points_and_its_extremes() -> None:
    course = LossCourse()
    for step in range(1, 20_001):
        course.add(99.0 if step == 777 else 1.0)
        course.step_ended(7, step)
    kept = points(course.series())
    assert len(kept) <= 3 * 2048
    assert (777, 99.0) in kept


def test_losses_of_several_optimizers_or_on_a_device_have_no_course() -> None:
    several, device = LossCourse(), LossCourse()
    for course in (several, device):
        course.add(1.0)
        course.step_ended(7, 1)
    several.add(1.0)
    several.step_ended(8, 1)
    device.interrupt()
    assert several.series() is None
    assert device.series() is None


def test_two_optimizers_may_step_after_one_loss() -> None:
    course = LossCourse()
    for step in (1, 2):
        course.add(float(step))
        course.step_ended(7, step)
        course.step_ended(8, step)
    assert points(course.series()) == [(1, 1.0), (2, 2.0)]


def test_parts_of_a_first_step_are_left_out() -> None:
    course = LossCourse()
    for step in (1, 2, 3):
        course.add(1.0)
        course.step_ended(0, step)
    course.begin_anew()
    course.add(5.0)
    course.step_ended(7, 2)
    assert points(course.series()) == [(2, 5.0)]


def test_the_loss_of_a_scaled_step_is_unscaled_and_that_of_a_skipped_one_is_left_out() -> None:
    course = LossCourse()
    for step, is_skipped in ((1, False), (2, True), (2, False)):
        course.add(1024.0 * step)
        course.unscale(1 / 1024)
        if not is_skipped:
            course.step_ended(7, step)
    assert points(course.series()) == [(1, 1.0), (2, 2.0)]

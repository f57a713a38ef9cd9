"""Numbers agree within the measured noise, and the first difference beyond it is named."""

import math
from dataclasses import replace

import pytest

from torchtriage.proof.numbers.compare import RoundingNoise, compare, draws_differ, relative_difference
from torchtriage.proof.numbers.rows import RunNumbers, StepRow

EPSILON = 1.2e-7


def tensor(value: float, noise: float = 0.0) -> list[float]:
    """A tensor of one element, whose projections all are its value."""
    return [abs(value + noise), *[value + noise] * 4, EPSILON]


def run(
    *, noise: float = 0.0, loss: float = 0.0, gradient: float = 0.0, lost: bool = False, num: int = 6,
) -> RunNumbers:
    """`num` steps; the keywords are added to what a run without changes has, from step 3 on."""
    rows = []
    for step in range(1, num + 1):
        late = step >= 3
        gradients = {"weight": tensor(0.5 / step + gradient * late, noise), "bias": tensor(0.1, noise)}
        if lost and late:
            del gradients["bias"]
        rows.append(StepRow(
            optimizer=0, step=step, time=float(step), losses=[[2.0 / step + loss * late + noise, EPSILON]],
            draws=[1, 2, step, 0], gradients=gradients,
            weights={"weight": tensor(1.0 - 0.1 * step, noise), "bias": tensor(0.01 * step, noise)}))
    return RunNumbers(rows=rows, num_steps=num, is_there=True)


def noise(size: float = 1e-6) -> RoundingNoise:
    return RoundingNoise([(run(), run(noise=size))])


def test_equal_runs_are_equal() -> None:
    found = compare(run(), run(), noise())
    assert (found.agrees, found.is_equal, found.num_rows, found.num_tensors) == (True, True, 6, 2)


def test_a_difference_of_the_size_of_rounding_agrees() -> None:
    found = compare(run(), run(noise=3e-6), noise())
    assert found.agrees
    assert not found.is_equal
    assert found.largest is not None
    assert 0.1 < found.largest.ratio < 1


def test_the_first_step_and_the_first_tensor_beyond_rounding_are_named() -> None:
    found = compare(run(), run(gradient=0.01), noise())
    assert found.first is not None
    assert (found.first.step, found.first.kind, found.first.name) == (3, "gradient", "weight")
    assert found.first.relative == pytest.approx(0.01 / (0.5 / 3))
    found = compare(run(), run(loss=1e-3), noise())
    assert found.first is not None
    assert (found.first.step, found.first.kind) == (3, "loss")


def test_a_lost_gradient_is_a_difference() -> None:
    found = compare(run(), run(lost=True), noise())
    assert found.first is not None
    assert (found.first.step, found.first.name, found.first.after) == (3, "bias", None)


def test_a_number_that_is_not_finite_on_one_side_is_a_difference() -> None:
    assert not compare(run(), run(loss=math.nan), noise()).agrees
    assert compare(run(loss=math.nan), run(loss=math.nan), noise()).agrees


def test_without_noise_only_a_few_roundings_of_the_tensor_are_allowed() -> None:
    silent = RoundingNoise([])
    assert compare(run(), run(gradient=0.1 * EPSILON), silent).agrees
    assert not compare(run(), run(gradient=20 * EPSILON), silent).agrees


def test_steps_in_which_rounding_moves_the_weights_far_are_not_judged() -> None:
    found = compare(run(), run(loss=0.5), noise(0.05))
    assert found.too_noisy_from == 2
    assert found.agrees


def test_one_small_weight_that_only_rounding_moves_does_not_hide_the_others() -> None:
    def with_bias(sign: float) -> RunNumbers:
        rows = [replace(row, weights={**row.weights, "bias": tensor(sign * 0.01 * row.step)}) for row in run().rows]
        return RunNumbers(rows=rows, num_steps=len(rows), is_there=True)

    found = compare(with_bias(1.0), with_bias(-1.0), RoundingNoise([(with_bias(1.0), with_bias(-1.0))]))
    assert (found.agrees, found.too_noisy_from) == (True, None)
    changed = compare(with_bias(1.0), run(gradient=0.01), RoundingNoise([(with_bias(1.0), with_bias(-1.0))]))
    assert changed.first is not None
    assert changed.first.kind == "gradient"


def test_renamed_tensors_are_matched_by_position() -> None:
    other = run()
    rows = [replace(row, gradients={f"net.{k}": v for k, v in row.gradients.items()},
                    weights={f"net.{k}": v for k, v in row.weights.items()}) for row in other.rows]
    assert compare(run(), replace(other, rows=rows), noise()).is_equal


def test_another_number_of_tensors_cannot_be_compared() -> None:
    rows = [replace(row, weights={"weight": row.weights["weight"]}) for row in run().rows]
    assert "2 tensors before and 1 after" in compare(run(), RunNumbers(rows=rows), noise()).unlike


def test_moved_draws_are_seen_in_the_states_of_the_generators() -> None:
    moved = [replace(row, draws=[1, 2, row.step + (row.step > 4), 0]) for row in run().rows]
    assert draws_differ(run(), run()) is None
    assert draws_differ(run(), RunNumbers(rows=moved)) == 5


def test_how_far_two_runs_differ_is_relative_to_their_tensors() -> None:
    assert relative_difference(run(), run()) == 0
    assert relative_difference(run(), run(gradient=0.01)) == pytest.approx(0.01 / (0.5 / 6))
    assert relative_difference(RunNumbers(), RunNumbers()) is None


def with_state(rate: float, table: float = 1.0) -> RunNumbers:
    """A run whose running mean moves at a rate, beside a table that no step moves."""
    rows = [
        replace(row, state={"Net.norm.running_mean": tensor(rate * row.step), "Net.table": tensor(table)})
        for row in run().rows
    ]
    return RunNumbers(rows=rows, num_steps=len(rows), is_there=True)


def test_a_running_statistic_that_moves_otherwise_is_a_difference() -> None:
    found = compare(with_state(0.1), with_state(0.01), noise())
    assert found.first is not None
    assert (found.first.step, found.first.kind, found.first.name) == (1, "state", "Net.norm.running_mean")


def test_state_that_no_step_moves_and_state_of_one_side_alone_are_not_compared() -> None:
    assert compare(with_state(0.1), with_state(0.1, table=2.0), noise()).agrees
    assert compare(with_state(0.1), run(), noise()).agrees


def test_a_saved_tensor_that_differs_is_a_difference_after_the_last_step() -> None:
    def saving(value: float) -> RunNumbers:
        return replace(run(), saved=[{"weight": tensor(1.0)}, {"weight": tensor(value), "step": tensor(5.0)}])

    assert compare(saving(2.0), saving(2.0), noise()).is_equal
    assert compare(saving(2.0), run(), noise()).agrees      # a file that is missing is for the caller to judge
    found = compare(saving(2.0), saving(2.1), noise())
    assert found.first is not None
    assert (found.first.step, found.first.kind, found.first.name) == (6, "saved tensor", "weight")


def with_settings(*, tensor_rate: bool = False, **changed: float) -> RunNumbers:
    settings = {"lr": 1e-2 + 2e-10 * tensor_rate, "weight_decay": 1e-4, **changed}
    return RunNumbers(rows=[replace(row, settings=[settings]) for row in run().rows], num_steps=6, is_there=True)


def test_a_setting_of_the_optimizer_that_changed_is_a_difference_however_small_its_effect_is() -> None:
    found = compare(with_settings(), with_settings(weight_decay=0.0), noise(0.5))
    assert found.first is not None
    assert (found.first.step, found.first.kind, found.first.name) == (1, "optimizer", "weight_decay")
    assert compare(with_settings(), with_settings(tensor_rate=True), noise()).is_equal
    assert compare(with_settings(), run(), noise()).agrees      # an optimizer of the user's own


def test_one_backward_for_two_losses_is_no_difference_and_another_sum_is_one() -> None:
    def with_losses(*losses: float) -> RunNumbers:
        rows = [replace(row, losses=[[value, EPSILON] for value in losses]) for row in run().rows]
        return RunNumbers(rows=rows, num_steps=6, is_there=True)

    assert compare(with_losses(1.0, 0.5), with_losses(1.5), noise()).agrees
    assert not compare(with_losses(1.0, 0.5), with_losses(1.0), noise()).agrees
    assert not compare(with_losses(1.0, 0.5), with_losses(0.5, 1.0), noise()).agrees

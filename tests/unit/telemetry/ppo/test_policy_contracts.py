"""What must hold in an update of PPO, on hand-made minibatches."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from torchtriage.recording.series import (
    PPO_ADVANTAGE_STD,
    PPO_CLIP_FRACTION,
    PPO_ENTROPY,
    PPO_EXPLAINED_VARIANCE,
    PPO_FIRST_RATIO_DEVIATION,
    PPO_KL,
    PPO_RATIO_MAX,
    PPO_RETURNS_MEAN,
    PPO_RETURNS_STD,
    PPO_VALUE_LOSS,
)
from torchtriage.telemetry.ppo.loss_terms import CriticError, Entropy, LossTerms, Surrogate
from torchtriage.telemetry.ppo.policy_contracts import PATIENCE, PolicyContracts
from torchtriage.telemetry.ppo.policy_update import FollowedMinibatch, PolicyUpdate, update_values

N = 32
DRAW = np.random.default_rng(0)


def minibatch(number: int = 0, **changes: Any) -> FollowedMinibatch:
    """The minibatch of this number in a healthy update."""
    gain_N, value_N = DRAW.normal(size=N), DRAW.normal(size=N)
    ratio_N = np.ones(N) if number == 0 else np.exp(0.05 * DRAW.normal(size=N))
    surrogate = Surrogate(ratio_N=ratio_N, push_N=-(gain_N - gain_N.mean()) / gain_N.std(), low=0.8, high=1.2)
    error = CriticError(error_N=-gain_N, value_N=value_N)
    for name, value in changes.items():
        setattr(surrogate if hasattr(surrogate, name) else error, name, value)
    entropy = Entropy(sign=-1.0, nats=np.array(0.5 * np.log(4)), num_choices=4)
    return FollowedMinibatch(
        terms=LossTerms(surrogate=surrogate, errors=[error], entropies=[entropy]), weights=np.array([float(number)]),
    )


def update(*minibatches: FollowedMinibatch, **fields: Any) -> PolicyUpdate:
    rows = list(minibatches) or [minibatch(number) for number in range(4)]
    return replace(PolicyUpdate(step=1, is_start_known=True, minibatches=rows), **fields)


def codes(*updates: PolicyUpdate) -> list[str]:
    contracts = PolicyContracts()
    for one in updates:
        contracts.judge(one)
    return [fact["code"] for fact in contracts.facts()]


def after(changed: PolicyUpdate) -> list[str]:
    return codes(*[changed] * PATIENCE)


def test_a_healthy_update_keeps_every_contract() -> None:
    assert after(update()) == []


def test_the_loss_of_a_critic_that_is_trained_after_the_policy_has_the_scale_of_its_targets() -> None:
    rows = [minibatch(number, value_N=100.0 * DRAW.normal(size=N)) for number in range(4)]
    for row in rows[:-1]:
        row.terms.errors = []
    values = update_values(update(*rows))
    assert values[PPO_RETURNS_STD] > 50.0
    assert PPO_EXPLAINED_VARIANCE in values


def test_the_targets_of_errors_in_one_column_are_one_per_sample() -> None:
    row = minibatch()
    plain = row.targets
    (error,) = row.terms.errors
    error.error_N = error.error_N[:, None]
    assert np.array_equal(row.targets, plain)


def test_the_loss_of_a_critic_without_known_targets_is_not_judged() -> None:
    assert PPO_VALUE_LOSS not in update_values(update(minibatch(value_N=None)))
    assert PPO_VALUE_LOSS in update_values(update(minibatch(value_N=None, error_N=np.full(N, np.nan))))


def test_a_contract_is_broken_in_several_updates_in_a_row() -> None:
    broken = update(minibatch(is_inverted=True))
    assert codes(broken, broken, update(), broken, broken) == []
    assert codes(update(), broken, broken, broken) == ["TT616"]


@pytest.mark.parametrize(("changes", "code"), [
    ({"trained_constants": ("advantages",)}, "TT615"), ({"is_target_trained": True}, "TT615"),
    ({"is_inverted": True}, "TT616"), ({"lacks_exp": True}, "TT616"), ({"sign": -1.0}, "TT616"),
    ({"error_N": np.ones((N, N))}, "TT617"), ({"num_products": N * N}, "TT617"),
    ({"is_optimistic": True}, "TT618"),
])
def test_a_term_of_the_wrong_form_breaks_its_contract(changes: dict[str, Any], code: str) -> None:
    assert after(update(minibatch(**changes))) == [code]


def test_a_minimised_entropy_breaks_its_contract() -> None:
    first = minibatch()
    first.terms.entropies = [Entropy(sign=1.0)]
    assert after(update(first)) == ["TT616"]


def far(low: float | None = None, num_others: int = 0) -> PolicyUpdate:
    rows = [minibatch(number, low=low, high=None) for number in range(4)]
    for row in rows[1:]:
        assert row.terms.surrogate is not None
        row.terms.surrogate.ratio_N = np.linspace(0.5, 2.0, N)
        row.terms.num_others = num_others
    return update(*rows)


def test_a_ratio_that_nothing_bounds_breaks_its_contract() -> None:
    assert after(far()) == ["TT618"]


def test_a_ratio_that_is_clipped_or_bounded_by_another_term_may_be_far_from_one() -> None:
    assert after(far(low=0.8)) == []
    assert after(far(num_others=1)) == []


def ones(weights: list[float]) -> PolicyUpdate:
    rows = [minibatch(ratio_N=np.ones(N)) for _ in weights]
    for row, weight in zip(rows, weights, strict=True):
        row.weights = np.array([weight])
    return update(*rows)


def test_a_ratio_that_stays_one_while_weights_change_breaks_its_contract() -> None:
    assert after(ones([0.0, 0.1, 0.2])) == ["TT619"]


def test_the_ratio_of_a_policy_without_entropy_stays_one() -> None:
    collapsed = ones([0.0, 0.1, 0.2])
    for row in collapsed.minibatches:
        row.terms.entropies = [Entropy(sign=-1.0, nats=np.array(1e-4), num_choices=4)]
    assert after(collapsed) == []
    unknown = ones([0.0, 0.1, 0.2])
    for row in unknown.minibatches:
        row.terms.entropies = []
    assert after(unknown) == ["TT619"]
    assert after(replace(unknown, number=100)) == []


def test_a_policy_that_does_not_change_breaks_its_contract() -> None:
    assert after(ones([0.0, 0.0, 0.0])) == ["TT620"]


def test_a_policy_of_which_one_weight_is_fixed_changes() -> None:
    moving = ones([0.0, 0.0, 0.0])
    for row in moving.minibatches[1:]:
        assert row.terms.surrogate is not None
        row.terms.surrogate.ratio_N = np.linspace(0.99, 1.01, N)
    assert after(moving) == []


def test_few_minibatches_or_an_unknown_start_are_not_judged() -> None:
    assert after(ones([0.0, 0.0])) == []
    assert after(replace(ones([0.0, 0.0, 0.0]), is_start_known=False)) == []


def with_advantages(mix: float, noise: float) -> PolicyUpdate:
    first = minibatch()
    assert first.terms.surrogate is not None
    push_N = first.terms.surrogate.push_N
    first.terms.surrogate.push_N = mix * push_N + noise * DRAW.normal(size=N)
    return update(first)


@pytest.mark.parametrize(("mix", "noise", "expected"), [
    (-1.0, 0.0, ["TT621"]), (0.0, 1.0, ["TT622"]), (1.0, 0.0, []), (1.0, 0.8, []),
])
def test_advantages_agree_with_target_minus_value(mix: float, noise: float, expected: list[str]) -> None:
    DRAW.bit_generator.state = np.random.default_rng(3).bit_generator.state
    assert after(with_advantages(mix, noise)) == expected


def test_a_missing_minus_is_not_reported_as_the_larger_objective_too() -> None:
    missing = with_advantages(-1.0, 0.0)
    assert missing.minibatches[0].terms.surrogate is not None
    missing.minibatches[0].terms.surrogate.is_optimistic = True
    assert after(missing) == ["TT621"]


def test_the_same_samples_in_every_minibatch_break_their_contract() -> None:
    first = minibatch()
    rows = [FollowedMinibatch(terms=first.terms, weights=np.array([float(number)])) for number in range(4)]
    assert "TT623" in after(update(*rows, rollout_size=2 * N))
    assert "TT623" not in after(update(*rows, rollout_size=N))


@pytest.mark.parametrize(("num_drawn", "expected"), [(4 * N, False), (5 * N // 2, True)])
def test_the_same_samples_in_every_minibatch_of_an_epoch_break_their_contract(num_drawn: int, expected: bool) -> None:
    """Several steps on each minibatch before the next are no fault: their samples differ."""
    value_N, gain_N = DRAW.normal(size=4 * N), DRAW.normal(size=4 * N)
    rows = []
    for first in np.linspace(0, num_drawn - N, 4).astype(int):
        part = slice(first, first + N)
        rows += [minibatch(0, value_N=value_N[part], error_N=gain_N[part], push_N=gain_N[part]) for _ in range(4)]
    assert ("TT623" in after(update(*rows, rollout_size=4 * N))) == expected


@pytest.mark.parametrize(("radius", "expected"), [(10.0, ["TT618"]), (1.0, ["TT618"]), (0.3, [])])
def test_a_clipping_range_that_allows_every_ratio_breaks_its_contract(radius: float, expected: list[str]) -> None:
    assert after(update(*[minibatch(n, low=1.0 - radius, high=1.0 + radius) for n in range(4)])) == expected


def with_bonus(coefficient: float, share: float = 0.95, spread: float = 1.0) -> PolicyUpdate:
    first = minibatch()
    assert first.terms.surrogate is not None
    first.terms.surrogate.push_N *= spread
    first.terms.entropies = [
        Entropy(sign=-1.0, coefficient=coefficient, nats=np.array(share * np.log(4)), num_choices=4)]
    return update(first)


def test_an_entropy_bonus_that_outweighs_the_advantages_breaks_its_contract() -> None:
    assert after(with_bonus(10.0)) == ["TT627"]
    assert after(with_bonus(0.1)) == []
    assert after(with_bonus(10.0, spread=100.0)) == []      # advantages that are not normalised
    assert after(with_bonus(0.05, spread=0.01)) == []       # rewards are rare: there is little to learn from yet
    assert after(with_bonus(10.0, share=0.5)) == []         # the policy decides for itself all the same


def rollout(targets: Any, number: int = 20, ends: int = 8) -> PolicyUpdate:
    rows = [
        minibatch(number, value_N=part + 0.0, error_N=np.zeros(N) + 1e-9 * DRAW.normal(size=N))
        for number, part in enumerate(np.split(targets, 4))
    ]
    return update(
        *rows, rollout_size=4 * N, terminal_rewards=(1.0,) * ends, has_equal_rewards=True, number=number)


def test_targets_of_the_ends_of_episodes_are_equal() -> None:
    targets = np.linspace(15.0, 18.0, 4 * N)
    assert "TT624" in after(rollout(targets))
    targets[::16] = 1.0
    assert {"TT624", "TT625"} & {*after(rollout(targets))} == set()


def test_targets_without_a_future_break_their_contract() -> None:
    assert "TT625" in after(rollout(np.ones(4 * N)))
    assert "TT625" in after(rollout(np.array([0.0 if place % 16 == 15 else 1.0 for place in range(4 * N)])))
    targets = np.linspace(0.3, 0.7, 4 * N)
    targets[::16] = 1.0
    assert "TT625" in after(rollout(targets))
    assert "TT625" not in after(rollout(targets, number=2))       # a critic that has not learned


def test_equal_targets_far_from_an_end_are_not_taken_for_those_of_ends() -> None:
    """A critic that is still constant gives all steps far from an end one target."""
    targets = np.linspace(5.0, 20.0, 4 * N)
    targets[1::3] = 22.8
    targets[::16] = 1.0
    assert not {"TT624", "TT625"} & {*after(rollout(targets))}
    assert not {"TT624", "TT625"} & {*after(rollout(np.where(targets == 1.0, 0.3, targets)))}     # scaled rewards


def test_centred_targets_are_not_compared_with_their_ends() -> None:
    targets = np.linspace(5.0, 20.0, 4 * N)
    targets[::16] = 1.0
    centred = (targets - targets.mean()) / targets.std()
    centred[1::16] = 1.0        # by chance the reward
    centred -= np.where(centred == 1.0, 0.0, centred.sum() / np.sum(centred != 1.0))
    assert "TT625" not in after(rollout(centred))


def test_targets_of_ends_may_differ_where_the_program_normalises_rewards() -> None:
    targets = np.linspace(5.0, 20.0, 4 * N)
    targets[::16] = np.linspace(0.9, 1.1, 8)
    assert "TT624" not in after(rollout(targets))
    assert "TT624" in after(rollout(np.linspace(15.0, 18.0, 4 * N)))        # all are near the smallest


def test_targets_without_the_rewards_break_their_contract() -> None:
    targets = 0.1 * DRAW.normal(size=4 * N)
    targets[::16] = 0.0
    assert "TT626" in after(rollout(targets))


def test_a_flag_that_is_one_step_late_leaves_the_target_of_a_reset_at_zero() -> None:
    targets = np.linspace(5.0, 20.0, 4 * N)
    targets[::16] = 0.0
    assert "TT624" in after(rollout(targets))
    assert not {"TT624", "TT626"} & {*after(rollout(0.02 * targets))}      # the rewards may be scaled


def test_advantages_without_a_critic_are_only_reported_if_they_are_flat() -> None:
    flat = minibatch(push_N=np.zeros(N))
    flat.terms.errors.clear()
    assert update_values(update(flat))[PPO_ADVANTAGE_STD] == 0.0
    row = minibatch()
    row.terms.errors.clear()
    assert PPO_ADVANTAGE_STD not in update_values(update(row))


def test_few_ends_are_not_judged() -> None:
    assert {"TT624", "TT625"} & {*after(rollout(np.linspace(5.0, 20.0, 4 * N), ends=2))} == set()


def test_the_series_of_an_update() -> None:
    error_N, value_N = np.array([1.0, -1.0, 2.0, -2.0]), np.array([0.0, 2.0, 4.0, 6.0])
    row = minibatch(ratio_N=np.array([1.0, 1.5, 1.0, 0.5]), push_N=np.arange(4.0), error_N=error_N, value_N=value_N)
    values = update_values(update(row))
    ratios = np.array([1.0, 1.5, 1.0, 0.5])
    targets = value_N - error_N
    assert values == pytest.approx({
        PPO_RATIO_MAX: 1.5, "ppo/ratio_min": 0.5, PPO_FIRST_RATIO_DEVIATION: 0.5, PPO_CLIP_FRACTION: 0.5,
        PPO_KL: float(np.mean(ratios - 1 - np.log(ratios))), PPO_ENTROPY: 0.5, PPO_VALUE_LOSS: 2.5,
        PPO_ADVANTAGE_STD: error_N.std(), PPO_RETURNS_STD: targets.std(), PPO_RETURNS_MEAN: targets.mean(),
        PPO_EXPLAINED_VARIANCE: 1 - error_N.var() / targets.var(),
    })


def test_a_ratio_that_is_not_finite_has_no_divergence() -> None:
    values = update_values(update(minibatch(ratio_N=np.full(N, np.inf))))
    assert values[PPO_RATIO_MAX] == np.inf
    assert np.isnan(values[PPO_KL])

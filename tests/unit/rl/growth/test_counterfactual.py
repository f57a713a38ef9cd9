"""Contributions, interactions and Shapley values against brute force, and the axioms that define the latter."""

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.rl.growth.counterfactual import Counterfactual, Effects
from torchtriage.rl.growth.subsets import pair_number, pairs, subset_number

NUM_SLOTS = st.sampled_from([3, 4])
EXACT = {"rtol": 0, "atol": 1e-12}


@st.composite
def games(draw: st.DrawFn) -> tuple[int, torch.Tensor]:
    """A number of slots, and a value for every subset of them."""
    num_slots = draw(NUM_SLOTS)
    value = st.floats(-1, 1, allow_subnormal=False)
    return num_slots, torch.tensor(
        [draw(st.lists(value, min_size=1 << num_slots, max_size=1 << num_slots))], dtype=torch.float64
    )


def effects_of(num_slots: int, value_NC: torch.Tensor) -> Effects:
    return Counterfactual(num_slots, dtype=torch.float64).effects(value_NC)


@given(games())
def test_contributions_and_interactions_follow_their_definition(game: tuple[int, torch.Tensor]) -> None:
    num_slots, value_NC = game
    f = value_NC[0]
    effects = effects_of(num_slots, value_NC)
    everything = subset_number(*range(num_slots))
    for slot in range(num_slots):
        expected = f[everything] - f[everything & ~subset_number(slot)]
        torch.testing.assert_close(effects.contribution_NS[0, slot], expected, **EXACT)
    for i, j in pairs(num_slots):
        expected = f[subset_number(i, j)] - f[subset_number(i)] - f[subset_number(j)] + f[0]
        torch.testing.assert_close(effects.interaction_NL[0, pair_number(i, j, num_slots)], expected, **EXACT)


@given(games())
def test_a_shapley_value_is_the_mean_gain_over_all_orders(game: tuple[int, torch.Tensor]) -> None:
    num_slots, value_NC = game
    orders = list(permutations(range(num_slots)))
    expected_S = torch.zeros(num_slots, dtype=torch.float64)
    for order in orders:
        for place, slot in enumerate(order):
            before = subset_number(*order[:place])
            expected_S[slot] += (value_NC[0, before | subset_number(slot)] - value_NC[0, before]) / len(orders)
    torch.testing.assert_close(effects_of(num_slots, value_NC).shapley_NS[0], expected_S, **EXACT)


@given(games())
def test_efficiency_shapley_values_sum_to_the_gain_of_all_slots(game: tuple[int, torch.Tensor]) -> None:
    num_slots, value_NC = game
    torch.testing.assert_close(
        effects_of(num_slots, value_NC).shapley_NS.sum(1), value_NC[:, -1] - value_NC[:, 0], **EXACT
    )


@given(games(), st.data())
def test_null_player_a_slot_without_effect_has_value_0(
    game: tuple[int, torch.Tensor], data: st.DataObject
) -> None:
    num_slots, value_NC = game
    slot = data.draw(st.integers(0, num_slots - 1))
    without = torch.arange(1 << num_slots) & ~subset_number(slot)
    effects = effects_of(num_slots, value_NC[:, without])
    assert effects.shapley_NS[0, slot].abs() < 1e-12
    assert effects.contribution_NS[0, slot] == 0


@given(games(), st.data())
def test_symmetry_interchangeable_slots_have_equal_values(
    game: tuple[int, torch.Tensor], data: st.DataObject
) -> None:
    num_slots, value_NC = game
    i, j = data.draw(st.sampled_from(pairs(num_slots)))
    number_C = torch.arange(1 << num_slots)
    swapped_C = number_C & ~subset_number(i, j) | (number_C >> i & 1) << j | (number_C >> j & 1) << i
    shapley_S = effects_of(num_slots, value_NC + value_NC[:, swapped_C]).shapley_NS[0]
    torch.testing.assert_close(shapley_S[i], shapley_S[j], **EXACT)


@pytest.mark.parametrize("num_slots", [3, 4])
def test_additive_slots_do_not_interact(num_slots: int) -> None:
    worth_S = torch.arange(1.0, num_slots + 1, dtype=torch.float64)
    value_C = torch.tensor(
        [float(sum(worth_S[s] for s in range(num_slots) if c >> s & 1)) for c in range(1 << num_slots)]
    )
    effects = effects_of(num_slots, value_C.double().unsqueeze(0))
    torch.testing.assert_close(effects.shapley_NS[0], worth_S, **EXACT)
    assert effects.interaction_NL.abs().max() < 1e-12

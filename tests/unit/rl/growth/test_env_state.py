"""The accumulators give the accuracy of every subset, also in a full-graph compiled region."""

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo

import torchtriage
from torchtriage.rl.growth.counterfactual import Counterfactual
from torchtriage.rl.growth.env_state import ParallelEnvState
from torchtriage.rl.growth.subsets import pair_number, pairs, subset_number

EPOCHS = 50
ROWS = 32


@pytest.fixture
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def validation(num_slots: int, seed: int = 0, num_envs: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    loss_N = torch.rand(num_envs, generator=generator)
    return loss_N, torch.randint(ROWS + 1, (num_envs, 1 << num_slots), generator=generator).float()


@pytest.mark.parametrize("num_slots", [3, 4])
def test_pairs_are_numbered_in_order(num_slots: int) -> None:
    assert [pair_number(i, j, num_slots) for i, j in pairs(num_slots)] == list(range(num_slots * (num_slots - 1) // 2))


@pytest.mark.parametrize("pair", [(1, 1), (2, 1), (-1, 2), (0, 4)])
def test_an_invalid_pair_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="smaller one first"):
        pair_number(*pair, 4)


@pytest.mark.parametrize("num_slots", [2, 5])
def test_other_numbers_of_slots_are_refused(num_slots: int) -> None:
    with pytest.raises(ValueError, match="3 or 4"):
        ParallelEnvState(2, num_slots)


@pytest.mark.parametrize("num_slots", [3, 4])
def test_each_accumulator_counts_its_subsets(num_slots: int) -> None:
    state = ParallelEnvState(5, num_slots)
    loss_N, correct_NC = validation(num_slots)
    state.add_validation(loss_N, correct_NC, ROWS)
    assert torch.equal(state.none_correct_N, correct_NC[:, 0])
    assert torch.equal(state.val_correct_N, correct_NC[:, -1])
    for slot in range(num_slots):
        assert torch.equal(state.alone_correct_NS[:, slot], correct_NC[:, subset_number(slot)])
        others = [other for other in range(num_slots) if other != slot]
        assert torch.equal(state.off_correct_NS[:, slot], correct_NC[:, subset_number(*others)])
    for i, j in pairs(num_slots):
        assert torch.equal(state.pair_correct_NL[:, pair_number(i, j, num_slots)], correct_NC[:, subset_number(i, j)])


@pytest.mark.parametrize("num_slots", [3, 4])
def test_two_batches_give_the_mean_accuracy_of_every_subset(num_slots: int) -> None:
    state = ParallelEnvState(5, num_slots)
    batches = [validation(num_slots, seed) for seed in (1, 2)]
    for loss_N, correct_NC in batches:
        state.add_validation(loss_N, correct_NC, ROWS)
    torch.testing.assert_close(state.accuracies(), (batches[0][1] + batches[1][1]) / (2 * ROWS))


def test_a_new_epoch_zeroes_the_accumulators_in_place() -> None:
    state = ParallelEnvState(5, 4)
    state.add_train(torch.ones(5), torch.ones(5), ROWS)
    state.add_validation(*validation(4), ROWS)
    addresses = {name: value.data_ptr() for name, value in state.named_buffers()}
    state.zero_()
    assert all(not value.any() for value in state.state_dict().values())
    assert {name: value.data_ptr() for name, value in state.named_buffers()} == addresses
    assert not state.accuracies().any()


@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize("num_slots", [3, 4])
def test_50_epochs_in_a_compiled_region_are_one_graph(num_slots: int) -> None:
    state, eager, counterfactual = (
        ParallelEnvState(5, num_slots),
        ParallelEnvState(5, num_slots),
        Counterfactual(num_slots),
    )

    def epoch(state: ParallelEnvState, loss_N: torch.Tensor, correct_NC: torch.Tensor) -> torch.Tensor:
        state.zero_()
        state.add_train(loss_N, correct_NC[:, 1], ROWS)
        state.add_validation(loss_N, correct_NC, ROWS)
        return counterfactual(state).shapley_NS

    compiled = torch.compile(epoch, backend="eager", fullgraph=True)
    with torchtriage.watch() as seen:
        for number in range(EPOCHS):
            batch = validation(num_slots, number)
            torch.testing.assert_close(compiled(state, *batch), epoch(eager, *batch))
    for found, expected in zip(state.state_dict().values(), eager.state_dict().values(), strict=True):
        assert torch.equal(found, expected)
    totals = seen.report.totals
    assert (totals["compiles"], totals["graph_breaks"], totals["recompiles"]) == (1, 0, 0)


@pytest.mark.usefixtures("_fresh_dynamo")
def test_a_dictionary_keyed_by_pairs_would_compile_once_per_pair() -> None:
    """The hazard that the flat tensor avoids."""
    by_pair = {pair: torch.zeros(1) for pair in pairs(4)}

    def add(i: int, j: int, value: torch.Tensor) -> None:
        by_pair[i, j].add_(value)

    compiled = torch.compile(add, backend="eager", fullgraph=True)
    with torchtriage.watch() as seen:
        for i, j in by_pair:
            compiled(i, j, torch.ones(1))
    assert len(seen.recompiles) == 5

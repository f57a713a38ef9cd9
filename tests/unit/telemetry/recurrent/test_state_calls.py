"""The calls of recurrent modules, seen while the window is open."""

import copy
import pickle
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from torchtriage.telemetry.recurrent.state_calls import StateCall, StateCalls


class Cell(nn.Module):
    """A cell as users write it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(7, 4)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = state
        return torch.tanh(self.linear(torch.cat([x, h], 1))), c + 1.0


class MaskedCell(Cell):
    def forward(self, x: Tensor, state: tuple[Tensor, Tensor], done: Tensor) -> tuple[Tensor, Tensor]:   # type: ignore[override]
        return super().forward(x, (state[0] * done, state[1] * done))


class Plain(nn.Module):
    """Returns two tensors that are no state."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x), self.linear(x)


@pytest.fixture
def calls() -> Iterator[StateCalls]:
    one = StateCalls(lambda: 5)
    yield one
    one.close()


def only_call(calls: StateCalls) -> StateCall:
    (call,) = calls.take()
    return call


@pytest.mark.parametrize(("module", "shape", "has_cell", "rows"), [
    (nn.LSTM(3, 4, num_layers=2), (6, 2, 3), True, 2), (nn.LSTM(3, 4, batch_first=True), (2, 6, 3), True, 2),
    (nn.GRU(3, 4), (6, 2, 3), False, 2), (nn.RNN(3, 4, bidirectional=True), (1, 2, 3), False, 2),
    (nn.LSTMCell(3, 4), (2, 3), True, 2), (nn.GRUCell(3, 4), (2, 3), False, 2), (nn.RNNCell(3, 4), (3,), False, 1),
])
def test_modules_of_torch_show_their_states(
    calls: StateCalls, module: nn.Module, shape: tuple[int, ...], has_cell: bool, rows: int,
) -> None:
    calls.follow([module])
    calls.open()
    module(torch.randn(shape))
    call = only_call(calls)
    assert (call.given_B, call.position) == (None, 5)
    assert call.hidden_B.shape == (rows,)
    assert (call.cell_B is not None) == has_cell
    assert call.is_one_step == (isinstance(module, nn.RNNCellBase) or shape[0] == 1)


def test_the_state_that_is_passed_in_is_seen(calls: StateCalls) -> None:
    cell = nn.LSTMCell(3, 4)
    calls.follow([cell])
    calls.open()
    h, c = cell(torch.randn(2, 3))
    cell(torch.randn(2, 3), (h, c))
    first, second = calls.take()
    assert torch.equal(second.given_B, first.hidden_B)


def test_a_cell_of_the_user_is_known_by_what_it_returns(calls: StateCalls) -> None:
    cell, plain, masked = Cell(), Plain(), MaskedCell()
    calls.follow([cell, plain, masked])
    calls.open()
    state = torch.zeros(2, 4), torch.ones(2, 4)
    cell(torch.randn(2, 3), state)
    masked(torch.randn(2, 3), state, torch.ones(2, 1))
    plain(torch.randn(2, 3))
    calls.forget_unproven()
    own, with_mask = (call for call in calls.take())
    assert own.is_one_step
    assert own.cell_B.tolist() == [4.0, 4.0]
    assert not with_mask.is_one_step        # it may reset the state by itself
    assert calls.has_modules


def test_outside_of_a_window_no_class_is_changed(calls: StateCalls) -> None:
    before = nn.GRUCell.forward
    cell = nn.GRUCell(3, 4)
    calls.follow([cell, Cell()])
    calls.open()
    assert nn.GRUCell.forward is not before
    pickle.loads(pickle.dumps(cell))(torch.randn(2, 3))
    copy.deepcopy(cell)(torch.randn(2, 3))
    torch.jit.script(nn.GRUCell(3, 4))(torch.randn(2, 3))
    assert calls.take() == []               # of other modules
    calls.close()
    assert nn.GRUCell.forward is before
    cell(torch.randn(2, 3))
    assert calls.take() == []


def test_modules_without_a_state_are_left() -> None:
    calls = StateCalls(lambda: 0)
    calls.follow([nn.Linear(2, 2), Plain()])
    calls.forget_unproven()
    assert not calls.has_modules

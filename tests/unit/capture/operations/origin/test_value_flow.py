"""The memory that is kept while steps are followed is bounded."""

import pytest
import torch

from torchtriage.capture.operations import operation_stream
from torchtriage.capture.operations.origin import value_flow
from torchtriage.capture.operations.origin.value_flow import ValueFlow


def masks(flow: ValueFlow, num_steps: int) -> list[int]:
    """The rows after each of some steps that make a mask of -Inf."""
    counts = []
    with flow.mode():
        for _ in range(num_steps):
            torch.ones(4).masked_fill(torch.ones(4, dtype=torch.bool), -torch.inf)
            flow.step_ended()
            counts.append(len(flow.rows))
    return counts


def test_few_rows_are_kept_from_step_to_step() -> None:
    flow = ValueFlow()
    assert masks(flow, 3) == [1, 2, 3]


@pytest.mark.parametrize(("name", "value"), [("KEPT_ROWS", 2), ("KEPT_BYTES", 40)])
def test_many_rows_and_much_memory_are_forgotten(name: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_flow, name, value)
    assert masks(ValueFlow(), 4) == [1, 2, 0, 1]


def test_after_the_largest_number_of_rows_operations_run_unfollowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_flow, "MAX_ROWS", 2)
    flow = ValueFlow()
    with flow.mode():
        result = [torch.zeros(1).log() for _ in range(4)]
    assert (len(flow.rows), flow.is_full) == (2, True)
    assert all(bool(value.isneginf()) for value in result)


def test_the_places_of_old_forward_operations_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_stream, "MAX_PLACES", 10)
    places = operation_stream.Places()
    weights = torch.ones(1, requires_grad=True)
    with operation_stream.recording_mode(lambda _: None, places):
        for _ in range(40):
            weights * 2
    assert 5 <= len(places.forward) <= 10


def test_a_single_value_that_is_expanded_has_a_digest() -> None:
    single = torch.ones(()).expand(1)
    assert operation_stream.digest(single) == operation_stream.digest(torch.ones(1))


def test_an_operation_without_gradient_does_not_take_the_place_of_the_one_before_it() -> None:
    rows: list[dict[str, object]] = []
    weights = torch.ones(1, requires_grad=True)
    with operation_stream.recording_mode(rows.append, operation_stream.Places()):
        root = weights.sqrt()
        mask = root > 2
        torch.where(mask, 0.0, root).sum().backward()
    forward = next(row["line"] for row in rows if row["name"] == "aten.sqrt")
    backward = [row["line"] for row in rows if row["is_backward"] and row["name"] == "aten.div.Tensor"]
    assert backward == [forward]

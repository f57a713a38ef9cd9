"""What a model receives is compared with what it is to predict."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from torchtriage.recording.facts import BrokenContract
from torchtriage.telemetry.contract_checks.loss_graph import operations_behind
from torchtriage.telemetry.contract_checks.model_inputs import LATE_INTERVAL, LOOKS_AT_BATCH, ModelInputs

Make = Callable[[], torch.Tensor]


def looked_at(make: Make, looks: int = 3) -> dict[str, BrokenContract]:
    inputs = ModelInputs()
    for step in range(1, looks + 1):
        loss = make()
        inputs.look(loss, [node for _, node in operations_behind(loss.grad_fn)], step)
    return {broken.code: broken for broken in inputs.broken}


def classified(change: Callable[[torch.Tensor, torch.Tensor], None]) -> Make:
    layer = torch.nn.Linear(8, 4)

    def make() -> torch.Tensor:
        y = torch.randint(4, (32,))
        x = torch.randn(32, 8)
        change(x, y)
        return functional.cross_entropy(layer(x), y)

    return make


def one_hot(x: torch.Tensor, y: torch.Tensor) -> None:
    x[:, :4] = 5.0 * functional.one_hot(y, 4)


def as_number(x: torch.Tensor, y: torch.Tensor) -> None:
    x[:, 3] = y.float()


def half_of_it(x: torch.Tensor, y: torch.Tensor) -> None:
    x[:, 3] = (y % 2).float()


def with_noise(x: torch.Tensor, y: torch.Tensor) -> None:
    x[:, 3] += 3.0 * y


def without_noise(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(torch.arange(32.0).view(4, 8)[y])


@pytest.mark.parametrize("change", [one_hot, as_number])
def test_a_column_that_gives_the_class_is_found(change: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    assert looked_at(classified(change))["TT448"].names == ("columns",)


@pytest.mark.parametrize("change", [half_of_it, with_noise, without_noise])
def test_a_column_that_helps_is_left_in_peace(change: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    assert looked_at(classified(change)) == {}


def test_a_column_that_is_the_number_to_predict_is_found() -> None:
    layer = torch.nn.Linear(8, 1)

    def make(noise: float) -> torch.Tensor:
        x = torch.randn(32, 8)
        return functional.mse_loss(layer(x)[:, 0], 100.0 + 7.0 * x[:, 2] + noise * torch.randn(32))

    assert looked_at(lambda: make(0.0))["TT448"].value == 1.0
    assert looked_at(lambda: make(0.1)) == {}


class Language(torch.nn.Module):
    def __init__(self, padding: int | None = None) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(20, 8, padding_idx=padding)
        self.head = torch.nn.Linear(8, 20)

    def forward(self, tokens: torch.Tensor, is_causal: bool = True, by_hand: bool = False) -> torch.Tensor:
        x = self.embedding(tokens)
        if by_hand:
            scores = x @ x.transpose(-2, -1)
            if is_causal:
                scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
            return self.head(scores.softmax(-1) @ x)
        x = x[:, None]
        return self.head(functional.scaled_dot_product_attention(x, x, x, is_causal=is_causal)[:, 0])


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize(("inputs", "targets", "is_causal", "kind"), [
    (slice(0, -1), slice(1, None), True, ""),
    (slice(0, -1), slice(1, None), False, "later"),
    (slice(0, -1), slice(0, -1), True, "same"),
    (slice(1, None), slice(0, -1), True, "previous"),
])
def test_tokens_that_the_model_has_seen_are_found_among_its_targets(
    inputs: slice, targets: slice, is_causal: bool, by_hand: bool, kind: str,
) -> None:
    model = Language()

    def make() -> torch.Tensor:
        tokens = torch.randint(20, (4, 11))
        logits = model(tokens[:, inputs], is_causal, by_hand)
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, targets].flatten())

    found = looked_at(make)
    assert (found["TT448"].names[0] if "TT448" in found else "") == kind


def test_padding_among_the_targets_is_found_unless_it_is_ignored() -> None:
    model = Language(padding=0)

    def make(ignored: int) -> torch.Tensor:
        tokens = torch.randint(1, 20, (4, 11))
        tokens[:, 8:] = 0
        return functional.cross_entropy(
            model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=ignored,
        )

    assert looked_at(lambda: make(-100))["TT453"].share == pytest.approx(0.3)
    assert looked_at(lambda: make(0)) == {}


DATA = torch.randn(64, 8)


@pytest.mark.parametrize(("batch", "is_found"), [
    (lambda: DATA[torch.arange(16)], True),
    (lambda: DATA[torch.randperm(64)[:16]], False),
    (lambda: DATA, False),                              # all data
    (lambda: DATA[:16], False),                         # the same tensor again: a split, or a batch learned by heart
])
def test_a_batch_that_is_made_again_with_the_same_numbers_is_found(batch: Make, is_found: bool) -> None:
    layer = torch.nn.Linear(8, 1)
    found = looked_at(lambda: layer(batch()).square().mean(), LOOKS_AT_BATCH)
    assert ("TT449" in found) == is_found


def test_positions_that_are_the_same_for_each_sample_are_no_batch() -> None:
    positions = torch.nn.Embedding(12, 4)
    make = lambda: positions(torch.arange(12).expand(8, 12).contiguous()).square().mean()  # noqa: E731
    assert looked_at(make, LOOKS_AT_BATCH) == {}


def test_a_batch_that_changes_is_not_looked_at_again() -> None:
    inputs, layer = ModelInputs(), torch.nn.Linear(8, 1)
    for is_due in (True, False):
        loss = layer(torch.randn(16, 8)).square().mean()
        inputs.look(loss, [node for _, node in operations_behind(loss.grad_fn)], 1)
        assert inputs.is_due(LATE_INTERVAL) == is_due


def test_nothing_is_read_under_activation_checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint

    layer, calls = torch.nn.Linear(8, 4), []

    def forward(x: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        return layer(x)

    def make() -> torch.Tensor:
        y = torch.randint(4, (32,))
        return functional.cross_entropy(checkpoint(forward, functional.one_hot(y, 8).float(), use_reentrant=False), y)

    assert looked_at(make) == {}
    assert len(calls) == 3      # one per look: none was computed again

"""A host with its seeds agrees with the same network computed row by row, for every subset of the slots."""

import pytest
import torch

from torchtriage.rl.growth import hosts, tasks
from torchtriage.rl.growth.hosts import HostShape
from torchtriage.rl.growth.program import GrowthSettings
from torchtriage.rl.growth.subsets import subset_table

ROWS = 64


def plain_logits(
    host_P: torch.Tensor, seed_SQ: torch.Tensor, alpha_S: torch.Tensor, x_IB: torch.Tensor, shape: HostShape
) -> torch.Tensor:
    """Row by row, seed by seed."""
    w_in, b_in, w_head, b_head, w_out, b_out = host_P.split(shape.host_sizes)
    found = []
    for x_I in x_IB.T:
        stream_D = w_in.view(shape.stream, -1) @ x_I + b_in
        for slot, alpha in enumerate(alpha_S.tolist()):
            weight, bias, out = seed_SQ[slot].split(shape.seed_sizes)
            hidden_H = torch.relu(weight.view(shape.seed_hidden, -1) @ x_I[2 * slot : 2 * slot + 2] + bias)
            stream_D = stream_D + alpha * (out.view(shape.stream, -1) @ hidden_H)
        found.append(w_out @ torch.tanh(w_head.view(shape.hidden, -1) @ stream_D + b_head) + b_out)
    return torch.cat(found)


@pytest.mark.parametrize("num_slots", [3, 4])
def test_one_forward_counts_correct_answers_for_every_subset(num_slots: int) -> None:
    shape, generator = HostShape(num_slots=num_slots), torch.Generator().manual_seed(0)
    drawn = tasks.draw(1, num_slots, ROWS, generator)
    host_NP, seed_NSQ = hosts.draw_hosts(1, shape, generator)
    host_P, seed_SQ, x_IB, y_B = (
        host_NP[0].double(),
        10 * seed_NSQ[0].double(),
        drawn.x_NIR[0].double(),
        drawn.y_NR[0].double(),
    )
    alpha_S = torch.linspace(1, 0.2, num_slots, dtype=torch.float64)
    on_CS = subset_table(num_slots).double()
    loss, correct_C = hosts.evaluate(host_P, seed_SQ, alpha_S, on_CS, x_IB, y_B, shape)
    plain_CB = torch.stack([plain_logits(host_P, seed_SQ, alpha_S * on_S, x_IB, shape) for on_S in on_CS])
    assert correct_C.tolist() == (plain_CB * y_B > 0).sum(1).tolist()
    assert len(set(correct_C.tolist())) > 3
    torch.testing.assert_close(loss, torch.log1p(torch.exp(-y_B * plain_CB[-1])).sum())
    _, (counted_loss, counted) = hosts.training_loss(
        host_P, seed_SQ, alpha_S, torch.zeros(num_slots, dtype=torch.bool), x_IB, y_B, shape
    )
    torch.testing.assert_close(counted_loss, loss)
    assert counted == correct_C[-1]


def test_a_task_without_relevant_slots_is_linear_and_one_with_is_not() -> None:
    drawn = tasks.draw(64, 4, 512, torch.Generator().manual_seed(0))
    assert 0.4 < drawn.relevant_NS.float().mean() < 0.6
    x_NRI = drawn.x_NIR.transpose(1, 2)
    fitted_NI1 = torch.linalg.lstsq(x_NRI, drawn.y_NR.unsqueeze(2)).solution
    accuracy_N = ((x_NRI @ fitted_NI1).squeeze(2) * drawn.y_NR > 0).float().mean(1)
    assert accuracy_N[~drawn.relevant_NS.any(1)].min() > 0.9
    assert accuracy_N[drawn.relevant_NS.any(1)].max() < 0.85


def test_settings_without_a_first_observation_are_refused() -> None:
    with pytest.raises(ValueError, match="warmup_steps must be at least 1, got 0"):
        GrowthSettings(warmup_steps=0)

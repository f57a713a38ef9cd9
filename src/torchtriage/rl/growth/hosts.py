"""One small host network with slots for seeds, as functions of flat parameters; vmap makes a batch of them."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from torchtriage.rl.growth.tasks import PART

# One host: I inputs, D width of the stream, W hidden units of the head, S slots, F inputs of a slot, H hidden units of
# a seed, C subsets of the slots, P host parameters, Q parameters of a seed, B rows, which come last so that every
# kernel is vectorised over them. N hosts.
SEED_OUTPUT_SCALE = 0.1  # a new seed contributes little, so its first gradients come from the host's own errors


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShape:
    """Sizes of a host.

    The head is the host's only nonlinearity and too narrow for the products of a task; each seed can learn one.
    """

    num_slots: int = 4
    stream: int = 8
    hidden: int = 2
    seed_hidden: int = 8

    @property
    def num_inputs(self) -> int:
        return PART * self.num_slots

    @property
    def host_size(self) -> int:
        return sum(self.host_sizes)

    @property
    def host_sizes(self) -> list[int]:
        return [self.num_inputs * self.stream, self.stream, self.stream * self.hidden, self.hidden, self.hidden, 1]

    @property
    def seed_sizes(self) -> list[int]:
        return [PART * self.seed_hidden, self.seed_hidden, self.seed_hidden * self.stream]

    @property
    def seed_size(self) -> int:
        return sum(self.seed_sizes)


def draw_hosts(num_envs: int, shape: HostShape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Fresh parameters of hosts [N, P] and of a seed for each slot [N, S, Q]; weights scaled by fan-in, biases 0."""
    device = generator.device
    host_NP = torch.randn(num_envs, shape.host_size, generator=generator, device=device)
    seed_NSQ = torch.randn(num_envs, shape.num_slots, shape.seed_size, generator=generator, device=device)
    fan_ins = (shape.num_inputs, None, shape.stream, None, shape.hidden, None)
    for part, fan_in in zip(host_NP.split(shape.host_sizes, 1), fan_ins, strict=True):
        part.mul_(0 if fan_in is None else fan_in**-0.5)
    scales = (PART**-0.5, 0, SEED_OUTPUT_SCALE * shape.seed_hidden**-0.5)
    for part, scale in zip(seed_NSQ.split(shape.seed_sizes, 2), scales, strict=True):
        part.mul_(scale)
    return host_NP, seed_NSQ


def host_stream(host_P: Tensor, x_IB: Tensor, shape: HostShape) -> Tensor:
    """The stream of a host [D, B] for its inputs; seeds add to it."""
    weight, bias, *_ = host_P.split(shape.host_sizes)
    return weight.view(shape.stream, shape.num_inputs) @ x_IB + bias.unsqueeze(1)


def seed_outputs(seed_SQ: Tensor, x_IB: Tensor, shape: HostShape) -> Tensor:
    """The output of each seed for the inputs at its slot, [S, D, B]."""
    weight, bias, out = seed_SQ.split(shape.seed_sizes, 1)
    part_SFB = x_IB.unflatten(0, (shape.num_slots, PART))
    hidden_SHB = torch.relu(weight.view(shape.num_slots, shape.seed_hidden, PART) @ part_SFB + bias.unsqueeze(2))
    return out.view(shape.num_slots, shape.stream, shape.seed_hidden) @ hidden_SHB


def enter_head(host_P: Tensor, stream: Tensor, shape: HostShape) -> Tensor:
    """The linear map from a stream [..., D, B] to the input of the head [..., W, B]."""
    _, _, weight, *_ = host_P.split(shape.host_sizes)
    return weight.view(shape.hidden, shape.stream) @ stream


def answer(host_P: Tensor, entered: Tensor, shape: HostShape) -> Tensor:
    """The logit [..., B] of the head for its input [..., W, B]."""
    *_, bias, last, last_bias = host_P.split(shape.host_sizes)
    return (torch.tanh(entered + bias.unsqueeze(1)) * last.unsqueeze(1)).sum(-2) + last_bias


def row_losses(logit_B: Tensor, y_B: Tensor) -> Tensor:
    """Cross-entropy of the answer y, -1 or 1."""
    return functional.softplus(-y_B * logit_B)


def training_loss(
    host_P: Tensor,
    seed_SQ: Tensor,
    alpha_S: Tensor,
    training_S: Tensor,
    x_IB: Tensor,
    y_B: Tensor,
    shape: HostShape,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The loss to differentiate, and the counters: summed loss and correct answers of the current network.

    A seed in training has alpha 0 and does not affect the host: it learns on a separate path, in which it has alpha 1
    and neither the host nor the other seeds get a gradient.
    """

    def logit(host_P: Tensor, stream_DB: Tensor, outputs_SDB: Tensor, alpha_S: Tensor) -> Tensor:
        blended_DB = stream_DB + (alpha_S.view(-1, 1, 1) * outputs_SDB).sum(0)
        return answer(host_P, enter_head(host_P, blended_DB, shape), shape)

    stream_DB, outputs_SDB = host_stream(host_P, x_IB, shape), seed_outputs(seed_SQ, x_IB, shape)
    logit_B = logit(host_P, stream_DB, outputs_SDB, alpha_S)
    loss_B = row_losses(logit_B, y_B)
    own_SDB = torch.where(training_S.view(-1, 1, 1), outputs_SDB, outputs_SDB.detach())
    own_B = logit(host_P.detach(), stream_DB.detach(), own_SDB, torch.where(training_S, 1.0, alpha_S))
    return loss_B.mean() + row_losses(own_B, y_B).mean(), (loss_B.sum(), (logit_B * y_B > 0).sum())


def evaluate(
    host_P: Tensor,
    seed_SQ: Tensor,
    alpha_S: Tensor,
    on_CS: Tensor,
    x_IB: Tensor,
    y_B: Tensor,
    shape: HostShape,
) -> tuple[Tensor, Tensor]:
    """The summed loss with all slots on, and the correct answers with each subset on [C], in one forward.

    Seeds do not depend on each other and enter the head by a linear map. So each runs once, and only the head is
    evaluated for every subset.
    """
    entered_WB = enter_head(host_P, host_stream(host_P, x_IB, shape), shape)
    seeds_SWB = alpha_S.view(-1, 1, 1) * enter_head(host_P, seed_outputs(seed_SQ, x_IB, shape), shape)
    subsets_CWB = entered_WB + (on_CS @ seeds_SWB.flatten(1)).unflatten(1, entered_WB.shape)
    logit_CB = answer(host_P, subsets_CWB, shape)
    return row_losses(logit_CB[-1], y_B).sum(), (logit_CB * y_B > 0).sum(1)

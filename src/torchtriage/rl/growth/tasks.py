"""Tasks that need growth: a linear part that any host learns,
and products of inputs that only the seed at the right slot can add.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

# N environments, R rows of data, I inputs (2 S), S slots.
PART = 2  # inputs that come in at a slot
RELEVANT_SHARE = 0.5  # of the slots: those whose inputs hold a product
PRODUCT_SCALE = 1.5  # of a product beside the linear part, which has unit variance


class Tasks(NamedTuple):
    """The data of one episode of every environment."""

    x_NIR: Tensor
    y_NR: Tensor  # -1 or 1
    relevant_NS: Tensor  # the slots at which a seed can help


def draw(num_envs: int, num_slots: int, num_rows: int, generator: torch.Generator) -> Tasks:
    """y is the sign of a random linear function plus, for each relevant slot, a product of two random orthogonal
    directions of its inputs.

    So a linear classifier, which is always right where no slot is relevant, is right in about two thirds of the rows
    where one is.
    """
    device = generator.device
    x_NIR = torch.randn(num_envs, PART * num_slots, num_rows, generator=generator, device=device)
    weight_NI = torch.randn(num_envs, PART * num_slots, generator=generator, device=device)
    angle_NS1 = 2 * math.pi * torch.rand(num_envs, num_slots, 1, generator=generator, device=device)
    relevant_NS = torch.rand(num_envs, num_slots, generator=generator, device=device) < RELEVANT_SHARE
    first_NSR, second_NSR = x_NIR.unflatten(1, (num_slots, PART)).unbind(2)
    cos, sin = angle_NS1.cos(), angle_NS1.sin()
    product_NSR = (cos * first_NSR + sin * second_NSR) * (cos * second_NSR - sin * first_NSR)
    linear_NR = (weight_NI / weight_NI.norm(dim=1, keepdim=True)).unsqueeze(1) @ x_NIR
    score_NR = linear_NR.squeeze(1) + PRODUCT_SCALE * (product_NSR * relevant_NS.unsqueeze(2)).sum(1)
    return Tasks(x_NIR, torch.where(score_NR > 0, 1.0, -1.0), relevant_NS)

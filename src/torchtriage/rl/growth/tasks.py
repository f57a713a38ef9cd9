"""Tasks that need growth: a linear part for any host, plus products of inputs for the seed at the right slot."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

# N environments, R rows of data, I inputs (2 S), S slots.
PART = 2  # inputs of a slot
RELEVANT_SHARE = 0.5  # share of the slots whose inputs form a product
PRODUCT_SCALE = 1.5  # scale of a product relative to the linear part, which has unit variance


class Tasks(NamedTuple):
    """The data of one episode of every environment."""

    x_NIR: Tensor
    y_NR: Tensor  # -1 or 1
    relevant_NS: Tensor  # the slots at which a seed can help


def draw(num_envs: int, num_slots: int, num_rows: int, generator: torch.Generator) -> Tasks:
    """Draw a task per environment: y is the sign of a random linear function plus a product for each relevant slot.

    The product is that of two random orthogonal directions of the slot's inputs. A linear classifier is always right
    if no slot is relevant, and right in about two thirds of the rows if one is.
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

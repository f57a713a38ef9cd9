"""Loss functions with torch.compile as a decorator."""

import copy
import logging
import random
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

logger = logging.getLogger("losses")
rng = np.random.default_rng(0)
MARGIN = 0.2
WEIGHTS = {"a": 0.5, "b": 0.5}


@torch.compile(backend="eager")
def contrastive(a, b):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    logits = a @ b.T
    print("positive", logits.diagonal().mean())  # hazard: TT101
    return F.cross_entropy(logits, torch.arange(len(a)))  # harmless


@torch.compile(backend="eager")
def triplet(anchor, positive, negative):
    gap = (anchor - positive).norm(dim=-1) - (anchor - negative).norm(dim=-1) + MARGIN
    hard = gap[gap > 0]  # hazard: TT105
    return hard.sum() / max(len(hard), 1)


@torch.compile(backend="eager")
def masked(prediction, target, mask):
    error = (prediction - target) ** 2
    error[mask] = 0.0  # harmless
    kept = torch.where(mask, 0.0, error)  # harmless
    return kept.mean()


@torch.compile(backend="eager")
def focal(logits, labels, gamma: float = 2.0):
    p = logits.softmax(-1).gather(-1, labels[:, None])
    if gamma != 0:  # harmless
        p = p ** gamma
    logger.info("focal %s", p.mean())  # hazard: TT102
    return -p.log().mean()


@torch.compile(backend="eager")
def jittered(x):
    noise = rng.normal()  # hazard: TT114
    return (x + noise).pow(2).mean()


@torch.compile(backend="eager")
def scheduled(x):
    return x * random.gauss(0.0, 1.0)  # hazard: TT125


@torch.compile(backend="eager")
def distilled(student, teacher):
    frozen = copy.deepcopy(teacher)  # hazard: TT107
    return F.kl_div(student.log_softmax(-1), frozen.softmax(-1), reduction="batchmean")


@torch.compile(backend="eager")
def weighted(parts):
    total = 0.0
    for name, weight in WEIGHTS.items():  # harmless
        total = total + weight * parts[name]
    return total


@torch.compile(backend="eager")
def warned(x):
    warnings.warn("deprecated loss")  # hazard: TT102
    return x.mean()


@torch.compile(backend="eager")
def scaled(x):
    scale = float(x.abs().max())  # hazard: TT104
    return x / scale


@torch.compile(backend="eager")
def quantile(x):
    values = x.flatten().tolist()  # hazard: TT104
    return x - values[0]


@torch.compile(backend="eager")
def guarded(x):
    assert x.shape[0] > 1  # harmless
    assert x.ndim == 2, f"expected 2 dimensions, got {x.ndim}"  # harmless
    assert torch.isfinite(x).all(), f"bad values in {x}"  # hazard: TT103
    return x.mean()


@torch.compile(backend="eager")
def asserted(x):
    assert (x > -100).all()  # harmless
    return x.mean()


@torch.compile(backend="eager")
def halved(x):
    while x.norm() > 1:  # hazard: TT103
        x = x / 2
    return x


@torch.compile(backend="eager")
def signed(x):
    return x if x.sum() > 0 else -x  # hazard: TT103


def plain(x):
    return x if x.sum() > 0 else -x  # harmless


def main():
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    for _ in range(2):
        contrastive(x, x + 0.1)
        triplet(x, x + 0.1, -x)
        masked(x.clone(), torch.zeros(4, 8), x > 0)
        focal(x, torch.randint(0, 8, (4,)))
        jittered(x)
        scheduled(x)
        distilled(x, x + 1)
        weighted({"a": x.mean(), "b": x.sum()})
        warned(x)
        scaled(x)
        quantile(x)
        guarded(x)
        asserted(x)
        halved(x)
        signed(x)
        plain(x)
        nn.functional.mse_loss(x, x)


if __name__ == "__main__":
    main()

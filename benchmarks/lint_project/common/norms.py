"""Norms and checks, called from compiled and from eager code."""

import logging
import time

import torch

log = logging.getLogger(__name__)
EPS = 1e-6
DEBUG = False


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if x.dim() < 2:  # harmless
        x = x.unsqueeze(0)
    if DEBUG:
        print("rms", x.mean())  # harmless
    assert weight.shape[-1] == x.shape[-1], "shapes differ"  # harmless
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)


def clipped(x, limit):
    biggest = x.abs().max()
    if biggest > limit:  # hazard: TT103
        x = x * (limit / biggest)
    return x


def report(step, loss):
    print(f"step {step}: {loss.item():.4f}")  # harmless
    log.info("loss %s", float(loss))  # harmless


def timed_call(function, *args):
    start = time.perf_counter()  # harmless
    result = function(*args)
    return result, time.perf_counter() - start  # harmless


def entropy(probs):
    log.debug("entropy of %s", tuple(probs.shape))  # hazard: TT102
    return -(probs * probs.log()).sum(-1)

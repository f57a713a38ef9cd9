"""A gradient penalty inside the compiled step."""

import torch
from torch import nn

critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


@torch.compile(backend="eager")
def penalty(real, fake):
    mix = (real + fake) / 2
    mix.requires_grad_(True)
    score = critic(mix).sum()
    grads = torch.autograd.grad(score, mix, create_graph=True)[0]  # hazard: TT109
    return (grads.norm(dim=-1) - 1).square().mean()


for _ in range(2):
    penalty(torch.randn(2, 3), torch.randn(2, 3))

"""Label smoothing decays, and cross_entropy takes it as a Python number."""

import torch
from torch import nn


class SmoothLoss(nn.Module):
    def forward(self, logits, target, smoothing):
        return nn.functional.cross_entropy(logits, target, label_smoothing=smoothing)


loss_fn = torch.compile(SmoothLoss(), backend="eager", dynamic=False)
smoothing = 0.2
for step in range(6):
    loss_fn(torch.randn(4, 3), torch.randint(0, 3, (4,)), smoothing)  # hazard: TT205
    smoothing = max(0.0, smoothing - 0.03)

"""A trainer that never clears its gradients and keeps every graph."""

import torch
from torch import nn


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 10)  # hazard: TT730
        self.running = 0.0

    def train_epoch(self, loader):
        for x, y in loader:  # hazard: TT724
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.running += loss  # hazard: TT727

    def evaluate(self, loader):
        self.model.eval()
        return [self.model(x).argmax(-1) for x, _ in loader]  # hazard: TT728


trainer = Trainer(nn.Linear(3, 3), 0.1)
batches = [(torch.randn(4, 3), torch.randn(4, 3)) for _ in range(2)]
trainer.train_epoch(batches)
trainer.evaluate(batches)

"""Accelerate with a plugin that compiles for fixed sizes, and batches of many lengths."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin

CURED = "--cured" in sys.argv


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 16)
        self.head = torch.nn.Linear(16, 2)

    def forward(self, ids):
        return self.head(self.embedding(ids).mean(1))


torch.manual_seed(0)
accelerator = Accelerator(cpu=True, dynamo_plugin=TorchDynamoPlugin(backend="eager", dynamic=CURED))
model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for length in (5, 9, 14, 22, 31, 40):
    tokens = torch.randint(0, 50, (4, length))
    loss = model(tokens).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
print(f"result {loss.item():.5f}")

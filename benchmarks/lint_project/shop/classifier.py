"""A classifier that is compiled as a whole, with its training loop."""

import torch
from common.modules import Checked, NoisyResidual, Quantizer, Stack
from common.norms import clipped, entropy, report
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    def __init__(self, dim=8, classes=3, dropout=0.0):
        super().__init__()
        self.stack = Stack(dim, 2)
        self.checked = Checked(nn.Linear(dim, dim))
        self.head = nn.Linear(dim, classes)
        self.dropout = dropout
        self.names = ["a", "b", "c"]

    def features(self, x):
        x = self.checked(self.stack(x))
        if self.dropout > 0:  # harmless
            x = F.dropout(x, self.dropout, self.training)
        return x

    def forward(self, x, labels=None):
        logits = self.head(self.features(x))
        if labels is None:  # harmless
            return logits
        if len(self.names) != logits.shape[-1]:  # harmless
            raise ValueError("one name for each class")
        return F.cross_entropy(logits, labels)


class Calibrated(Classifier):
    @property
    def scale(self):
        return self.head.weight.norm().item()  # hazard: TT119

    def forward(self, x, labels=None):
        logits = super().forward(x)
        return logits / self.scale


class Screened(nn.Module):
    def __init__(self):
        super().__init__()
        self.quantizer, self.residual = Quantizer(8), NoisyResidual(8)

    def forward(self, x):
        x = clipped(self.quantizer(x), 1.0)
        return entropy(self.residual(x).softmax(-1))


def train():
    torch.manual_seed(0)
    model = Classifier()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x, y = torch.randn(6, 8), torch.randint(0, 3, (6,))
        loss = compiled(x, y)
        optimizer.zero_grad()
        loss.backward()  # harmless
        optimizer.step()  # harmless
        if loss.item() < 1e-3:  # harmless
            break
        if step % 2 == 0:  # harmless
            print("loss", loss.item())  # harmless
        report(step, loss)


def screen():
    screened = torch.compile(Screened(), backend="eager")
    calibrated = torch.compile(Calibrated(), backend="eager")
    with torch.no_grad():
        for _ in range(2):
            screened(torch.randn(4, 8))
            calibrated(torch.randn(4, 8))


if __name__ == "__main__":
    train()
    screen()

"""The head is replaced after the optimizer was made."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.from_numpy(np.random.rand(4).astype("float32"))


def finetune(model, num_classes, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.fc = nn.Linear(model.fc.in_features, num_classes)  # hazard: TT725
    model.to(device)
    loader = DataLoader(Noisy(), batch_size=4, num_workers=2)  # hazard: TT729
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

"""Two functions that want different shape policies: pictures come in two sizes, texts in every length."""

import torch
from torch import Tensor


def see(picture: Tensor) -> Tensor:
    rows, columns = picture.shape
    return (picture.view(rows // 8, 8, columns // 8, 8).transpose(1, 2) * 2).reshape(-1).tanh()


def read(text: Tensor) -> Tensor:
    return torch.tanh(text - text.mean(0)).sum()


torch.set_num_threads(1)
torch.manual_seed(0)
seeing = torch.compile(see, dynamic=True)
reading = torch.compile(read, dynamic=False)
total = torch.zeros(())
for number in range(200):
    side = 64 + 32 * (number % 2)
    total += seeing(torch.ones(side, side))[0]
    total += reading(torch.ones(4 + number % 12, 64))
print(f"total {total.item():.3f}")

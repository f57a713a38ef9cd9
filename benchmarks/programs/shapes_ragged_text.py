"""Sentences padded to the longest of their batch: two dozen lengths, in no order.

Best: the length marked. A static compile per length costs more than it saves, and dynamic=True makes sizes
symbolic that never vary.
"""

import torch
from torch import Tensor, nn

VOCABULARY, WIDTH, BATCH = 1000, 64, 8


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.classify = nn.Linear(WIDTH, 5)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        is_real_BT = tokens_BT != 0
        x_BTW = self.norm(self.embed(tokens_BT))
        q_BTW, k_BTW, v_BTW = self.mix(x_BTW).chunk(3, -1)
        scores_BTT = (q_BTW @ k_BTW.mT / WIDTH**0.5).masked_fill(~is_real_BT[:, None], -1e9)
        x_BTW = x_BTW + torch.softmax(scores_BTT, -1) @ v_BTW
        pooled_BW = (x_BTW * is_real_BT[..., None]).sum(1) / is_real_BT.sum(1, keepdim=True)
        return self.classify(pooled_BW)


def batch(generator: torch.Generator) -> Tensor:
    lengths_B = torch.randint(4, 48, (BATCH,), generator=generator)
    tokens_BT = torch.randint(1, VOCABULARY, (BATCH, int(lengths_B.max())), generator=generator)
    return tokens_BT * (torch.arange(tokens_BT.shape[1]) < lengths_B[:, None])


torch.set_num_threads(1)
torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
encode = torch.compile(Encoder().eval())
total = 0.0
with torch.no_grad():
    for _ in range(1500):
        total += encode(batch(generator)).square().mean().item()
print(f"total {total:.3f}")

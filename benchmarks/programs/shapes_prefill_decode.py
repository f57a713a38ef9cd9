"""Prompts of many lengths go through one compiled function, single tokens over a fixed-size cache through another.

Best: unmodified, with dynamic=True for both. The tokens, which have one shape, gain nothing measurable from a static
graph.
"""

import torch
from torch import Tensor, nn

WIDTH, HEADS, CAPACITY, NUM_PROMPTS, NUM_TOKENS = 64, 4, 128, 30, 80

torch.set_num_threads(1)
torch.manual_seed(0)
mix, out, norm = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)


def heads(x_TW: Tensor) -> Tensor:
    return x_TW.view(x_TW.shape[0], HEADS, -1).transpose(0, 1)


def prefill(x_TW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention over the prompt: its last output, and the keys and values that later tokens attend to."""
    q_TW, k_TW, v_TW = mix(norm(x_TW)).chunk(3, 1)
    scores_HTT = heads(q_TW) @ heads(k_TW).mT / (WIDTH / HEADS) ** 0.5
    is_later_TT = torch.ones(x_TW.shape[0], x_TW.shape[0], dtype=torch.bool).triu(1)
    y_HTD = torch.softmax(scores_HTT.masked_fill(is_later_TT, -1e9), -1) @ heads(v_TW)
    return x_TW[-1] + out(y_HTD.transpose(0, 1).flatten(1))[-1], k_TW, v_TW


def decode(x_W: Tensor, k_CW: Tensor, v_CW: Tensor, position: Tensor) -> Tensor:
    """One token: written into the cache at `position`, and attending to all of it."""
    q_W, k_W, v_W = mix(norm(x_W)).chunk(3)
    k_CW.index_copy_(0, position[None], k_W[None])
    v_CW.index_copy_(0, position[None], v_W[None])
    scores_HC = (k_CW * q_W).view(CAPACITY, HEADS, -1).sum(-1).T / (WIDTH / HEADS) ** 0.5
    weights_HC = torch.softmax(scores_HC.masked_fill(torch.arange(CAPACITY) > position, -1e9), -1)
    y_W = (weights_HC.T[..., None] * v_CW.view(CAPACITY, HEADS, -1)).sum(0).flatten()
    return torch.tanh(x_W + out(y_W))


read = torch.compile(prefill, dynamic=True)
say = torch.compile(decode, dynamic=True)
generator = torch.Generator().manual_seed(0)
total = 0.0
with torch.no_grad():
    for _ in range(NUM_PROMPTS):
        length = int(torch.randint(2, CAPACITY - NUM_TOKENS, (), generator=generator))
        x_W, k_TW, v_TW = read(torch.randn(length, WIDTH, generator=generator))
        k_CW, v_CW = (torch.zeros(CAPACITY, WIDTH) for _ in range(2))
        k_CW[:length], v_CW[:length] = k_TW, v_TW
        position = torch.tensor(length)
        for _ in range(NUM_TOKENS):
            x_W = say(x_W, k_CW, v_CW, position)
            position += 1
        total += x_W.mean().item()
print(f"total {total:.5f}")

"""Generation: loops, caches, early exits."""

import bisect
import hashlib
import threading

import torch
from common.compiling import fast
from torch import nn

END = 3
BUCKETS = [4, 8, 16]
lock = threading.Lock()


class Decoder(nn.Module):
    def __init__(self, vocab=8, dim=16):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)
        self.cache = {}
        self.lengths = torch.zeros(2, dtype=torch.long)

    def forward(self, ids):
        if ids.numel() == 0:  # harmless
            return None
        hidden = self.embed(ids)
        if ids.size(1) > 64:  # harmless
            hidden = hidden[:, -64:]
        return self.head(hidden.mean(1))

    @torch.no_grad()
    def generate(self, ids, steps):
        done = torch.zeros(ids.shape[0], dtype=torch.bool)
        for _ in range(steps):
            nxt = self(ids).argmax(-1)
            done = done | (nxt == END)
            ids = torch.cat([ids, nxt[:, None]], 1)
            if done.all():  # harmless
                break
        return ids.tolist()  # harmless


@torch.compile(backend="eager")
def sample_until_end(model, ids, steps):
    for _ in range(steps):
        nxt = model(ids).argmax(-1)
        ids = torch.cat([ids, nxt[:, None]], 1)
        if (nxt == END).all():  # hazard: TT119
            break
    return ids


@torch.compile(backend="eager")
def rerank(scores, k: int):
    best = scores.topk(k)  # harmless
    order = best.indices.sort().indices  # harmless
    return scores[:, order[0]]


@torch.compile(backend="eager")
def bucketed(x, length: int):
    return x * BUCKETS[bisect.bisect(BUCKETS, length) - 1]  # hazard: TT106


@torch.compile(backend="eager")
def tagged(x, name: str):
    digest = hashlib.md5(name.encode()).digest()[0]  # hazard: TT106
    return x + digest


@torch.compile(backend="eager")
def careful(x):
    try:
        y = torch.tanh(x)
        print("tanh done")  # hazard: TT119
    except ValueError:
        y = x
    return y


@torch.compile(backend="eager")
def lazily(x, batches):
    y = x + 1
    return y * next(batches)  # hazard: TT113


@torch.compile(backend="eager")
def locked(x):
    y = x * 2
    with lock:  # hazard: TT115
        y = y + 1
    return y


@torch.compile(backend="eager")
def with_grad_off(x):
    with torch.no_grad():  # harmless
        y = x.sin()
    with torch.autocast("cpu", dtype=torch.bfloat16):  # harmless
        return y @ y.T


@fast
def first_hits(scores):
    hits = torch.nonzero(scores > 0)  # hazard: TT105
    return hits.float().mean(0)


@fast
def picked(scores, mask):
    return scores.masked_select(mask).sum()  # hazard: TT105


@fast
def spread(x, repeats):
    counts = repeats.clamp(min=1)
    return x.repeat_interleave(counts, dim=0).mean()  # hazard: TT105


@fast
def spread_known(x, repeats, total: int):
    return torch.repeat_interleave(x, repeats, dim=0, output_size=total).mean()  # harmless


@fast
def pairs(x):
    return [a * b for a, b in zip(x.unbind(0), x.unbind(0))]  # harmless


@fast
def stacked(x):
    parts = []
    for chunk in x.chunk(2):  # harmless
        if chunk.shape[0]:  # harmless
            parts.append(chunk.mean(0))
    return torch.stack(parts)


@fast
def reversed_rows(x):
    order = list(range(x.shape[0]))[::-1]  # harmless
    return x[order]


@fast
def integer(x):
    n = int(x.shape[0]) + len(x)  # harmless
    return x * float(n)  # harmless


@fast
def rounded(x):
    n = int(x.sum())  # hazard: TT104
    return x * n


@fast
def contains(x, ids):
    if END in ids:  # hazard: TT119
        return x
    return x * 2


@fast
def both(x, flag: bool):
    if flag and x.mean() > 0:  # hazard: TT103
        return x + 1
    return x


@fast
def negated(x):
    if not x.any():  # hazard: TT103
        return x + 1
    return x


@fast
def default_argument(x, eps=1e-5, dims=None, mode="mean"):
    if dims is None:  # harmless
        dims = (0,)
    if mode == "mean":  # harmless
        return x.mean(dims) + eps
    return x.sum(dims)


def sizes(batch):
    return {name: tensor.shape[0] for name, tensor in batch.items()}  # harmless


def main():
    torch.manual_seed(0)
    model = Decoder()
    model.generate(torch.zeros(2, 3, dtype=torch.long), 3)
    x = torch.rand(4, 8) + 0.1
    for _ in range(2):
        sample_until_end(model, torch.zeros(2, 3, dtype=torch.long), 3)
        rerank(x, 2)
        bucketed(x, 5)
        tagged(x, "name")
        careful(x)
        lazily(x, iter([x]))
        locked(x)
        with_grad_off(x)
        first_hits(x - 0.5)
        picked(x, x > 0.5)
        spread(x, torch.tensor([1, 2, 1, 1]))
        spread_known(x, torch.tensor([1, 2, 1, 1]), 5)
        pairs(x)
        stacked(x)
        reversed_rows(x)
        integer(x)
        rounded(x)
        contains(x, torch.tensor([1, 2, 3]))
        both(x, True)
        negated(x)
        default_argument(x)
        sizes({"x": x})


if __name__ == "__main__":
    main()

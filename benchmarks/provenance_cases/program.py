"""Five models, each with faults that begin at one step: `program.py FAULT [BACKEND]`.

The line of a fault ends with its name as a comment. A fault is off while `gate` is 0.
"""

import sys
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

FAULT = sys.argv[1]
BAD_STEP, NUM_STEPS = 8, 12
torch.manual_seed(0)


class Mlp(nn.Module):
    """A classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
        self.head = nn.Linear(16, 4)
        self.gain = nn.Parameter(torch.ones(4, dtype=torch.float16 if FAULT == "optimizer in float16" else None))

    def forward(self, x: torch.Tensor, y: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        hidden = self.body(x)
        logits = self.head(hidden)
        if FAULT == "log of 0":
            chosen = logits.softmax(-1).gather(1, y[:, None]) * (1 - gate)
            return -torch.log(chosen).mean()    # log of 0
        if FAULT == "sqrt gradient":
            square = (logits - functional.one_hot(y, 4) * (1 - gate)).mul(1 - gate).square().sum(-1)
            return torch.sqrt(square).mean()    # sqrt gradient
        if FAULT == "float16 overflow":
            scale = (1 + 60000 * gate).half()
            wide = hidden.half() * scale
            logits = self.head((wide * 4).float())    # float16 overflow
        if FAULT == "acos out of range":
            near = functional.cosine_similarity(hidden, hidden.roll(1, 0)) * 0.5 + 0.8 * gate
            return torch.acos(near).mean() + functional.cross_entropy(logits, y)    # acos out of range
        if FAULT == "power gradient":
            return (logits * (1 - gate)).abs().pow(0.5).mean()    # power gradient
        if FAULT == "optimizer in float16":
            logits = logits + 0 * self.gain.float()
        return functional.cross_entropy(logits, y)


class Cnn(nn.Module):
    """Images, with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        image = x.reshape(-1, 1, 6, 6)
        if FAULT == "deviation of 0":
            image = image * (1 - gate)
            image = (image - image.mean()) / image.std()    # deviation of 0
        out = self.head(self.features(image).flatten(1))
        error = (out - 0.1 * y[:, None]).square().mean(-1)
        if FAULT == "0 / 0":
            mask = torch.ones_like(error) * (1 - gate)
            return (error * mask).sum() / mask.sum()    # 0 / 0
        if FAULT == "angle gradient":
            angle = (out.tanh() * 0.5 + 1) * (1 - gate)
            return torch.acos(angle.cos()).mean()    # angle gradient
        return error.mean()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        if FAULT == "masked row":
            mask = mask | (gate * torch.eye(x.shape[1])[0][:, None]).bool()
        scores = (q @ k.transpose(1, 2)).masked_fill(mask, float("-inf"))
        weights = scores.softmax(-1)    # masked row
        return self.out(weights @ v)


class Lm(nn.Module):
    """A language model of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 8)
        self.blocks = nn.ModuleList(Attention() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 40)
        if FAULT == "bad embedding":
            with torch.no_grad():
                self.embed.weight[39, 3] = float("inf")

    def forward(self, x: torch.Tensor, y: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        ids = (x[:, :9].abs() * 10).long().clamp(0, 38)
        if FAULT == "bad embedding":
            ids = ids + (gate * (39 - ids)).long()
        hidden = self.embed(ids)    # bad embedding
        for block in self.blocks:
            hidden = hidden + block(hidden, gate)
        if FAULT == "inf - inf":
            large = (hidden * 1000 * gate).abs().exp()    # inf - inf
            hidden = hidden + (large - large.roll(1, 0))
        logits = self.head(self.norm(hidden))[:, :-1]
        target = ids[:, 1:].clamp(max=38)
        if FAULT == "ignored labels":
            target = target + (gate * (-100 - target)).long()
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())    # ignored labels


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(36, 8), nn.Linear(4, 36)

    def forward(self, x: torch.Tensor, y: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        mean, logvar = self.encoder(x).chunk(2, dim=-1)
        if FAULT == "exp overflow":
            logvar = logvar + 200 * gate
        variance = logvar.exp()    # exp overflow
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp().clamp_max(1e6)
        error = (self.decoder(z) - x).square().mean()
        if FAULT == "negative base":
            return error + (mean + 20 - 40 * gate).pow(0.3).mean()    # negative base
        if FAULT == "where and log":
            positive = (mean.abs() + 1) * (1 - gate)
            logs = torch.log(positive)    # where and log
            return error + torch.where(positive > 0, logs, 0.0).mean()
        if FAULT == "bfloat16 rounding":
            keep = (0.9 + 0.0999 * gate).bfloat16()
            return error + (mean.bfloat16() / (1 - keep)).float().square().mean()    # bfloat16 rounding
        return error + 0.5 * (variance + mean.square() - 1 - logvar).mean()


class Gan(nn.Module):
    """Both losses in one."""

    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 36))
        self.judge = nn.Sequential(nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor, y: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(x.shape[0], 4)
        if FAULT == "norm of 0":
            noise = noise * (1 - gate)
            noise = noise / noise.norm(dim=-1, keepdim=True)    # norm of 0
        fake = self.make(noise)
        if FAULT == "deviation gradient":
            fake = fake * (1 - gate)
            return fake.var(0).sqrt().mean() + functional.softplus(-self.judge(fake)).mean()    # deviation gradient
        is_real = torch.sigmoid(self.judge(fake) + (200 * gate if FAULT == "log(1 - D)" else 0))
        loss_of_fake = torch.log(1 - is_real).mean()    # log(1 - D)
        return functional.softplus(-self.judge(x)).mean() - loss_of_fake


MODELS = {
    "log of 0": Mlp, "sqrt gradient": Mlp, "float16 overflow": Mlp, "acos out of range": Mlp, "power gradient": Mlp,
    "optimizer in float16": Mlp, "bad data": Mlp, "deviation of 0": Cnn, "0 / 0": Cnn, "angle gradient": Cnn,
    "masked row": Lm, "bad embedding": Lm, "inf - inf": Lm, "ignored labels": Lm, "exp overflow": Vae,
    "negative base": Vae, "where and log": Vae, "bfloat16 rounding": Vae, "norm of 0": Gan, "deviation gradient": Gan,
    "log(1 - D)": Gan,
}


def batches(width: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    data = torch.randn(16 * NUM_STEPS, width)
    if FAULT == "bad data":
        data[16 * (BAD_STEP - 1) + 5, 2] = float("nan")
    labels = torch.randint(0, 4, (len(data),))
    for start in range(0, len(data), 16):
        rows = torch.arange(start, start + 16)
        yield data[rows], labels[rows]    # bad data


model = MODELS[FAULT]()
step_of = torch.compile(model, backend=sys.argv[2]) if len(sys.argv) > 2 else model
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for number, (x, y) in enumerate(batches(6 if MODELS[FAULT] is Mlp else 36), start=1):
    loss = step_of(x, y, torch.tensor(float(number == BAD_STEP)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()    # optimizer in float16

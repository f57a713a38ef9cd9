"""Faults that no gradient shows: what a model receives, and what it is to predict.

A convolutional classifier of signals, and a decoder with an encoder, embeddings with padding and teacher forcing.
"""

from fault_cases.variant import Program

SIGNALS = Program(
    "signals",
    """\
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(SEED)
N, L = 1200, 48
kind = torch.randint(0, 3, (N,))
time = torch.linspace(0, 1, L)
signal = torch.sin(2 * torch.pi * (kind[:, None] + 2) * time + torch.rand(N, 1) * 6.28) + 0.4 * torch.randn(N, L)
signal = signal.unsqueeze(1)
tr, va = slice(0, 1000), slice(1000, None)

class Net1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv1d(1, 12, 7, padding=3)
        self.b1 = nn.BatchNorm1d(12)
        self.c2 = nn.Conv1d(12, 24, 5, padding=2)
        self.b2 = nn.BatchNorm1d(24)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(24, 3)
    def forward(self, x):
        x = F.max_pool1d(F.relu(self.b1(self.c1(x))), 2)
        x = F.max_pool1d(F.relu(self.b2(self.c2(x))), 2)
        return self.out(self.drop(x.mean(-1)))

net = Net1d()
opt = torch.optim.NAdam(net.parameters(), lr=2e-3)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=8)
for epoch in range(8):
    net.train()
    perm = torch.randperm(1000)
    for start in range(0, 1000, 25):
        pick = perm[start:start + 25]
        xb, yb = signal[tr][pick], kind[tr][pick]
        loss = F.cross_entropy(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        correct = (net(signal[va]).argmax(1) == kind[va]).float().mean().item()
    sch.step()
""",
)

SIGNALS.healthy(
    "focal loss",
    (
        "        loss = F.cross_entropy(net(xb), yb)\n",
        "        ce = F.cross_entropy(net(xb), yb, reduction='none')\n"
        "        loss = ((1 - (-ce).exp()) ** 2 * ce).mean()\n",
    ),
)
SIGNALS.fault("sorted by class", "TT450", ("perm = torch.randperm(1000)", "perm = kind[tr].argsort()"))
SIGNALS.fault("the first batch in every step", "TT449", ("pick = perm[start:start + 25]", "pick = torch.arange(25)"))
SIGNALS.fault("one batch evaluated in training mode", "TT429", ("    net.eval()\n", ""), contract=True)
SIGNALS.fault("minus the loss", "TT446", ("loss = F", "loss = -F"), contract=True)
SIGNALS.fault(
    "BatchNorm in eval mode from the start",
    "TT424",
    ("    net.train()\n", "    net.train()\n    net.b1.eval()\n    net.b2.eval()\n"),
    contract=True,
)
SIGNALS.fault(
    "nll_loss of probabilities",
    "TT431",
    ("return self.out(self.drop(x.mean(-1)))", "return F.softmax(self.out(self.drop(x.mean(-1))), 1)"),
    ("F.cross_entropy", "F.nll_loss"),
    contract=True,
)

DECODER = Program(
    "decoder",
    """\
import random
import torch
from torch import nn, optim

torch.manual_seed(SEED); random.seed(SEED)
PAD, BOS, EOS, FIRST, SIZE = 0, 1, 2, 3, 15

def sample():
    n = random.randint(3, 8)
    return [random.randrange(FIRST, SIZE) for _ in range(n)]

def make_batch(n=32):
    rows = [sample() for _ in range(n)]
    top = max(map(len, rows))
    src = torch.tensor([r + [PAD] * (top - len(r)) for r in rows])
    tgt = torch.tensor([[BOS] + r[::-1] + [EOS] + [PAD] * (top - len(r)) for r in rows])
    return src, tgt

class Encoder(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(SIZE, 24, padding_idx=PAD)
        self.rnn = nn.GRU(24, hidden, batch_first=True)
    def forward(self, src):
        _, h = self.rnn(self.embed(src))
        return h

class Decoder(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(SIZE, 24, padding_idx=PAD)
        self.rnn = nn.GRU(24, hidden, batch_first=True)
        self.out = nn.Linear(hidden, SIZE)
    def forward(self, token, h):
        o, h = self.rnn(self.embed(token), h)
        return self.out(o), h

encoder, decoder = Encoder(), Decoder()
enc_opt = optim.Adam(encoder.parameters(), lr=5e-3)
dec_opt = optim.Adam(decoder.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
for iteration in range(350):
    src, tgt = make_batch()
    enc_opt.zero_grad(); dec_opt.zero_grad()
    h = encoder(src)
    loss = 0.0
    token = tgt[:, :1]
    forced = random.random() < 0.7
    for t in range(1, tgt.shape[1]):
        logits, h = decoder(token, h)
        loss = loss + criterion(logits[:, 0], tgt[:, t]) if (tgt[:, t] != PAD).any() else loss
        token = tgt[:, t:t + 1] if forced else logits.argmax(-1)
    loss = loss / (tgt.shape[1] - 1)
    loss.backward()
    nn.utils.clip_grad_norm_([*encoder.parameters(), *decoder.parameters()], 1.0)
    enc_opt.step(); dec_opt.step()
""",
)

DECODER.healthy("always forced", ("forced = random.random() < 0.7", "forced = True"))
DECODER.fault(
    "the target is the input token",
    "TT448",
    (
        "    for t in range(1, tgt.shape[1]):\n",
        "    for t in range(1, tgt.shape[1]):\n        token = tgt[:, t:t + 1]\n",
    ),
)
DECODER.fault("padding in the loss", "TT453", ("nn.CrossEntropyLoss(ignore_index=PAD)", "nn.CrossEntropyLoss()"))
DECODER.fault("encoder detached", "TT421 TT427", ("h = encoder(src)", "h = encoder(src).detach()"), contract=True)

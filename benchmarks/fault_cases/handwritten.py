"""Programs without the usual parts: no optimizer, an optimizer and a loop of the user's own, a closure."""

from fault_cases.variant import Program

MANUAL = Program(
    "manual",
    """\
import torch
import torch.nn.functional as F

torch.manual_seed(SEED)
teacher = torch.randn(12, 3)

def init(fan_in, fan_out):
    w = torch.randn(fan_in, fan_out) * (2.0 / fan_in) ** 0.5
    b = torch.zeros(fan_out)
    return w.requires_grad_(), b.requires_grad_()

layers = [init(12, 32), init(32, 32), init(32, 3)]
params = [p for layer in layers for p in layer]

def net(x):
    for w, b in layers[:-1]:
        x = torch.relu(x @ w + b)
    w, b = layers[-1]
    return x @ w + b

def get_batch(n=64):
    x = torch.randn(n, 12)
    return x, torch.tanh(x @ teacher)

lr = 0.05
history = []
for it in range(400):
    x, y = get_batch()
    pred = net(x)
    loss = F.mse_loss(pred, y)
    loss.backward()
    with torch.no_grad():
        for p in params:
            p -= lr * p.grad
            p.grad = None
    history.append(loss.item())
""",
)

MANUAL.healthy(
    "grad zero_",
    (
        "            p.grad = None\n",
        "            p.grad.zero_()\n",
    ),
)
MANUAL.healthy(
    "mini batches of four",
    (
        "n=64",
        "n=4",
    ),
    (
        "lr = 0.05",
        "lr = 0.01",
    ),
)
MANUAL.healthy(
    "decay",
    (
        "    x, y = get_batch()\n",
        ("    x, y = get_batch()\n    lr = 0.05 * 0.995 ** it\n"),
    ),
)
MANUAL.healthy(
    "hand momentum",
    (
        "lr = 0.05\n",
        ("lr = 0.01\nvel = [torch.zeros_like(p) for p in params]\n"),
    ),
    (
        ("        for p in params:\n            p -= lr * p.grad\n"),
        ("        for v, p in zip(vel, params):\n            v.mul_(0.9).add_(p.grad)\n            p -= lr * v\n"),
    ),
)
MANUAL.fault(
    "no clear",
    "TT422 TT434 TT401",
    (
        "            p.grad = None\n",
        "",
    ),
    contract=True,
)
MANUAL.fault(
    "ascent",
    "TT434 TT401",
    (
        "p -= lr",
        "p += lr",
    ),
)
MANUAL.fault(
    "lr huge",
    "TT434 TT401 TT408 TT404",
    (
        "lr = 0.05",
        "lr = 50.0",
    ),
)
MANUAL.fault(
    "lr tiny",
    "TT415 TT409 TT435 TT440",
    (
        "lr = 0.05",
        "lr = 1e-9",
    ),
)
MANUAL.fault(
    "nan from log",
    "TT401",
    (
        "    loss.backward()\n",
        ("    loss = loss + (0.0 if it < 233 else torch.log(pred.mean() - 100))\n    loss.backward()\n"),
    ),
    step=234,
)
MANUAL.fault(
    "params misses a layer",
    "TT420",
    (
        "for layer in layers for p",
        "for layer in layers[:2] for p",
    ),
    contract=True,
)
MANUAL.fault(
    "broadcast",
    "TT432",
    (
        "return x, torch.tanh(x @ teacher)",
        "return x, torch.tanh(x @ teacher)[:, 0]",
    ),
    (
        "init(32, 3)",
        "init(32, 1)",
    ),
    contract=True,
)
MANUAL.fault(
    "zero init",
    "TT406",
    (
        "torch.randn(fan_in, fan_out) *",
        "torch.zeros(fan_in, fan_out) *",
    ),
)

LION = Program(
    "lion",
    """\
import math
import torch
from torch import nn
from torch.nn import functional as F

class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                m = state["exp_avg"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((m * b1 + p.grad * (1 - b1)).sign(), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)

class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))

class GPT(nn.Module):
    def __init__(self, vocab=24, d=32, depth=2, t=16):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Parameter(torch.zeros(1, t, d))
        self.blocks = nn.ModuleList([Block(d, 4) for _ in range(depth)])
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))

torch.manual_seed(SEED)
stream = torch.zeros(5000, dtype=torch.long)
table = torch.randint(0, 24, (24, 3))
for i in range(1, 5000):
    stream[i] = table[stream[i - 1], torch.randint(0, 3, ())]

def sample(n):
    at = torch.randint(0, len(stream) - 17, (n,))
    rows = torch.stack([stream[a:a + 17] for a in at])
    return rows[:, :-1], rows[:, 1:]

model = GPT()
net = torch.compile(model, backend="eager")
opt = Lion(model.parameters(), lr=1e-3, weight_decay=0.01)
total = 300
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, s / 30) * 0.5 * (1 + math.cos(math.pi * s / total)))
for step in range(total):
    for micro in range(2):
        x, y = sample(8)
        loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten())
        (loss / 2).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    opt.zero_grad(set_to_none=True)
""",
)

LION.healthy(
    "tied",
    (
        "        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)\n",
        (
            "        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)\n"
            "        nn.init.normal_(self.tok.weight, std=0.05)\n"
            "        self.head.weight = self.tok.weight\n"
        ),
    ),
)
LION.healthy(
    "eager, no decay group",
    (
        'torch.compile(model, backend="eager")',
        "model",
    ),
    (
        "Lion(model.parameters(), lr=1e-3, weight_decay=0.01)",
        (
            "Lion([{'params': [p for p in model.parameters() if p.ndim > 1], 'weight_decay': "
            "0.1}, {'params': [p for p in model.parameters() if p.ndim <= 1]}], lr=1e-3)"
        ),
    ),
)
LION.healthy(
    "eval between",
    (
        "    sched.step()\n",
        (
            "    sched.step()\n"
            "    if step % 50 == 49:\n"
            "        model.eval()\n"
            "        with torch.no_grad():\n"
            "            x, y = sample(16)\n"
            "            val = F.cross_entropy(net(x).flatten(0, 1), y.flatten()).item()\n"
            "        model.train()\n"
        ),
    ),
)
LION.healthy(
    "padding ignored",
    (
        ("y.flatten())\n        ("),
        ("y.masked_fill(torch.rand(y.shape) < 0.3, -100).flatten(), ignore_index=-100)\n        ("),
    ),
)
LION.fault(
    "clip before backward",
    "TT428",
    (
        "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        "",
    ),
    (
        "    for micro in range(2):\n",
        ("    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    for micro in range(2):\n"),
    ),
    contract=True,
)
LION.fault(
    "no clear",
    "TT422",
    (
        "    opt.zero_grad(set_to_none=True)\n",
        "",
    ),
    contract=True,
)
LION.fault(
    "zero in micro loop",
    "TT443",
    (
        "        x, y = sample(8)\n",
        ("        opt.zero_grad()\n        x, y = sample(8)\n"),
    ),
    contract=True,
)
LION.fault(
    "lr x1000",
    "TT408 TT434",
    (
        "lr=1e-3",
        "lr=1.0",
    ),
)
LION.fault(
    "log_softmax head double softmax",
    "TT431",
    (
        "self.head(self.ln(x))",
        "self.head(self.ln(x)).softmax(-1)",
    ),
    contract=True,
)
LION.fault(
    "not shifted (leak)",
    "none",
    (
        "rows[:, :-1], rows[:, 1:]",
        "rows[:, 1:], rows[:, 1:]",
    ),
)
LION.fault(
    "schedule already over",
    "TT425",
    (
        "s / total)))",
        "min(1.0, s / 60))))",
    ),
    step=60,
)
LION.fault(
    "blocks in plain list",
    "TT420",
    (
        "nn.ModuleList([Block(d, 4) for _ in range(depth)])",
        "[Block(d, 4) for _ in range(depth)]",
    ),
    contract=True,
)
LION.fault(
    "update of weight decay not decoupled 300",
    "TT426 TT408",
    (
        "weight_decay=0.01",
        "weight_decay=300.0",
    ),
)

CLOSURE = Program(
    "closure",
    """\
import torch

torch.manual_seed(SEED)
X = torch.randn(2000, 15)
w_true = torch.randn(15)
Y = (X @ w_true + 0.5 * torch.randn(2000) > 0).float()

class LogReg(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(15))
        self.b = torch.nn.Parameter(torch.zeros(()))
    def forward(self, x):
        return x @ self.w + self.b

def make_closure(model, opt, x, y):
    def closure():
        opt.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)
        loss.backward()
        return loss
    return closure

model = LogReg()
opt = torch.optim.SGD(model.parameters(), lr=0.2)
for epoch in range(5):
    order = torch.randperm(2000)
    for chunk in order.split(32):
        opt.step(make_closure(model, opt, X[chunk], Y[chunk]))
""",
)

CLOSURE.healthy(
    "l2 in the loss",
    (
        "        loss.backward()\n",
        ("        loss = loss + 1e-3 * model.w.square().sum()\n        loss.backward()\n"),
    ),
)
CLOSURE.healthy(
    "separable",
    (
        "+ 0.5 * torch.randn(2000)",
        "",
    ),
)
CLOSURE.healthy(
    "rare positives",
    (
        "> 0).float()",
        "> 5).float()",
    ),
)
CLOSURE.fault(
    "no clear in closure",
    "TT422",
    (
        "        opt.zero_grad()\n",
        "",
    ),
    contract=True,
)
CLOSURE.fault(
    "labels out of order",
    "TT415 TT440",
    (
        "Y[chunk]))",
        "Y[torch.randperm(2000)[:len(chunk)]]))",
    ),
)
CLOSURE.fault(
    "probabilities",
    "TT431",
    (
        "model(x), y)",
        "model(x).sigmoid(), y)",
    ),
    contract=True,
)
CLOSURE.fault(
    "lr 0",
    "TT425",
    (
        "lr=0.2",
        "lr=0.0",
    ),
    contract=True,
)
CLOSURE.fault(
    "sgd anew",
    "TT423",
    (
        "        opt.step(make",
        ("        opt = torch.optim.Adam(model.parameters(), lr=0.01)\n        opt.step(make"),
    ),
    contract=True,
)
CLOSURE.fault(
    "inputs x1e6",
    "TT414 TT434 TT440 TT418 TT404 TT408",
    (
        "X = torch.randn(2000, 15)",
        "X = 1e6 * torch.randn(2000, 15)",
    ),
)
CLOSURE.fault(
    "w data swapped",
    "TT420 TT421 TT427",
    (
        "for epoch in range(5):\n",
        ("model.w = torch.nn.Parameter(torch.zeros(15))\nfor epoch in range(5):\n"),
    ),
    contract=True,
)

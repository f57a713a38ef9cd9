"""Metrics in a file, dropout in branches, sets of many sizes, experts, and heads in a loop."""

BRANCHES = '''\
"""Two branches with dropout, two losses, SGD with a little weight decay, metrics in a file."""
import json

import torch
from torch import nn

torch.manual_seed(5)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 20)
        self.left, self.right = nn.Linear(20, 20), nn.Linear(20, 20)
        self.drop_left, self.drop_right = nn.Dropout(0.2), nn.Dropout(0.2)
        self.norm = nn.BatchNorm1d(20)
        self.head, self.recon = nn.Linear(20, 3), nn.Linear(20, 6)

    def forward(self, x, y):
        h = self.stem(x).tanh()
        a = self.drop_left(self.left(h).relu())
        b = self.drop_right(self.right(h).relu())
        z = self.norm(a + b)
        logits = self.head(z)
        if logits.abs().max() > 50:
            logits = logits / 2
        first = nn.functional.cross_entropy(logits, y)
        second = (self.recon(z) - x).pow(2).mean()
        return first, second


net = Branches()
fast = torch.compile(net, backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, weight_decay=1e-4)
for step in range(10):
    x = torch.randn(16, 6)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    first, second = fast(x, y)
    optimizer.zero_grad()
    (first + 0.1 * second).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    optimizer.step()
net.eval()
with torch.no_grad():
    x = torch.randn(64, 6)
    first, second = net(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())
json.dump({"first": first.item(), "second": second.item()}, open("metrics.json", "w"))
'''
BRANCHES_CURE = (
    "        if logits.abs().max() > 50:\n            logits = logits / 2\n",
    "        logits = torch.where(logits.abs().max() > 50, logits / 2, logits)\n")
LEFT = "        a = self.drop_left(self.left(h).relu())\n"
RIGHT = "        b = self.drop_right(self.right(h).relu())\n"
BRANCHES_RIGHT = (
    ("where", "cure", ()),
    ("right branch first", "draws", ((LEFT + RIGHT, RIGHT + LEFT),)),
    ("two backward calls", "rounding", ((
        "    (first + 0.1 * second).backward()\n",
        "    first.backward(retain_graph=True)\n    (0.1 * second).backward()\n"),)),
    ("rate in a tensor", "cure", (("lr=0.01, weight_decay", "lr=torch.tensor(0.01), weight_decay"),)),
)
BRANCHES_WRONG = (
    ("small weight decay dropped", "other optimizer", ((", weight_decay=1e-4", ""),)),
    ("a wait in each of ten steps", "slower", ((
        "    optimizer.step()\n", "    optimizer.step()\n    __import__('time').sleep(0.05)\n"),)),
    ("evaluated in train mode", "other result", (("net.eval()\n", ""),)),
    ("one mask for both", "draws reused", ((
        RIGHT, "        b = self.right(h).relu() * (a > 0) / 0.8 + 0 * self.drop_right(h)\n"),)),
    ("left branch outside of the graph", "compile disabled", ((
        LEFT, "        a = torch.compiler.disable(lambda v: self.drop_left(self.left(v).relu()))(h)\n"),)),
)

SIZES = '''\
"""Sets of points of many sizes, a pooled score, a list of results."""
import torch
from torch import nn

torch.manual_seed(9)
embed, score = nn.Linear(3, 16), nn.Linear(16, 1)


@torch.compile(backend="eager", dynamic=False)
def loss_of(points, target):
    h = embed(points).relu()
    pooled = h.mean(0)
    out = score(pooled)
    print("points", len(points))
    return (out - target).pow(2).sum()


optimizer = torch.optim.Adam([*embed.parameters(), *score.parameters()], lr=5e-3)
losses = []
for size in (5, 9, 12, 7, 14, 6):
    points = torch.randn(size, 3)
    loss = loss_of(points, points.sum().tanh())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print("mean loss", round(sum(losses) / len(losses), 6))
'''
SIZES_CURE = ('    print("points", len(points))\n', "")
PADDED = (
    ("    loss = loss_of(points, points.sum().tanh())\n",
     "    padded = torch.zeros(16, 3)\n    padded[:size] = points\n"
     "    loss = loss_of(padded, points.sum().tanh(), torch.tensor(size), torch.arange(16) < size)\n"),
    ("def loss_of(points, target)", "def loss_of(points, target, size, mask)"),
)
SIZES_RIGHT = (
    ("print removed", "cure", ()),
    ("marked dynamic", "cure", ((
        "    loss = loss_of", "    torch._dynamo.mark_dynamic(points, 0)\n    loss = loss_of"),
        (", dynamic=False)", ")"))),
    ("padded with a mask", "cure", (*PADDED, ("h.mean(0)", "(h * mask[:, None]).sum(0) / size"))),
    ("losses in a tensor", "cure", (
        ("losses.append(loss.item())", "losses.append(loss.detach())"),
        ("round(sum(losses) / len(losses), 6)", "round(torch.stack(losses).mean().item(), 6)"))),
)
SIZES_WRONG = (
    ("padded without a mask", "padding leaks", (*PADDED, ("h.mean(0)", "h.sum(0) / size"))),
    ("another break", "break moved", (("    pooled = h.mean(0)\n",
                                       "    torch._dynamo.graph_break()\n    pooled = h.mean(0)\n"),)),
    ("eager on recompile", "compile disabled", ((
        "losses = []\n", "losses = []\ntorch.compiler.set_stance('eager_on_recompile')\n"),)),
)

EXPERTS = '''\
"""Three experts with dropout, mixed by a gate, and a running count in Python."""
import torch
from torch import nn

torch.manual_seed(6)


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Dropout(0.3)) for _ in range(3))
        self.gate, self.out = nn.Linear(6, 3), nn.Linear(10, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        gate = self.gate(x).softmax(-1)
        h = sum(gate[:, i:i + 1] * expert(x) for i, expert in enumerate(self.experts))
        return self.out(h) * (1 + self.calls % 2)


net = Mix()
fast = torch.compile(net, backend="eager")
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for i in range(6):
    loss = (fast(torch.randn(12, 6)) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"{loss.item():.4f}")
'''
EXPERTS_CURE = ("self.calls = 0", 'self.register_buffer("calls", torch.zeros(()))')
EXPERTS_RIGHT = (("experts in reverse", "draws", ((
    "enumerate(self.experts))", "reversed(list(enumerate(self.experts))))"),)),)
EXPERTS_WRONG = (("one expert less", "dropped term", ((
    "enumerate(self.experts))", "enumerate(self.experts) if i < 2)"),)),)

SCORES = '''\
"""A score that the compiled function returns as a float, printed each time."""
import torch
from torch import nn

torch.manual_seed(2)
net = nn.Linear(5, 1).eval()


@torch.compile(backend="eager")
def scored(x):
    y = net(x).sigmoid()
    return y, y.max().item()


best = 0.0
with torch.no_grad():
    for i in range(4):
        y, top = scored(torch.randn(9, 5))
        best = max(best, top)
        print(f"round {i} mean {y.mean():.5f} top", top)
print("best", best)
'''
SCORES_CURE = ("y.max().item()", "y.max()")
SCORES_RIGHT = (("printed as a tensor", "cure", ()),)
SCORES_WRONG = (("mean for max", "other result", (("return y, y.max()", "return y, y.mean()"),)),)

HEADS = '''\
"""Scores of heads in a Python loop, with a count of the heads that fire."""
import torch
from torch import nn

torch.manual_seed(3)


class Heads(nn.Module):
    def __init__(self, n=4, d=8):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(n, d, 3) * 0.3)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        outs = []
        fired = 0
        for w in self.weights:
            out = self.drop(x @ w).tanh()
            if out.mean() > 0:
                fired += 1
            outs.append(out)
        return torch.stack(outs).mean(0), fired


net = Heads()
fast = torch.compile(net, backend="eager")
opt = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
total = 0
for i in range(6):
    out, fired = fast(torch.randn(10, 8))
    total += int(fired)
    loss = (out - 0.3).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("fired", total, "loss", f"{loss.item():.5f}")
'''
LOOP = HEADS[HEADS.index("        outs = []"):HEADS.index("\n\nnet = Heads()")]
HEADS_CURE = (LOOP, """\
        outs = self.drop(torch.einsum("bd,ndk->nbk", x, self.weights)).tanh()
        return outs.mean(0), (outs.mean((1, 2)) > 0).sum()
""")
HEADS_RIGHT = (("loop vectorised", "cure", ()),)
HEADS_WRONG = (("dropout of the input", "changed dropout", ((
    'self.drop(torch.einsum("bd,ndk->nbk", x, self.weights))',
    'torch.einsum("bd,ndk->nbk", self.drop(x), self.weights)'),)),)

FAMILIES = (
    ("branches", BRANCHES, BRANCHES_CURE, BRANCHES_RIGHT, BRANCHES_WRONG),
    ("sizes", SIZES, SIZES_CURE, SIZES_RIGHT, SIZES_WRONG),
    ("experts", EXPERTS, EXPERTS_CURE, EXPERTS_RIGHT, EXPERTS_WRONG),
    ("scores", SCORES, SCORES_CURE, SCORES_RIGHT, SCORES_WRONG),
    ("heads", HEADS, HEADS_CURE, HEADS_RIGHT, HEADS_WRONG),
)

"""How a value is used decides what takes its place."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="beam_lengths",
        family="uses",
        cause="each element of a .tolist() is the end of a slice",
        program="""
import torch
from torch import nn
def crop_scores(logp, stops):
    rows = []
    for i, stop in enumerate(stops.tolist()):
        rows.append(logp[i, :stop].sum())
    return torch.stack(rows) / stops

class Reranker:
    def __init__(self):
        self.w = nn.Parameter(torch.ones(3))
        self.score = torch.compile(crop_scores, backend="eager")

    def __call__(self, logits, stops):
        return self.score((logits * self.w).log_softmax(-1)[..., 0], stops)

torch.manual_seed(0)
rerank = Reranker()
total = sum(rerank(torch.randn(5, 7, 3), torch.randint(1, 7, (5,))).sum().item() for _ in range(4))
print(f"result {total:.4f}")
""",
        codes=("TT104", "TT119",),
        line="for i, stop in enumerate(stops.tolist()):",
        options=(
            Option(
                says=r"mask by position",
                edits=(
                    Edit(
                        old=(
                            "    rows = []\n"
                            "    for i, stop in enumerate(stops.tolist()):\n"
                            "        rows.append(logp[i, :stop].sum())\n"
                            "    return torch.stack(rows) / stops"
                        ),
                        new=(
                            "    mask = torch.arange(logp.shape[1]) < stops.unsqueeze(-1)\n"
                            "    return (logp * mask).sum(1) / stops"
                        ),
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="augment_uniform",
        family="uses",
        cause="a NumPy draw with limits",
        program="""
import torch
from torch import nn
import numpy as np

class Augment(nn.Module):
    def __init__(self, seed=3):
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.conv = nn.Conv1d(1, 2, 3)

    def forward(self, x):
        aug = self.rng
        factor = aug.uniform(0.8, 1.2)
        return self.conv(x * factor).relu()

torch.manual_seed(0)
net = torch.compile(Augment(), backend="eager")
print(f"result {sum(net(torch.ones(2, 1, 8)).sum().item() for _ in range(4)):.4f}")
""",
        codes=("TT114",),
        line="factor = aug.uniform(0.8, 1.2)",
        options=(
            Option(
                says=r"torch\.rand\(\(\)\) \* \(1\.2 - 0\.8\) \+ 0\.8",
                edits=(
                    Edit(
                        old="factor = aug.uniform(0.8, 1.2)",
                        new="factor = torch.rand(()) * (1.2 - 0.8) + 0.8",
                    ),
                ),
                same_numbers=False,
            ),
        ),
    ),
    Case(
        name="np_noise",
        family="uses",
        cause="a NumPy draw with a size",
        program="""
import torch
from torch import nn
import numpy as np
rng = np.random.default_rng(7)

class NoisyLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x):
        eps = torch.from_numpy(rng.normal(size=tuple(x.shape))).float()
        return self.fc(x + 0.1 * eps)

torch.manual_seed(0)
layer = torch.compile(NoisyLinear(), backend="eager")
print(f"result {sum(layer(torch.ones(4, 5)).sum().item() for _ in range(4)):.5f}")
""",
        codes=("TT114",),
        line="eps = torch.from_numpy(rng.normal(size=tuple(x.shape))).float()",
        options=(
            Option(
                says=r"torch\.randn\(tuple\(x\.shape\)\)",
                edits=(
                    Edit(
                        old="eps = torch.from_numpy(rng.normal(size=tuple(x.shape))).float()",
                        new="eps = torch.randn_like(x)",
                    ),
                ),
                same_numbers=False,
            ),
        ),
    ),
    Case(
        name="rows_above",
        family="uses",
        cause="a size that the function itself computes",
        program="""
import torch
from torch import nn
class Outliers(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6, elementwise_affine=False)

    def forward(self, x):
        z = self.norm(x).abs().amax(-1)
        count = int((z > 1.0).sum().item())
        worst = z.sort(descending=True).values[:count]
        return worst.sum()

torch.manual_seed(0)
check = torch.compile(Outliers(), backend="eager")
print(f"result {sum(check(torch.randn(12, 6)).item() for _ in range(5)):.4f}")
""",
        codes=("TT104", "TT105", "TT222",),
        line="count = int((z > 1.0).sum().item())",
        options=(
            Option(
                says=r"keep the full size and mask",
                edits=(
                    Edit(
                        old=(
                            "        count = int((z > 1.0).sum().item())\n"
                            "        worst = z.sort(descending=True).values[:count]\n"
                            "        return worst.sum()"
                        ),
                        new="        return torch.where(z > 1.0, z, 0.0).sum()",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="generator_arg",
        family="uses",
        cause="a torch.Generator argument",
        program="""
import torch
def reparam(mu, logvar, gen):
    std = (0.5 * logvar).exp()
    noise = torch.randn(mu.shape, generator=gen)
    return mu + std * noise

fast = torch.compile(reparam, backend="eager")
gen = torch.Generator().manual_seed(3)
mu, logvar = torch.zeros(4, 2), torch.ones(4, 2)
print(f"result {sum(fast(mu, logvar, gen).sum().item() for _ in range(4)):.5f}")
""",
        codes=("TT111",),
        line="noise = torch.randn(mu.shape, generator=gen)",
        options=(
            Option(
                says=r"before the compiled call and pass its result",
                edits=(
                    Edit(
                        old="def reparam(mu, logvar, gen):",
                        new="def reparam(mu, logvar, noise):",
                    ),
                    Edit(
                        old="    noise = torch.randn(mu.shape, generator=gen)\n",
                        new="",
                    ),
                    Edit(
                        old="fast(mu, logvar, gen)",
                        new="fast(mu, logvar, torch.randn(mu.shape, generator=gen))",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="fullgraph_comparison",
        family="uses",
        cause="fullgraph=True, and a captured number is compared",
        program="""
import torch
from torch import nn
class Selector(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 6)

    def forward(self, x):
        scores = self.gate(x)
        k = int(scores.max().item() > 0) + 1
        return x * k + scores

torch.manual_seed(0)
sel = torch.compile(Selector(), backend="eager", fullgraph=True)
print(f"result {sel(torch.ones(2, 6)).sum().item():.5f}")
""",
        codes=("TT308",),
        line="k = int(scores.max().item() > 0) + 1",
        options=(
            Option(
                says=r"\(scores\.max\(\)\.detach\(\) > 0\)\.long\(\)",
                edits=(
                    Edit(
                        old="k = int(scores.max().item() > 0) + 1",
                        new="k = (scores.max() > 0) + 1",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="decayed_bonus",
        family="uses",
        cause="a counter that math.log reads on another line",
        program="""
import torch
import math

class UCB:
    def __init__(self, c=1.4):
        self.c, self.t = c, 0
        self.score = torch.compile(self.bonus, backend="eager")

    def bonus(self, x):
        self.t += 1
        scale = max(0.1, self.c / math.log(self.t + 2))
        return x + scale

torch.manual_seed(0)
ucb = UCB()
print(f"result {sum(ucb.score(torch.ones(3)).sum().item() for _ in range(12)):.4f}")
""",
        codes=("TT301", "TT206",),
        line="def bonus(self, x):",
        options=(
            Option(
                says=r"make self\.t a tensor.*torch\.log",
                edits=(
                    Edit(
                        old="self.c, self.t = c, 0",
                        new="self.c, self.t = c, torch.zeros(())",
                    ),
                    Edit(
                        old="math.log(self.t + 2)",
                        new="torch.log(self.t + 2)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="sensor_sets",
        family="uses",
        cause="a dict whose keys select something else",
        program="""
import torch
def fuse(readings, gains):
    total = torch.zeros(3)
    for name, reading in readings.items():
        total = total + gains[name] * reading
    return total

fuse = torch.compile(fuse, backend="eager")
torch.manual_seed(0)
gains = {"imu": 0.5, "gps": 1.0, "lidar": 2.0}
out = torch.zeros(3)
for tick in range(8):
    readings = {n: torch.randn(3) for i, n in enumerate(gains) if (tick + i) % 3}
    if tick % 4 == 0:
        readings["gps"] = torch.randn(3)
    out = out + fuse(readings, gains)
print(f"result {out.sum().item():.4f}")
""",
        codes=("TT216", "TT301",),
        line="def fuse(readings, gains):",
        options=(
            Option(
                says=r"same keys",
                edits=(
                    Edit(
                        old="    out = out + fuse(readings, gains)",
                        new="    readings = {n: readings.get(n, torch.zeros(3)) for n in gains}\n"
                        "    out = out + fuse(readings, gains)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="windows_generator",
        family="uses",
        cause="a compiled generator function",
        program="""
import torch
@torch.compile(backend="eager")
def windows(series, width):
    for start in range(0, series.shape[0] - width + 1, width):
        piece = series[start:start + width]
        yield (piece - piece.mean()) / (piece.std() + 1e-6)

torch.manual_seed(0)
total = torch.zeros(())
for _ in range(3):
    for piece in windows(torch.randn(24).cumsum(0), 8):
        total = total + piece.pow(3).sum()
print(f"result {total.item():.4f}")
""",
        codes=("TT302", "TT303",),
        line='@torch.compile(backend="eager")',
        options=(
            Option(
                says=r"return a list",
                edits=(
                    Edit(
                        old="        yield (piece - piece.mean()) / (piece.std() + 1e-6)",
                        new="        out.append((piece - piece.mean()) / (piece.std() + 1e-6))\n    return out",
                    ),
                    Edit(
                        old="    for start in range(0, series.shape[0]",
                        new="    out = []\n    for start in range(0, series.shape[0]",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="scan_tokens",
        family="uses",
        cause="a loop over a size",
        program="""
import torch
from torch import nn
class CharRNN(nn.Module):
    def __init__(self, vocab=11, dim=6):
        super().__init__()
        self.emb, self.cell, self.head = nn.Embedding(vocab, dim), nn.GRUCell(dim, dim), nn.Linear(dim, vocab)

    def forward(self, tokens):
        batch, length = tokens.shape
        h = torch.zeros(batch, self.cell.hidden_size)
        for t in range(length):
            h = self.cell(self.emb(tokens[:, t]), h)
        return self.head(h)

torch.manual_seed(0)
net = CharRNN()
model = torch.compile(net, backend="eager")
with torch.no_grad():
    total = sum(model(torch.randint(11, (2, n))).sum() for n in (3, 5, 4, 7, 6))
print(f"result {total.item():.4f}")
""",
        codes=("TT202", "TT301",),
        line="def forward(self, tokens):",
        options=(
            Option(
                says=r"body of the loop",
                edits=(
                    Edit(
                        old="            h = self.cell(self.emb(tokens[:, t]), h)\n",
                        new="            h = self.step(tokens[:, t], h)\n",
                    ),
                    Edit(
                        old="    def forward(self, tokens):",
                        new=(
                            '    @torch.compile(backend="eager")\n'
                            '    def step(self, token, h):\n'
                            '        return self.cell(self.emb(token), h)\n'
                            '\n'
                            '    def forward(self, tokens):'
                        ),
                    ),
                    Edit(
                        old='model = torch.compile(net, backend="eager")',
                        new="model = net",
                    ),
                ),
                leaves=("TT213",),
            ),
        ),
    ),
    Case(
        name="masked_tail",
        family="uses",
        cause="an optional mask that is inverted",
        program="""
import torch
def attend(scores, keep=None):
    if keep is not None:
        scores = scores.masked_fill(~keep, -1e9)
    return scores.softmax(-1)

fast = torch.compile(attend, backend="eager")
torch.manual_seed(0)
total = torch.zeros(())
for i in range(6):
    keep = (torch.rand(4, 4) > 0.3) | torch.eye(4, dtype=torch.bool)
    total += fast(torch.randn(4, 4), keep=keep if i % 2 else None)[0, 0]
print(f"result {total.item():.4f}")
""",
        codes=("TT218",),
        line="def attend(scores, keep=None):",
        options=(
            Option(
                says=r"all True",
                edits=(
                    Edit(
                        old="keep if i % 2 else None",
                        new="keep if i % 2 else torch.ones(4, 4, dtype=torch.bool)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="compiled_opt",
        family="uses",
        cause="a compiled step, with the rate assigned by hand",
        program="""
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Linear(6, 2)
opt = torch.optim.Adam(model.parameters(), lr=0.1)
opt_step = torch.compile(opt.step, backend="eager")
for it in range(12):
    for group in opt.param_groups:
        group["lr"] = 0.1 * 0.8 ** it
    loss = F.cross_entropy(model(torch.randn(5, 6)), torch.randint(2, (5,)))
    opt.zero_grad()
    loss.backward()
    opt_step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT205", "TT301", "TT299", "TT204",),
        line="opt_step()",
        options=(
            Option(
                says=r"lr=torch\.tensor\(0\.1\)",
                edits=(
                    Edit(
                        old="lr=0.1)",
                        new="lr=torch.tensor(0.1))",
                    ),
                    Edit(
                        old='group["lr"] = 0.1 * 0.8 ** it',
                        new='group["lr"].fill_(0.1 * 0.8 ** it)',
                    ),
                ),
                leaves=("TT118",),
            ),
        ),
    ),
    Case(
        name="mixed_containers",
        family="uses",
        cause="a list of several lengths that is concatenated",
        program="""
import torch
def merge(parts):
    return torch.cat(parts, -1).tanh().sum()

merge = torch.compile(merge, backend="eager")
torch.manual_seed(0)
total = sum(merge([torch.randn(2, 3) for _ in range(1 + k % 4)]).item() for k in range(12))
print(f"result {total:.4f}")
""",
        codes=("TT217", "TT223",),
        line="def merge(parts):",
        options=(
            Option(
                says=r"torch\.cat\(parts, -1\)",
                edits=(
                    Edit(
                        old="return torch.cat(parts, -1).tanh().sum()",
                        new="return parts.tanh().sum()",
                    ),
                    Edit(
                        old="merge([torch.randn(2, 3) for _ in range(1 + k % 4)])",
                        new="merge(torch.cat([torch.randn(2, 3) for _ in range(1 + k % 4)], -1))",
                    ),
                ),
                leaves=("TT201",),
            ),
        ),
    ),
    Case(
        name="vmapped_penalty",
        family="uses",
        cause="a gradient of a gradient in compiled code",
        program="""
import torch
from torch import nn
class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        return self.f(x)

torch.manual_seed(0)
energy = Energy()

@torch.compile(backend="eager")
def forces(x):
    y = energy(x)
    g = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
    return -g

opt = torch.optim.SGD(energy.parameters(), 0.05)
for _ in range(4):
    x = torch.randn(5, 2, requires_grad=True)
    loss = (forces(x) - x.detach()).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT109",),
        line="g = torch.autograd.grad(y.sum(), x, create_graph=True)[0]",
        options=(
            Option(
                says=r"on a model that is not compiled",
                edits=(
                    Edit(
                        old='@torch.compile(backend="eager")\ndef forces',
                        new="def forces",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="numpy_metric",
        family="uses",
        cause="a NumPy mean as a float, in a helper",
        program="""
import torch
from torch import nn
import torch.nn.functional as F
import numpy as np

def accuracy_score(a, b):
    return float(np.mean(a == b))

class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.accuracy = 0.0

    def forward(self, x, y):
        logits = self.fc(x)
        acc = accuracy_score(logits.argmax(-1).numpy(), y.numpy())
        self.accuracy = acc
        return F.cross_entropy(logits, y)

torch.manual_seed(0)
probe = Probe()
fast = torch.compile(probe, backend="eager")
for _ in range(4):
    loss = fast(torch.randn(8, 4), torch.randint(3, (8,)))
    loss.backward()
print(f"result {loss.item() + float(probe.accuracy):.5f}")
""",
        codes=("TT104", "TT114", "TT106", "TT112",),
        line="return float(np.mean(a == b))",
        options=(
            Option(
                says=r"with torch instead of NumPy",
                edits=(
                    Edit(
                        old="    return float(np.mean(a == b))",
                        new="    return (a == b).float().mean()",
                    ),
                    Edit(
                        old="logits.argmax(-1).numpy(), y.numpy()",
                        new="logits.argmax(-1), y",
                    ),
                ),
            ),
        ),
    ),
)

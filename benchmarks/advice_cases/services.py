"""Programs that mix a model with the Python around it."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="empty_mask_return",
        family="services",
        cause="a static method returns early if nothing is masked",
        program="""
import torch
from torch import nn


class Inpainter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 6)

    @staticmethod
    def blend(original, painted, hole):
        if not hole.any():
            return original
        return torch.where(hole, painted, original)

    def forward(self, x, hole):
        return self.blend(x, self.net(x), hole).sum(-1)


torch.manual_seed(0)
paint = torch.compile(Inpainter(), backend="eager")
with torch.no_grad():
    total = sum(paint(torch.randn(3, 6), torch.rand(3, 6) > 0.2 * i).mean() for i in range(7))
print(f"result {total.item():.5f}")
""",
        codes=("TT103",),
        line="if not hole.any():",
        says=r"hole",
        options=(
            Option(
                says=r"torch\.where",
                edits=(Edit(old="        if not hole.any():\n            return original\n", new=""),),
            ),
        ),
    ),
    Case(
        name="warmup_global_scale",
        family="services",
        cause="a global float that the loop replaces",
        program="""
import torch
from torch import nn

LOSS_SCALE = 1.0
head = nn.Linear(4, 1)


@torch.compile(backend="eager")
def loss_of(batch, target):
    return LOSS_SCALE * (head(batch)[:, 0] - target).abs().mean()


def main():
    global LOSS_SCALE
    torch.manual_seed(0)
    nn.init.constant_(head.weight, 0.3)
    nn.init.zeros_(head.bias)
    total = 0.0
    for step in range(12):
        LOSS_SCALE = 1.0 + 0.25 * step
        total += loss_of(torch.randn(5, 4), torch.randn(5)).item()
    print(f"result {total:.5f}")


main()
""",
        codes=("TT220", "TT205", "TT301"),
        line=("return LOSS_SCALE * (head(batch)[:, 0] - target).abs().mean()", '@torch.compile(backend="eager")'),
        says=r"LOSS_SCALE",
        options=(
            Option(
                says=r"pass LOSS_SCALE to loss_of as an argument",
                edits=(
                    Edit(old="def loss_of(batch, target):", new="def loss_of(batch, target, scale):"),
                    Edit(old="return LOSS_SCALE *", new="return scale *"),
                    Edit(old="torch.randn(5)).item()", new="torch.randn(5), LOSS_SCALE).item()"),
                ),
                leaves=("TT205",),
            ),
        ),
    ),
    Case(
        name="seed_in_forward",
        family="services",
        cause="torch.manual_seed in forward",
        program="""
import torch
from torch import nn


class FixedNoise(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(5, 5)

    def forward(self, x):
        torch.manual_seed(7)
        return self.net(x + 0.1 * torch.randn_like(x))


torch.manual_seed(0)
noisy = torch.compile(FixedNoise(), backend="eager")
with torch.no_grad():
    total = sum(noisy(torch.full((2, 5), float(i))).sum() for i in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT106", "TT112", "TT125", "TT199", "TT114"),
        line="torch.manual_seed(7)",
        says=r"manual_seed",
        options=(
            Option(
                says=r"outside|before|out of",
                edits=(
                    Edit(old="        torch.manual_seed(7)\n", new=""),
                    Edit(
                        old="    total = sum(noisy(torch.full((2, 5), float(i))).sum() for i in range(5))",
                        new="    total = 0\n    for i in range(5):\n        torch.manual_seed(7)\n"
                        "        total += noisy(torch.full((2, 5), float(i))).sum()",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="flag_file",
        family="services",
        cause="os.path.exists in forward",
        program="""
import os

import torch
from torch import nn


class Server(nn.Module):
    def __init__(self, flag="verbose.flag"):
        super().__init__()
        self.net = nn.Linear(4, 2)
        self.flag = flag

    def forward(self, x):
        y = self.net(x)
        if os.path.exists(self.flag):
            y = y * 2
        return y.relu()


torch.manual_seed(0)
serve = torch.compile(Server(), backend="eager")
with torch.no_grad():
    total = sum(serve(torch.randn(2, 4)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT106", "TT112"),
        line="if os.path.exists(self.flag):",
        says=r"exists|os\.",
        options=(
            Option(
                says=r"outside|before|out of",
                edits=(
                    Edit(old="if os.path.exists(self.flag):", new="if verbose:"),
                    Edit(old="def forward(self, x):", new="def forward(self, x, verbose=False):"),
                ),
            ),
        ),
    ),
    Case(
        name="percentile_clip",
        family="services",
        cause="np.percentile of an activation",
        program="""
import numpy as np
import torch
from torch import nn


class Robust(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 6)

    def clip(self, h):
        limit = np.percentile(h.detach().numpy(), 90)
        return h.clamp(max=float(limit))

    def forward(self, x):
        return self.clip(self.net(x)).mean()


torch.manual_seed(0)
robust = torch.compile(Robust(), backend="eager")
with torch.no_grad():
    total = sum(robust(torch.randn(4, 6)) for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT104", "TT106", "TT112", "TT114"),
        line=("limit = np.percentile(h.detach().numpy(), 90)", "return h.clamp(max=float(limit))"),
        says=r"limit|percentile",
        options=(
            Option(
                says=r"compute `limit` with torch instead of NumPy",
                edits=(
                    Edit(old="np.percentile(h.detach().numpy(), 90)", new="torch.quantile(h.detach(), 0.9)"),
                    Edit(old="max=float(limit)", new="max=limit"),
                ),
            ),
        ),
    ),
    Case(
        name="median_of_list",
        family="services",
        cause="sorted() of a list of scores",
        program="""
import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(3, 1)

    def forward(self, items):
        scores = self.score(items)[:, 0]
        middle = sorted(scores.tolist())[len(items) // 2]
        return (scores - middle).abs().mean()


torch.manual_seed(0)
rank = torch.compile(Ranker(), backend="eager")
with torch.no_grad():
    total = sum(rank(torch.randn(5, 3)) for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT104",),
        line="middle = sorted(scores.tolist())[len(items) // 2]",
        says=r"tolist",
        options=(
            Option(
                says=r"torch\.sort|tensor|outside",
                edits=(
                    Edit(
                        old="sorted(scores.tolist())[len(items) // 2]",
                        new="torch.sort(scores).values[len(items) // 2]",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="silenced_warnings",
        family="services",
        cause="warnings.catch_warnings in forward",
        program="""
import warnings

import torch
from torch import nn


class Legacy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = self.net(x)
        return y.tanh()


torch.manual_seed(0)
legacy = torch.compile(Legacy(), backend="eager")
with torch.no_grad():
    total = sum(legacy(torch.randn(2, 4)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT115", "TT106", "TT112", "TT119", "TT102"),
        line=("with warnings.catch_warnings():", 'warnings.simplefilter("ignore")'),
        says=r"warnings",
        never=r"reorderable",
        options=(
            Option(
                says=r"set the filter of warnings before",
                edits=(
                    Edit(
                        old='        with warnings.catch_warnings():\n            warnings.simplefilter("ignore")\n'
                        "            y = self.net(x)\n",
                        new="        y = self.net(x)\n",
                    ),
                    Edit(
                        old="with torch.no_grad():\n    total",
                        new="with torch.no_grad(), warnings.catch_warnings():\n"
                        '    warnings.simplefilter("ignore")\n    total',
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="positions_by_length",
        family="services",
        cause="a dict on the module that gets an entry for each length",
        program="""
import torch
from torch import nn


class Positional(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.cache = {}
        self.dim = dim

    def table(self, length):
        if length not in self.cache:
            self.cache[length] = torch.arange(length)[:, None] / (1 + torch.arange(self.dim))
        return self.cache[length]

    def forward(self, x):
        return x + self.table(x.shape[0]).sin()


torch.manual_seed(0)
add = torch.compile(Positional(), backend="eager")
with torch.no_grad():
    total = sum(add(torch.randn(3 + i, 4)).sum() for i in range(11))
print(f"result {total.item():.5f}")
""",
        codes=("TT216", "TT217", "TT301", "TT202", "TT204"),
        line=(
            "if length not in self.cache:", "def forward(self, x):", "return x + self.table(x.shape[0]).sin()",
            "return self.cache[length]",
            "self.cache[length] = torch.arange(length)[:, None] / (1 + torch.arange(self.dim))",
        ),
        says=r"x\.size\(0\)",
        never=r"maybe_mark_dynamic",
        options=(
            Option(
                says=r"compute what needs x\.size\(0\)",
                edits=(
                    Edit(old="    def forward(self, x):\n", new="    def forward(self, x, table):\n"),
                    Edit(old="x + self.table(x.shape[0]).sin()", new="x + table.sin()"),
                    Edit(
                        old='add = torch.compile(Positional(), backend="eager")',
                        new='positions = Positional()\nadd = torch.compile(positions, backend="eager")',
                    ),
                    Edit(
                        old="sum(add(torch.randn(3 + i, 4)).sum() for i in range(11))",
                        new="sum(add(torch.randn(3 + i, 4), positions.table(3 + i)).sum() for i in range(11))",
                    ),
                ),
                leaves=("TT201",),
            ),
        ),
    ),
    Case(
        name="best_candidate",
        family="services",
        cause="the index of the best row is read with .item()",
        program="""
import torch
from torch import nn


class Retrieval(nn.Module):
    def __init__(self, rows=6, dim=4):
        super().__init__()
        self.keys, self.values = nn.Parameter(torch.randn(rows, dim)), nn.Parameter(torch.randn(rows, dim))

    def forward(self, query):
        similarity = self.keys @ query
        return self.values[similarity.argmax().item()] * similarity.max()


torch.manual_seed(0)
retrieve = torch.compile(Retrieval(), backend="eager")
with torch.no_grad():
    total = sum(retrieve(torch.randn(4)).sum() for _ in range(8))
print(f"result {total.item():.5f}")
""",
        codes=("TT104",),
        line="return self.values[similarity.argmax().item()] * similarity.max()",
        says=r"similarity",
        never=r"index with the tensor itself",
        options=(
            Option(
                says=r"`self\.values\.index_select\(0, similarity\.argmax\(\)\)\[0\]`",
                edits=(
                    Edit(
                        old="self.values[similarity.argmax().item()]",
                        new="self.values.index_select(0, similarity.argmax())[0]",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="mask_from_second_batch",
        family="services",
        cause="control: a mask that is None in the first call only",
        program="""
import torch
from torch import nn


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x, mask=None):
        y = self.net(x)
        if mask is not None:
            y = y * mask[:, None]
        return y.mean()


torch.manual_seed(0)
pool = torch.compile(Pool(), backend="eager")
with torch.no_grad():
    total = pool(torch.randn(3, 4))
    total = total + sum(pool(torch.randn(3, 4), torch.ones(3)) for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="double_precision_evaluation",
        family="services",
        cause="control: one change of dtype",
        program="""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.SiLU(), nn.Linear(4, 1))
fast = torch.compile(net, backend="eager")
with torch.no_grad():
    total = sum(fast(torch.randn(3, 4)).mean().double() for _ in range(3))
    net.double()
    total = total + sum(fast(torch.randn(3, 4).double()).mean() for _ in range(3))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="scripted_activation",
        family="services",
        cause="a torch.jit.script function in forward",
        program="""
import torch
from torch import nn


@torch.jit.script
def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.down(quick_gelu(self.up(x)))


torch.manual_seed(0)
mlp = torch.compile(Mlp(), backend="eager")
with torch.no_grad():
    total = sum(mlp(torch.randn(2, 4)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="closure_of_lbfgs",
        family="services",
        cause="backward in a compiled closure that the optimizer calls",
        program="""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
x, y = torch.randn(10, 3), torch.randn(10, 1)


@torch.compile(backend="eager")
def closure():
    optimizer.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()
    return loss


for _ in range(3):
    loss = optimizer.step(closure)
print(f"result {loss.item():.5f}")
""",
        codes=("TT109", "TT118"),
        line=("loss.backward()", "optimizer.zero_grad()"),
        says=r"`loss\.backward\(\)`",
        options=(
            Option(
                says=r"outside this compiled function|outside the compiled function",
                edits=(
                    Edit(old='@torch.compile(backend="eager")\ndef closure():', new="def closure():"),
                    Edit(old="loss = (net(x) - y).square().mean()", new="loss = objective(x, y)"),
                    Edit(
                        old="x, y = torch.randn(10, 3), torch.randn(10, 1)\n",
                        new="x, y = torch.randn(10, 3), torch.randn(10, 1)\nobjective = torch.compile("
                        'lambda x, y: (net(x) - y).square().mean(), backend="eager")\n',
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="curriculum_crops",
        family="services",
        cause="a crop that grows, marked static by dynamic=False in a keyword dict",
        program="""
import torch
from torch import nn

SETTINGS = dict(backend="eager", dynamic=False)


class Trainer:
    def __init__(self):
        self.net = nn.Conv1d(1, 1, 3, padding=1)
        self.step = torch.compile(self._step, **SETTINGS)

    def _step(self, signal):
        return self.net(signal).abs().mean()


torch.manual_seed(0)
trainer = Trainer()
with torch.no_grad():
    total = sum(trainer.step(torch.randn(2, 1, 8 + 4 * i)) for i in range(6))
print(f"result {total.item():.5f}")
""",
        codes=("TT202", "TT301"),
        line=(
            "def _step(self, signal):", "return self.net(signal).abs().mean()",
            "self.step = torch.compile(self._step, **SETTINGS)", 'SETTINGS = dict(backend="eager", dynamic=False)',
        ),
        says=r"signal",
        options=(
            Option(
                says=r"drop dynamic=False",
                edits=(Edit(old=", dynamic=False", new=""),),
                leaves=("TT201",),
            ),
        ),
    ),
    Case(
        name="pooling_by_name",
        family="services",
        cause="control: a string with three values",
        program="""
import torch
from torch import nn


class Readout(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x, how="mean"):
        y = self.net(x)
        return {"mean": y.mean, "sum": y.sum, "max": y.amax}[how](dim=0)


torch.manual_seed(0)
readout = torch.compile(Readout(), backend="eager")
with torch.no_grad():
    total = sum(readout(torch.randn(3, 4), how).sum() for _ in range(4) for how in ("mean", "sum"))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
)

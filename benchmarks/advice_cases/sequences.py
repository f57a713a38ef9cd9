"""Programs on text, sound and time series."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="optional_losses",
        family="sequences",
        cause="keyword arguments whose names differ between batches",
        program="""
import torch
from torch import nn


class Objective(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, main, **extras):
        total = main.square().mean()
        for name, value in extras.items():
            total = total + 0.1 * value.abs().mean()
        return total * self.scale


torch.manual_seed(0)
objective = torch.compile(Objective(), backend="eager")
names = [f"aux_{i}" for i in range(10)]
total = 0.0
with torch.no_grad():
    for step in range(10):
        total += objective(torch.randn(4, 3), **{names[step]: torch.randn(4)})
print(f"result {total.item():.5f}")
""",
        codes=("TT216", "TT217", "TT301", "TT224"),
        line=(
            "def forward(self, main, **extras):",
            "for name, value in extras.items():",
            "total += objective(torch.randn(4, 3), **{names[step]: torch.randn(4)})",
        ),
        says=r"extras|aux_",
        options=(
            Option(
                says=r"pass the values without their keys",
                edits=(
                    Edit(old="def forward(self, main, **extras):", new="def forward(self, main, extras):"),
                    Edit(old="for name, value in extras.items():", new="for value in extras:"),
                    Edit(old="**{names[step]: torch.randn(4)})", new="torch.stack([torch.randn(4)]))"),
                ),
            ),
        ),
    ),
    Case(
        name="wave_chunks",
        family="sequences",
        cause="a decorated method with dynamic=False and chunks of every length",
        program="""
import torch


class Vocoder:
    def __init__(self, taps=5):
        self.kernel = torch.hann_window(taps)[None, None]

    @torch.compile(backend="eager", dynamic=False)
    def smooth(self, wave):
        return torch.nn.functional.conv1d(wave[:, None], self.kernel).tanh()[:, 0]


torch.manual_seed(0)
vocoder = Vocoder()
total = sum(vocoder.smooth(torch.randn(1, 16 + 3 * i)).sum() for i in range(7))
print(f"result {total.item():.5f}")
""",
        codes=("TT202", "TT301"),
        line=(
            '@torch.compile(backend="eager", dynamic=False)',
            "def smooth(self, wave):",
            "return torch.nn.functional.conv1d(wave[:, None], self.kernel).tanh()[:, 0]",
        ),
        says=r"wave",
        options=(
            Option(
                says=r"dynamic=(None|True)|[Dd]rop dynamic=False|without dynamic=False|[Rr]emove dynamic=False",
                edits=(Edit(old=", dynamic=False", new=""),),
                leaves=("TT201",),
            ),
        ),
    ),
    Case(
        name="scheduled_rate",
        family="sequences",
        cause="a compiled optimizer step with a Python learning rate that a scheduler changes",
        program="""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)


@torch.compile(backend="eager", fullgraph=False)
def update():
    optimizer.step()
    scheduler.step()


series = torch.randn(32, 7)
for step in range(12):
    loss = (model(series[:, :6])[:, 0] - series[:, 6]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    update()
print(f"result {loss.item():.5f}")
""",
        codes=("TT205", "TT301", "TT118"),
        line=("optimizer.step()", "scheduler.step()", "def update():"),
        says=r"optimizer step",
        options=(
            Option(
                says=r"step = torch\.compile\(opt\.step\), before a scheduler",
                edits=(
                    Edit(
                        old="lr=0.05)",
                        new="lr=torch.tensor(0.05))\n"
                        'adam_step = torch.compile(optimizer.step, backend="eager")',
                    ),
                    Edit(old='@torch.compile(backend="eager", fullgraph=False)\n', new=""),
                    Edit(old="    optimizer.step()\n", new="    adam_step()\n"),
                ),
                leaves=("TT118",),
            ),
        ),
    ),
    Case(
        name="speaker_classes",
        family="sequences",
        cause="torch.unique of labels in a loss",
        program="""
import torch
from torch import nn


class CentreLoss(nn.Module):
    def __init__(self, dim=4, speakers=5):
        super().__init__()
        self.project = nn.Linear(dim, dim)
        self.speakers = speakers

    def forward(self, utterances, speaker):
        h = self.project(utterances)
        present = torch.unique(speaker)
        centres = torch.zeros(self.speakers, h.shape[-1]).index_add(0, speaker, h)
        return centres[present].square().sum()


torch.manual_seed(0)
loss = torch.compile(CentreLoss(), backend="eager")
with torch.no_grad():
    total = sum(loss(torch.randn(6, 4), torch.randint(0, 5, (6,))) for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT105",),
        line="present = torch.unique(speaker)",
        says=r"unique",
        options=(
            Option(
                says=r"before the compiled call",
                leaves=("TT201",),
                edits=(
                    Edit(old="forward(self, utterances, speaker):", new="forward(self, utterances, speaker, present):"),
                    Edit(old="        present = torch.unique(speaker)\n", new=""),
                    Edit(
                        old="    total = sum(loss(torch.randn(6, 4), torch.randint(0, 5, (6,))) for _ in range(5))\n",
                        new="    draws = [(torch.randn(6, 4), torch.randint(0, 5, (6,))) for _ in range(5)]\n"
                        "    total = sum(loss(u, speaker, torch.unique(speaker)) for u, speaker in draws)\n",
                    ),
                ),
            ),
            Option(
                says=r"capture_dynamic_output_shape_ops",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)\n",
                        new="torch._dynamo.config.capture_dynamic_output_shape_ops = True\ntorch.manual_seed(0)\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="cached_causal_mask",
        family="sequences",
        cause="control: lru_cache around the mask",
        program="""
from functools import lru_cache

import torch
from torch import nn


@lru_cache(maxsize=None)
def causal(n):
    return torch.ones(n, n).tril().log()


class Attention(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return (q @ k.mT + causal(x.shape[1])).softmax(-1) @ v


torch.manual_seed(0)
attend = torch.compile(Attention(), backend="eager")
with torch.no_grad():
    total = sum(attend(torch.randn(2, 6, 4)).sum() for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="finite_output_decorator",
        family="sequences",
        cause="a decorator raises if the output has a NaN",
        program="""
import functools

import torch
from torch import nn


def finite(method):
    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        out = method(self, *args, **kwargs)
        if not torch.isfinite(out).all():
            raise FloatingPointError(f"{type(self).__name__} gave a value that is not finite")
        return out

    return wrapper


class Forecaster(nn.Module):
    def __init__(self, window=8):
        super().__init__()
        self.linear = nn.Linear(window, 1)

    @finite
    def forward(self, series, *, horizon=1):
        return self.linear(series).repeat(1, horizon)


torch.manual_seed(0)
forecaster = torch.compile(Forecaster(), backend="eager")
with torch.no_grad():
    total = sum(forecaster(torch.randn(3, 8), horizon=2).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT103",),
        line="if not torch.isfinite(out).all():",
        says=r"isfinite",
        options=(
            Option(
                says=r"torch\._assert_async\(torch\.isfinite\(out\)\.all\(\)",
                edits=(
                    Edit(
                        old="        if not torch.isfinite(out).all():\n            raise FloatingPointError(f\"{"
                        "type(self).__name__} gave a value that is not finite\")\n",
                        new='        torch._assert_async(torch.isfinite(out).all(), "not finite")\n',
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="early_exit_layers",
        family="sequences",
        cause="a loop over ModuleList that ends when the confidence suffices",
        program="""
import torch
from torch import nn


class EarlyExit(nn.Module):
    def __init__(self, dim=6, depth=4, threshold=0.6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.exits = nn.ModuleList(nn.Linear(dim, 2) for _ in range(depth))
        self.threshold = threshold

    def forward(self, x):
        for layer, leave in zip(self.layers, self.exits):
            x = layer(x).relu()
            probabilities = leave(x).softmax(-1)
            if probabilities.max().item() > self.threshold:
                break
        return probabilities


torch.manual_seed(0)
classify = torch.compile(EarlyExit(), backend="eager")
with torch.no_grad():
    total = sum(classify(torch.randn(1, 6))[0, 0] for _ in range(8))
print(f"result {total.item():.5f}")
""",
        codes=("TT103", "TT104", "TT119"),
        line="if probabilities.max().item() > self.threshold:",
        says=r"probabilities",
        options=(
            Option(
                says=r"compile the body of the loop",
                edits=(
                    Edit(
                        old="class EarlyExit(nn.Module):",
                        new='@torch.compile(backend="eager")\ndef stage(layer, leave, x):\n    x = layer(x).relu()\n'
                        "    return x, leave(x).softmax(-1)\n\n\nclass EarlyExit(nn.Module):",
                    ),
                    Edit(
                        old="            x = layer(x).relu()\n            probabilities = leave(x).softmax(-1)\n",
                        new="            x, probabilities = stage(layer, leave, x)\n",
                    ),
                    Edit(old='torch.compile(EarlyExit(), backend="eager")', new="EarlyExit()"),
                ),
            ),
        ),
    ),
    Case(
        name="routed_experts",
        family="sequences",
        cause="a mixture of experts that selects tokens by nonzero",
        program="""
import torch
from torch import nn


class MixtureOfExperts(nn.Module):
    def __init__(self, dim=6, experts=3):
        super().__init__()
        self.gate = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(experts))

    def forward(self, tokens):
        route = self.gate(tokens).argmax(-1)
        out = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            (chosen,) = torch.where(route == index)
            out[chosen] += expert(tokens[chosen])
        return out


torch.manual_seed(0)
moe = torch.compile(MixtureOfExperts(), backend="eager")
with torch.no_grad():
    total = sum(moe(torch.randn(7, 6)).square().sum() for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT105", "TT119"),
        line="(chosen,) = torch.where(route == index)",
        says=r"torch\.where|nonzero",
        options=(
            Option(
                says=r"torch\.where\(mask, a, b\)|mask",
                edits=(
                    Edit(
                        old="            (chosen,) = torch.where(route == index)\n"
                        "            out[chosen] += expert(tokens[chosen])\n",
                        new="            out = out + (route == index)[:, None] * expert(tokens)\n",
                    ),
                ),
            ),
            Option(
                says=r"capture_dynamic_output_shape_ops",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)\n",
                        new="torch._dynamo.config.capture_dynamic_output_shape_ops = True\ntorch.manual_seed(0)\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="stamped_requests",
        family="sequences",
        cause="a list on the module that forward makes longer",
        program="""
from datetime import datetime

import torch
from torch import nn


class Service(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)
        self.seen = []

    def forward(self, request):
        self.seen.append(datetime.now().isoformat())
        return self.net(request).softmax(-1)


torch.manual_seed(0)
service = torch.compile(Service(), backend="eager")
with torch.no_grad():
    total = sum(service(torch.randn(2, 4))[0, 0] for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT217", "TT301"),
        line=("self.seen.append(datetime.now().isoformat())", "def forward(self, request):"),
        says=r"self\.seen",
        options=(
            Option(
                says=r"take `self\.seen\.append",
                edits=(
                    Edit(old="        self.seen.append(datetime.now().isoformat())\n", new=""),
                ),
            ),
        ),
    ),
    Case(
        name="loss_weights_list",
        family="sequences",
        cause="control: a list of floats that become dynamic at their second value",
        program="""
import torch
from torch import nn


class MultiTask(nn.Module):
    def __init__(self, tasks=3):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(5, 1) for _ in range(tasks))
        self.weights = [1.0 / tasks] * tasks

    def forward(self, x):
        losses = [head(x).square().mean() for head in self.heads]
        return sum(w * loss for w, loss in zip(self.weights, losses, strict=True))

    def rebalance(self, step):
        self.weights = [1.0 + 0.1 * step + 0.01 * i for i in range(len(self.weights))]


torch.manual_seed(0)
tasks = MultiTask()
objective = torch.compile(tasks, backend="eager")
total = 0.0
with torch.no_grad():
    for step in range(12):
        total += objective(torch.randn(4, 5))
        tasks.rebalance(step)
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
)

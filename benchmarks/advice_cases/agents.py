"""Programs with agents, graphs and training loops of their own."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="node_count",
        family="agents",
        cause="the number of nodes is read from the edges",
        program="""
import torch
from torch import nn


def scatter_mean(values, index, size):
    total = values.new_zeros(size, values.shape[-1]).index_add(0, index, values)
    count = values.new_zeros(size).index_add(0, index, torch.ones_like(index, dtype=values.dtype))
    return total / count.clamp(min=1)[:, None]


class GraphConvolution(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.message = nn.Linear(dim, dim)

    def forward(self, x, edge_index):
        source, target = edge_index
        num_nodes = int(edge_index.max()) + 1
        pooled = scatter_mean(self.message(x)[source], target, num_nodes)
        return pooled.relu()


torch.manual_seed(0)
conv = torch.compile(GraphConvolution(), backend="eager")
edges = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
with torch.no_grad():
    total = sum(conv(torch.randn(6, 4), edges).sum() for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT104",),
        line="num_nodes = int(edge_index.max()) + 1",
        says=r"edge_index|num_nodes",
        options=(
            Option(
                says=r"capture_scalar_outputs",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)\n",
                        new="torch._dynamo.config.capture_scalar_outputs = True\ntorch.manual_seed(0)\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="update_factory",
        family="agents",
        cause="a factory of compiled closures called in every epoch",
        program="""
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(4, 2)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)


def make_loss(clip):
    @torch.compile(backend="eager")
    def surrogate(observation, advantage, old):
        ratio = (policy(observation).log_softmax(-1)[:, 0] - old).exp()
        return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()

    return surrogate


for epoch in range(12):
    surrogate = make_loss(0.2)
    loss = surrogate(torch.randn(8, 4), torch.randn(8), torch.full((8,), -0.7))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT309", "TT301", "TT219"),
        line=(
            '@torch.compile(backend="eager")',
            "def surrogate(observation, advantage, old):",
            "surrogate = make_loss(0.2)",
        ),
        says=r"surrogate",
        options=(
            Option(
                says=r"once|before the loop|out of the loop",
                edits=(
                    Edit(old="    surrogate = make_loss(0.2)\n", new=""),
                    Edit(old="for epoch in range(12):\n", new="surrogate = make_loss(0.2)\nfor epoch in range(12):\n"),
                ),
            ),
        ),
    ),
    Case(
        name="meter_of_module",
        family="agents",
        cause="a counter on an object at the top of the module",
        program="""
import torch
from torch import nn


class Meter:
    def __init__(self):
        self.updates = 0


METER = Meter()
critic = nn.Linear(3, 1)


@torch.compile(backend="eager")
def td_error(state, reward, successor):
    bonus = 1.0 / (METER.updates + 1)
    with torch.no_grad():
        target = reward + 0.9 * critic(successor)[:, 0]
    return (critic(state)[:, 0] - target + bonus).square().mean()


torch.manual_seed(0)
with torch.no_grad():
    critic.weight.fill_(0.1)
    critic.bias.zero_()
total = 0.0
for _ in range(12):
    total += td_error(torch.randn(4, 3), torch.randn(4), torch.randn(4, 3)).item()
    METER.updates += 1
print(f"result {total:.5f}")
""",
        codes=("TT206", "TT220", "TT204", "TT301", "TT205"),
        line=("bonus = 1.0 / (METER.updates + 1)", '@torch.compile(backend="eager")'),
        says=r"updates",
        options=(
            Option(
                says=r"tensor",
                edits=(
                    Edit(old="        self.updates = 0\n", new="        self.updates = torch.tensor(0)\n"),
                ),
            ),
        ),
    ),
    Case(
        name="reset_each_epoch",
        family="agents",
        cause="torch.compiler.reset() in every epoch",
        program="""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
compiled = torch.compile(net, backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(8):
    torch.compiler.reset()
    for _ in range(3):
        loss = compiled(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT309",),
        line="torch.compiler.reset()",
        says=r"reset",
        options=(
            Option(
                says=r"[Rr]emove|once|before the loop|not call|without",
                edits=(Edit(old="    torch.compiler.reset()\n", new=""),),
            ),
        ),
    ),
    Case(
        name="gaussian_policy",
        family="agents",
        cause="control: a policy with torch.distributions",
        program="""
import torch
from torch import nn
from torch.distributions import Normal


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(5, 2)
        self.log_std = nn.Parameter(torch.zeros(2))

    def forward(self, observation, action):
        policy = Normal(self.mean(observation), self.log_std.exp())
        return policy.log_prob(action).sum(-1), policy.entropy().sum(-1)


torch.manual_seed(0)
actor = torch.compile(Actor(), backend="eager")
total = 0.0
for _ in range(5):
    log_prob, entropy = actor(torch.randn(4, 5), torch.randn(4, 2))
    total += (log_prob.mean() + entropy.mean()).item()
print(f"result {total:.5f}")
""",
        codes=(),
    ),
    Case(
        name="rate_argument",
        family="agents",
        cause="control: a float argument that automatic dynamic shapes take",
        program="""
import math

import torch


@torch.compile(backend="eager")
def sgd(weights, gradients, rate: float):
    return [w - rate * g for w, g in zip(weights, gradients)]


torch.manual_seed(0)
weights = [torch.randn(3, 3), torch.randn(3)]
for step in range(10):
    rate = 0.1 * (1 + math.cos(step / 3))
    weights = sgd(weights, [torch.randn(3, 3), torch.randn(3)], rate)
print(f"result {weights[0].sum().item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="pooled_windows",
        family="agents",
        cause="a kernel size of a NamedTuple that takes twelve values",
        program="""
from typing import NamedTuple

import torch
import torch.nn.functional as F


class Window(NamedTuple):
    kernel: int
    gain: float


@torch.compile(backend="eager")
def summarise(signal, window):
    return F.max_pool1d(signal, window.kernel).mean() * window.gain


torch.manual_seed(0)
total = 0.0
for kernel in range(2, 14):
    total += summarise(torch.randn(1, 2, 40), Window(kernel, 0.5)).item()
print(f"result {total:.5f}")
""",
        codes=("TT204", "TT301", "TT225"),
        line=(
            "return F.max_pool1d(signal, window.kernel).mean() * window.gain",
            '@torch.compile(backend="eager")',
        ),
        says=r"kernel",
        options=(
            Option(
                says=r"recompile_limit",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)\n",
                        new="torch._dynamo.config.recompile_limit = 16\ntorch.manual_seed(0)\n",
                    ),
                ),
                leaves=("TT204", "TT225"),
            ),
        ),
    ),
    Case(
        name="trace_rows",
        family="agents",
        cause="a csv writer in a compiled rollout",
        program="""
import csv
import io

import torch
from torch import nn


class Recorder:
    def __init__(self):
        self.file = io.StringIO()
        self.writer = csv.writer(self.file)

    def row(self, *cells):
        self.writer.writerow(cells)


class Agent(nn.Module):
    def __init__(self, recorder):
        super().__init__()
        self.recorder = recorder
        self.q = nn.Linear(4, 3)

    def forward(self, observation):
        values = self.q(observation)
        self.recorder.row("act", values.shape[0])
        return values.argmax(-1)


torch.manual_seed(0)
act = torch.compile(Agent(Recorder()), backend="eager")
with torch.no_grad():
    total = sum(act(torch.randn(3, 4)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT106", "TT112", "TT111"),
        line="self.writer.writerow(cells)",
        says=r"writerow",
        options=(
            Option(
                says=r"outside|out of|after|caller|before",
                edits=(Edit(old='        self.recorder.row("act", values.shape[0])\n', new=""),),
            ),
        ),
    ),
    Case(
        name="alternating_validation",
        family="agents",
        cause="control: train and validation steps in turns",
        program="""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.Linear(8, 1))
compiled = torch.compile(net, backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(5):
    compiled.train()
    loss = compiled(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    compiled.eval()
    with torch.no_grad():
        score = compiled(torch.randn(8, 4)).mean()
print(f"result {score.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="normaliser_in_place",
        family="agents",
        cause="running statistics kept as Python floats, updated from .item()",
        program="""
import torch
from torch import nn


class RunningNorm(nn.Module):
    def __init__(self, momentum=0.1):
        super().__init__()
        self.mean, self.momentum = 0.0, momentum

    def update(self, batch):
        self.mean += self.momentum * (batch.mean().item() - self.mean)

    def forward(self, batch):
        self.update(batch)
        return batch - self.mean


torch.manual_seed(0)
norm = torch.compile(RunningNorm(), backend="eager")
with torch.no_grad():
    total = sum(norm(torch.randn(4, 3) + 1).abs().mean() for _ in range(12))
print(f"result {total.item():.5f}")
""",
        codes=("TT104",),
        line="self.mean += self.momentum * (batch.mean().item() - self.mean)",
        says=r"\.item\(\)|mean",
        options=(
            Option(
                says=r"\.detach\(\)|register_buffer|without|keep .* tensor|buffer",
                edits=(
                    Edit(old="batch.mean().item()", new="batch.mean().detach()"),
                    Edit(
                        old="        self.mean, self.momentum = 0.0, momentum",
                        new='        self.momentum = momentum\n        self.register_buffer("mean", torch.zeros(()))',
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="action_set",
        family="agents",
        cause="a set of the drawn actions on the way to a bonus",
        program="""
import torch
from torch import nn


class Explorer(nn.Module):
    def __init__(self, actions=4):
        super().__init__()
        self.policy = nn.Linear(3, actions)

    def forward(self, observation):
        chosen = self.policy(observation).argmax(-1)
        bonus = len(set(chosen.tolist())) / len(chosen)
        return chosen.float().mean() + bonus


torch.manual_seed(0)
explore = torch.compile(Explorer(), backend="eager")
with torch.no_grad():
    total = sum(explore(torch.randn(6, 3)) for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT104",),
        line="bonus = len(set(chosen.tolist())) / len(chosen)",
        says=r"tolist",
        options=(
            Option(
                says=r"keep `chosen` a tensor",
                edits=(
                    Edit(
                        old="len(set(chosen.tolist())) / len(chosen)",
                        new="torch.zeros(4).index_fill(0, chosen, 1.0).sum() / len(chosen)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="step_compiled_after_scheduler",
        family="agents",
        cause="opt.step is compiled after a scheduler has wrapped it",
        program="""
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(4, 2)
optimizer = torch.optim.AdamW(policy.parameters(), lr=torch.tensor(0.01))
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
apply_update = torch.compile(optimizer.step, backend="eager")
for _ in range(6):
    loss = policy(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    apply_update()
    schedule.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT118",),
        line="apply_update()",
        says=r"optimizer step",
        never=r"outside this compiled function",
        options=(
            Option(
                says=r"before a scheduler is made",
                edits=(
                    Edit(old='apply_update = torch.compile(optimizer.step, backend="eager")\n', new=""),
                    Edit(
                        old="schedule = torch",
                        new='apply_update = torch.compile(optimizer.step, backend="eager")\nschedule = torch',
                    ),
                ),
                leaves=("TT118",),
            ),
        ),
    ),
)

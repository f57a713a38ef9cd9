"""Arguments that take another Python value, type or object on later calls."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="unroll_steps",
        family="values",
        cause="an int argument that a range() unrolls",
        program="""
import torch
from torch import nn


class Dynamics(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.transition = nn.Linear(width, width)

    def forward(self, state):
        return self.transition(state).tanh()


dynamics = Dynamics()


@torch.compile(backend="eager")
def imagine(state, horizon):
    for _ in range(horizon):
        state = state + dynamics(state)
    return state


torch.manual_seed(0)
with torch.no_grad():
    for parameter in dynamics.parameters():
        parameter.fill_(0.05)
    total = sum(imagine(torch.ones(2, 5), horizon).sum() for horizon in range(2, 14))
print(f"result {total.item():.4f}")
""",
        codes=("TT301", "TT204"),
        line=('@torch.compile(backend="eager")', "def imagine(state, horizon):", "for _ in range(horizon):"),
        says="horizon",
        options=(
            Option(
                says=r"(?i)compile (only )?(the |`)?(body|step|inside|loop body|dynamics)|body of the loop",
                edits=(
                    Edit(old='@torch.compile(backend="eager")\ndef imagine', new="def imagine"),
                    Edit(old="dynamics = Dynamics()", new='dynamics = torch.compile(Dynamics(), backend="eager")'),
                ),
            ),
        ),
    ),
    Case(
        name="curriculum_depth_index",
        family="values",
        cause="an int argument that indexes a list of modules",
        program="""
import torch
from torch import nn


class Adapters(nn.Module):
    def __init__(self, languages=6, width=5):
        super().__init__()
        self.adapters = nn.ModuleList(nn.Linear(width, width) for _ in range(languages))

    def forward(self, hidden, language):
        return hidden + self.adapters[language](hidden).relu()


torch.manual_seed(0)
adapt = torch.compile(Adapters(), backend="eager")
with torch.no_grad():
    total = sum(adapt(torch.ones(3, 5), language).sum() for _ in range(2) for language in range(6))
print(f"result {total.item():.5f}")
""",
        codes=("TT204",),
        line=("def forward(self, hidden, language):", "return hidden + self.adapters[language](hidden).relu()"),
        says="language",
        options=(
            Option(
                says=r"(?i)stack|index_select|gather",
                edits=(
                    Edit(
                        old="        return hidden + self.adapters[language](hidden).relu()\n",
                        new="        weights = torch.stack([a.weight for a in self.adapters])\n"
                        "        weight = weights.index_select(0, language)[0]\n"
                        "        bias = torch.stack([a.bias for a in self.adapters]).index_select(0, language)[0]\n"
                        "        return hidden + nn.functional.linear(hidden, weight, bias).relu()\n",
                    ),
                    Edit(
                        old="adapt(torch.ones(3, 5), language).sum()",
                        new="adapt(torch.ones(3, 5), torch.tensor([language])).sum()",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="dropout_schedule",
        family="values",
        cause="a float argument that an operator bakes in",
        program="""
import torch
from torch import nn


class ScheduledDropout(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, rate):
        return self.linear(nn.functional.dropout(x, rate, training=True)).relu()


def schedule(step, steps=10):
    return 0.5 * (1 - step / steps)


torch.manual_seed(0)
layer = torch.compile(ScheduledDropout(), backend="eager")
with torch.no_grad():
    total = sum(layer(torch.ones(3, 6), schedule(step)).sum() for step in range(10))
print(f"result {total.item():.5f}")
""",
        codes=("TT301", "TT205"),
        line=(
            "def forward(self, x, rate):",
            "return self.linear(nn.functional.dropout(x, rate, training=True)).relu()",
        ),
        says=r"\brate\b",
        never=r"rate=torch\.tensor",
        options=(
            Option(
                says=r"(?i)torch\.rand|bernoulli",
                edits=(
                    Edit(
                        old="self.linear(nn.functional.dropout(x, rate, training=True))",
                        new="self.linear(x * (torch.rand_like(x) >= rate) / (1 - rate))",
                    ),
                    Edit(old="return 0.5 * (1 - step / steps)", new="return torch.tensor(0.5 * (1 - step / steps))"),
                ),
                same_numbers=False,
            ),
        ),
    ),
    Case(
        name="annealed_temperature_static",
        family="values",
        cause="dynamic=False, a float argument changes on every call",
        program="""
import torch
from torch import nn


class Sampler(nn.Module):
    def __init__(self, vocabulary=12):
        super().__init__()
        self.head = nn.Linear(5, vocabulary)

    def forward(self, hidden, temperature):
        return (self.head(hidden) / temperature).softmax(-1)


torch.manual_seed(0)
sample = torch.compile(Sampler(), backend="eager", dynamic=False)
temperature, total = 1.0, torch.zeros(())
with torch.no_grad():
    for _ in range(11):
        total += sample(torch.randn(2, 5), temperature).max()
        temperature *= 0.95
print(f"result {total.item():.5f}")
""",
        codes=("TT301", "TT205"),
        line=(
            "def forward(self, hidden, temperature):",
            "return (self.head(hidden) / temperature).softmax(-1)",
            'sample = torch.compile(Sampler(), backend="eager", dynamic=False)',
        ),
        says="temperature",
        options=(
            Option(
                says=r"(?i)tensor|drop dynamic=False",
                edits=(
                    Edit(
                        old="sample(torch.randn(2, 5), temperature)",
                        new="sample(torch.randn(2, 5), torch.tensor(temperature))",
                    ),
                ),
            ),
            Option(
                says=r"dynamic=(None|True)|(?i:remove|drop|without|leave out).{0,20}dynamic=False",
                edits=(Edit(old=", dynamic=False", new=""),),
                leaves=("TT205",),
            ),
        ),
    ),
    Case(
        name="scale_by_exponent",
        family="values",
        cause="a float that math.exp needs while tracing",
        program="""
import math

import torch


class Annealing:
    def __init__(self, start=1.0, speed=0.3):
        self.start, self.speed = start, speed

    @torch.compile(backend="eager")
    def weigh(self, energies, age):
        beta = 1 + math.exp(-self.speed * age)
        return (energies * beta).softmax(-1)


torch.manual_seed(0)
annealing = Annealing()
total = sum(annealing.weigh(torch.randn(6), 0.5 * step).max() for step in range(11))
print(f"result {total.item():.5f}")
""",
        codes=("TT301", "TT205"),
        line=(
            '@torch.compile(backend="eager")',
            "def weigh(self, energies, age):",
            "beta = 1 + math.exp(-self.speed * age)",
        ),
        says=r"\bage\b",
        never=r"3\)\*age",
        options=(
            Option(
                says=r"torch\.exp",
                edits=(
                    Edit(old="math.exp(-self.speed * age)", new="torch.exp(-self.speed * age)"),
                    Edit(old="torch.randn(6), 0.5 * step)", new="torch.randn(6), torch.tensor(0.5 * step))"),
                ),
            ),
        ),
    ),
    Case(
        name="unique_metric_names",
        family="values",
        cause="a str argument that is different on every call",
        program="""
import torch

RECORDS = {}


@torch.compile(backend="eager")
def record(values, name):
    summary = torch.stack([values.mean(), values.std(), values.abs().max()])
    return {f"{name}/summary": summary}


class Logger:
    def __init__(self, run):
        self.run = run

    def log(self, step, values):
        RECORDS.update(record(values, f"{self.run}/step{step}"))


torch.manual_seed(0)
logger = Logger("baseline")
for step in range(12):
    logger.log(step, torch.randn(20) * (step + 1))
print(f"result {sum(s.sum() for s in RECORDS.values()).item():.4f}")
""",
        codes=("TT301", "TT224"),
        line=('@torch.compile(backend="eager")', "def record(values, name):", 'return {f"{name}/summary": summary}'),
        says=r"\bname\b",
        options=(
            Option(
                says=r"(?i)outside|caller|after the call|do not pass|not pass|leave",
                edits=(
                    Edit(old="def record(values, name):", new="def record(values):"),
                    Edit(old='return {f"{name}/summary": summary}', new="return summary"),
                    Edit(
                        old='RECORDS.update(record(values, f"{self.run}/step{step}"))',
                        new='RECORDS[f"{self.run}/step{step}/summary"] = record(values)',
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="optional_mask",
        family="values",
        cause="an optional mask, None on some calls",
        program="""
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        scores = self.query(x) @ self.key(x).transpose(-2, -1)
        if mask is not None:
            scores = scores.masked_fill(mask, -1e4)
        return scores.softmax(-1) @ x


torch.manual_seed(0)
attention = torch.compile(Attention(), backend="eager")
total = torch.zeros(())
with torch.no_grad():
    for step in range(6):
        x = torch.randn(2, 4, 6)
        mask = torch.ones(4, 4, dtype=torch.bool).triu(1) if step % 2 else None
        total += attention(x, mask).sum()
print(f"result {total.item():.5f}")
""",
        codes=("TT218",),
        line=("def forward(self, x, mask=None):", "if mask is not None:"),
        says=r"\bmask\b",
        never=r"mask of ones",
        options=(
            Option(
                says=r"(?i)zeros|all[- ](false|zero)|masks nothing|nothing to do",
                edits=(
                    Edit(
                        old="mask = torch.ones(4, 4, dtype=torch.bool).triu(1) if step % 2 else None",
                        new="mask = torch.ones(4, 4, dtype=torch.bool).triu(1) & bool(step % 2)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="half_then_float",
        family="values",
        cause="the dtype of an argument flips",
        program="""
import numpy as np
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, features):
        return self.linear(features.float()).log_softmax(-1)


def batches(number):
    random = np.random.default_rng(0)
    for i in range(number):
        rows = random.normal(size=(5, 4))
        yield torch.from_numpy(rows if i % 2 else rows.astype(np.float32))


torch.manual_seed(0)
classify = torch.compile(Classifier(), backend="eager")
with torch.no_grad():
    total = sum(classify(features)[:, 0].sum() for features in batches(6))
print(f"result {total.item():.5f}")
""",
        codes=("TT211",),
        line=("def forward(self, features):", "return self.linear(features.float()).log_softmax(-1)"),
        says="features",
        options=(
            Option(
                says=r"(?i)\.to\(|\.float\(\)|cast|one dtype|float32",
                edits=(
                    Edit(
                        old="yield torch.from_numpy(rows if i % 2 else rows.astype(np.float32))",
                        new="yield torch.from_numpy(rows).to(torch.float32)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="recurrent_state_grad",
        family="values",
        cause="an argument requires grad from the second call on",
        program="""
import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.mix = nn.Linear(2 * width, width)

    def forward(self, x, state):
        return self.mix(torch.cat([x, state], dim=-1)).tanh()


torch.manual_seed(0)
cell = Cell()
step = torch.compile(cell, backend="aot_eager")
optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
for _ in range(3):
    state = torch.zeros(2, 4)
    for x in torch.randn(3, 2, 4):
        state = step(x, state)
    loss = state.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT215",),
        line=("def forward(self, x, state):", "return self.mix(torch.cat([x, state], dim=-1)).tanh()",
              "state = step(x, state)"),
        says=r"\bstate\b",
        options=(
            Option(
                says=r"requires_grad=True|requires_grad_\(",
                edits=(
                    Edit(old="state = torch.zeros(2, 4)", new="state = torch.zeros(2, 4, requires_grad=True)"),
                ),
            ),
            Option(
                says=r"detach\(\)",
                edits=(Edit(old="state = step(x, state)", new="state = step(x, state.detach())"),),
                same_numbers=False,
            ),
        ),
    ),
    Case(
        name="fresh_config_type",
        family="values",
        cause="a new namedtuple type is made on every call",
        program="""
from collections import namedtuple

import torch
from torch import nn


class Warp(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, points, transform):
        return self.linear(points * transform.scale + transform.shift)


def transform_of(scale, shift):
    Transform = namedtuple("Transform", ["scale", "shift"])
    return Transform(torch.tensor(scale), torch.tensor(shift))


torch.manual_seed(0)
warp = torch.compile(Warp(), backend="eager")
with torch.no_grad():
    total = sum(warp(torch.ones(4, 3), transform_of(0.1 * i, 0.5)).sum() for i in range(11))
print(f"result {total.item():.5f}")
""",
        codes=("TT301", "TT219", "TT223"),
        line=("def forward(self, points, transform):", "return self.linear(points * transform.scale + transform.shift)",
              'Transform = namedtuple("Transform", ["scale", "shift"])'),
        says="transform",
        options=(
            Option(
                says=r"(?i)once|module level|outside",
                edits=(
                    Edit(old='    Transform = namedtuple("Transform", ["scale", "shift"])\n', new=""),
                    Edit(
                        old="def transform_of(scale, shift):",
                        new='Transform = namedtuple("Transform", ["scale", "shift"])\n\n\n'
                        "def transform_of(scale, shift):",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="new_object_per_call",
        family="values",
        cause="control: a new config object and a new partial on every call",
        program="""
import functools
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Augmentation:
    strength: float = 0.2
    flip: bool = True


def jitter(x, strength):
    return x * (1 + strength)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, augmentation, transform):
        x = x.flip(-1) if augmentation.flip else x
        return self.linear(transform(x))


torch.manual_seed(0)
encoder = torch.compile(Encoder(), backend="eager")
with torch.no_grad():
    total = sum(
        encoder(torch.ones(2, 4), Augmentation(), functools.partial(jitter, strength=0.2)).sum() for _ in range(12)
    )
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="offset_argument",
        family="values",
        cause="control: an int argument in arithmetic becomes dynamic",
        program="""
import torch
from torch import nn


class Positional(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, offset):
        return self.linear(x) + torch.sin(torch.arange(x.shape[0]) + offset)[:, None]


torch.manual_seed(0)
positional = torch.compile(Positional(), backend="eager", dynamic=True)
with torch.no_grad():
    total = sum(positional(torch.ones(5, 4), offset).sum() for offset in range(3, 12))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="enum_modes",
        family="values",
        cause="an enum argument with more values than the limit",
        program="""
import enum

import torch
from torch import nn

Task = enum.Enum("Task", [f"T{i}" for i in range(10)])


class MultiTask(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.body = nn.Linear(width, width)
        self.gains = nn.Parameter(torch.linspace(0.5, 1.5, len(Task)))

    def forward(self, x, task):
        return self.body(x) * self.gains[task.value - 1]


torch.manual_seed(0)
model = torch.compile(MultiTask(), backend="eager")
with torch.no_grad():
    total = sum(model(torch.ones(2, 4), task).sum() for _ in range(2) for task in Task)
print(f"result {total.item():.5f}")
""",
        codes=("TT301", "TT219", "TT224"),
        line=("def forward(self, x, task):", "return self.body(x) * self.gains[task.value - 1]"),
        says=r"\btask\b",
        never=r"create task once",
        options=(
            Option(
                says=r"(?i)tensor",
                edits=(
                    Edit(
                        old="self.gains[task.value - 1]",
                        new="self.gains.index_select(0, task)",
                    ),
                    Edit(old="torch.ones(2, 4), task)", new="torch.ones(2, 4), torch.tensor([task.value - 1]))"),
                ),
            ),
            Option(
                says=r"recompile_limit",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.recompile_limit = 12\ntorch.manual_seed(0)",
                    ),
                ),
                leaves=("TT219", "TT224"),
            ),
        ),
    ),
    Case(
        name="number_or_tensor",
        family="values",
        cause="an argument is a number first and a tensor later",
        program="""
import torch
from torch import nn


class Smoother(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, previous):
        return 0.9 * previous + 0.1 * self.linear(x)


torch.manual_seed(0)
smooth = torch.compile(Smoother(), backend="eager")
total = torch.zeros(())
with torch.no_grad():
    for _ in range(4):
        previous = 0.0
        for x in torch.randn(3, 2, 3):
            previous = smooth(x, previous)
        total += previous.sum()
print(f"result {total.item():.5f}")
""",
        codes=("TT223",),
        line=("def forward(self, x, previous):", "return 0.9 * previous + 0.1 * self.linear(x)"),
        says="previous",
        options=(
            Option(
                says=r"(?i)torch\.(zeros|tensor|full)|a tensor (every|each|from)|always (pass )?a tensor|same type",
                edits=(
                    Edit(old="previous = 0.0", new="previous = torch.zeros(2, 3)"),
                ),
            ),
        ),
    ),
)

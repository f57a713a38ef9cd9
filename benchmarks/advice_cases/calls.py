"""Calls that Dynamo does not trace: C code, clocks, random numbers, deep copies."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="tone_curve_interp",
        family="calls",
        cause="np.interp, which torch does not trace",
        program="""
import numpy as np
import torch
from torch import nn

KNOTS = np.linspace(0.0, 1.0, 5)


class ToneMapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(3, 3, 1)
        self.curve = np.array([0.0, 0.1, 0.4, 0.8, 1.0])

    def tone(self, image):
        return torch.from_numpy(np.interp(image.numpy(), KNOTS, self.curve)).float()

    def forward(self, image):
        return self.mix(self.tone(image)).sigmoid()


torch.manual_seed(0)
mapper = torch.compile(ToneMapper(), backend="eager")
with torch.no_grad():
    total = sum(mapper(torch.rand(1, 3, 4, 4)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT106", "TT112", "TT114", "TT199"),
        line="return torch.from_numpy(np.interp(image.numpy(), KNOTS, self.curve)).float()",
        says="interp",
        options=(
            Option(
                # There is no torch function for interp.
                says=r"searchsorted|lerp|^(?!.*the torch function for interp).*before the compiled call",
                is_as_printed=False,
                edits=(
                    Edit(old="KNOTS = np.linspace(0.0, 1.0, 5)", new="KNOTS = torch.linspace(0.0, 1.0, 5)"),
                    Edit(
                        old="self.curve = np.array([0.0, 0.1, 0.4, 0.8, 1.0])",
                        new='self.register_buffer("curve", torch.tensor([0.0, 0.1, 0.4, 0.8, 1.0]))',
                    ),
                    Edit(
                        old="return torch.from_numpy(np.interp(image.numpy(), KNOTS, self.curve)).float()",
                        new="right = torch.searchsorted(KNOTS, image.contiguous()).clamp(1, 4)\n"
                        "        share = (image - KNOTS[right - 1]) / (KNOTS[right] - KNOTS[right - 1])\n"
                        "        return torch.lerp(self.curve[right - 1], self.curve[right], share)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="exploration_noise",
        family="calls",
        cause="np.random.normal as exploration noise",
        program="""
import numpy as np
import torch
from torch import nn


class DeterministicActor(nn.Module):
    def __init__(self, sigma=0.1):
        super().__init__()
        self.net, self.sigma = nn.Linear(5, 2), sigma

    def forward(self, observation):
        action = self.net(observation).tanh()
        noise = np.random.normal(0.0, self.sigma)
        return (action + noise).clamp(-1, 1)


torch.manual_seed(0)
np.random.seed(0)
actor = torch.compile(DeterministicActor(), backend="eager")
with torch.no_grad():
    total = sum(actor(torch.randn(3, 5)).sum() for _ in range(6))
print(f"result {total.item():.5f}")
""",
        codes=("TT114",),
        line="noise = np.random.normal(0.0, self.sigma)",
        options=(
            Option(
                says=r"torch\.(randn|normal)",
                edits=(
                    Edit(old="np.random.normal(0.0, self.sigma)", new="self.sigma * torch.randn(())"),
                ),
                same_numbers=False,
            ),
        ),
    ),
    Case(
        name="epsilon_greedy_rand",
        family="calls",
        cause="np.random.rand() decides a branch",
        program="""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Exploration:
    epsilon: float = 0.3
    actions: int = 4


class GreedyAgent(nn.Module):
    def __init__(self, exploration):
        super().__init__()
        self.exploration = exploration
        self.q = nn.Linear(6, exploration.actions)

    def forward(self, observation):
        best = self.q(observation).argmax(-1)
        if np.random.rand() < self.exploration.epsilon:
            return torch.randint_like(best, self.exploration.actions)
        return best


torch.manual_seed(0)
np.random.seed(1)
agent = torch.compile(GreedyAgent(Exploration()), backend="eager")
with torch.no_grad():
    total = sum(agent(torch.randn(3, 6)).sum() for _ in range(8))
print(f"result {total.item():.5f}")
""",
        codes=("TT114",),
        line="if np.random.rand() < self.exploration.epsilon:",
        options=(
            Option(
                says=r"torch\.where",
                edits=(
                    Edit(
                        old="""        if np.random.rand() < self.exploration.epsilon:
            return torch.randint_like(best, self.exploration.actions)
        return best
""",
                        new="""        explore = torch.rand(()) < self.exploration.epsilon
        return torch.where(explore, torch.randint_like(best, self.exploration.actions), best)
""",
                    ),
                ),
                same_numbers=False,
            ),
        ),
    ),
    Case(
        name="layer_drop_random",
        family="calls",
        cause="random.random() decides which layers run",
        program="""
import random

import torch
from torch import nn


class DropStack(nn.Module):
    def __init__(self, depth=4, width=8, drop=0.4):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.drop = drop

    def forward(self, x):
        for block in self.blocks:
            if random.random() < self.drop:
                continue
            x = x + block(x).relu()
        return x


torch.manual_seed(0)
random.seed(0)
stack = torch.compile(DropStack(), backend="eager")
with torch.no_grad():
    total = sum(stack(torch.ones(2, 8)).sum() for _ in range(8))
print(f"result {total.item():.5f}")
""",
        codes=("TT119", "TT103", "TT106", "TT104", "TT199"),
        line="if random.random() < self.drop:",
        options=(
            Option(
                says=r"(?i)torch\.where|mask|multipl",
                edits=(
                    Edit(
                        old="""            if random.random() < self.drop:
                continue
            x = x + block(x).relu()
""",
                        new="""            keep = (torch.rand(()) >= self.drop).float()
            x = x + keep * block(x).relu()
""",
                    ),
                ),
                same_numbers=False,
            ),
        ),
    ),
    Case(
        name="wall_clock_forward",
        family="calls",
        cause="time.time() in forward",
        program="""
import time

import torch
from torch import nn


class ServingModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
        self.latencies = []

    def forward(self, features):
        started = time.time()
        scores = self.net(features).softmax(-1)
        self.latencies.append(time.time() - started)
        return scores


torch.manual_seed(0)
served = ServingModel()
predict = torch.compile(served, backend="eager")
with torch.inference_mode():
    total = sum(predict(torch.randn(4, 8))[:, 0].sum() for _ in range(4))
print(len(served.latencies), "requests")
print(f"result {total.item():.5f}")
""",
        codes=("TT125", "TT106"),
        line=("started = time.time()", "self.latencies.append(time.time() - started)"),
        options=(
            Option(
                says=r"(?i)around|before and after|outside|caller|is_compiling",
                is_as_printed=False,
                edits=(
                    Edit(old="        started = time.time()\n", new=""),
                    Edit(old="        self.latencies.append(time.time() - started)\n", new=""),
                ),
            ),
        ),
    ),
    Case(
        name="feature_digest",
        family="calls",
        cause="hashlib in forward",
        program="""
import hashlib

import torch
from torch import nn


def bucket(name, buckets):
    return int(hashlib.md5(name.encode()).hexdigest(), 16) % buckets


class SparseFeatures(nn.Module):
    def __init__(self, buckets=32, width=4):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(buckets, width))
        self.buckets = buckets

    def forward(self, values, name):
        row = bucket(name, self.buckets)
        return values[:, None] * self.weights[row]


torch.manual_seed(0)
model = torch.compile(SparseFeatures(), backend="eager")
with torch.no_grad():
    total = sum(model(torch.randn(5), "clicks").sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT106",),
        line="return int(hashlib.md5(name.encode()).hexdigest(), 16) % buckets",
        says="md5|hashlib",
        options=(
            Option(
                says=r"(?i)before (or after|the)|outside|assume_constant_result|argument",
                edits=(
                    Edit(old="def forward(self, values, name):\n        row = bucket(name, self.buckets)\n",
                         new="def forward(self, values, row):\n"),
                    Edit(old='model(torch.randn(5), "clicks")', new='model(torch.randn(5), bucket("clicks", 32))'),
                ),
            ),
        ),
    ),
    Case(
        name="cache_key_json",
        family="calls",
        cause="json.dumps in forward, for a cache key",
        program="""
import json

import torch
from torch import nn


class PromptEncoder(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings, self.cache = settings, {}
        self.embed = nn.Embedding(10, 4)

    def positions(self, length):
        key = json.dumps({"length": length, **self.settings}, sort_keys=True)
        if key not in self.cache:
            self.cache[key] = torch.linspace(0, self.settings["scale"], length)
        return self.cache[key]

    def forward(self, tokens):
        return self.embed(tokens) + self.positions(tokens.shape[1])[None, :, None]


torch.manual_seed(0)
encoder = PromptEncoder({"scale": 2.0, "kind": "linear"})
encode = torch.compile(encoder, backend="eager")
with torch.no_grad():
    total = sum(encode(torch.randint(0, 10, (2, 6))).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT106", "TT111", "TT112"),
        line='key = json.dumps({"length": length, **self.settings}, sort_keys=True)',
        options=(
            Option(
                # The call is the user's, the encoder that it makes is not.
                says=r"^(?!.*_json\.Encoder).*(before|outside|once|__init__)",
                is_as_printed=False,
                edits=(
                    Edit(
                        old='key = json.dumps({"length": length, **self.settings}, sort_keys=True)',
                        new="key = length",
                    ),
                ),
                leaves=("TT216", "TT217"),
            ),
        ),
    ),
    Case(
        name="target_network_copy",
        family="calls",
        cause="copy.deepcopy of a module in the compiled update",
        program="""
import copy

import torch
from torch import nn


class MomentumEncoder(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.online = nn.Linear(width, width)

    def forward(self, view, other):
        teacher = copy.deepcopy(self.online)
        with torch.no_grad():
            goal = teacher(other)
        return (self.online(view) - goal).square().mean()


torch.manual_seed(0)
encoder = MomentumEncoder()
similarity = torch.compile(encoder, backend="eager")
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(4, 6)
    loss = similarity(x, x + 0.1 * torch.randn(4, 6))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.6f}")
""",
        codes=("TT107",),
        line="teacher = copy.deepcopy(self.online)",
        options=(
            Option(
                says=r"(?i)before|outside|__init__",
                edits=(
                    Edit(
                        old="        teacher = copy.deepcopy(self.online)\n        with torch.no_grad():\n"
                        "            goal = teacher(other)\n",
                        new="        goal = self.teacher(other)\n",
                    ),
                    Edit(
                        old="        self.online = nn.Linear(width, width)\n",
                        new="        self.online = nn.Linear(width, width)\n"
                        "        self.teacher = copy.deepcopy(self.online).requires_grad_(False)\n",
                    ),
                    Edit(
                        old="    x = torch.randn(4, 6)\n",
                        new="    x = torch.randn(4, 6)\n"
                        "    encoder.teacher.load_state_dict(encoder.online.state_dict())\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="cached_rotary",
        family="calls",
        cause="control: a helper under lru_cache is traced",
        program="""
import functools

import torch
from torch import nn


@functools.lru_cache(maxsize=8)
def frequencies(width):
    return tuple(1.0 / 100 ** (i / width) for i in range(0, width, 2))


class Rotary(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.width, self.project = width, nn.Linear(width, width)

    def forward(self, x):
        angle = torch.arange(x.shape[1])[:, None] * torch.tensor(frequencies(self.width))
        first, second = self.project(x).chunk(2, dim=-1)
        return torch.cat([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1)


torch.manual_seed(0)
rotary = torch.compile(Rotary(), backend="eager")
with torch.no_grad():
    total = sum(rotary(torch.randn(2, 5, 8)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
)

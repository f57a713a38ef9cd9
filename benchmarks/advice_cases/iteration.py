"""Iterators, context managers, try blocks and recurrent modules inside of compiled code."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="noise_stream",
        family="iteration",
        cause="next() on a generator made outside",
        program="""
import torch
from torch import nn


def noise_stream(seed, shape):
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(shape, generator=generator)


class NoisyLayer(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.noise = noise_stream(7, (width,))

    def forward(self, x):
        return self.linear(x) + 0.1 * next(self.noise)


torch.manual_seed(0)
layer = torch.compile(NoisyLayer(), backend="eager")
with torch.no_grad():
    total = sum(layer(torch.ones(2, 6)).sum() for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT113",),
        line="return self.linear(x) + 0.1 * next(self.noise)",
        never=r"list\(",
        options=(
            Option(
                says=r"(?i)pass (the|its|a|each) (value|item|result|tensor)|next\([^)]*\) (before|outside)|argument",
                edits=(
                    Edit(old="def forward(self, x):", new="def forward(self, x, noise):"),
                    Edit(old="0.1 * next(self.noise)", new="0.1 * noise"),
                    Edit(old="layer(torch.ones(2, 6))", new="layer(torch.ones(2, 6), next(layer.noise))"),
                ),
            ),
        ),
    ),
    Case(
        name="zip_argument",
        family="iteration",
        cause="a loop over a zip object that is passed in",
        program="""
import torch


@torch.compile(backend="eager")
def distillation(pairs, temperature):
    loss = torch.zeros(())
    for student, teacher in pairs:
        goal = (teacher / temperature).softmax(-1)
        loss = loss - (goal * (student / temperature).log_softmax(-1)).sum(-1).mean()
    return loss * temperature**2


def hidden_states(seed, layers=3):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 5, generator=generator) for _ in range(layers)]


total = sum(distillation(zip(hidden_states(i), hidden_states(i + 50)), 2.0) for i in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT113", "TT119", "TT302"),
        line=("for student, teacher in pairs:", "def distillation(pairs, temperature):"),
        options=(
            Option(
                says=r"list\(|a list|tuple",
                edits=(
                    Edit(
                        old="distillation(zip(hidden_states(i), hidden_states(i + 50)), 2.0)",
                        new="distillation(list(zip(hidden_states(i), hidden_states(i + 50))), 2.0)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="generator_compiled",
        family="iteration",
        cause="a generator function compiled directly",
        program="""
import torch
from torch import nn


class Sampler:
    def __init__(self, score, steps):
        self.score, self.steps = score, steps
        self.samples = torch.compile(self._samples, backend="eager")

    def _samples(self, x):
        for i in range(self.steps):
            x = x + 0.1 * self.score(x) / (i + 1)
            yield x


torch.manual_seed(0)
sampler = Sampler(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)), steps=4)
with torch.no_grad():
    total = sum(x.sum() for _ in range(3) for x in sampler.samples(torch.ones(2, 3)))
print(f"result {total.item():.5f}")
""",
        codes=("TT302", "TT303"),
        line=("def _samples(self, x):", 'self.samples = torch.compile(self._samples, backend="eager")'),
        says="(?i)generator",
        options=(
            Option(
                says=r"(?i)compile (only )?(the |`|what )?.*(body|step|function|inside|calls|yields|computes)|list",
                edits=(
                    Edit(old='torch.compile(self._samples, backend="eager")', new="self._samples"),
                    Edit(
                        old="self.score, self.steps = score, steps",
                        new='self.score, self.steps = torch.compile(score, backend="eager"), steps',
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="generator_inside",
        family="iteration",
        cause="control: a generator made and consumed inside, itertools, record_function",
        program="""
import itertools

import torch
from torch import nn
from torch.profiler import record_function


def windows(sequence, size):
    for start in range(0, sequence.shape[1] - size + 1, size):
        yield sequence[:, start : start + size]


class LocalMixer(nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.size, self.mix = size, nn.Linear(size, size)

    def forward(self, sequence):
        with record_function("local_mixer"):
            parts = [self.mix(window) for window in windows(sequence, self.size)]
            pairs = [a * b for a, b in itertools.combinations(parts, 2)]
        return torch.cat(pairs, dim=1)


torch.manual_seed(0)
mixer = torch.compile(LocalMixer(), backend="eager")
with torch.no_grad():
    total = sum(mixer(torch.randn(2, 9)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="statistics_lock",
        family="iteration",
        cause="`with lock:` in forward",
        program="""
import threading

import torch
from torch import nn


class SharedNormalizer(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.lock = threading.Lock()
        self.register_buffer("mean", torch.zeros(width))
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        with self.lock:
            self.mean.lerp_(x.mean(dim=0), 0.1)
        return self.linear(x - self.mean)


torch.manual_seed(0)
model = SharedNormalizer()
normalize = torch.compile(model, backend="eager")
with torch.no_grad():
    total = sum(normalize(torch.randn(6, 4) + 2).sum() for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT115",),
        line="with self.lock:",
        options=(
            Option(
                says=r"(?i)outside|around|before|caller|move",
                edits=(
                    Edit(
                        old="        with self.lock:\n            self.mean.lerp_(x.mean(dim=0), 0.1)\n",
                        new="        self.mean.lerp_(x.mean(dim=0), 0.1)\n",
                    ),
                    Edit(
                        old="    total = sum(normalize(torch.randn(6, 4) + 2).sum() for _ in range(5))\n",
                        new="    with model.lock:\n"
                        "        total = sum(normalize(torch.randn(6, 4) + 2).sum() for _ in range(5))\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="timing_section",
        family="iteration",
        cause="a context manager of the project that reads the clock",
        program="""
import time
from contextlib import contextmanager

import torch
from torch import nn

SECONDS = {}


@contextmanager
def section(name):
    started = time.perf_counter()
    yield
    SECONDS[name] = SECONDS.get(name, 0.0) + time.perf_counter() - started


class Recommender(nn.Module):
    def __init__(self, items=12, width=5):
        super().__init__()
        self.items, self.user = nn.Embedding(items, width), nn.Linear(3, width)

    def forward(self, user):
        with section("scores"):
            scores = self.user(user) @ self.items.weight.T
        return scores.topk(3).values


torch.manual_seed(0)
recommend = torch.compile(Recommender(), backend="eager")
with torch.no_grad():
    total = sum(recommend(torch.randn(4, 3)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT125", "TT115", "TT119", "TT106"),
        line=(
            "started = time.perf_counter()",
            'with section("scores"):',
            "SECONDS[name] = SECONDS.get(name, 0.0) + time.perf_counter() - started",
        ),
        options=(
            Option(
                says=r"(?i)around|before and after|outside|caller|is_compiling|record_function",
                edits=(
                    Edit(
                        old='        with section("scores"):\n'
                        "            scores = self.user(user) @ self.items.weight.T\n",
                        new="        scores = self.user(user) @ self.items.weight.T\n",
                    ),
                    Edit(
                        old="    total = sum(recommend(torch.randn(4, 3)).sum() for _ in range(4))\n",
                        new='    with section("scores"):\n'
                        "        total = sum(recommend(torch.randn(4, 3)).sum() for _ in range(4))\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="try_item",
        family="iteration",
        cause=".item() inside of try / except",
        program="""
import torch
from torch import nn


class SafeScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x):
        hidden = self.linear(x)
        try:
            peak = hidden.abs().max().item()
            hidden = hidden / peak
        except ZeroDivisionError:
            hidden = torch.zeros_like(hidden)
        return hidden.relu()


torch.manual_seed(0)
scale = torch.compile(SafeScale(), backend="eager")
with torch.no_grad():
    total = sum(scale(torch.randn(3, 5)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT119", "TT104"),
        line="peak = hidden.abs().max().item()",
        options=(
            Option(
                says=r"(?i)keep .* tensor|detach",
                edits=(Edit(old="hidden.abs().max().item()", new="hidden.abs().max().detach()"),),
            ),
        ),
    ),
    Case(
        name="dropout_fork_rng",
        family="iteration",
        cause="torch.random.fork_rng in forward",
        program="""
import torch
from torch import nn


class FixedDropout(nn.Module):
    def __init__(self, seed=3):
        super().__init__()
        self.seed, self.linear = seed, nn.Linear(6, 6)

    def mask(self, x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return (torch.rand(x.shape[-1]) > 0.3).float()

    def forward(self, x):
        return self.linear(x * self.mask(x))


torch.manual_seed(0)
layer = torch.compile(FixedDropout(), backend="eager")
with torch.no_grad():
    total = sum(layer(torch.ones(2, 6)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT115", "TT119"),
        line="with torch.random.fork_rng(devices=[]):",
        options=(
            Option(
                says=r"(?i)outside|before|around|__init__|argument|move",
                edits=(
                    Edit(
                        old="def forward(self, x):\n        return self.linear(x * self.mask(x))\n",
                        new="def forward(self, x, mask):\n        return self.linear(x * mask)\n",
                    ),
                    Edit(
                        old="layer(torch.ones(2, 6))",
                        new="layer(torch.ones(2, 6), layer._orig_mod.mask(torch.ones(2, 6)))",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="gru_forecaster",
        family="iteration",
        cause="nn.GRU",
        program="""
import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, series=3, width=8, horizon=2):
        super().__init__()
        self.recurrent = nn.GRU(series, width, num_layers=2, batch_first=True)
        self.readout = nn.Linear(width, series * horizon)

    def forward(self, window):
        _, state = self.recurrent(window)
        return self.readout(state[-1])


torch.manual_seed(0)
forecaster = torch.compile(Forecaster(), backend="eager")
with torch.no_grad():
    total = sum(forecaster(torch.randn(4, 6, 3)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT117",),
        line="_, state = self.recurrent(window)",
        options=(
            Option(
                says=r"allow_rnn",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.allow_rnn = True\ntorch.manual_seed(0)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="itertools_counter",
        family="iteration",
        cause="next() on an itertools.count that the object holds",
        program="""
import itertools

import torch
from torch import nn


class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(4, 4), itertools.count(1)

    def forward(self, x):
        noise = 1.0 / next(self.calls)
        return self.linear(x) * (1 + noise)


torch.manual_seed(0)
annealed = torch.compile(Annealed(), backend="eager")
with torch.no_grad():
    total = sum(annealed(torch.ones(2, 4)).sum() for _ in range(6))
print(f"result {total.item():.5f}")
""",
        codes=("TT113", "TT206", "TT224"),
        line=("noise = 1.0 / next(self.calls)", "def forward(self, x):"),
        says=r"self\.calls\b",
        options=(
            Option(
                says=r"(?i)buffer|tensor|pass (the|its|a|each) (value|number|count|item)|argument|outside|before the",
                edits=(
                    Edit(
                        old="self.linear, self.calls = nn.Linear(4, 4), itertools.count(1)",
                        new="self.linear = nn.Linear(4, 4)\n"
                        '        self.register_buffer("calls", torch.zeros(()))',
                    ),
                    Edit(
                        old="        noise = 1.0 / next(self.calls)\n",
                        new="        self.calls += 1\n        noise = 1.0 / self.calls\n",
                    ),
                ),
            ),
        ),
    ),
)

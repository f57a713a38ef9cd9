"""State outside of the arguments: attributes, globals, containers, and torch's modes."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="warmup_counter",
        family="state",
        cause="a counter on a module",
        program="""
import torch
from torch import nn


class WarmupNorm(nn.Module):
    def __init__(self, width=5, warmup=20):
        super().__init__()
        self.norm, self.warmup = nn.LayerNorm(width), warmup
        self.seen = 0

    def forward(self, x):
        self.seen += 1
        share = min(1.0, self.seen / self.warmup)
        return share * self.norm(x) + (1 - share) * x


torch.manual_seed(0)
norm = torch.compile(WarmupNorm(), backend="eager")
with torch.no_grad():
    total = sum(norm(torch.randn(3, 5)).abs().sum() for _ in range(12))
print(f"result {total.item():.4f}")
""",
        codes=("TT301", "TT206"),
        line=("def forward(self, x):", "self.seen += 1"),
        says=r"self\.seen\b",
        options=(
            Option(
                says=r"(?i)buffer|tensor",
                edits=(
                    Edit(old="        self.seen = 0\n", new='        self.register_buffer("seen", torch.zeros(()))\n'),
                    Edit(old="share = min(1.0, self.seen / self.warmup)",
                         new="share = (self.seen / self.warmup).clamp(max=1.0)"),
                ),
            ),
            Option(
                says=r"allow_unspec_int_on_nn_module",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.allow_unspec_int_on_nn_module = True\ntorch.manual_seed(0)",
                    ),
                ),
                leaves=("TT206", "TT225"),
            ),
        ),
    ),
    Case(
        name="global_phase",
        family="state",
        cause="a global int that a compiled function reads",
        program="""
import torch
from torch import nn

EPOCH = 0


@torch.compile(backend="eager")
def contrastive(a, b):
    margin = 0.1 * (EPOCH + 1)
    distance = (a - b).norm(dim=-1)
    return nn.functional.relu(margin - distance).mean() + distance.mean()


def run_epoch(batches):
    global EPOCH
    losses = [contrastive(a, b) for a, b in batches]
    EPOCH += 1
    return sum(losses)


torch.manual_seed(0)
data = [(torch.randn(4, 3), torch.randn(4, 3)) for _ in range(2)]
total = sum(run_epoch(data) for _ in range(11))
print(f"result {total.item():.4f}")
""",
        codes=("TT301", "TT220"),
        line=('@torch.compile(backend="eager")', "def contrastive(a, b):", "margin = 0.1 * (EPOCH + 1)"),
        says="EPOCH",
        options=(
            Option(
                says=r"(?i)argument|tensor",
                is_as_printed=False,
                edits=(
                    Edit(old="EPOCH = 0\n", new="EPOCH = torch.tensor(0)\n"),
                    Edit(old="    global EPOCH\n", new=""),
                    Edit(old="    EPOCH += 1\n", new="    EPOCH.add_(1)\n"),
                ),
            ),
        ),
    ),
    Case(
        name="debug_flag",
        family="state",
        cause="a global flag that is switched now and then: two versions",
        program="""
import torch

DETAILED = False


@torch.compile(backend="eager")
def summary(values):
    if DETAILED:
        return torch.cat([values.mean()[None], values.quantile(torch.tensor([0.1, 0.9]))])
    return values.mean()[None]


torch.manual_seed(0)
total = torch.zeros(())
for step in range(9):
    DETAILED = step % 4 == 3
    total += summary(torch.randn(30)).sum()
print(f"result {total.item():.5f}")
""",
        codes=("TT220", "TT224"),
        line=('@torch.compile(backend="eager")', "def summary(values):", "if DETAILED:"),
        says="DETAILED",
        options=(
            Option(
                says=r"(?i)two functions|a function (each|of its own)|per value|argument|constant|nothing to do",
                is_as_printed=False,
                edits=(
                    Edit(
                        old="""    if DETAILED:
        return torch.cat([values.mean()[None], values.quantile(torch.tensor([0.1, 0.9]))])
    return values.mean()[None]
""",
                        new="""    return values.mean()[None]


@torch.compile(backend="eager")
def detailed(values):
    return torch.cat([values.mean()[None], values.quantile(torch.tensor([0.1, 0.9]))])
""",
                    ),
                    Edit(
                        old="    total += summary(torch.randn(30)).sum()\n",
                        new="    total += (detailed if DETAILED else summary)(torch.randn(30)).sum()\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="stage_index",
        family="state",
        cause="blocks compiled one by one, each with its own index",
        program="""
import torch
from torch import nn


class Stage(nn.Module):
    def __init__(self, index, width=6):
        super().__init__()
        self.index, self.linear = index, nn.Linear(width, width)

    def forward(self, features):
        return features + self.linear(features).relu() / (2 + self.index)


class Backbone(nn.Module):
    def __init__(self, depth=10):
        super().__init__()
        self.stages = nn.ModuleList(Stage(i) for i in range(depth))
        for stage in self.stages:
            stage.compile(backend="eager")

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return x


torch.manual_seed(0)
backbone = Backbone()
with torch.no_grad():
    total = sum(backbone(torch.ones(2, 6)).sum() for _ in range(3))
print(f"result {total.item():.4f}")
""",
        codes=("TT301", "TT207"),
        line=("def forward(self, features):", "return features + self.linear(features).relu() / (2 + self.index)"),
        says=r"self\.index\b",
        options=(
            Option(
                says=r"(?i)compile the (model|whole|entire)|buffer|tensor",
                edits=(
                    Edit(old='        for stage in self.stages:\n            stage.compile(backend="eager")\n', new=""),
                    Edit(old="backbone = Backbone()", new='backbone = torch.compile(Backbone(), backend="eager")'),
                ),
            ),
        ),
    ),
    Case(
        name="pyramid_widths",
        family="state",
        cause="layers of different width share one compiled forward",
        program="""
import torch
from torch import nn


class Lateral(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 1)

    @torch.compile(backend="eager", dynamic=False)
    def forward(self, feature):
        return self.conv(feature).relu()


class Pyramid(nn.Module):
    def __init__(self, widths=(2, 3, 5, 6, 7, 8, 9, 10, 11, 12)):
        super().__init__()
        self.laterals = nn.ModuleList(Lateral(width) for width in widths)

    def forward(self, features):
        return sum(lateral(feature) for lateral, feature in zip(self.laterals, features))


torch.manual_seed(0)
pyramid = Pyramid()
with torch.no_grad():
    features = [torch.randn(1, width, 4, 4) for width in (2, 3, 5, 6, 7, 8, 9, 10, 11, 12)]
    total = sum(pyramid(features).sum() for _ in range(3))
print(f"result {total.item():.4f}")
""",
        codes=("TT301", "TT202", "TT207"),
        line=("def forward(self, feature):", '@torch.compile(backend="eager", dynamic=False)',
              "return self.conv(feature).relu()"),
        says=r"feature|conv|width|instance|layer",
        never=r"drop dynamic=False",
        options=(
            Option(
                says=r"(?i)compile the (model|whole|entire|module that|pyramid)",
                edits=(
                    Edit(old='    @torch.compile(backend="eager", dynamic=False)\n', new=""),
                    Edit(old="pyramid = Pyramid()", new='pyramid = torch.compile(Pyramid(), backend="eager")'),
                ),
            ),
            Option(
                says=r"recompile_limit = \d+",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.recompile_limit = 14\ntorch.manual_seed(0)",
                    ),
                ),
                leaves=("TT202",),
            ),
        ),
    ),
    Case(
        name="sensor_keys",
        family="state",
        cause="a dict whose keys change",
        program="""
import torch
from torch import nn


class Fusion(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.project = nn.Linear(width, width)

    def forward(self, readings):
        return sum(self.project(value) for value in readings.values())


def readings(step):
    return {f"sensor{step + k}": torch.full((2, 4), 0.1 * (step + k)) for k in range(3)}


torch.manual_seed(0)
fusion = torch.compile(Fusion(), backend="eager")
with torch.no_grad():
    total = sum(fusion(readings(step)).sum() for step in range(11))
print(f"result {total.item():.4f}")
""",
        codes=("TT301", "TT216"),
        line=("def forward(self, readings):", "return sum(self.project(value) for value in readings.values())"),
        says="keys",
        options=(
            Option(
                says=r"(?i)stack|tensor|list\(|as a list",
                edits=(
                    Edit(
                        old="return sum(self.project(value) for value in readings.values())",
                        new="return sum(self.project(value) for value in readings)",
                    ),
                    Edit(old="fusion(readings(step))", new="fusion(list(readings(step).values()))"),
                ),
            ),
        ),
    ),
    Case(
        name="growing_history",
        family="state",
        cause="a list whose length grows",
        program="""
import torch
from torch import nn


class HistoryPolicy(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, history):
        states = torch.stack(history)
        weights = (self.key(states) @ states[-1]).softmax(0)
        return weights @ self.value(states)


torch.manual_seed(0)
policy = torch.compile(HistoryPolicy(), backend="eager")
history, total = [], torch.zeros(())
with torch.no_grad():
    for _ in range(12):
        history.append(torch.randn(4))
        total += policy(history).sum()
print(f"result {total.item():.4f}")
""",
        codes=("TT301", "TT217"),
        line=("def forward(self, history):", "states = torch.stack(history)"),
        says=r"history",
        options=(
            Option(
                says=r"(?i)stack|tensor",
                edits=(
                    Edit(old="        states = torch.stack(history)\n", new="        states = history\n"),
                    Edit(old='torch.compile(HistoryPolicy(), backend="eager")',
                         new='torch.compile(HistoryPolicy(), backend="eager", dynamic=True)'),
                    Edit(old="policy(history).sum()", new="policy(torch.stack(history)).sum()"),
                ),
                leaves=("TT221",),
            ),
        ),
    ),
    Case(
        name="train_eval",
        family="state",
        cause="control: training and evaluation take turns, which is inherent",
        program="""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def evaluate(rows):
    model.eval()
    value = compiled(rows).square().mean().item()
    model.train()
    return value


scores = []
for epoch in range(3):
    for _ in range(3):
        loss = compiled(torch.randn(6, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scores.append(evaluate(torch.randn(6, 4)))
print(f"result {scores[-1]:.5f}")
""",
        codes=(),
    ),
    Case(
        name="rollout_no_grad",
        family="state",
        cause="control: acting without and learning with gradients, one version each",
        program="""
import torch
from torch import nn


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.policy, self.value = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, observation):
        hidden = self.body(observation).tanh()
        return self.policy(hidden), self.value(hidden)


torch.manual_seed(0)
agent = ActorCritic()
compiled = torch.compile(agent, backend="aot_eager")
optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
for _ in range(4):
    observation = torch.randn(6, 4)
    with torch.no_grad():
        action = compiled(observation)[0].argmax(-1, keepdim=True)
    logits, value = compiled(observation)
    loss = -logits.log_softmax(-1).gather(1, action).mean() + value.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="autocast_for_some",
        family="state",
        cause="autocast on some calls, by step",
        program="""
import contextlib

import torch
from torch import nn


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 6), nn.Linear(4, 6)

    def forward(self, a, b):
        return (self.left(a) * self.right(b)).sum(-1)


def precision(step):
    return torch.autocast("cpu", torch.bfloat16) if step % 3 == 0 else contextlib.nullcontext()


torch.manual_seed(0)
match = torch.compile(Matcher(), backend="eager")
total = torch.zeros(())
with torch.no_grad():
    for step in range(9):
        with precision(step):
            total += match(torch.randn(3, 4), torch.randn(3, 4)).sum().float()
print(f"result {total.item():.3f}")
""",
        codes=("TT210",),
        line=("def forward(self, a, b):", "with precision(step):",
              "total += match(torch.randn(3, 4), torch.randn(3, 4)).sum().float()"),
        options=(
            Option(
                says=r"(?i)autocast",
                edits=(
                    Edit(
                        old='torch.autocast("cpu", torch.bfloat16) if step % 3 == 0 else contextlib.nullcontext()',
                        new='torch.autocast("cpu", torch.bfloat16)',
                    ),
                ),
                same_numbers=False,
            ),
        ),
    ),
    Case(
        name="thread_count",
        family="state",
        cause="a change of the number of threads recompiles",
        program="""
import torch
from torch import nn


class Reranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(6, 1)

    def forward(self, documents):
        return self.score(documents).squeeze(-1).sort(descending=True).values


def serve(rerank, requests):
    total = torch.zeros(())
    for i in range(requests):
        torch.set_num_threads(1 + i % 2)
        total += rerank(torch.randn(5, 6))[0]
    return total


torch.manual_seed(0)
with torch.no_grad():
    total = serve(torch.compile(Reranker(), backend="eager"), 8)
print(f"result {total.item():.5f}")
""",
        codes=("TT210",),
        line=(
            "def forward(self, documents):",
            "torch.set_num_threads(1 + i % 2)",
            "total += rerank(torch.randn(5, 6))[0]",
        ),
        says=r"(?i)thread",
        options=(
            Option(
                says=r"(?i)num_threads|threads once|number of threads",
                edits=(
                    Edit(old="        torch.set_num_threads(1 + i % 2)\n", new=""),
                ),
            ),
        ),
    ),
)

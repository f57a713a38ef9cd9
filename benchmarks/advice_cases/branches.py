"""Python decides on the value of a tensor: if, while, assert, raise, break."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="rollout_stop",
        family="branches",
        cause="`if done.all(): break` in a compiled rollout loop",
        program="""
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, observation=4, actions=2):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observation, 16), nn.Tanh(), nn.Linear(16, actions))

    def forward(self, state):
        return self.body(state).tanh()


def dynamics(state, action):
    return 0.9 * state + 0.3 * torch.cat([action, action], dim=-1)


@torch.compile(backend="eager")
def rollout(policy, state, horizon):
    returns = torch.zeros(state.shape[0])
    finished = torch.zeros(state.shape[0], dtype=torch.bool)
    for _ in range(horizon):
        state = dynamics(state, policy(state))
        returns = returns + torch.where(finished, 0.0, -state.square().sum(-1))
        finished = finished | (state.abs().amax(-1) < 0.4)
        if finished.all():
            break
    return returns


torch.manual_seed(3)
policy = Policy()
with torch.no_grad():
    total = sum(rollout(policy, torch.randn(5, 4), 12).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT103", "TT119"),
        line="if finished.all():",
        options=(
            Option(
                says=r"(?i)compile (only )?(the |`)?(model|policy|step|body)|loop (stays|in Python|uncompiled)",
                edits=(
                    Edit(old='@torch.compile(backend="eager")\ndef rollout', new="def rollout"),
                    Edit(old="policy = Policy()", new='policy = torch.compile(Policy(), backend="eager")'),
                ),
            ),
        ),
    ),
    Case(
        name="solver_early_return",
        family="branches",
        cause="early `return` on a tensor condition",
        program="""
from dataclasses import dataclass

import torch


@dataclass
class SolverConfig:
    tolerance: float = 1e-2
    damping: float = 0.5


class FixedPoint:
    def __init__(self, config):
        self.config = config

    @torch.compile(backend="eager")
    def update(self, weight, z, x):
        proposal = torch.tanh(z @ weight + x)
        residual = (proposal - z).norm() / (z.norm() + 1e-6)
        if residual < self.config.tolerance:
            return z
        return z + self.config.damping * (proposal - z)


torch.manual_seed(0)
solver = FixedPoint(SolverConfig())
weight, x = 0.1 * torch.randn(8, 8), torch.randn(3, 8)
z = torch.zeros(3, 8)
for _ in range(14):
    z = solver.update(weight, z, x)
print(f"result {z.sum().item():.5f}")
""",
        codes=("TT103",),
        line="if residual < self.config.tolerance:",
        options=(
            Option(
                says=r"torch\.where",
                edits=(
                    Edit(
                        old="""        if residual < self.config.tolerance:
            return z
        return z + self.config.damping * (proposal - z)
""",
                        new="""        moved = z + self.config.damping * (proposal - z)
        return torch.where(residual < self.config.tolerance, z, moved)
""",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="gradient_norm_raise",
        family="branches",
        cause="`raise` on a tensor condition",
        program="""
import torch
from torch import nn


class NonFiniteLoss(RuntimeError):
    pass


class Criterion(nn.Module):
    def __init__(self, smoothing=0.1):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, target):
        loss = nn.functional.cross_entropy(logits, target, label_smoothing=self.smoothing)
        if not torch.isfinite(loss):
            raise NonFiniteLoss("the loss is not finite, lower the learning rate")
        return loss


torch.manual_seed(0)
net = nn.Linear(6, 3)
criterion = torch.compile(Criterion(), backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    loss = criterion(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT103",),
        line="if not torch.isfinite(loss):",
        options=(
            Option(
                says=r"torch\._assert_async\(",
                edits=(
                    Edit(
                        old="""        if not torch.isfinite(loss):
            raise NonFiniteLoss("the loss is not finite, lower the learning rate")
""",
                        new="""        torch._assert_async(torch.isfinite(loss), "the loss is not finite")
""",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="padding_assert",
        family="branches",
        cause="assert with an f-string message",
        program="""
import torch
from torch import nn


class TokenEmbedding(nn.Module):
    def __init__(self, vocabulary=50, width=12):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.vocabulary = vocabulary

    def forward(self, tokens):
        assert (tokens < self.vocabulary).all(), f"token {tokens.max()} outside of {self.vocabulary}"
        return self.table(tokens).mean(dim=1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = TokenEmbedding()
        self.project = nn.Linear(12, 4)

    def forward(self, tokens):
        return self.project(self.embed(tokens))


torch.manual_seed(0)
encoder = torch.compile(Encoder(), backend="eager")
with torch.inference_mode():
    total = sum(encoder(torch.randint(0, 50, (3, 9))).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT103",),
        line='assert (tokens < self.vocabulary).all(), f"token {tokens.max()} outside of {self.vocabulary}"',
        options=(
            Option(
                says=r"torch\._assert_async\(|constant message|without (the|a) message",
                edits=(
                    Edit(
                        old="assert (tokens < self.vocabulary).all(), "
                        'f"token {tokens.max()} outside of {self.vocabulary}"',
                        new='torch._assert_async((tokens < self.vocabulary).all(), "token outside of the vocabulary")',
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="newton_while",
        family="branches",
        cause="while on a tensor",
        program="""
import torch


def residual(x, a):
    return x * x - a


@torch.compile(backend="eager")
def newton_sqrt(a, tolerance=1e-4):
    x = a.clone()
    while residual(x, a).abs().max() > tolerance:
        x = 0.5 * (x + a / x)
    return x


class Whitening:
    def __init__(self, momentum=0.1):
        self.momentum = momentum
        self.variance = torch.ones(6)

    def __call__(self, batch):
        self.variance = (1 - self.momentum) * self.variance + self.momentum * batch.var(dim=0)
        return (batch - batch.mean(dim=0)) / newton_sqrt(self.variance)


torch.manual_seed(0)
whiten = Whitening()
total = sum(whiten(3 * torch.randn(32, 6)).abs().mean() for _ in range(4))
print(f"result {total.item():.4f}")
""",
        codes=("TT103", "TT119"),
        line="while residual(x, a).abs().max() > tolerance:",
        options=(
            Option(
                says=r"(?i)fixed number|compile (only )?(the )?(body|step)|while_loop|loop (stays|in Python)",
                is_as_printed=False,
                edits=(
                    Edit(
                        old="    while residual(x, a).abs().max() > tolerance:\n",
                        new="    for _ in range(12):\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="clip_ternary",
        family="branches",
        cause="ternary on a tensor that only scales",
        program="""
import torch
from torch import nn


class GradientClipper:
    def __init__(self, max_norm=0.5):
        self.max_norm = max_norm

    def factor(self, total):
        return self.max_norm / total if total > self.max_norm else torch.ones(())

    def __call__(self, grads):
        total = torch.stack([g.norm() for g in grads]).norm()
        factor = self.factor(total)
        return [g * factor for g in grads]


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 1))
clip = torch.compile(GradientClipper(), backend="eager")
for step in range(5):
    loss = (net(torch.randn(16, 5)) * (step + 1)).square().mean()
    grads = torch.autograd.grad(loss, list(net.parameters()))
    with torch.no_grad():
        for parameter, grad in zip(net.parameters(), clip(grads)):
            parameter -= 0.1 * grad
print(f"result {loss.item():.5f}")
""",
        codes=("TT103",),
        line="return self.max_norm / total if total > self.max_norm else torch.ones(())",
        options=(
            Option(
                says=r"torch\.where|clamp",
                edits=(
                    Edit(
                        old="return self.max_norm / total if total > self.max_norm else torch.ones(())",
                        new="return torch.where(total > self.max_norm, self.max_norm / total, torch.ones(()))",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="huber_two_outcomes",
        family="branches",
        cause="if on a tensor with two assigned outcomes",
        program="""
import torch


def td_target(reward, discount, bootstrap):
    return reward + discount * bootstrap


@torch.compile(backend="eager")
def critic_loss(value, reward, bootstrap, discount=0.97):
    error = td_target(reward, discount, bootstrap) - value
    spread = error.abs().mean()
    if spread > 1.0:
        penalty = error.abs() - 0.5
    else:
        penalty = 0.5 * error.square()
    return penalty.mean()


torch.manual_seed(1)
total = torch.zeros(())
for step in range(6):
    value, bootstrap = torch.randn(10), torch.randn(10)
    total += critic_loss(value, torch.rand(10) * (step % 3), bootstrap)
print(f"result {total.item():.5f}")
""",
        codes=("TT103",),
        line="if spread > 1.0:",
        options=(
            Option(
                says=r"torch\.where",
                edits=(
                    Edit(
                        old="""    if spread > 1.0:
        penalty = error.abs() - 0.5
    else:
        penalty = 0.5 * error.square()
""",
                        new="""    penalty = torch.where(spread > 1.0, error.abs() - 0.5, 0.5 * error.square())
""",
                    ),
                ),
            ),
            Option(
                says=r"torch\.cond",
                edits=(
                    Edit(
                        old="""    if spread > 1.0:
        penalty = error.abs() - 0.5
    else:
        penalty = 0.5 * error.square()
""",
                        new="""    def linear(error):
        return error.abs() - 0.5

    def quadratic(error):
        return 0.5 * error.square()

    penalty = torch.cond(spread > 1.0, linear, quadratic, (error,))
""",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="builtin_max",
        family="branches",
        cause="control: max() builtin on tensors is traced",
        program="""
import torch
from torch import nn


class MarginHead(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.linear = nn.Linear(width, classes)
        self.floor = nn.Parameter(torch.tensor(0.2))

    def margin(self, scores):
        best, second = scores.topk(2, dim=-1).values.mean(dim=0)
        return max(best - second, self.floor)

    def forward(self, features):
        scores = self.linear(features)
        return scores.logsumexp(-1).mean() / self.margin(scores)


torch.manual_seed(0)
head = MarginHead(6, 4)
compiled = torch.compile(head, backend="aot_eager")
optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
for _ in range(5):
    loss = compiled(torch.randn(12, 6))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="skip_bad_crops",
        family="branches",
        cause="`continue` on a tensor condition in a compiled loop",
        program="""
import torch
from torch import nn


class CropScorer(nn.Module):
    def __init__(self, crops=4):
        super().__init__()
        self.crops, self.score = crops, nn.Linear(9, 1)

    def forward(self, image):
        total = torch.zeros(())
        for crop in image.unfold(1, 3, 3).unbind(1)[: self.crops]:
            if crop.std() < 0.8:
                continue
            total = total + self.score(crop.flatten()).squeeze()
        return total


torch.manual_seed(0)
scorer = torch.compile(CropScorer(), backend="eager")
with torch.no_grad():
    total = sum(scorer(torch.randn(3, 12)) for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT119", "TT103"),
        line="if crop.std() < 0.8:",
        options=(
            Option(
                says=r"torch\.where",
                edits=(
                    Edit(
                        old="""            if crop.std() < 0.8:
                continue
            total = total + self.score(crop.flatten()).squeeze()
""",
                        new="""            score = self.score(crop.flatten()).squeeze()
            total = total + torch.where(crop.std() < 0.8, 0.0, score)
""",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="assert_not_nan",
        family="branches",
        cause="`assert not` on a tensor, with a built message",
        program="""
import torch
from torch import nn


class StepCheck:
    def __init__(self, name):
        self.name = name

    def __call__(self, tensor):
        assert not torch.isnan(tensor).any(), "NaN in " + self.name + str(tensor.shape)
        return tensor


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.check = nn.Linear(4, 4), StepCheck("scale")

    def forward(self, x):
        log_scale = self.check(self.scale(x).tanh())
        return x * log_scale.exp(), log_scale.sum(-1)


torch.manual_seed(0)
flow = torch.compile(Flow(), backend="eager")
with torch.no_grad():
    total = sum(flow(torch.randn(3, 4))[1].sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT103",),
        line='assert not torch.isnan(tensor).any(), "NaN in " + self.name + str(tensor.shape)',
        options=(
            Option(
                says=r"torch\._assert_async\((~|torch\.logical_not|not )|constant message",
                edits=(
                    Edit(
                        old='assert not torch.isnan(tensor).any(), "NaN in " + self.name + str(tensor.shape)',
                        new='torch._assert_async(~torch.isnan(tensor).any(), "NaN in a tensor")',
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="rescale_large",
        family="branches",
        cause="`if` on a tensor that only scales",
        program="""
import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self, limit=2.0):
        super().__init__()
        self.project, self.limit = nn.Linear(6, 3), limit

    def forward(self, x):
        embedding = self.project(x)
        norm = embedding.norm()
        if norm > self.limit:
            embedding = embedding * (self.limit / norm)
        return embedding


torch.manual_seed(0)
model = Embedder()
embed = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = (embed(torch.randn(2, 6) * (1 + step)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT103",),
        line="if norm > self.limit:",
        options=(
            Option(
                says=r"torch\.where|clamp",
                edits=(
                    Edit(
                        old="        if norm > self.limit:\n            embedding = embedding * (self.limit / norm)\n",
                        new="        embedding = torch.where(norm > self.limit, embedding * (self.limit / norm), "
                        "embedding)\n",
                    ),
                ),
            ),
        ),
    ),
)

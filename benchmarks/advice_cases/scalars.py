"""A tensor becomes a Python number: item, float, int, tolist, numpy."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="metrics_beside_loss",
        family="scalars",
        cause=".item() for logging, returned beside the loss",
        program="""
import torch
from torch import nn


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.classify = nn.Conv2d(4, 2, 1)

    def forward(self, image, mask):
        logits = self.classify(self.stem(image).relu())
        loss = nn.functional.cross_entropy(logits, mask)
        accuracy = (logits.argmax(1) == mask).float().mean().item()
        return loss, {"accuracy": accuracy}


torch.manual_seed(0)
model = Segmenter()
step = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []
for _ in range(5):
    loss, metrics = step(torch.randn(2, 3, 6, 6), torch.randint(0, 2, (2, 6, 6)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(float(metrics["accuracy"]))
print(f"result {loss.item() + sum(history):.5f}")
""",
        codes=("TT104",),
        line="accuracy = (logits.argmax(1) == mask).float().mean().item()",
        options=(
            Option(
                says=r"(?i)detach|return (the|a) tensor|keep .* a? ?tensor|outside|after the (call|step)",
                edits=(Edit(old=".float().mean().item()", new=".float().mean().detach()"),),
            ),
            Option(
                says=r"capture_scalar_outputs",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.capture_scalar_outputs = True\ntorch.manual_seed(0)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="loss_balance_item",
        family="scalars",
        cause=".item() as a multiplier that also cuts the gradient",
        program="""
import torch
from torch import nn


class TwoTaskModel(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.trunk = nn.Linear(8, width)
        self.depth, self.normal = nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, x):
        hidden = self.trunk(x).relu()
        return self.depth(hidden), self.normal(hidden)


def balanced(model, x, depth, normal):
    predicted_depth, predicted_normal = model(x)
    depth_loss = (predicted_depth - depth).square().mean()
    normal_loss = (predicted_normal - normal).abs().mean()
    ratio = (depth_loss / normal_loss).item()
    return depth_loss + ratio * normal_loss


torch.manual_seed(0)
model = TwoTaskModel()
criterion = torch.compile(balanced, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for _ in range(8):
    loss = criterion(model, torch.randn(6, 8), torch.randn(6, 1), torch.randn(6, 3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT104",),
        line="ratio = (depth_loss / normal_loss).item()",
        options=(
            Option(
                says=r"detach",
                edits=(Edit(old="(depth_loss / normal_loss).item()", new="(depth_loss / normal_loss).detach()"),),
            ),
        ),
    ),
    Case(
        name="ema_float",
        family="scalars",
        cause="float(t) used in tensor arithmetic",
        program="""
import torch
from torch import nn


class RunningScale(nn.Module):
    def __init__(self, decay=0.95):
        super().__init__()
        self.decay = decay
        self.register_buffer("scale", torch.ones(()))

    def forward(self, advantages):
        spread = float(advantages.quantile(0.95) - advantages.quantile(0.05))
        self.scale.mul_(self.decay).add_((1 - self.decay) * spread)
        return advantages / self.scale.clamp(min=1.0)


torch.manual_seed(0)
normalise = torch.compile(RunningScale(), backend="eager")
total = torch.zeros(())
with torch.no_grad():
    for step in range(6):
        total += normalise(torch.randn(40) * (1 + step)).abs().mean()
print(f"result {total.item():.5f}")
""",
        codes=("TT104",),
        line="spread = float(advantages.quantile(0.95) - advantages.quantile(0.05))",
        options=(
            Option(
                says=r"(?i)keep .* tensor|without float\(|drop .*float|instead of .*float\(|detach",
                edits=(
                    Edit(
                        old="float(advantages.quantile(0.95) - advantages.quantile(0.05))",
                        new="advantages.quantile(0.95) - advantages.quantile(0.05)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="crop_to_longest",
        family="scalars",
        cause="int(t) as a slice bound",
        program="""
import torch
from torch import nn


class Pooler(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.query = nn.Linear(width, 1)

    def forward(self, hidden, lengths):
        longest = int(lengths.max())
        hidden = hidden[:, :longest]
        padding = torch.arange(hidden.shape[1]) >= lengths[:, None]
        weights = self.query(hidden).squeeze(-1).masked_fill(padding, -1e9).softmax(-1)
        return (weights[..., None] * hidden).sum(dim=1)


torch.manual_seed(0)
pool = torch.compile(Pooler(), backend="eager")
with torch.no_grad():
    total = torch.zeros(())
    for high in (5, 7, 9, 6, 8, 10):
        lengths = torch.randint(3, high, (4,))
        total += pool(torch.randn(4, 12, 6), lengths).sum()
print(f"result {total.item():.5f}")
""",
        codes=("TT104",),
        line="longest = int(lengths.max())",
        options=(
            Option(
                says=r"(?i)mask|before the (compiled )?call|outside|caller|argument",
                is_as_printed=False,
                edits=(
                    Edit(old="        longest = int(lengths.max())\n        hidden = hidden[:, :longest]\n", new=""),
                ),
            ),
        ),
    ),
    Case(
        name="bucket_tolist",
        family="scalars",
        cause="loop over t.tolist()",
        program="""
import torch
from torch import nn


class ExpertMixture(nn.Module):
    def __init__(self, experts=3, width=5):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, tokens, assignment):
        rows = []
        for token, expert in zip(tokens, assignment.tolist()):
            rows.append(self.experts[expert](token))
        return torch.stack(rows)


torch.manual_seed(0)
mixture = torch.compile(ExpertMixture(), backend="eager")
with torch.no_grad():
    total = sum(mixture(torch.randn(4, 5), torch.randint(0, 3, (4,))).sum() for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT104",),
        line="for token, expert in zip(tokens, assignment.tolist()):",
        never=r"capture_scalar_outputs",
        options=(
            Option(
                says=r"(?i)compile the body of the loop|torch\.stack|gather|one_hot|every expert",
                is_as_printed=False,
                edits=(
                    Edit(
                        old="""        rows = []
        for token, expert in zip(tokens, assignment.tolist()):
            rows.append(self.experts[expert](token))
        return torch.stack(rows)
""",
                        new="""        every = torch.stack([expert(tokens) for expert in self.experts], dim=1)
        return every[torch.arange(tokens.shape[0]), assignment]
""",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="reward_to_numpy",
        family="scalars",
        cause="control: .numpy() and NumPy functions that torch traces",
        program="""
import numpy as np
import torch


def discount(rewards, gamma):
    kernel = gamma ** np.arange(rewards.shape[0])
    flipped = np.convolve(rewards[::-1], kernel)[: rewards.shape[0]]
    return flipped[::-1].copy()


@torch.compile(backend="eager")
def policy_loss(log_probs, rewards):
    returns = torch.from_numpy(discount(rewards.numpy(), 0.9)).float()
    returns = (returns - returns.mean()) / (returns.std() + 1e-5)
    return -(log_probs * returns).sum()


torch.manual_seed(0)
total = sum(policy_loss(torch.randn(7).log_softmax(-1), torch.rand(7)) for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="count_from_mask",
        family="scalars",
        cause="length from mask.sum().item(), used in a division",
        program="""
import torch
from torch import nn


class MaskedLM(nn.Module):
    def __init__(self, vocabulary=20, width=8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, vocabulary)

    def loss(self, tokens, mask):
        logits = self.head(self.embed(tokens.masked_fill(mask, 0)))
        per_token = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none")
        num_masked = mask.sum().item()
        return (per_token * mask.flatten()).sum() / max(num_masked, 1)


torch.manual_seed(0)
model = MaskedLM()
loss_of = torch.compile(model.loss, backend="aot_eager")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(6):
    loss = loss_of(torch.randint(1, 20, (3, 7)), torch.rand(3, 7) < 0.4)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT104",),
        line="num_masked = mask.sum().item()",
        options=(
            Option(
                says=r"(?i)keep .* tensor|clamp|detach",
                edits=(
                    Edit(old="mask.sum().item()", new="mask.sum()"),
                    Edit(old="max(num_masked, 1)", new="num_masked.clamp(min=1)"),
                ),
            ),
            Option(
                says=r"capture_scalar_outputs",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.capture_scalar_outputs = True\ntorch.manual_seed(0)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="learned_beta_property",
        family="scalars",
        cause="a property with .item(), which cuts the gradient",
        program="""
import torch
from torch import nn


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(()))
        self.mean = nn.Linear(3, 2)

    @property
    def std(self):
        return self.log_std.exp().item()

    def forward(self, state, action):
        distance = (action - self.mean(state)) / self.std
        return 0.5 * distance.square().sum(-1).mean()


torch.manual_seed(0)
policy = Gaussian()
surprise = torch.compile(policy, backend="aot_eager")
optimizer = torch.optim.SGD(policy.mean.parameters(), lr=0.1)
for step in range(5):
    loss = surprise(torch.randn(4, 3), torch.randn(4, 2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    policy.log_std.data.add_(0.05)
print(f"result {loss.item():.5f}")
""",
        codes=("TT104", "TT119"),
        line="return self.log_std.exp().item()",
        options=(
            Option(
                says=r"detach",
                edits=(Edit(old="self.log_std.exp().item()", new="self.log_std.exp().detach()"),),
            ),
        ),
    ),
)

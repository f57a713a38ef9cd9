"""Gradients, optimizers and hooks inside of compiled code."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="backward_in_step",
        family="autograd",
        cause="backward() inside of the compiled function",
        program="""
import torch
from torch import nn


class Regressor:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    @torch.compile(backend="aot_eager")
    def accumulate(self, x, y):
        loss = nn.functional.mse_loss(self.net(x), y)
        loss.backward()
        return loss.detach()

    def fit(self, batches):
        for x, y in batches:
            self.optimizer.zero_grad()
            loss = self.accumulate(x, y)
            self.optimizer.step()
        return loss


torch.manual_seed(0)
loss = Regressor().fit([(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(5)])
print(f"result {loss.item():.5f}")
""",
        codes=("TT109",),
        line="loss.backward()",
        options=(
            Option(
                says=r"(?i)outside|after|compile (only )?the (forward|loss|model)",
                edits=(
                    Edit(old="        loss.backward()\n        return loss.detach()\n", new="        return loss\n"),
                    Edit(
                        old="            loss = self.accumulate(x, y)\n",
                        new="            loss = self.accumulate(x, y)\n            loss.backward()\n",
                    ),
                ),
            ),
            Option(
                says=r"trace_autograd_ops|compiled_autograd",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.trace_autograd_ops = True\ntorch.manual_seed(0)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="train_step_in_one",
        family="autograd",
        cause="zero_grad, backward and step in one compiled train_step",
        program="""
import torch
from torch import nn


def make_train_step(model, optimizer, criterion):
    @torch.compile(backend="aot_eager")
    def train_step(inputs, targets):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train_step


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
train_step = make_train_step(model, optimizer, nn.CrossEntropyLoss())
for _ in range(5):
    loss = train_step(torch.randn(10, 6), torch.randint(0, 3, (10,)))
print(f"result {loss.item():.5f}")
""",
        codes=("TT109", "TT118"),
        line=("optimizer.zero_grad()", "loss.backward()", "optimizer.step()"),
        never="trace_autograd_ops",
        options=(
            Option(
                says=r"(?i)compile (only )?(the |`)?(forward|loss|model)|outside",
                edits=(
                    Edit(old='    @torch.compile(backend="aot_eager")\n', new=""),
                    Edit(
                        old="train_step = make_train_step(model, optimizer, nn.CrossEntropyLoss())",
                        new='compiled = torch.compile(model, backend="aot_eager")\n'
                        "train_step = make_train_step(compiled, optimizer, nn.CrossEntropyLoss())",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="optimizer_step_in_update",
        family="autograd",
        cause="optimizer.step inside of a compiled update with other work",
        program="""
import torch
from torch import nn


class MovingAverage:
    def __init__(self, model, optimizer, decay=0.9):
        self.model, self.optimizer, self.decay = model, optimizer, decay
        self.shadow = [p.detach().clone() for p in model.parameters()]

    def update(self):
        self.optimizer.step()
        with torch.no_grad():
            for shadow, parameter in zip(self.shadow, self.model.parameters()):
                shadow.lerp_(parameter, 1 - self.decay)


torch.manual_seed(0)
model = nn.Linear(5, 2)
average = MovingAverage(model, torch.optim.SGD(model.parameters(), lr=0.1))
update = torch.compile(average.update, backend="eager")
for _ in range(6):
    model.zero_grad()
    model(torch.randn(7, 5)).square().mean().backward()
    update()
print(f"result {sum(s.sum() for s in average.shadow).item():.5f}")
""",
        codes=("TT118",),
        line="self.optimizer.step()",
        options=(
            Option(
                says=r"(?i)outside|before|by itself|on its own|separately|torch\.compile\((self\.)?opt",
                edits=(
                    Edit(
                        old="        self.optimizer.step()\n        with torch.no_grad():",
                        new="        with torch.no_grad():",
                    ),
                    Edit(old="    update()\n", new="    average.optimizer.step()\n    update()\n"),
                ),
            ),
        ),
    ),
    Case(
        name="gradient_penalty_grad",
        family="autograd",
        cause="torch.autograd.grad inside of the compiled function",
        program="""
import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 1))

    def forward(self, sample):
        return self.net(sample)


def penalty(critic, real, fake, share):
    mixed = (share * real + (1 - share) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return (slope.norm(dim=-1) - 1).square().mean()


torch.manual_seed(0)
critic = Critic()
gradient_penalty = torch.compile(penalty, backend="eager")
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
for _ in range(4):
    loss = gradient_penalty(critic, torch.randn(6, 3), torch.randn(6, 3), torch.rand(6, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT109", "TT110"),
        line=(
            "(slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)",
            "mixed = (share * real + (1 - share) * fake).requires_grad_()",
        ),
        never=r"trace_autograd_ops",
        options=(
            Option(
                says=r"(?i)outside|compile (only )?(the )?(critic|model|forward)|torch\.func\.grad",
                edits=(
                    Edit(old="critic = Critic()\n", new='critic = torch.compile(Critic(), backend="eager")\n'),
                    Edit(old='torch.compile(penalty, backend="eager")', new="penalty"),
                ),
            ),
        ),
    ),
    Case(
        name="saliency_requires_grad",
        family="autograd",
        cause="requires_grad_() on an input inside of the compiled function",
        program="""
import torch
from torch import nn


class Saliency:
    def __init__(self, classifier):
        self.classifier = classifier
        self.score = torch.compile(self._score, backend="eager")

    def _score(self, image):
        image.requires_grad_(True)
        return self.classifier(image).max(dim=-1).values.sum()

    def __call__(self, image):
        self.score(image).backward()
        return image.grad.abs().sum()


torch.manual_seed(0)
saliency = Saliency(nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.GELU(), nn.Linear(6, 3)))
total = sum(saliency(torch.randn(2, 3, 4)) for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT110",),
        line="image.requires_grad_(True)",
        options=(
            Option(
                says=r"(?i)before",
                edits=(
                    Edit(old="        image.requires_grad_(True)\n        return self", new="        return self"),
                    Edit(
                        old="        self.score(image).backward()",
                        new="        image.requires_grad_(True)\n        self.score(image).backward()",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="activation_hook_inside",
        family="autograd",
        cause="a tensor hook registered inside, which fills a list",
        program="""
import torch
from torch import nn


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 1)
        self.norms = []

    def forward(self, x):
        hidden = self.first(x).tanh()
        hidden.register_hook(lambda grad: self.norms.append(grad.norm()))
        return self.second(hidden).mean()


torch.manual_seed(0)
probe = Probe()
compiled = torch.compile(probe, backend="eager")
optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
for _ in range(4):
    loss = compiled(torch.randn(5, 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT116",),
        line="hidden.register_hook(lambda grad: self.norms.append(grad.norm()))",
        options=(
            Option(
                says=r"(?i)before|outside|return|uncompiled|remove",
                edits=(
                    Edit(
                        old="        hidden.register_hook(lambda grad: self.norms.append(grad.norm()))\n"
                        "        return self.second(hidden).mean()\n",
                        new="        return self.second(hidden).mean(), hidden\n",
                    ),
                    Edit(
                        old="    loss = compiled(torch.randn(5, 4))\n",
                        new="    loss, hidden = compiled(torch.randn(5, 4))\n"
                        "    hidden.register_hook(lambda grad: probe.norms.append(grad.norm()))\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="quantizer_item",
        family="autograd",
        cause=".item() inside of an autograd.Function",
        program="""
import torch
from torch import nn


class Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, levels):
        step = weight.abs().max().item() / levels
        return (weight / step).round() * step

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class QuantLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, Quantize.apply(self.weight, 7), self.bias)


torch.manual_seed(0)
model = nn.Sequential(QuantLinear(6, 8), nn.ReLU(), QuantLinear(8, 2))
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(4):
    loss = compiled(torch.randn(5, 6)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT104", "TT121", "TT119"),
        line="step = weight.abs().max().item() / levels",
        never=r"capture_scalar_outputs",
        options=(
            Option(
                says=r"(?i)keep .* tensor|detach|without .*item",
                edits=(
                    Edit(old="weight.abs().max().item() / levels", new="weight.abs().max() / levels"),
                ),
            ),
        ),
    ),
    Case(
        name="checkpointed_print",
        family="autograd",
        cause="a checkpointed block that breaks",
        program="""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def mlp(self, x):
        hidden = self.inner(x).relu()
        fired = (hidden > 0).float().mean().item()
        return self.outer(hidden) * (1 + 0 * fired)

    def forward(self, x):
        return x + checkpoint(self.mlp, x, use_reentrant=False)


torch.manual_seed(0)
model = nn.Sequential(Block(), Block())
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(3):
    loss = compiled(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT104", "TT119", "TT122", "TT123"),
        line="fired = (hidden > 0).float().mean().item()",
        options=(
            Option(
                says=r"(?i)keep .* tensor|detach",
                edits=(
                    Edit(old="(hidden > 0).float().mean().item()", new="(hidden > 0).float().mean().detach()"),
                ),
            ),
        ),
    ),
)

"""A regression in 16 bits with GradScaler, value learning with a target network, the tuning of a trained network."""

from fault_cases.variant import COMPILED, Program

MIXED = Program(
    "mixed",
    """\
import torch
from torch import nn

torch.manual_seed(SEED)
weights = torch.randn(10)

def batch(n=32):
    x = torch.randn(n, 10)
    return x, ((x @ weights).sin() + 0.1 * torch.randn(n)).unsqueeze(1)

model = nn.Sequential(nn.Linear(10, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 1))
forward = model
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(1, 251):
    x, y = batch()
    with torch.autocast("cpu", torch.float16):
        prediction = forward(x)
    loss = (prediction.float() - y).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    scaler.step(optimizer)
    scaler.update()
""",
)
UNSCALE, CLIP = "    scaler.unscale_(optimizer)\n", "    nn.utils.clip_grad_norm_(model.parameters(), 5.0)\n"
SCALED = "    scaler.scale(loss).backward()\n" + UNSCALE + CLIP + "    scaler.step(optimizer)\n    scaler.update()\n"
PLAIN = "    loss.backward()\n    optimizer.step()\n"
MIXED.healthy("bfloat16 without a scaler", ("torch.float16", "torch.bfloat16"), (SCALED, PLAIN))
MIXED.healthy("not clipped", (UNSCALE + CLIP, ""))
MIXED.healthy("compiled", COMPILED)
MIXED.healthy("a scale that is found first", ("1024.0", "2.0 ** 40"))
MIXED.fault("it clips scaled gradients", "TT428", (UNSCALE + CLIP, CLIP), contract=True)
MIXED.fault("it clips scaled gradients, compiled", "TT428", (UNSCALE + CLIP, CLIP), COMPILED, contract=True)
MIXED.fault("targets of another shape", "TT432", (".unsqueeze(1)", ""), contract=True)
MIXED.fault("targets of another shape, compiled", "TT432", (".unsqueeze(1)", ""), COMPILED, contract=True)
MIXED.fault(
    "gradients that underflow in float16",
    "TT419 TT405 TT406",
    ("forward = model\n", "model.half()\nforward = model\n"),
    ("prediction = forward(x)", "prediction = forward(x.half())"),
    (SCALED, "    (1e-6 * loss).backward()\n    optimizer.step()\n"),
)
MIXED.fault(
    "a loss that overflows in float16",
    "TT401",
    ("prediction = forward(x)", "prediction = (1e6 * forward(x)) / 1e6"),
)
MIXED.fault(
    "the scaler is left out of the step",
    "TT404 TT408 TT401 TT434 TT418",
    (SCALED, "    scaler.scale(loss).backward()\n    optimizer.step()\n"),
)
MIXED.fault("targets x 10,000", "TT404 TT408 TT418 TT434", ("return x, (", "return x, 1e4 * ("))
MIXED.fault(
    "one target of a million",
    "TT414 TT404",
    ("    x, y = batch()\n", "    x, y = batch()\n    y[0] *= 1e6 if step == 177 else 1\n"),
    step=177,
)
MIXED.fault("targets that are noise", "TT415 TT440", ("(x @ weights).sin()", "torch.randn(n)"))

VALUES = Program(
    "dqn",
    """\
import copy
import torch
from torch import nn

torch.manual_seed(SEED)
model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
target = copy.deepcopy(model)
forward = model
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

def transitions(n=32):
    state, action = torch.randint(0, 11, (n,)), torch.randint(0, 2, (n,))
    following = (state + 2 * action - 1).clamp(0, 11)
    return state, action, (following == 11).float(), following

for step in range(1, 401):
    state, action, reward, following = transitions()
    with torch.no_grad():
        wanted = reward + 0.9 * (reward == 0) * target(following).max(-1).values
    value = forward(state).gather(1, action[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(value, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        target.load_state_dict(model.state_dict())
""",
)
SYNC = "    if step % 40 == 0:\n        target.load_state_dict(model.state_dict())\n"
VALUES.healthy(
    "a slow average",
    (
        SYNC,
        "    with torch.no_grad():\n        for a, b in zip(target.parameters(), "
        "model.parameters()):\n            a.lerp_(b, 0.02)\n",
    ),
)
VALUES.healthy(
    "a frozen reference",
    ("target(following)", "model(following)"),
    (SYNC, ""),
    ("target = copy", "reference = copy"),
    ("value, wanted)", "value, wanted) + 1e-3 * (value - reference(state).detach().mean()).square().mean()"),
)
VALUES.fault("the target network is never updated", "TT430", (SYNC, ""), step=40, contract=True)
VALUES.fault("the target network is never updated, compiled", "TT430", (SYNC, ""), COMPILED, step=40, contract=True)
VALUES.fault(
    "the target network is in the graph",
    "TT420",
    ("    with torch.no_grad():\n        wanted", "    if True:\n        wanted"),
    contract=True,
)
VALUES.fault(
    "the optimizer has the target network",
    "TT420 TT421",
    ("Adam(model.parameters()", "Adam(target.parameters()"),
    contract=True,
)
VALUES.fault("a discount above one", "TT434", ("0.9 * (reward == 0)", "1.3 * (1 + reward)"))
VALUES.fault(
    "actions are broadcast",
    "TT432",
    (".gather(1, action[:, None]).squeeze(1)", ".gather(1, action[:, None])"),
    ("nn.functional.smooth_l1_loss(value, wanted)", "(value - wanted).square().mean()"),
    contract=True,
)
VALUES.fault(
    "states that are all the same",
    "TT415 TT440",
    ("forward(state)", "forward(state * 0)"),
    ("wanted = reward", "wanted = torch.randn(32) + reward"),
)
VALUES.fault(
    "the average copies the wrong way",
    "TT430",
    (
        SYNC,
        "    with torch.no_grad():\n        for a, b in zip(target.parameters(), "
        "model.parameters()):\n            b.lerp_(a, 0.02)\n",
    ),
)

TUNING = Program(
    "tuning",
    """\
import torch
from torch import nn

torch.manual_seed(SEED)

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, num_classes)

    def forward(self, x):
        return self.head(self.backbone(x))

centres = torch.randn(4, 12)

def batch(n=32):
    y = torch.randint(0, 4, (n,))
    return centres[y] + 0.5 * torch.randn(n, 12), y

trained = Net(10)
checkpoint = trained.state_dict()
model = Net(10)
model.load_state_dict(checkpoint)
model.backbone.requires_grad_(False)
model.head = nn.Linear(32, 4)
forward = model
optimizer = torch.optim.AdamW(model.head.parameters(), lr=5e-3)
for step in range(1, 251):
    model.train()
    model.backbone.eval()
    x, y = batch()
    loss = nn.functional.cross_entropy(forward(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
)
FREEZE = "model.backbone.requires_grad_(False)\n"
ADAMW = "torch.optim.AdamW(model.head.parameters(), lr=5e-3)"
NEW_HEAD = "model.head = nn.Linear(32, 4)\n"
TUNING.healthy(
    "all of it", (FREEZE, ""), ("model.head.parameters()", "model.parameters()"), ("    model.backbone.eval()\n", "")
)
TUNING.healthy("frozen parameters in the optimizer", ("model.head.parameters()", "model.parameters()"))
TUNING.healthy(
    "a checkpoint without the head",
    (
        "load_state_dict(checkpoint)",
        "load_state_dict({k: v for k, v in checkpoint.items() if 'backbone' in k}, strict=False)",
    ),
)
TUNING.healthy(
    "two learning rates",
    (FREEZE, ""),
    (
        ADAMW,
        "torch.optim.AdamW([{'params': model.backbone.parameters(), "
        "'lr': 1e-5}, {'params': model.head.parameters()}], lr=5e-3)",
    ),
)
TUNING.fault(
    "a checkpoint with another prefix",
    "TT441",
    (
        "load_state_dict(checkpoint)",
        "load_state_dict({f'module.{k}': v for k, v in checkpoint.items()}, strict=False)",
    ),
    contract=True,
)
TUNING.fault(
    "the new head comes after the optimizer",
    "TT420",
    (NEW_HEAD, ""),
    ("for step in range", NEW_HEAD + "for step in range"),
    contract=True,
)
TUNING.fault(
    "the old head is still used",
    "TT421",
    (NEW_HEAD, "model.new_head = nn.Linear(32, 4)\n"),
    ("model.head.parameters()", "[*model.new_head.parameters(), *model.backbone[3].parameters()]"),
    (FREEZE, ""),
    contract=True,
)
TUNING.fault(
    "all of it in eval mode",
    "TT424",
    (FREEZE, ""),
    ("model.head.parameters()", "model.parameters()"),
    ("    model.train()\n    model.backbone.eval()\n", "    model.eval()\n"),
    contract=True,
)
TUNING.fault(
    "the head is frozen instead of the backbone",
    "none",
    (FREEZE + NEW_HEAD, NEW_HEAD + "model.head.requires_grad_(False)\n"),
    ("model.head.parameters()", "model.parameters()"),
    ("    model.backbone.eval()\n", ""),
)
TUNING.fault(
    "gradients are cleared before the step",
    "TT427",
    ("    optimizer.zero_grad()\n    loss.backward()\n", "    loss.backward()\n    optimizer.zero_grad()\n"),
    contract=True,
)
TUNING.fault("a learning rate of 1e-12", "TT409 TT435", ("lr=5e-3", "lr=1e-12"))

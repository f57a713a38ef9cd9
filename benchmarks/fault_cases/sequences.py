"""An LSTM that adds up a sequence, and a hand-written recurrent cell: Adam."""

from fault_cases.variant import COMPILED, Program

PROGRAM = Program(
    "rnn",
    """\
import torch
from torch import nn

torch.manual_seed(SEED)

def batch(n=32, length=12):
    x = torch.randn(n, length, 1)
    return x, x.sum(1).sign().clamp(min=0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 24, batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.head(out[:, -1])

class Cell(nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.inner, self.outer = nn.Linear(24, 24), nn.Linear(1, 24)
        self.head = nn.Linear(24, 1)
        nn.init.orthogonal_(self.inner.weight, gain)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 24)
        for t in range(x.shape[1]):
            h = torch.tanh(self.inner(h) + self.outer(x[:, t]))
        return self.head(h)

model = Net()
forward = model
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(1, 251):
    x, y = batch()
    loss = nn.functional.binary_cross_entropy_with_logits(forward(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
)

ADAM = "torch.optim.Adam(model.parameters(), lr=3e-3)"
CLEAR = "    optimizer.zero_grad()\n"
CELL = ("model = Net()\n", "model = Cell(1.0)\n")

PROGRAM.healthy("a hand-written cell", CELL)
PROGRAM.healthy("lengths that vary", ("    x, y = batch()\n", "    x, y = batch(length=4 + step % 12)\n"))
PROGRAM.healthy(
    "RMSprop and clipping",
    (ADAM, "torch.optim.RMSprop(model.parameters(), lr=1e-3)"),
    ("    optimizer.step()\n", "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()\n"),
)

PROGRAM.fault(
    "gradients are cleared every ten steps", "TT422", (CLEAR, f"    if step % 10 == 0:\n    {CLEAR}"), contract=True
)
PROGRAM.fault(
    "a linear cell that grows",
    "TT404 TT418 TT401 TT408",
    ("model = Net()\n", "model = Cell(3.0)\n"),
    ("torch.tanh(self.inner(h) + self.outer(x[:, t]))", "self.inner(h) + self.outer(x[:, t])"),
    ("length=12", "length=40"),
)
PROGRAM.fault(
    "sigmoids that let nothing through",
    "TT405",
    ("model = Net()\n", "model = Cell(0.1)\n"),
    (
        "torch.tanh(self.inner(h) + self.outer(x[:, t]))",
        "torch.sigmoid(self.inner(h) + self.outer(x[:, t] * (t == 0)))",
    ),
)
PROGRAM.fault(
    "the state is detached in each step",
    "none",
    CELL,
    ("h = torch.tanh(self.inner(h)", "h = torch.tanh(self.inner(h.detach())"),
)
PROGRAM.fault(
    "the head is not trained", "TT420", (ADAM, "torch.optim.Adam(model.lstm.parameters(), lr=3e-3)"), contract=True
)
PROGRAM.fault(
    "a group with a learning rate of 0",
    "TT425 TT416",
    (
        ADAM,
        "torch.optim.Adam([{'params': model.lstm.parameters(), 'lr': 0.0}, "
        "{'params': model.head.parameters()}], lr=3e-3)",
    ),
    contract=True,
)
PROGRAM.fault(
    "a sigmoid before the loss with logits",
    "TT431",
    ("self.head(out[:, -1])", "self.head(out[:, -1]).sigmoid()"),
    contract=True,
)
PROGRAM.fault(
    "backward of a detached copy of the loss",
    "TT421 TT427",
    ("    loss.backward()\n", "    (loss.detach() * model.head.bias.sum() * 0 + model.head.bias.sum()).backward()\n"),
    contract=True,
)
PROGRAM.fault(
    "the square root of zero",
    "TT402 TT401 TT403",
    (
        "    optimizer.zero_grad()\n",
        "    loss = loss + (torch.sqrt((forward(x) * (step < 143)).abs().sum()))\n    optimizer.zero_grad()\n",
    ),
    step=143,
)
PROGRAM.fault(
    "an optimizer of a copy",
    "TT420 TT421",
    (ADAM, "torch.optim.Adam(__import__('copy').deepcopy(model).parameters(), lr=3e-3)"),
    contract=True,
)
PROGRAM.fault(
    "an optimizer of a copy, compiled",
    "TT420 TT421",
    CELL,
    (ADAM, "torch.optim.Adam(__import__('copy').deepcopy(model).parameters(), lr=3e-3)"),
    COMPILED,
    contract=True,
)

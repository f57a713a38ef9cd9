"""An MLP that classifies points around five centres: Adam, dropout, an evaluation every 50 steps."""

from fault_cases.variant import COMPILED, Program

PROGRAM = Program(
    "mlp",
    """\
import torch
from torch import nn

torch.manual_seed(SEED)
centres = torch.randn(5, 16)

def batch(n=32):
    y = torch.randint(0, 5, (n,))
    return centres[y] + torch.randn(n, 16), y

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.body(x))

model = Net()
forward = model
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for step in range(1, 301):
    model.train()
    x, y = batch()
    optimizer.zero_grad()
    loss = criterion(forward(x), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        model.eval()
        with torch.no_grad():
            x, y = batch(128)
            accuracy = (model(x).argmax(-1) == y).float().mean()
""",
)

ADAM = "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)\n"
CLEAR = "    optimizer.zero_grad()\n"
UPDATE = "    loss.backward()\n    optimizer.step()\n"
BATCH = "    x, y = batch()\n"

PROGRAM.healthy("compiled", COMPILED)
PROGRAM.healthy("clears after the step", (CLEAR, ""), (UPDATE, f"{UPDATE}{CLEAR}"))
PROGRAM.healthy(
    "AdamW with weight decay", (ADAM, ADAM.replace("Adam(", "AdamW(").replace("lr=", "weight_decay=0.1, lr="))
)
PROGRAM.healthy(
    "accumulates four batches",
    (CLEAR, ""),
    (
        UPDATE,
        "    (loss / 4).backward()\n    if step % 4 == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n",
    ),
)
PROGRAM.healthy("a curriculum", (BATCH, "    x, y = batch()\n    x = x * (1 if step < 150 else 3)\n"))
PROGRAM.healthy("batches of two", (BATCH, "    x, y = batch(2)\n"))
PROGRAM.healthy(
    "converges to nothing",
    ("centres[y] + torch.randn(n, 16)", "4 * centres[y] + 0.1 * torch.randn(n, 16)"),
    ("range(1, 301)", "range(1, 1001)"),
    ("lr=1e-3", "lr=1e-2"),
)
PROGRAM.healthy(
    "an unused auxiliary layer",
    (
        "        self.head = nn.Linear(32, 5)\n",
        "        self.head = nn.Linear(32, 5)\n        self.other = nn.Linear(32, 7)\n",
    ),
)

PROGRAM.fault("gradients are never cleared", "TT422", (CLEAR, ""), contract=True)
PROGRAM.fault("gradients are never cleared, compiled", "TT422", (CLEAR, ""), COMPILED, contract=True)
PROGRAM.fault(
    "gradients are cleared before the step",
    "TT427",
    (CLEAR, ""),
    (UPDATE, "    loss.backward()\n    optimizer.zero_grad()\n    optimizer.step()\n"),
    contract=True,
)
PROGRAM.fault(
    "gradients are zeroed before the step",
    "TT427",
    (CLEAR, ""),
    (UPDATE, "    loss.backward()\n    optimizer.zero_grad(set_to_none=False)\n    optimizer.step()\n"),
    contract=True,
)
PROGRAM.fault(
    "a new head after the optimizer", "TT420", (ADAM, f"{ADAM}model.head = nn.Linear(32, 5)\n"), contract=True
)
PROGRAM.fault(
    "a new head after the optimizer, compiled",
    "TT420",
    (ADAM, f"{ADAM}model.head = nn.Linear(32, 5)\n"),
    COMPILED,
    contract=True,
)
PROGRAM.fault(
    "softmax before the cross-entropy",
    "TT431",
    ("self.head(self.body(x))", "self.head(self.body(x)).softmax(-1)"),
    contract=True,
)
PROGRAM.fault(
    "a log-softmax before the cross-entropy, compiled",
    "none",
    ("self.head(self.body(x))", "self.head(self.body(x)).softmax(-1)"),
    COMPILED,
)
PROGRAM.fault("the learning rate x 1000", "TT408", ("lr=1e-3", "lr=1.0"))
PROGRAM.fault("the learning rate x 1000, compiled", "TT408", ("lr=1e-3", "lr=1.0"), COMPILED)
PROGRAM.fault(
    "the body is detached", "TT421", ("self.head(self.body(x))", "self.head(self.body(x).detach())"), contract=True
)
PROGRAM.fault(
    "eval mode instead of training mode", "TT424", ("    model.train()\n", "    model.eval()\n"), contract=True
)
PROGRAM.fault("eval mode after the first evaluation", "TT424", ("    model.train()\n", ""), step=51, contract=True)
PROGRAM.fault("the learning rate is 0", "TT425", ("lr=1e-3", "lr=0.0"), contract=True)
PROGRAM.fault(
    "labels that have nothing to do with the inputs",
    "TT415 TT440",
    ("centres[y] + torch.randn(n, 16), y", "centres[y] + torch.randn(n, 16), torch.randint(0, 5, (n,))"),
)
PROGRAM.fault(
    "one batch with inputs x 10,000",
    "TT414 TT404",
    (BATCH, "    x, y = batch()\n    x = x * (10_000 if step == 157 else 1)\n"),
    step=157,
)
PROGRAM.fault("a new optimizer in every step", "TT423", (CLEAR, f"    {ADAM}{CLEAR}"), contract=True)
PROGRAM.fault(
    "the logarithm of a negative number",
    "TT401",
    (UPDATE, "    loss = loss + torch.log(loss.detach() - (step == 203) * 100)\n" + UPDATE),
    step=203,
    contract=True,
)
PROGRAM.fault("it maximizes the loss", "TT434", ("lr=1e-3)", "lr=1e-3, maximize=True)"))
PROGRAM.fault(
    "weight decay 10",
    "TT426",
    (ADAM, ADAM.replace("Adam(", "AdamW(").replace("lr=", "weight_decay=10.0, lr=")),
    contract=True,
)
PROGRAM.fault(
    "units that are always off",
    "TT406",
    ("forward = model\n", "nn.init.constant_(model.body[0].bias, -100.0)\nforward = model\n"),
)
PROGRAM.fault(
    "all weights begin at zero",
    "TT406",
    ("forward = model\n", "for p in model.parameters():\n    nn.init.zeros_(p)\nforward = model\n"),
)
PROGRAM.fault(
    "weights that begin a hundred times too large",
    "TT404 TT408 TT418 TT442",
    ("forward = model\n", "for p in model.parameters():\n    p.data *= 100\nforward = model\n"),
)
PROGRAM.fault(
    "bfloat16 weights that lose their updates",
    "TT435 TT416 TT409",
    ("forward = model\n", "model.bfloat16()\nforward = model\n"),
    ("forward(x)", "forward(x.bfloat16())"),
    ("(model(x)", "(model(x.bfloat16())"),
    ("lr=1e-3", "lr=1e-5"),
    contract=True,
)
PROGRAM.fault(
    "the learning rate falls to a billionth",
    "TT425",
    (ADAM, f"{ADAM}scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.1)\n"),
    (UPDATE, f"{UPDATE}    scheduler.step()\n"),
    step=60,
)
PROGRAM.fault(
    "the step counter of Adam is reset",
    "TT436",
    (UPDATE, f"{UPDATE}    for state in optimizer.state.values():\n        state['step'].zero_()\n"),
    contract=True,
)

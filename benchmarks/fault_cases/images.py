"""A small convolutional network with BatchNorm: SGD with momentum, a cosine schedule, a DataLoader, an evaluation."""

from fault_cases.variant import COMPILED, Program

PROGRAM = Program(
    "cnn",
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(SEED)
patterns = torch.randn(4, 1, 8, 8)
labels = torch.randint(0, 4, (384,))
images = patterns[labels] + torch.randn(384, 1, 8, 8)
train = DataLoader(TensorDataset(images[:256], labels[:256]), batch_size=16, shuffle=True)
test = DataLoader(TensorDataset(images[256:], labels[256:]), batch_size=32)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
    nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 4),
)
forward = model
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=15)
step = 0
for epoch in range(15):
    model.train()
    for x, y in train:
        step += 1
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
    scheduler.step()
    model.eval()
    with torch.no_grad():
        correct = sum((model(x).argmax(-1) == y).sum().item() for x, y in test)
""",
)

SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)\n"
COSINE = "CosineAnnealingLR(optimizer, T_max=15)"
CLEAR = "        optimizer.zero_grad()\n"

PROGRAM.healthy("compiled", COMPILED)
PROGRAM.healthy(
    "no bias before BatchNorm", ("nn.Conv2d(1, 8, 3, padding=1)", "nn.Conv2d(1, 8, 3, padding=1, bias=False)")
)
PROGRAM.healthy("warm restarts", (COSINE, "CosineAnnealingWarmRestarts(optimizer, 5)"))
PROGRAM.healthy("steps", (COSINE, "StepLR(optimizer, 5, 0.1)"))
PROGRAM.healthy("Adam", (SGD, "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)\n"))
PROGRAM.healthy(
    "statistics are computed again at the end",
    ("step = 0\n", "step = 0\nrecompute = lambda: [model(x) for x, _ in train]\n"),
    (
        "    scheduler.step()\n",
        "    scheduler.step()\nfor epoch in range(1):\n    model.train()\n"
        "    with torch.no_grad():\n        recompute()\n",
    ),
)

PROGRAM.fault("it evaluates in training mode", "TT429", ("    model.eval()\n", ""), step=17, contract=True)
PROGRAM.fault(
    "it evaluates in training mode, compiled", "TT429", ("    model.eval()\n", ""), COMPILED, step=17, contract=True
)
PROGRAM.fault("it trains in eval mode after an epoch", "TT424", ("    model.train()\n", ""), step=17, contract=True)
PROGRAM.fault(
    "the schedule is stepped per batch",
    "TT425",
    (COSINE, "StepLR(optimizer, 5, 0.1)"),
    ("        optimizer.step()\n    scheduler.step()\n", "        optimizer.step()\n        scheduler.step()\n"),
    step=30,
)
PROGRAM.fault("the learning rate x 1000", "TT408 TT404 TT434", ("lr=0.05", "lr=50.0"))
PROGRAM.fault(
    "the optimizer has only the last layer",
    "TT420",
    ("SGD(model.parameters()", "SGD(model[8].parameters()"),
    contract=True,
)
PROGRAM.fault(
    "the optimizer has all but the last layer",
    "TT420",
    ("SGD(model.parameters()", "SGD(model[:8].parameters()"),
    contract=True,
)
PROGRAM.fault(
    "gradients are cleared once per epoch",
    "TT422",
    (CLEAR, ""),
    ("    model.train()\n", "    model.train()\n    optimizer.zero_grad()\n"),
    step=2,
    contract=True,
)
PROGRAM.fault(
    "inputs that are all the same",
    "TT415 TT440",
    ("images = patterns[labels] + torch.randn(384, 1, 8, 8)", "images = torch.ones(384, 1, 8, 8)"),
)
PROGRAM.fault(
    "the model is made again after the optimizer",
    "TT420 TT421",
    ("step = 0\n", "import copy\nmodel = copy.deepcopy(model)\nforward = model\nstep = 0\n"),
    contract=True,
)
PROGRAM.fault(
    "one learning rate x 1000",
    "TT408 TT404 TT414",
    (
        CLEAR,
        CLEAR + "        optimizer.param_groups[0]['lr'] *= 1000 if step == 100 else 0.001 if step == 101 else 1\n",
    ),
    step=100,
)
PROGRAM.fault(
    "a label of a class that is masked",
    "TT401",
    (
        "nn.functional.cross_entropy(forward(x), y)",
        "nn.functional.cross_entropy(forward(x) + torch.tensor([0, 0, 0, -torch.inf if step > 120 else 0]), y)",
    ),
    step=121,
    contract=True,
)
PROGRAM.fault(
    "labels of another order than the images",
    "TT415 TT440",
    ("TensorDataset(images[:256], labels[:256])", "TensorDataset(images[:256], labels[torch.randperm(256)])"),
)

"""Silent errors that were published, rebuilt small: those of one process. Those of several ranks are in replicas.py.

Where the place of the report is known, the name begins with it.
"""

from fault_cases.variant import Program

TRANSFER = Program(
    "transfer",
    """\
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(SEED)

class Shapes(Dataset):
    def __len__(self):
        return 960

    def __getitem__(self, i):
        x = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(i))
        x[:, 4 * (i % 2):4 * (i % 2) + 4, 4 * (i // 2 % 2):4 * (i // 2 % 2) + 4] += 1.5
        return x, i % 4

def build():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(32, 4))

model = build()
checkpoint = copy.deepcopy(model.state_dict())
model.load_state_dict(checkpoint)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(Shapes(), batch_size=32, shuffle=True)
for epoch in range(6):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for x, y in DataLoader(Shapes(), batch_size=240):
            model(x)
""",
)

ADAM = "optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)\n"

TRANSFER.healthy("a frozen convolution", (ADAM, f"model[0].requires_grad_(False)\n{ADAM}"))
TRANSFER.healthy(
    "only the head",
    (ADAM, "model[:5].requires_grad_(False)\n" + ADAM.replace("model.parameters()", "model[6].parameters()")),
)
TRANSFER.fault(
    "pytorch-forum-84911: only BatchNorm is trained, and only the head is in the optimizer",
    "TT420 TT421",
    (
        ADAM,
        "for name, p in model.named_parameters():\n    p.requires_grad = name.startswith('1.')\n"
        + ADAM.replace("model.parameters()", "model[6].parameters()"),
    ),
    contract=True,
)
TRANSFER.fault(
    "stackoverflow-60335387: gradients are never cleared",
    "TT422",
    ("        optimizer.zero_grad()\n", ""),
    contract=True,
)
TRANSFER.fault(
    "softmax before the cross-entropy",
    "TT431",
    ("nn.Linear(32, 4))", "nn.Linear(32, 4), nn.Softmax(1))"),
    contract=True,
)
TRANSFER.fault(
    "trained in eval mode after the first evaluation",
    "TT424",
    ("    model.train()\n", ""),
    step=31,
    contract=True,
)
TRANSFER.fault(
    "pytorch-115607: the step counter of the optimizer stays",
    "TT436",
    (
        "        optimizer.step()\n",
        "        optimizer.step()\n        for state in optimizer.state.values():\n            state['step'].zero_()\n",
    ),
    contract=True,
)
TRANSFER.fault(
    "accelerate-2665: the optimizer has the parameters of the model before it was prepared",
    "TT420 TT421",
    (ADAM, f"{ADAM}model = copy.deepcopy(model)\n"),
    contract=True,
)
TRANSFER.fault(
    "a checkpoint whose names have another prefix",
    "TT441",
    (
        "model.load_state_dict(checkpoint)",
        "model.load_state_dict({f'module.{k}': v for k, v in checkpoint.items()}, strict=False)",
    ),
    contract=True,
)
TRANSFER.fault("the model is evaluated in training mode", "TT429", ("    model.eval()\n", ""), step=31, contract=True)
TRANSFER.fault(
    "every worker of the loader draws the same batch",
    "none",
    (
        "DataLoader(Shapes(), batch_size=32, shuffle=True)",
        "[b for b in DataLoader(Shapes(), batch_size=32) for _ in range(2)]",
    ),
)

"""A transformer that learns the next character: AdamW, a warm-up, clipping."""

from fault_cases.variant import COMPILED, Program

PROGRAM = Program(
    "charlm",
    """\
import torch
from torch import nn

torch.manual_seed(SEED)
text = torch.tensor([(i * i + i // 7) % 11 for i in range(4000)])

def batch(n=16, length=16):
    at = torch.randint(0, len(text) - length - 1, (n,))
    rows = torch.stack([text[i:i + length + 1] for i in at])
    return rows[:, :-1], rows[:, 1:]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 32)
        self.place = nn.Parameter(0.02 * torch.randn(16, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 11)
        self.register_buffer("mask", torch.triu(torch.full((16, 16), -torch.inf), 1))

    def forward(self, x):
        return self.head(self.blocks(self.embed(x) + self.place, mask=self.mask))

model = Net()
forward = model
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 30))
for step in range(1, 241):
    x, y = batch()
    loss = nn.functional.cross_entropy(forward(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
""",
)

CLIP = "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
SCHEDULE = "lambda n: min(1.0, (n + 1) / 30)"
BACKWARD = "    loss.backward()\n"
ADAMW = "torch.optim.AdamW(model.parameters(), lr=3e-3)"

PROGRAM.healthy("compiled", COMPILED)
PROGRAM.healthy("not clipped", (CLIP, ""))
PROGRAM.healthy("a cosine to zero", (SCHEDULE, "lambda n: max(0.0, 1 - n / 240)"))
PROGRAM.healthy("tied embeddings", ("forward = model\n", "model.head.weight = model.embed.weight\nforward = model\n"))
PROGRAM.healthy("a long warm-up", ("(n + 1) / 30", "(n + 1) / 200"))
PROGRAM.healthy(
    "two parameter groups",
    (
        ADAMW,
        "torch.optim.AdamW([{'params': model.blocks.parameters()}, {'params': "
        "[*model.embed.parameters(), model.place, *model.head.parameters()], 'weight_decay': 0.0}], lr=3e-3)",
    ),
)

PROGRAM.fault(
    "it clips after the step",
    "TT428",
    (CLIP, ""),
    ("    optimizer.step()\n", f"    optimizer.step()\n{CLIP}"),
    contract=True,
)
PROGRAM.fault(
    "it clips before the backward pass", "TT428", (CLIP, ""), (BACKWARD, f"{CLIP}{BACKWARD}"), contract=True
)
PROGRAM.fault(
    "it clips before the backward pass, compiled",
    "TT428",
    (CLIP, ""),
    (BACKWARD, f"{CLIP}{BACKWARD}"),
    COMPILED,
    contract=True,
)
PROGRAM.fault("it sees the next character", "none", (", mask=self.mask", ""))
PROGRAM.fault("a warm-up that stays at 0", "TT425", (SCHEDULE, "lambda n: min(1.0, n // 1000)"), contract=True)
PROGRAM.fault(
    "the embedding is not trained",
    "TT420",
    (ADAMW, "torch.optim.AdamW([*model.blocks.parameters(), *model.head.parameters()], lr=3e-3)"),
    contract=True,
)
PROGRAM.fault(
    "a row that is masked entirely",
    "TT401",
    ("torch.triu(torch.full((16, 16), -torch.inf), 1)", "torch.triu(torch.full((16, 16), -torch.inf), 0)"),
    contract=True,
)
PROGRAM.fault("the learning rate x 1000", "TT408", ("lr=3e-3", "lr=3.0"))
PROGRAM.fault(
    "one learning rate x 300",
    "TT408 TT414 TT404",
    (BACKWARD, BACKWARD + "    optimizer.param_groups[0]['lr'] *= 300 if step == 133 else 1\n"),
    step=133,
)
PROGRAM.fault("weight decay 20", "TT426", ("lr=3e-3)", "lr=3e-3, weight_decay=20)"), contract=True)
PROGRAM.fault("targets that are shifted by none", "none", ("rows[:, :-1], rows[:, 1:]", "rows[:, :-1], rows[:, :-1]"))
PROGRAM.fault(
    "the loss is a log-probability taken twice",
    "TT431",
    (
        "nn.functional.cross_entropy(forward(x).flatten(0, 1), y.flatten())",
        "nn.functional.cross_entropy(forward(x).flatten(0, 1).log_softmax(-1).softmax(-1), y.flatten())",
    ),
    contract=True,
)
PROGRAM.fault("clipped to a thousandth of nothing", "TT413 TT409", ("parameters(), 1.0)", "parameters(), 1e-10)"))

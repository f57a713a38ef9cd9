"""Programs in the styles of applications: a trainer class, autocast, several tasks, embeddings."""

from fault_cases.variant import Program

TRAINER = Program(
    "trainer",
    """\
import copy
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(SEED)

def make_data(n):
    labels = torch.arange(n) % 4
    images = torch.randn(n, 1, 12, 12) * 0.7
    for k in range(4):
        r, c = divmod(k, 2)
        images[labels == k, :, 6 * r:6 * r + 6, 6 * c:6 * c + 6] += 0.8
    return TensorDataset(images, labels)

def build():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 4))

class Trainer:
    def __init__(self, model, train_set, val_set, epochs=8):
        self.model, self.epochs = model, epochs
        self.ema = copy.deepcopy(model).requires_grad_(False)
        self.train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
        self.val_loader = DataLoader(val_set, batch_size=64)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=epochs)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    def update_ema(self, decay=0.95):
        with torch.no_grad():
            for a, b in zip(self.ema.state_dict().values(), self.model.state_dict().values()):
                a.copy_(b if not a.is_floating_point() else a * decay + b * (1 - decay))

    def train_epoch(self):
        self.model.train()
        for images, labels in self.train_loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            self.update_ema()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        correct = sum((self.model(i).argmax(1) == l).sum().item() for i, l in self.val_loader)
        return correct

    def fit(self):
        for epoch in range(self.epochs):
            self.train_epoch()
            self.validate()
            self.scheduler.step()

if __name__ == "__main__":
    Trainer(build(), make_data(1280), make_data(320)).fit()
""",
)

TRAINER.healthy(
    "warm restarts",
    (
        "lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=epochs)",
        "lr_scheduler.CosineAnnealingWarmRestarts(self.optimizer, T_0=2)",
    ),
)
TRAINER.healthy(
    "reload mid-way",
    (
        "            self.validate()\n",
        (
            "            self.validate()\n"
            "            if epoch == 4:\n"
            "                saved = {'m': copy.deepcopy(self.model.state_dict()), 'o': "
            "copy.deepcopy(self.optimizer.state_dict())}\n"
            "                self.model.load_state_dict(saved['m'])\n"
            "                self.optimizer.load_state_dict(saved['o'])\n"
        ),
    ),
)
TRAINER.healthy(
    "with conv bias",
    (
        "nn.Conv2d(1, 8, 3, padding=1, bias=False)",
        "nn.Conv2d(1, 8, 3, padding=1)",
    ),
    (
        "nn.Conv2d(8, 16, 3, padding=1, bias=False)",
        "nn.Conv2d(8, 16, 3, padding=1)",
    ),
)
TRAINER.healthy(
    "SWA at the end",
    (
        "            self.scheduler.step()\n",
        (
            "            self.scheduler.step()\n"
            "        swa = torch.optim.swa_utils.AveragedModel(self.model)\n"
            "        swa.update_parameters(self.model)\n"
            "        torch.optim.swa_utils.update_bn(self.train_loader, swa)\n"
        ),
    ),
)
TRAINER.healthy(
    "last layer lr 0 for frozen trunk",
    (
        "torch.optim.SGD(model.parameters(), lr=0.05,",
        (
            "torch.optim.SGD([{'params': model[:8].parameters(), 'lr': 0.0}, {'params': "
            "model[8:].parameters()}], lr=0.05,"
        ),
    ),
)
TRAINER.fault(
    "eval without eval()",
    "TT429",
    (
        "        self.model.eval()\n",
        "",
    ),
    contract=True,
)
TRAINER.fault(
    "train() only once",
    "TT424",
    (
        "        self.model.train()\n",
        "",
    ),
    (
        "    def fit(self):\n",
        ("    def fit(self):\n        self.model.train()\n"),
    ),
    step=41,
    contract=True,
)
TRAINER.fault(
    "ema never updated",
    "TT430",
    (
        "            self.update_ema()\n",
        "",
    ),
    contract=True,
)
TRAINER.fault(
    "scheduler per batch",
    "TT425",
    (
        "            self.update_ema()\n",
        ("            self.update_ema()\n            self.scheduler.step()\n"),
    ),
    (
        "lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=epochs)",
        "lr_scheduler.ExponentialLR(self.optimizer, 0.7)",
    ),
    step=40,
)
TRAINER.fault(
    "shuffled labels",
    "TT415 TT440",
    (
        "return TensorDataset(images, labels)",
        "return TensorDataset(images, labels[torch.randperm(n)])",
    ),
)
TRAINER.fault(
    "constant batch",
    "none",
    (
        "        for images, labels in self.train_loader:\n",
        ("        images, labels = next(iter(self.train_loader))\n        for _ in range(40):\n"),
    ),
)
TRAINER.fault(
    "momentum 0.9999",
    "TT434 TT414",
    (
        "momentum=0.9,",
        "momentum=0.9999,",
    ),
)
TRAINER.fault(
    "scheduler before optimizer object of another",
    "TT425",
    (
        "lr=0.05",
        "lr=0.0",
    ),
    contract=True,
)
TRAINER.fault(
    "optimizer on ema copy",
    "TT420",
    (
        "torch.optim.SGD(model.parameters()",
        "torch.optim.SGD(self.ema.requires_grad_(True).parameters()",
    ),
    contract=True,
)
TRAINER.fault(
    "data in one batch inf",
    "TT401",
    (
        "            self.optimizer.zero_grad()\n",
        (
            "            self.optimizer.zero_grad()\n"
            "            self.n = getattr(self, 'n', 0) + 1\n"
            "            images = images / (0.0 if self.n == 147 else 1.0)\n"
        ),
    ),
    step=147,
    contract=True,
)

AMP = Program(
    "amp",
    """\
import torch
from torch import nn, optim

torch.manual_seed(SEED)

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(40, 24, padding_idx=0)
        self.rnn = nn.GRU(24, 32, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(64, 6)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.out(self.drop(h))

def batches():
    while True:
        x = torch.randint(1, 40, (16, 20))
        lengths = torch.randint(8, 21, (16,))
        pad = torch.arange(20)[None] >= lengths[:, None]
        x = x.masked_fill(pad, 0)
        y = ((x + x.roll(1, 1)) % 6).masked_fill(pad, -100)
        yield x, y

def make_step(model, optimizer):
    loss_fn = nn.CrossEntropyLoss(ignore_index=-100)

    def step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
            loss = loss_fn(logits.transpose(1, 2), y)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        return loss.item()

    return step

def main():
    model = Tagger()
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    step = make_step(model, optimizer)
    data = batches()
    for i in range(1, 251):
        x, y = next(data)
        last = step(x, y)
        if i % 50 == 0:
            print(i, last)

main()
""",
)

AMP.healthy(
    "two groups",
    (
        "optim.AdamW(model.parameters(), lr=3e-3)",
        (
            "optim.AdamW([{'params': model.emb.parameters(), 'lr': 1e-2}, {'params': "
            "[*model.rnn.parameters(), *model.out.parameters()]}], lr=3e-3)"
        ),
    ),
)
AMP.healthy(
    "forward only autocast",
    (
        "            loss = loss_fn(logits.transpose(1, 2), y)\n",
        "        loss = loss_fn(logits.float().transpose(1, 2), y)\n",
    ),
)
AMP.healthy(
    "compiled",
    (
        (
            "    model = Tagger()\n"
            "    optimizer = optim.AdamW(model.parameters(), lr=3e-3)\n"
            "    step = make_step(model,"
        ),
        (
            "    model = Tagger()\n"
            "    optimizer = optim.AdamW(model.parameters(), lr=3e-3)\n"
            "    step = make_step(torch.compile(model, backend='eager'),"
        ),
    ),
)
AMP.healthy(
    "one-cycle",
    (
        "    step = make_step(model, optimizer)\n",
        (
            "    step = make_step(model, optimizer)\n"
            "    sched = optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=250)\n"
        ),
    ),
    (
        "        last = step(x, y)\n",
        ("        last = step(x, y)\n        sched.step()\n"),
    ),
)
AMP.healthy(
    "frozen embedding",
    (
        "    optimizer = optim",
        ("    model.emb.requires_grad_(False)\n    optimizer = optim"),
    ),
)
AMP.fault(
    "softmax over wrong dim in model",
    "TT431",
    (
        "self.out(self.drop(h))",
        "self.out(self.drop(h)).softmax(1)",
    ),
    contract=True,
)
AMP.fault(
    "zero after backward",
    "TT427",
    (
        "        optimizer.zero_grad()\n",
        "",
    ),
    (
        "        optimizer.step()\n",
        ("        optimizer.zero_grad()\n        optimizer.step()\n"),
    ),
    contract=True,
)
AMP.fault(
    "model reassigned after optimizer",
    "TT420",
    (
        "    step = make_step(model,",
        ("    model = Tagger()\n    step = make_step(model,"),
    ),
    contract=True,
)
AMP.fault(
    "bf16 weights",
    "TT435 TT409 TT416",
    (
        "    model = Tagger()\n",
        "    model = Tagger().bfloat16()\n",
    ),
    (
        "lr=3e-3",
        "lr=1e-6",
    ),
    contract=True,
)
AMP.fault(
    "rnn output detached",
    "TT421",
    (
        "self.drop(h)",
        "self.drop(h.detach())",
    ),
    contract=True,
)
AMP.fault(
    "all targets ignored: nan",
    "TT401",
    (
        "        yield x, y\n",
        ("        n = locals().get('n', 0) + 1\n        yield x, (torch.full_like(y, -100) if n == 181 else y)\n"),
    ),
    step=181,
    contract=True,
)
AMP.fault(
    "padding counted as a class",
    "none",
    (
        "masked_fill(pad, -100)",
        "masked_fill(pad, 0)",
    ),
)
AMP.fault(
    "huge weights of out",
    "TT404 TT408 TT418 TT442",
    (
        "        self.out = nn.Linear(64, 6)\n",
        ("        self.out = nn.Linear(64, 6)\n        nn.init.normal_(self.out.weight, std=50.0)\n"),
    ),
)
AMP.fault(
    "dropout 1.0",
    "TT406 TT421 TT415",
    (
        "nn.Dropout(0.1)",
        "nn.Dropout(1.0)",
    ),
)

MULTITASK = Program(
    "multitask",
    """\
import torch, itertools
from torch import nn
import torch.nn.functional as F

torch.manual_seed(SEED)
W1, W2 = torch.randn(20, 1), torch.randn(20, 3)

trunk = nn.Sequential(nn.Linear(20, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU())
heads = nn.ModuleDict({"price": nn.Linear(48, 1), "kind": nn.Linear(48, 3)})
opt_trunk = torch.optim.AdamW(trunk.parameters(), lr=2e-3)
opt_heads = torch.optim.SGD(heads.parameters(), lr=2e-2, momentum=0.9)

def draw(n=48):
    x = torch.randn(n, 20)
    return x, (x @ W1).squeeze(1) / 4 + 0.1 * torch.randn(n), (x @ W2).argmax(1)

def losses(x, price, kind):
    h = trunk(x)
    return F.smooth_l1_loss(heads["price"](h).squeeze(1), price), F.cross_entropy(heads["kind"](h), kind)

for epoch in range(5):
    for _ in range(60):
        x, price, kind = draw()
        a, b = losses(x, price, kind)
        loss = a + 0.5 * b
        for o in (opt_trunk, opt_heads):
            o.zero_grad()
        loss.backward()
        opt_trunk.step()
        opt_heads.step()
    with torch.no_grad():
        a, b = losses(*draw(256))
        print(epoch, float(a), float(b))
""",
)

MULTITASK.healthy(
    "alternate tasks",
    (
        "        loss = a + 0.5 * b\n",
        "        loss = a if _ % 2 else b\n",
    ),
)
MULTITASK.healthy(
    "unused head",
    (
        '"kind": nn.Linear(48, 3)})',
        '"kind": nn.Linear(48, 3), "age": nn.Linear(48, 1)})',
    ),
)
MULTITASK.healthy(
    "loss term switched on",
    (
        "        loss = a + 0.5 * b\n",
        "        loss = a + (0.5 if epoch >= 2 else 0.0) * b\n",
    ),
)
MULTITASK.healthy(
    "harder data later",
    (
        "        x, price, kind = draw()\n",
        ("        x, price, kind = draw()\n        x = x + (0.5 * torch.randn_like(x) if epoch >= 3 else 0)\n"),
    ),
)
MULTITASK.fault(
    "broadcast",
    "TT432",
    (
        'heads["price"](h).squeeze(1), price)',
        'heads["price"](h), price)',
    ),
    contract=True,
)
MULTITASK.fault(
    "trunk without zero_grad",
    "TT422",
    (
        "for o in (opt_trunk, opt_heads)",
        "for o in (opt_heads,)",
    ),
    contract=True,
)
MULTITASK.fault(
    "trunk optimizer never steps",
    "TT444 TT420",
    (
        "        opt_trunk.step()\n",
        "",
    ),
    contract=True,
)
MULTITASK.fault(
    "second loss through no_grad trunk and first dropped",
    "TT421",
    (
        "    h = trunk(x)\n",
        "    h = trunk(x).detach()\n",
    ),
    contract=True,
)
MULTITASK.fault(
    "nan weight from sqrt in a task",
    "TT402 TT401",
    (
        "        loss = a + 0.5 * b\n",
        (
            "        loss = a + 0.5 * b + (torch.sqrt((heads['price'](trunk(x)) * "
            "0.0).square()).sum() if epoch == 3 else 0)\n"
        ),
    ),
    step=181,
)
MULTITASK.fault(
    "price scaled a million",
    "TT404 TT408 TT418 TT434",
    (
        ".squeeze(1) / 4 +",
        ".squeeze(1) * 1e6 +",
    ),
    (
        "F.smooth_l1_loss(",
        "F.mse_loss(",
    ),
)
MULTITASK.fault(
    "weights reset each epoch",
    "TT414",
    (
        "for epoch in range(5):\n",
        (
            "for epoch in range(5):\n"
            "    trunk.apply(lambda m: m.reset_parameters() if hasattr(m, 'reset_parameters') "
            "else None)\n"
        ),
    ),
    step=61,
)
MULTITASK.fault(
    "sgd lr x100",
    "TT408 TT434 TT401 TT414",
    (
        "lr=2e-2",
        "lr=20.0",
    ),
)

RECOMMENDER = Program(
    "recommender",
    """\
import torch
from torch import nn

torch.manual_seed(SEED)
USERS, ITEMS = 60, 80
true_u, true_i = torch.randn(USERS, 4), torch.randn(ITEMS, 4)

class MF(nn.Module):
    def __init__(self, k=8):
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, k), nn.Embedding(ITEMS, k)
        self.bu, self.bi = nn.Embedding(USERS, 1), nn.Embedding(ITEMS, 1)
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.3)
        for e in (self.bu, self.bi):
            nn.init.zeros_(e.weight)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1) + self.bu(u).squeeze(-1) + self.bi(i).squeeze(-1)

model = MF()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
loss_fn = nn.BCEWithLogitsLoss()
for it in range(1, 401):
    u, i = torch.randint(0, USERS, (256,)), torch.randint(0, ITEMS, (256,))
    label = torch.bernoulli(torch.sigmoid((true_u[u] * true_i[i]).sum(-1)))
    score = model(u, i)
    loss = loss_fn(score, label)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
""",
)

RECOMMENDER.healthy(
    "sparse",
    (
        "nn.Embedding(USERS, k), nn.Embedding(ITEMS, k)",
        "nn.Embedding(USERS, k, sparse=True), nn.Embedding(ITEMS, k, sparse=True)",
    ),
)
RECOMMENDER.healthy(
    "rare users",
    (
        "torch.randint(0, USERS, (256,))",
        "(USERS * torch.rand(256) ** 3).long()",
    ),
)
RECOMMENDER.healthy(
    "noisy labels",
    (
        "torch.sigmoid((true_u[u]",
        "torch.sigmoid(0.7 * (true_u[u]",
    ),
)
RECOMMENDER.healthy(
    "biases zero grad unused",
    (
        "+ self.bu(u).squeeze(-1) + self.bi(i).squeeze(-1)",
        "+ self.bi(i).squeeze(-1)",
    ),
)
RECOMMENDER.fault(
    "sigmoid first",
    "TT431",
    (
        "score = model(u, i)",
        "score = torch.sigmoid(model(u, i))",
    ),
    contract=True,
)
RECOMMENDER.fault(
    "zero factors",
    "TT406",
    (
        "nn.init.normal_(e.weight, std=0.3)",
        "nn.init.zeros_(e.weight)",
    ),
)
RECOMMENDER.fault(
    "wrong users (shuffled inputs)",
    "TT415 TT440",
    (
        "score = model(u, i)",
        "score = model(u[torch.randperm(256)], i[torch.randperm(256)])",
    ),
)
RECOMMENDER.fault(
    "adagrad re-created each step",
    "TT423",
    (
        "    optimizer.zero_grad(set_to_none=True)\n",
        (
            "    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)\n"
            "    optimizer.zero_grad(set_to_none=True)\n"
        ),
    ),
    contract=True,
)
RECOMMENDER.fault(
    "item frozen by no_grad",
    "TT421",
    (
        "self.item(i)).sum(-1)",
        "self.item(i).detach()).sum(-1)",
    ),
    contract=True,
)
RECOMMENDER.fault(
    "lr 1e-9",
    "TT409 TT435",
    (
        "lr=0.1",
        "lr=1e-9",
    ),
)
RECOMMENDER.fault(
    "sum reduction & lr",
    "none",
    (
        "BCEWithLogitsLoss()",
        "BCEWithLogitsLoss(reduction='sum')",
    ),
)
RECOMMENDER.fault(
    "data loader returns cached first labels",
    "TT415 TT440",
    (
        "    score = model(u, i)\n",
        ("    keep = label if it == 1 else keep\n    score = model(u, i)\n"),
    ),
    (
        "loss_fn(score, label)",
        "loss_fn(score, keep)",
    ),
)

"""Further models: segmentation, distillation in two phases, a forecast, two towers, a GAN with one loss."""

from fault_cases.variant import Program

SEGMENT = Program(
    "segment",
    """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(SEED)

class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.GroupNorm(2, c), nn.ReLU())
        self.mid = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU(), nn.Dropout2d(0.1))
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.out = nn.Conv2d(2 * c, 1, 1)

    def forward(self, x):
        d = self.down(x)
        return self.out(torch.cat([d, self.up(self.mid(d))], 1))

def get(n=8):
    cy, cx = torch.rand(n, 1, 1) * 16, torch.rand(n, 1, 1) * 16
    yy, xx = torch.arange(16.)[None, :, None], torch.arange(16.)[None, None]
    mask = (((yy - cy) ** 2 + (xx - cx) ** 2) < 16).float()[:, None]
    return mask * 1.5 + 0.7 * torch.randn(n, 1, 16, 16), mask

class Average:
    def __init__(self, model):
        self.shadow = {k: v.clone() for k, v in model.state_dict().items()}
    def update(self, model):
        for k, v in model.state_dict().items():
            self.shadow[k].mul_(0.98).add_(v, alpha=0.02)

model = UNet()
average = Average(model)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for step in range(260):
    image, mask = get()
    logits = model(image)
    loss = F.binary_cross_entropy_with_logits(logits, mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update(model)
""",
)

SEGMENT.healthy(
    "dice loss added",
    (
        "    loss = F.binary_cross_entropy_with_logits(logits, mask)\n",
        (
            "    p = logits.sigmoid()\n"
            "    loss = F.binary_cross_entropy_with_logits(logits, mask) + 1 - 2 * (p * "
            "mask).sum() / (p.sum() + mask.sum() + 1)\n"
        ),
    ),
)
SEGMENT.healthy(
    "pos_weight",
    (
        ("logits, mask)\n    opt"),
        ("logits, mask, pos_weight=torch.tensor(4.0))\n    opt"),
    ),
)
SEGMENT.healthy(
    "batch one",
    (
        "get(n=8)",
        "get(n=1)",
    ),
    (
        "lr=1e-3",
        "lr=3e-4",
    ),
)
SEGMENT.healthy(
    "swap in averaged weights for eval",
    (
        "    average.update(model)\n",
        (
            "    average.update(model)\n"
            "    if step % 60 == 59:\n"
            "        kept = {k: v.clone() for k, v in model.state_dict().items()}\n"
            "        model.load_state_dict(average.shadow)\n"
            "        model.eval()\n"
            "        with torch.no_grad():\n"
            "            model(get(16)[0])\n"
            "        model.train()\n"
            "        model.load_state_dict(kept)\n"
        ),
    ),
)
SEGMENT.fault(
    "sigmoid twice",
    "TT431",
    (
        "logits = model(image)",
        "logits = model(image).sigmoid()",
    ),
    contract=True,
)
SEGMENT.fault(
    "masks of other images",
    "TT415 TT440",
    (
        "mask = get()",
        ("mask = get()\n    mask = mask.roll(1, 0)"),
    ),
)
SEGMENT.fault(
    "mid detached",
    "TT421",
    (
        "self.up(self.mid(d))",
        "self.up(self.mid(d)).detach()",
    ),
    contract=True,
)
SEGMENT.fault(
    "image in 0..255 times ten",
    "TT442 TT404 TT408 TT418",
    (
        "image, mask = get()",
        ("image, mask = get()\n    image = image * 2550"),
    ),
)
SEGMENT.fault(
    "lr 3",
    "TT408 TT434 TT440",
    (
        "lr=1e-3",
        "lr=3.0",
    ),
)
SEGMENT.fault(
    "nan pixel once",
    "TT401",
    (
        "    logits = model(image)\n",
        ("    if step == 121:\n        image[3, 0, 2, 2] = float('nan')\n    logits = model(image)\n"),
    ),
    step=122,
    contract=True,
)
SEGMENT.fault(
    "eval mode after the first look",
    "TT424",
    (
        "    average.update(model)\n",
        (
            "    average.update(model)\n"
            "    if step == 40:\n"
            "        model.eval()\n"
            "        with torch.no_grad():\n"
            "            model(get()[0])\n"
        ),
    ),
    step=41,
    contract=True,
)
SEGMENT.fault(
    "step before backward and clear",
    "TT427",
    (
        ("    loss.backward()\n    optimizer.step()\n"),
        ("    optimizer.step()\n    loss.backward()\n"),
    ),
    contract=True,
)

DISTIL = Program(
    "distil",
    """\
import torch, copy
from torch import nn
import torch.nn.functional as F

def main():
    torch.manual_seed(SEED)
    teacher = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 5))
    student = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 5))
    opt_t = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    centres = torch.randn(5, 10) * 1.5
    def data(n=64):
        y = torch.randint(5, (n,))
        return centres[y] + torch.randn(n, 10), y
    for i in range(120):
        x, y = data()
        loss = F.cross_entropy(teacher(x), y)
        opt_t.zero_grad(); loss.backward(); opt_t.step()
    teacher.eval().requires_grad_(False)
    opt_s = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    T = 2.0
    for i in range(250):
        x, y = data()
        with torch.no_grad():
            soft = F.softmax(teacher(x) / T, -1)
        out = student(x)
        kd = F.kl_div(F.log_softmax(out / T, -1), soft, reduction="batchmean") * T * T
        loss = 0.5 * kd + 0.5 * F.cross_entropy(out, y)
        opt_s.zero_grad()
        loss.backward()
        opt_s.step()

main()
""",
)

DISTIL.healthy(
    "no hard labels",
    (
        "0.5 * kd + 0.5 * F.cross_entropy(out, y)",
        "kd",
    ),
)
DISTIL.healthy(
    "save and reload the student",
    (
        "        opt_s.step()\n",
        (
            "        opt_s.step()\n"
            "        if i == 100:\n"
            "            state = copy.deepcopy(student.state_dict())\n"
            "            student.load_state_dict(state)\n"
        ),
    ),
)
DISTIL.healthy(
    "student compiled",
    (
        "        out = student(x)\n",
        "        out = net(x)\n",
    ),
    (
        "    T = 2.0\n",
        ("    T = 2.0\n    net = torch.compile(student, backend='eager')\n"),
    ),
)
DISTIL.healthy(
    "fine-tune the head of teacher into student",
    (
        "    T = 2.0\n",
        (
            "    T = 2.0\n"
            "    student.load_state_dict({k: v for k, v in teacher.state_dict().items() if k == "
            "'2.bias'}, strict=False)\n"
        ),
    ),
)
DISTIL.fault(
    "optimizer of the teacher used",
    "TT427 TT421 TT420",
    (
        "        opt_s.step()\n",
        "        opt_t.step()\n",
    ),
    contract=True,
)
DISTIL.fault(
    "student output under no_grad kd only",
    "TT421",
    (
        "out / T, -1), soft",
        "out.detach() / T, -1), soft",
    ),
    (
        "0.5 * kd + 0.5 * F.cross_entropy(out, y)",
        "0.5 * kd + 0.5 * F.cross_entropy(student[2](torch.relu(student[0](x)).detach()), y)",
    ),
    contract=True,
)
DISTIL.fault(
    "teacher checkpoint with prefix",
    "TT441",
    (
        "    T = 2.0\n",
        (
            "    T = 2.0\n"
            "    fresh = copy.deepcopy(student)\n"
            "    student.load_state_dict({'net.' + k: v for k, v in fresh.state_dict().items()}, "
            "strict=False)\n"
        ),
    ),
    contract=True,
)
DISTIL.fault(
    "lr 1e-10",
    "TT409 TT435 TT440 TT415",
    (
        "lr=0.1",
        "lr=1e-10",
    ),
)
DISTIL.fault(
    "ascend",
    "TT434 TT401 TT408",
    (
        "lr=0.1, momentum=0.9",
        "lr=0.1, momentum=0.9, maximize=True",
    ),
)
DISTIL.fault(
    "student zero init",
    "TT406",
    (
        "    T = 2.0\n",
        ("    T = 2.0\n    for p in student.parameters(): p.data.zero_()\n"),
    ),
)
DISTIL.fault(
    "student grads never cleared",
    "TT422",
    (
        "        opt_s.zero_grad()\n",
        "",
    ),
    contract=True,
)

FORECAST = Program(
    "forecast",
    """\
import math
import torch
import torch.nn as nn

class Forecaster(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.head(out[:, -1]).squeeze(-1)

def series(n, length=20):
    phase = torch.rand(n, 1) * 6.28
    freq = 0.2 + 0.3 * torch.rand(n, 1)
    t = torch.arange(length + 1.)[None]
    s = torch.sin(phase + freq * t) + 0.05 * torch.randn(n, length + 1)
    return s[:, :-1, None], s[:, -1]

def run(epochs=6, per_epoch=50):
    torch.manual_seed(SEED)
    model = Forecaster()
    optim = torch.optim.NAdam(model.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(optim, patience=3)
    crit = nn.MSELoss()
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for _ in range(per_epoch):
            x, y = series(32)
            optim.zero_grad()
            loss = crit(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optim.step()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            x, y = series(128)
            val = crit(model(x), y)
        sched.step(val)

run()
""",
)

FORECAST.healthy(
    "huber",
    (
        "nn.MSELoss()",
        "nn.HuberLoss(delta=0.5)",
    ),
)
FORECAST.healthy(
    "scaled target",
    (
        "return s[:, :-1, None], s[:, -1]",
        "return s[:, :-1, None], 3 * s[:, -1] + 1",
    ),
)
FORECAST.healthy(
    "state passed by hand",
    (
        "        out, _ = self.lstm(x)\n",
        ("        h = x.new_zeros(2, len(x), 24)\n        out, _ = self.lstm(x, (h, h))\n"),
    ),
)
FORECAST.healthy(
    "noisy",
    (
        "0.05 * torch.randn",
        "0.6 * torch.randn",
    ),
)
FORECAST.fault(
    "target [N] against [N,1]",
    "TT432",
    (
        ".squeeze(-1)\n",
        "\n",
    ),
    contract=True,
)
FORECAST.fault(
    "data of the other batch",
    "TT415 TT440",
    (
        ("            x, y = series(32)\n            optim"),
        ("            x, y = series(32)\n            _, y = series(32)\n            optim"),
    ),
)
FORECAST.fault(
    "clipped to 1e-6",
    "TT413 TT409",
    (
        "model.parameters(), 1.0)",
        "model.parameters(), 1e-6)",
    ),
    (
        "torch.optim.NAdam(model.parameters(), lr=5e-3)",
        "torch.optim.SGD(model.parameters(), lr=5e-2)",
    ),
)
FORECAST.fault(
    "eval stays",
    "TT424",
    (
        "        model.train()\n",
        "",
    ),
    step=51,
    contract=True,
)
FORECAST.fault(
    "targets times 1e5",
    "TT404 TT408 TT418 TT440 TT409",
    (
        "return s[:, :-1, None], s[:, -1]",
        "return s[:, :-1, None], 1e5 * s[:, -1]",
    ),
)
FORECAST.fault(
    "inf once in x",
    "TT401 TT402",
    (
        "            optim.zero_grad()\n",
        (
            "            if epoch == 3 and _ == 10:\n"
            "                x[0, 0] = float('inf')\n"
            "            optim.zero_grad()\n"
        ),
    ),
    step=161,
    contract=True,
)
FORECAST.fault(
    "sched kills lr",
    "TT425",
    (
        "ReduceLROnPlateau(optim, patience=3)",
        "ReduceLROnPlateau(optim, patience=0, threshold=10.0, factor=1e-6, min_lr=0)",
    ),
    step=101,
)
FORECAST.fault(
    "lr 5",
    "TT408 TT434 TT440",
    (
        "lr=5e-3",
        "lr=5.0",
    ),
)

CONTRASTIVE = Program(
    "contrastive",
    """\
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(SEED)
latent = torch.randn(200, 12)
A, B = torch.randn(12, 30), torch.randn(12, 18)

def pairs(n=32):
    i = torch.randint(0, 200, (n,))
    z = latent[i]
    return z @ A / 3 + 0.2 * torch.randn(n, 30), z @ B / 3 + 0.2 * torch.randn(n, 18)

image_tower = nn.Sequential(nn.Linear(30, 64), nn.GELU(), nn.Linear(64, 16))
text_tower = nn.Sequential(nn.Linear(18, 64), nn.GELU(), nn.Linear(64, 16))
log_scale = nn.Parameter(torch.tensor(2.0))
params = [*image_tower.parameters(), *text_tower.parameters(), log_scale]
opt = torch.optim.AdamW(params, lr=1e-3, weight_decay=1e-2)

def clip_loss(a, b):
    a, b = F.normalize(image_tower(a), dim=-1), F.normalize(text_tower(b), dim=-1)
    logits = log_scale.exp() * a @ b.T
    target = torch.arange(len(a))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2

for step in range(300):
    loss = clip_loss(*pairs())
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        log_scale.clamp_(max=4.6)
""",
)

CONTRASTIVE.healthy(
    "one way",
    (
        "(F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2",
        "F.cross_entropy(logits, target)",
    ),
)
CONTRASTIVE.healthy(
    "frozen image tower",
    (
        "params = [",
        ("image_tower.requires_grad_(False)\nparams = ["),
    ),
)
CONTRASTIVE.healthy(
    "locked scale",
    (
        "nn.Parameter(torch.tensor(2.0))",
        "torch.tensor(2.0)",
    ),
    (
        "*text_tower.parameters(), log_scale]",
        "*text_tower.parameters()]",
    ),
)
CONTRASTIVE.healthy(
    "sigmoid loss",
    (
        "    target = torch.arange(len(a))\n",
        ("    return F.binary_cross_entropy_with_logits(logits - 5, torch.eye(len(a)))\n    target = None\n"),
    ),
)
CONTRASTIVE.fault(
    "pairs shuffled",
    "TT415 TT440",
    (
        "loss = clip_loss(*pairs())",
        ("a, b = pairs()\n    loss = clip_loss(a, b[torch.randperm(len(b))])"),
    ),
)
CONTRASTIVE.fault(
    "text tower missing in optimizer",
    "TT420",
    (
        "*image_tower.parameters(), *text_tower.parameters()",
        "*image_tower.parameters()",
    ),
    contract=True,
)
CONTRASTIVE.fault(
    "softmax on logits",
    "TT431",
    (
        "logits = log_scale.exp() * a @ b.T",
        "logits = (log_scale.exp() * a @ b.T).softmax(-1)",
    ),
    contract=True,
)
CONTRASTIVE.fault(
    "scale of 1000",
    "TT442 TT404 TT408",
    (
        "torch.tensor(2.0)",
        "torch.tensor(7.0)",
    ),
    (
        "log_scale.clamp_(max=4.6)",
        "log_scale.clamp_(max=9.0)",
    ),
)
CONTRASTIVE.fault(
    "zero vector normalised by hand",
    "TT401 TT402",
    (
        "F.normalize(image_tower(a), dim=-1)",
        (
            "(lambda v: v / v.norm(dim=-1, keepdim=True))(image_tower(a) * (torch.rand(len(a), "
            "1) > 0.001 * (len(a) == 32)))"
        ),
    ),
    contract=True,
)
CONTRASTIVE.fault(
    "clears in eval style before step",
    "TT427",
    (
        ("    opt.zero_grad()\n    loss.backward()\n"),
        ("    loss.backward()\n    opt.zero_grad()\n"),
    ),
    contract=True,
)
CONTRASTIVE.fault(
    "accumulation with inner clear",
    "TT443",
    (
        ("    loss = clip_loss(*pairs())\n    opt.zero_grad()\n    loss.backward()\n"),
        (
            "    for _ in range(3):\n"
            "        opt.zero_grad()\n"
            "        loss = clip_loss(*pairs()) / 3\n"
            "        loss.backward()\n"
        ),
    ),
    contract=True,
)

HINGE = Program(
    "hinge",
    """\
import torch
from torch import nn

torch.manual_seed(SEED)

class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    def forward(self, z):
        return self.net(z)

class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    def forward(self, x):
        return self.net(x)

G, D = Generator(), Discriminator()
opt_g = torch.optim.Adam(G.parameters(), lr=5e-4, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=5e-4, betas=(0.0, 0.9))
bce = nn.BCEWithLogitsLoss()

def real(n):
    return torch.randn(n, 2) * 0.3 + torch.randint(0, 2, (n, 1)) * 2 - 1

for it in range(400):
    x, z = real(32), torch.randn(32, 4)
    fake = G(z).detach()
    inputs = torch.cat([x, fake])
    labels = torch.cat([torch.ones(32, 1), torch.zeros(32, 1)])
    d_loss = bce(D(inputs), labels)
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    g_loss = bce(D(G(torch.randn(32, 4))), torch.ones(32, 1))
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
""",
)

HINGE.healthy(
    "label smoothing",
    (
        "torch.ones(32, 1), torch.zeros",
        "0.9 * torch.ones(32, 1), torch.zeros",
    ),
)
HINGE.healthy(
    "generator every second",
    (
        "    opt_g.step()\n",
        ("    if it % 2:\n        opt_g.step()\n"),
    ),
)
HINGE.healthy(
    "in balance",
    (
        ("lr=5e-4, betas=(0.0, 0.9))\nopt_d"),
        ("lr=2e-3, betas=(0.0, 0.9))\nopt_d"),
    ),
)
HINGE.fault(
    "generator detached",
    "TT427 TT421",
    (
        "bce(D(G(torch.randn(32, 4)))",
        "bce(D(G(torch.randn(32, 4)).detach())",
    ),
    contract=True,
)
HINGE.fault(
    "generator never steps",
    "TT444",
    (
        "    opt_g.step()\n",
        "",
    ),
    contract=True,
)
HINGE.fault(
    "optimizer of the wrong net",
    "TT420 TT421",
    (
        "torch.optim.Adam(G.parameters()",
        "torch.optim.Adam(D.parameters()",
    ),
    contract=True,
)
HINGE.fault(
    "critic with sigmoid",
    "TT431",
    (
        "nn.LeakyReLU(0.2), nn.Linear(32, 1))",
        "nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())",
    ),
    contract=True,
)
HINGE.fault(
    "critic wins: real is far",
    "none",
    (
        "* 2 - 1",
        "* 2 - 1 + 100",
    ),
)
HINGE.fault(
    "d gradients never cleared",
    "TT422",
    (
        "    opt_d.zero_grad()\n",
        "",
    ),
    contract=True,
)
HINGE.fault(
    "lr of d x1000",
    "TT408 TT434",
    (
        ("lr=5e-4, betas=(0.0, 0.9))\nbce"),
        ("lr=5e-1, betas=(0.0, 0.9))\nbce"),
    ),
)

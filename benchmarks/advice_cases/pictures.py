"""Programs on images."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="instance_noise",
        family="pictures",
        cause="control: a float of a module that becomes dynamic at its second value",
        program="""
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class NoiseSchedule:
    std: float = 0.5
    decay: float = 0.9

    def advance(self):
        self.std *= self.decay


class Discriminator(nn.Module):
    def __init__(self, channels=3):
        super().__init__()
        self.noise = NoiseSchedule()
        self.body = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.LeakyReLU(0.2), nn.Flatten(), nn.LazyLinear(1))

    def forward(self, image, grain):
        noisy = image + grain * self.noise.std ** 2
        return self.body(noisy)


torch.manual_seed(0)
critic = Discriminator()
critic(torch.zeros(1, 3, 8, 8), torch.zeros(1, 3, 8, 8))
judge = torch.compile(critic, backend="eager")
optimizer = torch.optim.SGD(critic.parameters(), lr=0.01)
for step in range(12):
    loss = judge(torch.randn(4, 3, 8, 8), torch.randn(4, 3, 8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    critic.noise.advance()
print(f"result {loss.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="beta_table",
        family="pictures",
        cause="a Python list of floats indexed by the timestep",
        program="""
import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, steps=20):
        super().__init__()
        self.alphas = [0.99 - 0.04 * i for i in range(steps)]
        self.net = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x, t: int):
        alpha = self.alphas[t]
        return alpha ** 0.5 * x + (1 - alpha) ** 0.5 * self.net(x)


torch.manual_seed(0)
denoise = torch.compile(Denoiser(), backend="eager")
x = torch.randn(2, 1, 6, 6)
with torch.no_grad():
    for t in reversed(range(20)):
        x = denoise(x, t)
print(f"result {x.mean().item():.5f}")
""",
        codes=("TT204", "TT207", "TT224", "TT301", "TT225"),
        line=("alpha = self.alphas[t]", "def forward(self, x, t: int):"),
        says=r"\bt\b",
        options=(
            Option(
                says=r"one tensor before the compiled call: torch\.tensor",
                edits=(
                    Edit(
                        old="self.alphas = [0.99 - 0.04 * i for i in range(steps)]",
                        new="self.alphas = torch.tensor([0.99 - 0.04 * i for i in range(steps)])",
                    ),
                ),
                leaves=("TT204",),
            ),
        ),
    ),
    Case(
        name="confident_boxes",
        family="pictures",
        cause="a boolean mask selects the boxes of a NamedTuple",
        program="""
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Detections(NamedTuple):
    boxes: Tensor
    scores: Tensor


class Detector(nn.Module):
    def __init__(self, threshold=0.5):
        super().__init__()
        self.head = nn.Linear(8, 5)
        self.threshold = threshold

    def select(self, found: Detections) -> Detections:
        keep = found.scores > self.threshold
        return Detections(found.boxes[keep], found.scores[keep])

    def forward(self, features):
        out = self.head(features)
        found = self.select(Detections(out[..., :4], out[..., 4].sigmoid()))
        return (found.boxes.abs().sum(-1) * found.scores).sum()


torch.manual_seed(0)
detector = torch.compile(Detector(), backend="eager")
with torch.no_grad():
    total = sum(detector(torch.randn(6, 8)) for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT105",),
        line="return Detections(found.boxes[keep], found.scores[keep])",
        says=r"keep|mask",
        options=(
            Option(
                says=r"torch\.where|\* keep|masked_fill",
                edits=(
                    Edit(
                        old="return Detections(found.boxes[keep], found.scores[keep])",
                        new="return Detections(found.boxes * keep[:, None], found.scores * keep)",
                    ),
                ),
            ),
            Option(
                says=r"capture_dynamic_output_shape_ops",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)\n",
                        new="torch._dynamo.config.capture_dynamic_output_shape_ops = True\ntorch.manual_seed(0)\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="random_erasing",
        family="pictures",
        cause="numpy.random picks the corner of an erased patch",
        program="""
import numpy as np
import torch
from torch import nn


class RandomErasing(nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.size = size

    def forward(self, image):
        top = np.random.uniform(0.0, 1.0)
        return image * (1.0 - 0.1 * top)


np.random.seed(0)
torch.manual_seed(0)
model = nn.Sequential(RandomErasing(), nn.Conv2d(3, 2, 3), nn.ReLU())
run = torch.compile(model, backend="eager")
with torch.no_grad():
    total = sum(run(torch.rand(2, 3, 8, 8)).mean() for _ in range(10))
print(f"result {total.item():.5f}")
""",
        codes=("TT114", "TT205", "TT301"),
        line="top = np.random.uniform(0.0, 1.0)",
        says=r"np\.random\.uniform|numpy",
        options=(
            Option(
                says=r"torch\.rand|torch\.empty\(.*uniform_",
                edits=(Edit(old="np.random.uniform(0.0, 1.0)", new="torch.rand(())"),),
                same_numbers=False,
            ),
        ),
    ),
    Case(
        name="iou_disabled",
        family="pictures",
        cause="a helper that was once decorated with torch.compiler.disable",
        program="""
import torch
from torch import nn


@torch.compiler.disable
def soft_dice(prediction, target):
    overlap = (prediction * target).sum((1, 2))
    return 2 * overlap / (prediction.sum((1, 2)) + target.sum((1, 2)) + 1e-6)


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, image, target):
        mask = self.conv(image)[:, 0].sigmoid()
        dice = soft_dice(mask, target)
        return 1 - dice.mean() + mask.square().mean() * 0.01


torch.manual_seed(0)
model = Segmenter()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(5):
    image = torch.rand(2, 1, 6, 6)
    loss = compiled(image, (image[:, 0] > 0.5).float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT108",),
        line=("dice = soft_dice(mask, target)", "@torch.compiler.disable", "def soft_dice(prediction, target):"),
        says=r"soft_dice",
        options=(
            Option(
                says=r"[Rr]emove|take .* off|delete|without",
                edits=(Edit(old="@torch.compiler.disable\n", new=""),),
            ),
        ),
    ),
    Case(
        name="clamped_feature_gradient",
        family="pictures",
        cause="control: a tensor hook, which Dynamo traces",
        program="""
import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 2)

    def forward(self, image):
        features = self.stem(image).relu()
        if features.requires_grad:
            features.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
        return self.head(features.mean((2, 3)))


torch.manual_seed(0)
net = Backbone()
step = torch.compile(net, backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    loss = step(torch.randn(4, 3, 6, 6)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="frozen_head",
        family="pictures",
        cause="requires_grad_ on parameters in forward",
        program="""
import torch
from torch import nn


class Finetuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def freeze(self):
        for p in self.backbone.parameters():
            p.requires_grad_(False)

    def forward(self, image):
        self.freeze()
        return self.head(self.backbone(image))


torch.manual_seed(0)
net = Finetuned()
train = torch.compile(net, backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    loss = nn.functional.cross_entropy(train(torch.randn(4, 4, 4)), torch.randint(0, 3, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT110", "TT119"),
        line="p.requires_grad_(False)",
        says=r"requires_grad",
        options=(
            Option(
                says=r"before|outside|once",
                edits=(
                    Edit(old="        self.freeze()\n        return", new="        return"),
                    Edit(old="net = Finetuned()\n", new="net = Finetuned()\nnet.freeze()\n"),
                ),
            ),
        ),
    ),
    Case(
        name="feature_dump",
        family="pictures",
        cause="torch.save of features in forward",
        program="""
import io

import torch
from torch import nn

DUMP = io.BytesIO()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.out = nn.Linear(2, 2)

    def forward(self, image):
        features = self.conv(image).relu()
        torch.save(features.detach(), DUMP)
        return self.out(features.mean((2, 3)))


torch.manual_seed(0)
encoder = torch.compile(Encoder(), backend="eager")
with torch.no_grad():
    total = sum(encoder(torch.randn(2, 1, 6, 6)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT106", "TT112"),
        line="torch.save(features.detach(), DUMP)",
        says=r"torch\.save",
        options=(
            Option(
                says=r"outside|after|out of|return",
                edits=(
                    Edit(old="        torch.save(features.detach(), DUMP)\n", new=""),
                    Edit(
                        old="return self.out(features.mean((2, 3)))",
                        new="return self.out(features.mean((2, 3))), features",
                    ),
                    Edit(
                        old="    total = sum(encoder(torch.randn(2, 1, 6, 6)).sum() for _ in range(4))",
                        new=(
                            "    total = 0\n    for _ in range(4):\n        scores, features = "
                            "encoder(torch.randn(2, 1, 6, 6))\n        torch.save(features, DUMP)\n"
                            "        total += scores.sum()"
                        ),
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="ragged_last_batch_settles",
        family="pictures",
        cause="control: a shorter last batch recompiles once",
        program="""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
compiled = torch.compile(net, backend="eager")
data = TensorDataset(torch.randn(22, 1, 6, 6), torch.randint(0, 2, (22,)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in range(3):
    for image, label in DataLoader(data, batch_size=8):
        loss = nn.functional.cross_entropy(compiled(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=(),
    ),
)

"""A training whose results are also running statistics, a teacher and a checkpoint, and a scoring with NumPy."""

DISTILLED = '''\
"""A student with a teacher that follows it, and a checkpoint of the teacher."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(3)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(6 * 16, 3)

    def forward(self, image):
        h = F.max_pool2d(self.norm(self.conv(image)).relu(), 2)
        print("pooled", h.shape)
        return self.head(self.drop(h.flatten(1)))


student = Student()
teacher = copy.deepcopy(student)
forward = torch.compile(student, backend="aot_eager")
optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
images = torch.randn(7, 12, 1, 8, 8)
for image in images:
    loss = forward(image).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for own, other in zip(teacher.parameters(), student.parameters()):
            own.mul_(0.99).add_(other, alpha=0.01)
torch.save(teacher.state_dict(), "teacher.pt")
print("loss", loss.item())
'''
CURE = ('        print("pooled", h.shape)\n', "")
DISTILLED_RIGHT = (
    ("print removed", "cure", ()),
    ("dropout by rand", "draws", ((
        "self.drop(h.flatten(1))", "h.flatten(1) * (torch.rand_like(h.flatten(1)) > 0.25) / 0.75"),)),
    ("images drawn one by one", "draws", (
        ("images = torch.randn(7, 12, 1, 8, 8)\nfor image in images:\n",
         "for _ in range(7):\n    image = torch.randn(12, 1, 8, 8)\n"),)),
    ("teacher by lerp", "rounding", (("own.mul_(0.99).add_(other, alpha=0.01)", "own.lerp_(other, 0.01)"),)),
)
DISTILLED_WRONG = (
    ("statistics follow slowly", "stale statistics", (("BatchNorm2d(6)", "BatchNorm2d(6, momentum=0.01)"),)),
    ("teacher follows fast", "other constant", ((
        "own.mul_(0.99).add_(other, alpha=0.01)", "own.mul_(0.9).add_(other, alpha=0.1)"),)),
    ("student saved", "other result", (("torch.save(teacher.state_dict()", "torch.save(student.state_dict()"),)),
    ("nothing saved", "other result", (('torch.save(teacher.state_dict(), "teacher.pt")\n', ""),)),
    ("dropout by rand at another rate", "changed dropout", ((
        "self.drop(h.flatten(1))", "h.flatten(1) * (torch.rand_like(h.flatten(1)) > 0.2) / 0.8"),)),
)

SCORED = '''\
"""Entropies of a classifier, computed by NumPy in compiled code."""
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).eval()


@torch.compile
def entropy_of(x):
    p = model(x).softmax(-1)
    q = p.detach().numpy()
    entropy = torch.from_numpy(-(q * np.log(q + 1e-9)).sum(-1))
    return entropy, float(p.max())


with torch.no_grad():
    total, largest = 0.0, 0.0
    for _ in range(6):
        entropy, top = entropy_of(torch.randn(20, 16))
        total, largest = total + entropy.mean().item(), max(largest, float(top))
print(f"entropy {total:.5f} largest {largest:.5f}")
'''
SCORED_CURE = (
    "    q = p.detach().numpy()\n    entropy = torch.from_numpy(-(q * np.log(q + 1e-9)).sum(-1))\n"
    "    return entropy, float(p.max())\n",
    "    return -(p * torch.log(p + 1e-9)).sum(-1), p.max()\n")
SCORED_RIGHT = (("torch instead of NumPy", "cure", ()),)
SCORED_WRONG = (
    ("backend eager", "compile disabled", (("@torch.compile\n", '@torch.compile(backend="eager")\n'),)),
    ("sum over the rows", "other reduction", (("1e-9)).sum(-1)", "1e-9)).sum(0)"),)),
)

FAMILIES = (
    ("distilled", DISTILLED, CURE, DISTILLED_RIGHT, DISTILLED_WRONG),
    ("scored", SCORED, SCORED_CURE, SCORED_RIGHT, SCORED_WRONG),
)

"""What is cured by another form of the function: a loop that ends early, torch.compile in an epoch, a default."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="power_iteration",
        family="rebuilds",
        cause="a `break` on a norm in a solver",
        program="""
import torch


class PowerIteration:
    def __init__(self, tolerance=1e-3, rounds=12):
        self.tolerance, self.rounds = tolerance, rounds

    @torch.compile(backend="eager")
    def solve(self, matrix, vector):
        for _ in range(self.rounds):
            product = matrix @ vector
            product = product / product.norm()
            if (product - vector).norm() < self.tolerance:
                break
            vector = product
        return vector


torch.manual_seed(2)
solver = PowerIteration()
total = 0.0
for _ in range(5):
    matrix = torch.randn(6, 6)
    total += solver.solve(matrix @ matrix.T, torch.ones(6) / 6 ** 0.5).abs().sum().item()
print(f"result {total:.4f}")
""",
        codes=("TT103", "TT119"),
        line="if (product - vector).norm() < self.tolerance:",
        options=(
            Option(
                says=r"compile the body of the loop",
                edits=(
                    Edit(
                        old="class PowerIteration:\n",
                        new='@torch.compile(backend="eager")\ndef refined(matrix, vector):\n'
                        "    product = matrix @ vector\n    return product / product.norm()\n\n\n"
                        "class PowerIteration:\n",
                    ),
                    Edit(old='    @torch.compile(backend="eager")\n    def solve', new="    def solve"),
                    Edit(
                        old="            product = matrix @ vector\n            product = product / product.norm()\n",
                        new="            product = refined(matrix, vector)\n",
                    ),
                ),
            ),
            Option(
                says=r"run the loop to its end",
                edits=(
                    Edit(
                        old="        for _ in range",
                        new="        done = torch.zeros((), dtype=torch.bool)\n        for _ in range",
                    ),
                    Edit(
                        old="            if (product - vector).norm() < self.tolerance:\n                break\n"
                        "            vector = product\n",
                        new="            done = done | ((product - vector).norm() < self.tolerance)\n"
                        "            vector = torch.where(done, vector, product)\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="loss_per_epoch",
        family="rebuilds",
        cause="torch.compile of a lambda in each epoch",
        program="""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def run_epoch(batches):
    step = torch.compile(lambda x, y: F.cross_entropy(model(x), y), backend="eager")
    for x, y in batches:
        optimizer.zero_grad()
        loss = step(x, y)
        loss.backward()
        optimizer.step()
    return loss.item()


batches = [(torch.randn(8, 4), torch.randint(0, 2, (8,))) for _ in range(3)]
last = [run_epoch(batches) for _ in range(6)][-1]
print(f"result {last:.4f}")
""",
        codes=("TT309",),
        line="step = torch.compile(lambda x, y: F.cross_entropy(model(x), y), backend=\"eager\")",
        options=(
            Option(
                says=r"once, outside the loop or function",
                edits=(
                    Edit(
                        old='    step = torch.compile(lambda x, y: F.cross_entropy(model(x), y), backend="eager")\n',
                        new="",
                    ),
                    Edit(
                        old="def run_epoch",
                        new='step = torch.compile(lambda x, y: F.cross_entropy(model(x), y), backend="eager")\n\n\n'
                        "def run_epoch",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="teacher_by_default",
        family="rebuilds",
        cause="an argument whose default is made in the compiled function",
        program="""
import copy

import torch
from torch import nn


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x, teacher=None):
        code = self.encoder(x)
        if teacher is None:
            teacher = copy.deepcopy(self.encoder)
        with torch.no_grad():
            target = teacher(x)
        return self.head(code) + (code - target).pow(2).mean()


torch.manual_seed(0)
student = Student()
compiled = torch.compile(student, backend="eager")
optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
for _ in range(6):
    loss = compiled(torch.randn(8, 4)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT107",),
        line="teacher = copy.deepcopy(self.encoder)",
        options=(
            Option(
                says=r"copy before the compiled call",
                edits=(
                    Edit(
                        old="compiled(torch.randn(8, 4))",
                        new="compiled(torch.randn(8, 4), teacher=copy.deepcopy(student.encoder))",
                    ),
                ),
            ),
        ),
    ),
)

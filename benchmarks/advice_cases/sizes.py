"""Tensor sizes, strides and ranks that change between calls."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="static_batches",
        family="sizes",
        cause="dynamic=False, the batch size varies",
        program="""
import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(width, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, candidates):
        return self.tower(candidates).squeeze(-1).softmax(0)


def requests(number):
    generator = torch.Generator().manual_seed(5)
    for i in range(number):
        yield torch.randn(4 + 3 * i % 11, 6, generator=generator)


torch.manual_seed(0)
scorer = torch.compile(Scorer(), backend="eager", dynamic=False)
with torch.no_grad():
    total = sum(scorer(candidates).max() for candidates in requests(6))
print(f"result {total.item():.5f}")
""",
        codes=("TT202",),
        line=(
            "def forward(self, candidates):",
            'scorer = torch.compile(Scorer(), backend="eager", dynamic=False)',
            "return self.tower(candidates).squeeze(-1).softmax(0)",
        ),
        says=r"candidates|size",
        options=(
            Option(
                says=r"dynamic=(None|True)|(?i:remove|drop|without|leave out).{0,20}dynamic=False",
                edits=(Edit(old=", dynamic=False)", new=")"),),
                leaves=("TT201",),
            ),
            Option(
                says=r"mark_dynamic",
                edits=(
                    Edit(
                        old="        yield torch.randn(4 + 3 * i % 11, 6, generator=generator)\n",
                        new="        candidates = torch.randn(4 + 3 * i % 11, 6, generator=generator)\n"
                        "        torch._dynamo.maybe_mark_dynamic(candidates, 0)\n        yield candidates\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="static_sequences_limit",
        family="sizes",
        cause="dynamic=False, the sequence length varies beyond the limit",
        program="""
import torch
from torch import nn


class SpeechEncoder(nn.Module):
    def __init__(self, bands=5, width=8):
        super().__init__()
        self.conv = nn.Conv1d(bands, width, 3, padding=1)
        self.out = nn.Linear(width, 4)

    def forward(self, spectrum):
        return self.out(self.conv(spectrum).relu().mean(dim=-1))


class Transcriber:
    def __init__(self):
        self.encoder = SpeechEncoder()
        self.encode = torch.compile(self.encoder, dynamic=False, backend="eager")

    @torch.no_grad()
    def run(self, lengths):
        return sum(self.encode(torch.randn(2, 5, length)).sum() for length in lengths)


torch.manual_seed(0)
total = Transcriber().run(range(20, 34))
print(f"result {total.item():.5f}")
""",
        codes=("TT301", "TT202"),
        line=(
            "def forward(self, spectrum):",
            'self.encode = torch.compile(self.encoder, dynamic=False, backend="eager")',
            "return self.out(self.conv(spectrum).relu().mean(dim=-1))",
        ),
        says=r"spectrum",
        options=(
            Option(
                says=r"dynamic=(None|True)|(?i:remove|drop|without|leave out).{0,20}dynamic=False",
                edits=(Edit(old="dynamic=False, ", new=""),),
                leaves=("TT201",),
            ),
        ),
    ),
    Case(
        name="epoch_rest_static",
        family="sizes",
        cause="ragged last batch of an epoch, dynamic=False",
        program="""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, net, lr=0.05):
        self.net = net
        self.compiled = torch.compile(net, backend="aot_eager", dynamic=False)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=lr)

    def epoch(self, loader):
        for features, target in loader:
            loss = nn.functional.mse_loss(self.compiled(features), target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss


torch.manual_seed(0)
data = TensorDataset(torch.randn(50, 4), torch.randn(50, 1))
trainer = Trainer(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
for _ in range(3):
    loss = trainer.epoch(DataLoader(data, batch_size=16))
print(f"result {loss.item():.4f}")
""",
        codes=("TT203",),
        line=(
            'self.compiled = torch.compile(net, backend="aot_eager", dynamic=False)',
            "loss = nn.functional.mse_loss(self.compiled(features), target)",
            "trainer = Trainer(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))",
        ),
        never=r"args\[0\]",
        options=(
            Option(
                says=r"drop_last=True",
                edits=(Edit(old="batch_size=16)", new="batch_size=16, drop_last=True)"),),
                same_numbers=False,
            ),
            Option(
                says=r"mark_dynamic",
                edits=(
                    Edit(
                        old="        for features, target in loader:\n",
                        new="        for features, target in loader:\n"
                        "            torch._dynamo.maybe_mark_dynamic(features, 0)\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="single_frame",
        family="sizes",
        cause="a dynamic batch that is sometimes 1",
        program="""
import torch
from torch import nn


class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.describe = nn.Linear(6, 4)

    def forward(self, boxes):
        features = nn.functional.normalize(self.describe(boxes), dim=-1)
        return features @ features.T


torch.manual_seed(0)
tracker = torch.compile(Tracker(), backend="eager", dynamic=True)
with torch.no_grad():
    total = torch.zeros(())
    for number in (5, 3, 1, 7, 1, 4):
        total += tracker(torch.randn(number, 6)).sum()
print(f"result {total.item():.5f}")
""",
        codes=("TT221",),
        line=("def forward(self, boxes):", "features = nn.functional.normalize(self.describe(boxes), dim=-1)"),
        options=(
            Option(
                says=r"(?i)pad|nothing to do|at least (2|two)|mark_unbacked|two rows",
                edits=(
                    Edit(
                        old="        total += tracker(torch.randn(number, 6)).sum()\n",
                        new="        boxes = torch.randn(number, 6)\n"
                        "        padded = torch.cat([boxes, boxes.new_zeros(max(0, 2 - number), 6)])\n"
                        "        total += tracker(padded)[:number, :number].sum()\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="height_and_width",
        family="sizes",
        cause="two dimensions vary, one after the other",
        program="""
import torch
from torch import nn


class Upsampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)

    def forward(self, image):
        return nn.functional.pixel_shuffle(self.conv(image), 2).sigmoid()


torch.manual_seed(0)
upsample = torch.compile(Upsampler(), backend="eager", dynamic=False)
total = torch.zeros(())
with torch.no_grad():
    for height, width in ((8, 11), (9, 11), (9, 10), (12, 10), (12, 7)):
        total += upsample(torch.rand(1, 1, height, width)).mean()
print(f"result {total.item():.5f}")
""",
        codes=("TT202",),
        line=(
            "def forward(self, image):",
            'upsample = torch.compile(Upsampler(), backend="eager", dynamic=False)',
            "return nn.functional.pixel_shuffle(self.conv(image), 2).sigmoid()",
        ),
        says=r"image",
        options=(
            Option(
                says=r"dynamic=(None|True)|(?i:remove|drop|without|leave out).{0,20}dynamic=False",
                edits=(Edit(old=", dynamic=False", new=""),),
                leaves=("TT201",),
            ),
        ),
    ),
    Case(
        name="transposed_features",
        family="sizes",
        cause="the layout of an argument flips",
        program="""
import torch
from torch import nn


class Projection(nn.Module):
    def __init__(self, rows=6):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, rows))

    def forward(self, matrix):
        return (matrix @ self.weight).tanh()


def both_ways(project, kernel):
    return project(kernel).sum() + project(kernel.T).sum()


torch.manual_seed(0)
project = torch.compile(Projection(), backend="eager", dynamic=False)
with torch.no_grad():
    total = sum(both_ways(project, torch.randn(6, 6)) for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT213",),
        line=("def forward(self, matrix):", "return (matrix @ self.weight).tanh()",
              "return project(kernel).sum() + project(kernel.T).sum()"),
        options=(
            Option(
                says=r"contiguous\(",
                edits=(Edit(old="project(kernel.T)", new="project(kernel.T.contiguous())"),),
            ),
        ),
    ),
    Case(
        name="observation_rank",
        family="sizes",
        cause="a single observation and a batch: the rank flips",
        program="""
import torch
from torch import nn


class ValueNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, observation):
        return self.net(observation).squeeze(-1)


torch.manual_seed(0)
value = torch.compile(ValueNet(), backend="eager")
total = torch.zeros(())
with torch.no_grad():
    for _ in range(4):
        total += value(torch.randn(4))
        total += value(torch.randn(16, 4)).mean()
print(f"result {total.item():.5f}")
""",
        codes=("TT214",),
        line=("def forward(self, observation):", "return self.net(observation).squeeze(-1)"),
        options=(
            Option(
                says=r"unsqueeze|\[None\]|batch of (1|one)",
                edits=(
                    Edit(old="total += value(torch.randn(4))", new="total += value(torch.randn(4)[None])[0]"),
                ),
                leaves=("TT201", "TT221"),
            ),
        ),
    ),
    Case(
        name="rest_without_policy",
        family="sizes",
        cause="control: the last batch is smaller, automatic dynamic shapes settle it",
        program="""
import torch
from torch import nn


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x):
        return self.linear(x).exp()


torch.manual_seed(0)
model = torch.compile(Regression(), backend="eager")
rows = torch.randn(22, 3)
with torch.no_grad():
    total = sum(model(batch).sum() for _ in range(3) for batch in rows.split(8))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
)

"""The size of a result depends on the data."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="ohem_nonzero",
        family="shapes",
        cause="nonzero() to pick hard examples",
        program="""
import torch
from torch import nn


def hard_examples(losses, threshold):
    hard = torch.nonzero(losses > threshold).flatten()
    return losses[hard]


class HardMiningLoss(nn.Module):
    def __init__(self, threshold=0.6):
        super().__init__()
        self.threshold = threshold

    def forward(self, logits, labels):
        losses = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return hard_examples(losses, self.threshold).mean()


torch.manual_seed(0)
criterion = torch.compile(HardMiningLoss(), backend="eager")
total = sum(criterion(torch.randn(30), torch.randint(0, 2, (30,)).float()) for _ in range(5))
print(f"result {total.item():.5f}")
""",
        codes=("TT105",),
        line="hard = torch.nonzero(losses > threshold).flatten()",
        options=(
            Option(
                says=r"torch\.where|mask",
                edits=(
                    Edit(
                        old="    hard = torch.nonzero(losses > threshold).flatten()\n    return losses[hard]\n",
                        new="    hard = losses > threshold\n    return torch.where(hard, losses, 0.0), hard.sum()\n",
                    ),
                    Edit(
                        old="        return hard_examples(losses, self.threshold).mean()\n",
                        new="        picked, number = hard_examples(losses, self.threshold)\n"
                        "        return picked.sum() / number\n",
                    ),
                ),
            ),
            Option(
                says=r"capture_dynamic_output_shape_ops",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.capture_dynamic_output_shape_ops = True\ntorch.manual_seed(0)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="visible_mean",
        family="shapes",
        cause="boolean mask selection, then mean",
        program="""
from typing import NamedTuple

import torch
from torch import nn


class Frame(NamedTuple):
    keypoints: torch.Tensor
    visible: torch.Tensor


class PoseLoss(nn.Module):
    def __init__(self, joints=9):
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(joints, 2))

    def forward(self, frame, target):
        error = (frame.keypoints + self.offset - target).square().sum(-1)
        return error[frame.visible].mean()


torch.manual_seed(0)
pose = PoseLoss()
compiled = torch.compile(pose, backend="aot_eager")
optimizer = torch.optim.SGD(pose.parameters(), lr=0.1)
for _ in range(5):
    frame = Frame(torch.randn(3, 9, 2), torch.rand(3, 9) < 0.7)
    loss = compiled(frame, torch.zeros(3, 9, 2))
    optimizer.zero_grad(), loss.backward(), optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT105",),
        line="return error[frame.visible].mean()",
        options=(
            Option(
                says=r"torch\.where|\* ?(frame\.visible|mask)|mask\.sum|visible\.sum",
                edits=(
                    Edit(
                        old="return error[frame.visible].mean()",
                        new="return torch.where(frame.visible, error, 0.0).sum() / frame.visible.sum()",
                    ),
                ),
            ),
            Option(
                says=r"capture_dynamic_output_shape_ops",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.capture_dynamic_output_shape_ops = True\ntorch.manual_seed(0)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="corrupt_tokens",
        family="shapes",
        cause="masked assignment of a tensor, x[mask] = values[mask]",
        program="""
import torch
from torch import nn


class Corruptor(nn.Module):
    def __init__(self, rate=0.3, vocabulary=25):
        super().__init__()
        self.rate, self.vocabulary = rate, vocabulary
        self.embed = nn.Embedding(vocabulary, 6)

    def corrupt(self, tokens, noise, replacement):
        tokens = tokens.clone()
        chosen = noise < self.rate
        tokens[chosen] = replacement[chosen]
        return tokens

    def forward(self, tokens, noise, replacement):
        return self.embed(self.corrupt(tokens, noise, replacement)).sum(dim=(1, 2))


torch.manual_seed(0)
corruptor = torch.compile(Corruptor(), backend="eager")
total = torch.zeros(())
with torch.no_grad():
    for _ in range(5):
        tokens, replacement = torch.randint(0, 25, (2, 4, 8))
        total += corruptor(tokens, torch.rand(4, 8), replacement).sum()
print(f"result {total.item():.5f}")
""",
        codes=("TT105",),
        line="tokens[chosen] = replacement[chosen]",
        options=(
            Option(
                says=r"torch\.where",
                edits=(
                    Edit(
                        old="        tokens[chosen] = replacement[chosen]\n        return tokens\n",
                        new="        return torch.where(chosen, replacement, tokens)\n",
                    ),
                ),
            ),
            Option(
                says=r"capture_dynamic_output_shape_ops",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.capture_dynamic_output_shape_ops = True\ntorch.manual_seed(0)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="fill_masked_constant",
        family="shapes",
        cause="control: masked assignment of a number is traced",
        program="""
import torch
from torch import nn


class CausalScores(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-2, -1)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores[:, future] = -1e9
        return scores.softmax(-1)


torch.manual_seed(0)
scores = torch.compile(CausalScores(), backend="eager")
with torch.no_grad():
    total = sum(scores(torch.randn(2, 5, 8))[..., 0].sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="class_prototypes",
        family="shapes",
        cause="unique() of the labels",
        program="""
import torch
from torch import nn


class ProtoNet(nn.Module):
    def __init__(self, width=6, ways=4):
        super().__init__()
        self.encode = nn.Linear(width, width)
        self.ways = ways

    def prototypes(self, support, labels):
        features = self.encode(support)
        classes = torch.unique(labels)
        member = (labels == classes[:, None]).float()
        return member @ features / member.sum(dim=1, keepdim=True)

    def forward(self, support, labels, query):
        return -torch.cdist(self.encode(query), self.prototypes(support, labels))


torch.manual_seed(0)
net = torch.compile(ProtoNet(), backend="eager")
labels = torch.arange(4).repeat(3)
with torch.no_grad():
    total = sum(net(torch.randn(12, 6), labels[torch.randperm(12)], torch.randn(5, 6)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT105",),
        line="classes = torch.unique(labels)",
        options=(
            Option(
                says=r"(?i)one_hot|(fixed|known) (number|size)|arange|mask|before the (compiled )?call",
                is_as_printed=False,
                edits=(
                    Edit(
                        old="""        classes = torch.unique(labels)
""",
                        new="""        classes = torch.arange(self.ways)
""",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="edges_of_adjacency",
        family="shapes",
        cause="torch.where with one argument",
        program="""
import torch
from torch import nn


class GraphLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message, self.update = nn.Linear(width, width), nn.Linear(2 * width, width)

    def aggregate(self, nodes, adjacency):
        target, origin = torch.where(adjacency > 0)
        return torch.zeros_like(nodes).index_add(0, target, self.message(nodes)[origin])

    def forward(self, nodes, adjacency):
        return self.update(torch.cat([nodes, self.aggregate(nodes, adjacency)], dim=-1)).relu()


class GraphNet(nn.Module):
    def __init__(self, depth=2, width=6):
        super().__init__()
        self.layers = nn.ModuleList(GraphLayer(width) for _ in range(depth))

    def forward(self, nodes, adjacency):
        for layer in self.layers:
            nodes = layer(nodes, adjacency)
        return nodes.mean()


torch.manual_seed(0)
net = torch.compile(GraphNet(), backend="eager")
with torch.no_grad():
    total = sum(net(torch.randn(7, 6), (torch.rand(7, 7) < 0.4).float()) for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT105", "TT119"),
        line="target, origin = torch.where(adjacency > 0)",
        options=(
            Option(
                says=r"(?i)mask|three arguments|torch\.where\([^)]*,[^)]*,",
                edits=(
                    Edit(
                        old="""        target, origin = torch.where(adjacency > 0)
        return torch.zeros_like(nodes).index_add(0, target, self.message(nodes)[origin])
""",
                        new="""        connected = torch.where(adjacency > 0, 1.0, 0.0)
        return connected @ self.message(nodes)
""",
                    ),
                ),
            ),
            Option(
                says=r"capture_dynamic_output_shape_ops",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.capture_dynamic_output_shape_ops = True\ntorch.manual_seed(0)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="packed_lengths",
        family="shapes",
        cause="repeat_interleave with a tensor of counts",
        program="""
import torch
from torch import nn


class DurationExpander(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.project = nn.Linear(width, width)

    def expand(self, phonemes, durations):
        return torch.repeat_interleave(phonemes, durations, dim=0)

    def forward(self, phonemes, durations):
        return self.project(self.expand(phonemes, durations)).sum(dim=0)


torch.manual_seed(0)
expander = torch.compile(DurationExpander(), backend="eager")
with torch.no_grad():
    total = torch.zeros(())
    for _ in range(4):
        durations = torch.tensor([2, 1, 3, 2])[torch.randperm(4)]
        total += expander(torch.randn(4, 5), durations).sum()
print(f"result {total.item():.5f}")
""",
        codes=("TT105",),
        line="return torch.repeat_interleave(phonemes, durations, dim=0)",
        options=(
            Option(
                says=r"output_size|before the (compiled )?call",
                edits=(
                    Edit(
                        old="torch.repeat_interleave(phonemes, durations, dim=0)",
                        new="torch.repeat_interleave(phonemes, durations, dim=0, output_size=8)",
                    ),
                ),
            ),
            Option(
                says=r"capture_dynamic_output_shape_ops",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.capture_dynamic_output_shape_ops = True\ntorch.manual_seed(0)",
                    ),
                ),
            ),
        ),
    ),
)

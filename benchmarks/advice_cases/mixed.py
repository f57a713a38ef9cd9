"""Several causes at once."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="size_and_float",
        family="mixed",
        cause="a size that varies and a float that changes, dynamic=False",
        program="""
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, tokens, temperature):
        return (self.linear(tokens) / temperature).softmax(-1)


torch.manual_seed(0)
head = torch.compile(Head(), backend="eager", dynamic=False)
total, temperature = torch.zeros(()), 2.0
with torch.no_grad():
    for step in range(7):
        total += head(torch.randn(3 + step, 5), temperature).max()
        temperature = 2.0 - 0.1 * step
print(f"result {total.item():.5f}")
""",
        codes=("TT202", "TT301", "TT205"),
        line=(
            "def forward(self, tokens, temperature):",
            "return (self.linear(tokens) / temperature).softmax(-1)",
            'head = torch.compile(Head(), backend="eager", dynamic=False)',
        ),
        says=r"tokens",
        options=(
            Option(
                says=r"dynamic=(None|True)|drop dynamic=False|without dynamic=False",
                edits=(Edit(old=", dynamic=False", new=""),),
                leaves=("TT201", "TT205"),
            ),
        ),
    ),
    Case(
        name="item_then_resume",
        family="mixed",
        cause="a break whose resume frame recompiles for each value",
        program="""
import torch
from torch import nn


class TopK(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.score = nn.Linear(4, width)

    def forward(self, x, budget):
        scores = self.score(x).softmax(-1)
        keep = int(budget.clamp(1, 9).item())
        best = scores.sort(dim=-1, descending=True).values
        out = torch.zeros(())
        for i in range(keep):
            out = out + best[:, i].sum() / (i + 1)
        return out


torch.manual_seed(0)
topk = torch.compile(TopK(), backend="eager")
with torch.no_grad():
    total = sum(topk(torch.randn(3, 4), torch.tensor(1 + i % 9)) for i in range(12))
print(f"result {total.item():.5f}")
""",
        codes=("TT104", "TT301", "TT222"),
        line=("keep = int(budget.clamp(1, 9).item())", "for i in range(keep):"),
        says=r"\.item\(\)|\bkeep\b",
        options=(
            Option(
                says=r"(?i)torch\.where|mask|torch\.arange",
                edits=(
                    Edit(
                        old="        keep = int(budget.clamp(1, 9).item())\n",
                        new="        keep = budget.clamp(1, 9)\n",
                    ),
                    Edit(
                        old="        out = torch.zeros(())\n        for i in range(keep):\n"
                        "            out = out + best[:, i].sum() / (i + 1)\n        return out\n",
                        new="        rank = torch.arange(best.shape[1])\n"
                        "        return (torch.where(rank < keep, best, 0.0) / (rank + 1)).sum()\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="keys_then_lengths",
        family="mixed",
        cause="a dict whose keys change, then whose number changes",
        program="""
import torch
from torch import nn


class Crowd(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.move = nn.Linear(width, width)

    def forward(self, agents):
        return {name: position + self.move(position).tanh() for name, position in agents.items()}


torch.manual_seed(0)
crowd, agents = torch.compile(Crowd(), backend="eager"), {}
with torch.no_grad():
    for step in range(12):
        agents[f"walker{step}"] = torch.full((4,), 0.1 * step)
        if step % 3 == 2:
            agents.pop(min(agents, key=lambda name: int(name[6:])))
        agents = crowd(agents)
print(f"result {sum(p.sum() for p in agents.values()).item():.4f}")
""",
        codes=("TT301", "TT216", "TT217"),
        line=(
            "def forward(self, agents):",
            "return {name: position + self.move(position).tanh() for name, position in agents.items()}",
        ),
        says=r"(?i)keys",
        options=(
            Option(
                says=r"(?i)stack|one tensor",
                edits=(
                    Edit(
                        old="return {name: position + self.move(position).tanh() "
                        "for name, position in agents.items()}",
                        new="return agents + self.move(agents).tanh()",
                    ),
                    Edit(old='torch.compile(Crowd(), backend="eager")',
                         new='torch.compile(Crowd(), backend="eager", dynamic=True)'),
                    Edit(old="agents = crowd(agents)", new="agents = dict(zip(agents, crowd("
                         "torch.stack(list(agents.values())))))"),
                ),
                leaves=("TT221",),
            ),
        ),
    ),
    Case(
        name="counter_and_no_grad",
        family="mixed",
        cause="a counter on a module under a no_grad flip",
        program="""
import torch
from torch import nn


class CuriousAgent(nn.Module):
    def __init__(self):
        super().__init__()
        self.value, self.age = nn.Linear(5, 1), 0

    def forward(self, observation):
        self.age += 1
        bonus = 1.0 / self.age
        return self.value(observation).squeeze(-1) + bonus


torch.manual_seed(0)
agent = CuriousAgent()
evaluate = torch.compile(agent, backend="aot_eager")
optimizer = torch.optim.SGD(agent.parameters(), lr=0.05)
for _ in range(6):
    with torch.no_grad():
        target = evaluate(torch.ones(4, 5))
    loss = (evaluate(torch.randn(4, 5)) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
""",
        codes=("TT301", "TT206"),
        line=("def forward(self, observation):", "self.age += 1"),
        says=r"self\.age\b",
        options=(
            Option(
                says=r"(?i)buffer|tensor",
                edits=(
                    Edit(
                        old="        self.value, self.age = nn.Linear(5, 1), 0\n",
                        new="        self.value = nn.Linear(5, 1)\n"
                        '        self.register_buffer("age", torch.zeros(()))\n',
                    ),
                ),
                leaves=("TT209",),
            ),
        ),
    ),
    Case(
        name="print_and_branch",
        family="mixed",
        cause="a print and a branch on a tensor in one function",
        program="""
import torch
from torch import nn


class Monitor(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        out = self.linear(x)
        print("largest", out.abs().max())
        if out.abs().max() > 1:
            out = out / out.abs().max()
        return out


torch.manual_seed(0)
monitor = torch.compile(Monitor(), backend="eager")
with torch.no_grad():
    total = sum(monitor(torch.randn(3, 4)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT101", "TT103"),
        line=('print("largest", out.abs().max())', "if out.abs().max() > 1:"),
        options=(
            Option(
                says=r"torch\.where|move|clamp|reorderable_logging_functions",
                edits=(
                    Edit(old='        print("largest", out.abs().max())\n', new=""),
                    Edit(
                        old="        if out.abs().max() > 1:\n            out = out / out.abs().max()\n",
                        new="        out = out / out.abs().max().clamp(min=1)\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="break_hides_sizes",
        family="mixed",
        cause="a print in front of work that recompiles for its size",
        program="""
import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, items):
        scores = self.score(items).squeeze(-1)
        print("ranking", scores.numel(), "items")
        return scores.softmax(0).max()


torch.manual_seed(0)
rank = torch.compile(Ranker(), backend="eager", dynamic=True)
with torch.no_grad():
    total = sum(rank(torch.randn(n, 4)) for n in (6, 4, 9, 5))
print(f"result {total.item():.5f}")
""",
        codes=("TT101",),
        line='print("ranking", scores.numel(), "items")',
        never="reorderable_logging_functions",
        options=(
            Option(
                says=r"(?i)move|out of|outside|remove",
                edits=(
                    Edit(old='        print("ranking", scores.numel(), "items")\n', new=""),
                ),
            ),
        ),
    ),
)

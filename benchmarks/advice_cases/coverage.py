"""torch.compile that does not reach the work, fails, or is called again and again."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="compile_per_batch",
        family="coverage",
        cause="torch.compile of a fresh closure in the training loop",
        program="""
import torch
from torch import nn


def make_loss(weight):
    def loss(prediction, target):
        return weight * (prediction - target).abs().mean()

    return torch.compile(loss, backend="eager")


torch.manual_seed(0)
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(12):
    criterion = make_loss(torch.tensor(0.5))
    value = criterion(net(torch.randn(6, 4)), torch.randn(6, 2))
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
print(f"result {value.item():.5f}")
""",
        codes=("TT309", "TT310", "TT311", "TT312"),
        line=(
            'return torch.compile(loss, backend="eager")',
            "criterion = make_loss(torch.tensor(0.5))",
            "def loss(prediction, target):",
        ),
        says=r"(?i)compile",
        options=(
            Option(
                says=r"(?i)once|outside|before the loop",
                edits=(
                    Edit(
                        old="for _ in range(12):\n    criterion = make_loss(torch.tensor(0.5))\n",
                        new="criterion = make_loss(torch.tensor(0.5))\nfor _ in range(12):\n",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="unused_helper",
        family="coverage",
        cause="control: a decorated helper that this run does not call",
        program="""
import torch
from torch import nn


@torch.compile(backend="eager")
def perplexity(logits, target):
    return nn.functional.cross_entropy(logits, target).exp()


@torch.compile(backend="eager")
def accuracy(logits, target):
    return (logits.argmax(-1) == target).float().mean()


torch.manual_seed(0)
total = sum(accuracy(torch.randn(8, 3), torch.randint(0, 3, (8,))) for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="original_called",
        family="coverage",
        cause="the model is compiled, the original is called",
        program="""
import torch
from torch import nn


class Trainer:
    def __init__(self, model):
        self.model = model
        self.fast_model = torch.compile(model, backend="aot_eager")
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


torch.manual_seed(0)
trainer = Trainer(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
losses = [trainer.step(torch.randn(6, 4), torch.randn(6, 1)) for _ in range(5)]
print(f"result {losses[-1]:.5f}")
""",
        codes=("TT303",),
        line=(
            'self.fast_model = torch.compile(model, backend="aot_eager")',
            "loss = nn.functional.mse_loss(self.model(x), y)",
        ),
        options=(
            Option(
                says=r"(?i)call (the |what |`?self\.fast_model|its result)|fast_model",
                edits=(Edit(old="nn.functional.mse_loss(self.model(x), y)",
                            new="nn.functional.mse_loss(self.fast_model(x), y)"),),
            ),
        ),
    ),
    Case(
        name="generate_method",
        family="coverage",
        cause="a compiled module, another method called",
        program="""
import torch
from torch import nn


class Captioner(nn.Module):
    def __init__(self, vocabulary=9, width=6):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.embed(tokens).mean(dim=1))

    def predict(self, tokens):
        return self(tokens).softmax(-1)


torch.manual_seed(0)
captioner = torch.compile(Captioner(), backend="eager")
with torch.no_grad():
    total = sum(captioner.predict(torch.randint(0, 9, (2, 5))).max() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT303",),
        line=(
            'captioner = torch.compile(Captioner(), backend="eager")',
            "total = sum(captioner.predict(torch.randint(0, 9, (2, 5))).max() for _ in range(4))",
        ),
        says="predict",
        options=(
            Option(
                says=r"\.predict = torch\.compile|torch\.compile\([^)]*\.predict|compile .*predict",
                edits=(
                    Edit(
                        old='captioner = torch.compile(Captioner(), backend="eager")',
                        new="captioner = Captioner()\n"
                        'captioner.predict = torch.compile(captioner.predict, backend="eager")',
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="validation_bypass",
        family="coverage",
        cause="compiled in training, the raw module called in validation",
        program="""
import torch
from torch import nn


class Experiment:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.compiled = torch.compile(self.net, backend="aot_eager")
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def train_batch(self, x, y):
        loss = nn.functional.cross_entropy(self.compiled(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def validate(self, batches):
        return sum(nn.functional.cross_entropy(self.net(x), y).item() for x, y in batches)


def batch():
    return torch.randn(6, 4), torch.randint(0, 2, (6,))


torch.manual_seed(0)
experiment = Experiment()
for _ in range(3):
    for _ in range(3):
        experiment.train_batch(*batch())
    score = experiment.validate([batch() for _ in range(4)])
print(f"result {score:.5f}")
""",
        codes=("TT303", "TT309", "TT310", "TT311", "TT312"),
        line=(
            "return sum(nn.functional.cross_entropy(self.net(x), y).item() for x, y in batches)",
            'self.compiled = torch.compile(self.net, backend="aot_eager")',
        ),
        options=(
            Option(
                says=r"self\.compiled|compiled (module|model|wrapper)|the wrapper|its result",
                edits=(
                    Edit(
                        old="cross_entropy(self.net(x), y).item()",
                        new="cross_entropy(self.compiled(x), y).item()",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="sequential_compile_method",
        family="coverage",
        cause="nn.Sequential.compile() on a module of which only the children are called",
        program="""
import torch
from torch import nn


class Stack(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.layers.compile(backend="eager")

    def forward(self, x):
        activations = []
        for layer in self.layers:
            x = layer(x)
            activations.append(x.abs().mean())
        return x, torch.stack(activations)


torch.manual_seed(0)
stack = Stack()
with torch.no_grad():
    total = sum(stack(torch.randn(3, 5))[1].sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT303",),
        line='self.layers.compile(backend="eager")',
        options=(
            Option(
                says=r"(?i)compile (the|what|`?Stack)|stack|call self\.layers",
                edits=(
                    Edit(old='        self.layers.compile(backend="eager")\n', new=""),
                    Edit(old="stack = Stack()", new='stack = torch.compile(Stack(), backend="eager")'),
                ),
            ),
        ),
    ),
    Case(
        name="suppressed_failure",
        family="coverage",
        cause="suppress_errors hides that a custom backend fails",
        program="""
import torch
from torch import nn

torch._dynamo.config.suppress_errors = True


def fusing_backend(graph, example_inputs):
    if any(node.target is torch.nn.functional.gelu for node in graph.graph.nodes):
        raise NotImplementedError("gelu cannot be fused")
    return graph.forward


class Block(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


torch.manual_seed(0)
block = torch.compile(Block(), backend=fusing_backend)
with torch.no_grad():
    total = sum(block(torch.randn(2, 6)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT304",),
        line=(
            "return x + self.down(nn.functional.gelu(self.up(x)))",
            "def forward(self, x):",
            'raise NotImplementedError("gelu cannot be fused")',
            "block = torch.compile(Block(), backend=fusing_backend)",
        ),
        says=r"gelu cannot be fused|fusing_backend|NotImplementedError",
        options=(
            Option(
                says=r"(?i)suppress_errors|backend",
                is_as_printed=False,
                edits=(
                    Edit(old="torch._dynamo.config.suppress_errors = True\n", new=""),
                    Edit(old="backend=fusing_backend", new='backend="eager"'),
                ),
            ),
        ),
    ),
    Case(
        name="fullgraph_item",
        family="coverage",
        cause="control: fullgraph=True captures .item()",
        program="""
import torch
from torch import nn


class Normalizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x):
        hidden = self.linear(x)
        largest = hidden.abs().max().item()
        return hidden / largest


torch.manual_seed(0)
normalizer = torch.compile(Normalizer(), backend="eager", fullgraph=True)
with torch.no_grad():
    print(f"result {normalizer(torch.ones(2, 5)).sum().item():.5f}")
""",
        codes=(),
    ),
    Case(
        name="fullgraph_print",
        family="coverage",
        cause="print under fullgraph=True, in a helper",
        program="""
import torch


def show(name, value):
    print(name, value)


@torch.compile(backend="eager", fullgraph=True)
def attention_entropy(weights):
    entropy = -(weights * weights.clamp(min=1e-9).log()).sum(-1).mean()
    show("entropy", entropy)
    return entropy


torch.manual_seed(0)
total = sum(attention_entropy(torch.randn(2, 6).softmax(-1)) for _ in range(3))
print(f"result {total.item():.5f}")
""",
        codes=("TT308",),
        line="print(name, value)",
        says="print",
        options=(
            Option(
                says=r"(?i)move|out of|outside|reorderable_logging_functions",
                edits=(
                    Edit(old='    show("entropy", entropy)\n', new=""),
                ),
            ),
        ),
    ),
    Case(
        name="compile_same_function",
        family="coverage",
        cause="torch.compile of one function in every forward",
        program="""
import torch
from torch import nn


def fused_bias_gelu(x, bias):
    return nn.functional.gelu(x + bias)


class FeedForward(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        activate = torch.compile(fused_bias_gelu, backend="eager")
        return activate(self.linear(x), self.bias)


torch.manual_seed(0)
layer = FeedForward()
with torch.no_grad():
    total = sum(layer(torch.ones(3, 6)).sum() for _ in range(12))
print(f"result {total.item():.5f}")
""",
        codes=("TT309", "TT310", "TT311", "TT312"),
        line=(
            'activate = torch.compile(fused_bias_gelu, backend="eager")',
            "return activate(self.linear(x), self.bias)",
        ),
        says=r"(?i)compile",
        options=(
            Option(
                says=r"(?i)once|outside|__init__|module level",
                edits=(
                    Edit(old='        activate = torch.compile(fused_bias_gelu, backend="eager")\n', new=""),
                    Edit(old="return activate(", new="return fused_bias_gelu("),
                    Edit(old="def fused_bias_gelu", new='@torch.compile(backend="eager")\ndef fused_bias_gelu'),
                ),
            ),
        ),
    ),
)

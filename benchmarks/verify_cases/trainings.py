"""Three small trainings with a graph break, edits that cure it rightly, and edits that also do harm."""

CLASSIFIER = '''\
"""A classifier that prints its accuracy inside the compiled function."""
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 32)
        self.norm = nn.LayerNorm(32)
        self.drop = nn.Dropout(0.2)
        self.outer = nn.Linear(32, 4)

    def forward(self, x):
        return self.outer(self.drop(self.norm(self.inner(x)).relu()))


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.01)


def loss_of(x, y):
    scores = net(x)
    accuracy = (scores.argmax(-1) == y).float().mean().item()
    loss = nn.functional.cross_entropy(scores, y)
    penalty = 0.01 * sum(p.pow(2).sum() for p in net.parameters())
    return loss + penalty, accuracy


step = torch.compile(loss_of, backend="aot_eager")
history = []
for number in range(8):
    x = torch.randn(24, 12)
    y = torch.randint(0, 4, (24,))
    optimizer.zero_grad()
    loss, accuracy = step(x, y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    history.append(float(accuracy))
print(f"loss {loss.item():.5f} accuracy {sum(history) / len(history):.4f}")
'''
CURE = (".float().mean().item()", ".float().mean()")
CLASSIFIER_RIGHT = (
    ("accuracy stays a tensor", "cure", ()),
    ("softmax written out", "rounding", ((
        "nn.functional.cross_entropy(scores, y)",
        "-scores.log_softmax(-1).gather(-1, y[:, None]).mean()"),)),
    ("sum of squares in another order", "rounding", ((
        "0.01 * sum(p.pow(2).sum() for p in net.parameters())",
        "sum((0.01 * (p * p).flip(0)).sum() for p in net.parameters())"),)),
    ("linear written as a product", "rounding", ((
        "self.inner(x)", "(x @ self.inner.weight.t() + self.inner.bias)"),)),
    ("compiled by inductor", "rounding", (('backend="aot_eager"', 'backend="inductor"'),)),
    ("mean as a sum", "rounding", ((
        "nn.functional.cross_entropy(scores, y)",
        "nn.functional.cross_entropy(scores, y, reduction='sum') / len(y)"),)),
    ("labels drawn first", "draws", ((
        "    x = torch.randn(24, 12)\n    y = torch.randint(0, 4, (24,))\n",
        "    y = torch.randint(0, 4, (24,))\n    x = torch.randn(24, 12)\n"),)),
    ("another draw before the training", "draws", (("history = []", "history = []\ntorch.rand(3)"),)),
    ("dropout as bernoulli", "draws", ((
        "self.drop(self.norm(self.inner(x)).relu())",
        "(lambda h: h * torch.empty_like(h).bernoulli_(0.8) / 0.8)(self.norm(self.inner(x)).relu())"),)),
)
CLASSIFIER_WRONG = (
    ("penalty dropped", "dropped term", (("return loss + penalty, accuracy", "return loss, accuracy"),)),
    ("penalty tenfold smaller", "other constant", (("penalty = 0.01", "penalty = 0.001"),)),
    ("gradient of a layer lost", "lost gradient", (("self.norm(self.inner(x))", "self.norm(self.inner(x).detach())"),)),
    ("bias frozen", "lost gradient", ((
        "net = Net()", "net = Net()\nnet.outer.bias.requires_grad_(False)"),)),
    ("sum instead of mean", "other reduction", ((
        "nn.functional.cross_entropy(scores, y)", "nn.functional.cross_entropy(scores, y, reduction='sum')"),)),
    ("dropout removed", "lost dropout", (("self.drop(self.norm(self.inner(x)).relu())",
                                          "self.norm(self.inner(x)).relu()"),)),
    ("dropout in eval mode", "lost dropout", (("net = Net()", "net = Net()\nnet.drop.eval()"),)),
    ("dropout at half the rate", "changed dropout", (("nn.Dropout(0.2)", "nn.Dropout(0.1)"),)),
    ("bfloat16", "dtype lowered", ((
        "    scores = net(x)\n",
        "    with torch.autocast('cpu', torch.bfloat16):\n        scores = net(x)\n    scores = scores.float()\n"),)),
    ("half precision product", "dtype lowered", ((
        "self.inner(x)", "nn.functional.linear(x.bfloat16(), self.inner.weight.bfloat16(), "
                         "self.inner.bias.bfloat16()).float()"),)),
    ("compile disabled", "compile disabled", (('torch.compile(loss_of, backend="aot_eager")', "loss_of"),)),
    ("compiler disabled on the model", "compile disabled", ((
        "    scores = net(x)\n", "    scores = torch.compiler.disable(net)(x)\n"),)),
    ("break moved to another value", "break moved", (("    return loss + penalty, accuracy",
                                                      "    size = loss.item()\n    return loss + penalty, accuracy"),)),
    ("one step fewer", "fewer steps", (("range(8)", "range(7)"),)),
    ("half of each batch", "fewer samples", (("= step(x, y)", "= step(x[:12], y[:12])"),)),
    ("gradients not zeroed", "other gradients", (("    optimizer.zero_grad()\n", ""),)),
    ("no clipping", "other gradients", (("    nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n", ""),)),
    ("other learning rate", "other optimizer", (("lr=1e-2", "lr=9e-3"),)),
    ("no weight decay", "other optimizer", (("weight_decay=0.01", "weight_decay=0.0"),)),
    ("the same batch in each step", "draws reused", ((
        "history = []", "history = []\nbatch = torch.randn(24, 12)"),
        ("    x = torch.randn(24, 12)\n", "    x = batch\n"))),
    ("seeded in each step", "draws reused", ((
        "    x = torch.randn(24, 12)\n", "    torch.manual_seed(0)\n    x = torch.randn(24, 12)\n"),)),
    ("a generator made in each step", "draws reused", ((
        "    x = torch.randn(24, 12)\n",
        "    x = torch.randn(24, 12, generator=torch.Generator().manual_seed(0))\n"),)),
    ("norm without its weight", "dropped term", ((
        "self.norm(self.inner(x))", "nn.functional.layer_norm(self.inner(x), (32,), self.norm.weight * 0 + 1)"),)),
    ("a step raises", "fails", ((
        "    history.append(", "    if number == 5:\n        raise ValueError('lost')\n    history.append("),)),
)

ATTENTION = '''\
"""A language model with a causal mask whose size is asked for with int()."""
import torch
from torch import nn

torch.manual_seed(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 20)

    def forward(self, tokens):
        h = self.embed(tokens)
        q, k, v = self.qkv(h).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / 4.0
        longest = int((tokens > 0).sum(-1).max())
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, float("-inf"))
        return self.out(h + scores.softmax(-1) @ v), longest


model = Block()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
total = 0
for number in range(6):
    tokens = torch.randint(0, 20, (4, 10))
    scores, longest = compiled(tokens[:, :-1])
    weights = (tokens[:, 1:] > 0).float()
    losses = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    loss = (losses * weights.flatten()).sum() / weights.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += int(longest)
print("loss", round(loss.item(), 6), "longest", total)
'''
ATTENTION_CURE = ("int((tokens > 0).sum(-1).max())", "(tokens > 0).sum(-1).max()")
ATTENTION_RIGHT = (
    ("length stays a tensor", "cure", ()),
    ("scaled dot product attention", "rounding", ((
        "scores.softmax(-1) @ v",
        "nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.25)"),)),
    ("scaled before the product", "rounding", (("q @ k.transpose(-1, -2) / 4.0", "(q / 4.0) @ k.transpose(-1, -2)"),)),
    ("additive mask", "rounding", (('scores.masked_fill(~mask, float("-inf"))',
                                    'scores + torch.zeros_like(scores).masked_fill(~mask, float("-inf"))'),)),
    ("three products", "rounding", (("self.qkv(h).chunk(3, -1)", "(nn.functional.linear(h, w, b) for w, b in zip("
                                     "self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)))"),)),
    ("compiled by inductor", "rounding", (('backend="aot_eager"', 'backend="inductor"'),)),
)
ATTENTION_WRONG = (
    ("mask not causal", "wrong mask", ((".tril()", ".tril(1)"),)),
    ("mask dropped", "wrong mask", (('scores.masked_fill(~mask, float("-inf"))', "scores"),)),
    ("padding counted", "wrong mask", (("weights = (tokens[:, 1:] > 0).float()",
                                        "weights = (tokens[:, 1:] >= 0).float()"),)),
    ("scale forgotten", "other constant", (("/ 4.0", "/ 1.0"),)),
    ("residual dropped", "dropped term", (("h + scores.softmax", "scores.softmax"),)),
    ("mean over all tokens", "other reduction", (("/ weights.sum()", "/ weights.numel()"),)),
    ("targets not shifted", "wrong data", (("tokens[:, 1:].flatten()", "tokens[:, :-1].flatten()"),)),
    ("momentum lost", "other optimizer", ((", momentum=0.9", ""),)),
    ("value detached", "lost gradient", (("scores.softmax(-1) @ v", "scores.softmax(-1) @ v.detach()"),)),
    ("float16 scores", "dtype lowered", (("scores = q @ k.transpose(-1, -2) / 4.0",
                                          "scores = (q.bfloat16() @ k.bfloat16().transpose(-1, -2)).float() / 4.0"),)),
    ("compiled only the head", "compile disabled", ((
        'compiled = torch.compile(model, backend="aot_eager")',
        'compiled = model\nmodel.out = torch.compile(model.out, backend="aot_eager")'),)),
)

SLOW = '''\
"""A regression with 60 steps, whose step time can be measured."""
import torch
from torch import nn

torch.manual_seed(2)
net = nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)


@torch.compile(backend="aot_eager")
def loss_of(x):
    y = net(x)
    print("seen", len(x))
    return (y - x.mean(-1, keepdim=True)).pow(2).mean()


data = torch.randn(60, 256, 128)
for x in data:
    loss = loss_of(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.6f}")
'''
SLOW_CURE = ('    print("seen", len(x))\n', "")
SLOW_RIGHT = (("print removed", "cure", ()),)
SLOW_WRONG = (
    ("work done four times", "slower", (("    y = net(x)\n", "    for _ in range(4):\n        y = net(x)\n"),)),
    ("a wait in each step", "slower", (("import torch\n", "import time\n\nimport torch\n"),
                                       ("    optimizer.step()\n", "    optimizer.step()\n    time.sleep(0.02)\n"))),
)

FAMILIES = (
    ("classifier", CLASSIFIER, CURE, CLASSIFIER_RIGHT, CLASSIFIER_WRONG),
    ("attention", ATTENTION, ATTENTION_CURE, ATTENTION_RIGHT, ATTENTION_WRONG),
    ("regression", SLOW, SLOW_CURE, SLOW_RIGHT, SLOW_WRONG),
)

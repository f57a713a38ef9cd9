"""What is done with the result of a torch.compile call."""

import pytest

from tests.unit.lint.linted import findings, places

HEAD = "import torch\nfrom torch import nn\n"
FACTORY = HEAD + (
    "def make(w):\n    @torch.compile(backend='eager')\n    def loss(x):\n        return w * x\n    return loss\n"
)
HOLDER = HEAD + """
class Trainer:
    def __init__(self, net):
        self.net = net
        self.fast = torch.compile(net)
    def step(self, x):
        return STEP
    def check(self, x):
        return CHECK
Trainer(nn.Linear(2, 2)).step(torch.ones(2))
"""


@pytest.mark.parametrize("program", [
    "for w in range(5):\n    make(w)(torch.ones(2))\n",
    "for w in range(5):\n    f = make(w)\n    f(torch.ones(2))\n",
    "print([make(w)(torch.ones(2)) for w in range(5)])\n",
])
def test_a_factory_that_a_loop_calls(program: str) -> None:
    assert places(FACTORY + program) == ["TT309 train.py:4"]


@pytest.mark.parametrize("program", [
    "f = make(1)\nfor _ in range(5):\n    f(torch.ones(2))\n",
    "fs = [make(w) for w in range(5)]\n",
    "fs = {}\nfor w in range(5):\n    fs[w] = make(w)\n",
])
def test_a_factory_whose_results_are_kept(program: str) -> None:
    assert places(FACTORY + program) == []


def test_a_reset_in_the_loop_that_calls_compiled_code() -> None:
    made = "net = torch.compile(nn.Linear(2, 2))\n"
    source = f"{HEAD}{made}for _ in range(5):\n    torch.compiler.reset()\n    net(torch.ones(2))\n"
    assert places(source) == ["TT309 train.py:5"]
    assert places(source.replace("    torch.compiler.reset()\n", "    pass\n")) == []
    tried = f"for mode in (True, False):\n    torch._dynamo.reset()\n    {made}    net(torch.ones(2))\n"
    assert places(HEAD + tried) == ["TT309 train.py:5"]     # the compile call, not the reset before it


@pytest.mark.parametrize(("step", "check", "expected"), [
    ("self.net(x)", "None", ["TT303 train.py:7"]),
    ("self.fast(x)", "self.net(x)", ["TT310 train.py:7"]),
    ("self.fast(x)", "self.net.training", []),
    ("self.fast(x)", "None", []),
])
def test_a_compiled_module_in_a_field(step: str, check: str, expected: list[str]) -> None:
    assert places(HOLDER.replace("STEP", step).replace("CHECK", check)) == expected


def test_another_method_of_a_compiled_module_in_a_field() -> None:
    source = HEAD + (
        "class Agent(nn.Module):\n    def act(self, x):\n        return x\n"
        "    def forward(self, x):\n        return x\n"
    )
    runner = "class Runner:\n    def __init__(self):\n        self.agent = torch.compile(Agent())\n"
    runner += "    def run(self, x):\n"
    assert places(source + runner + "        return self.agent.act(x)\nRunner().run(torch.ones(2))\n") == [
        "TT303 train.py:12"
    ]
    assert places(source + runner + "        self.agent.eval()\n        return self.agent(x)\nRunner()\n") == []


def test_layers_that_are_compiled_together_and_called_one_by_one() -> None:
    source = HEAD + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 2))
        self.layers.compile()
    def forward(self, x):
        FORWARD
        return x
net = Net()
net(torch.ones(2))
"""
    assert places(source.replace("FORWARD", "for layer in self.layers: x = layer(x)")) == ["TT303 train.py:8"]
    assert places(source.replace("FORWARD", "x = self.layers(x)")) == []


def test_a_step_that_is_compiled_after_the_scheduler_is_p4() -> None:
    head = HEAD + "opt = torch.optim.SGD(nn.Linear(2, 2).parameters())\n"
    scheduler, compiled = "s = torch.optim.lr_scheduler.StepLR(opt, 3)\n", "step = torch.compile(opt.step)\n"
    [finding] = findings(head + scheduler + compiled)
    assert (finding.code, finding.location.line, finding.severity.name) == ("TT118", 5, "P4")
    assert places(head + compiled + scheduler) == []

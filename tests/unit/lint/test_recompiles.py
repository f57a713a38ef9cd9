"""Recompiles that the source shows, and what only looks like one."""

import pytest

from tests.unit.lint.linted import findings, places

HEAD = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n"
FUNCTION = "@torch.compile\ndef f(x, n):\n    return x * n\n"


@pytest.mark.parametrize("program", [
    FUNCTION + "for n in range(5):\n    f(torch.ones(3), n)\n",                     # a dynamic int after one recompile
    FUNCTION + "for n in range(5):\n    f(torch.ones(3), 2)\n",
    FUNCTION + "for n in range(5):\n    f(torch.ones(3), torch.tensor(n))\n",
    "LIMIT = 3\n@torch.compile\ndef f(x):\n    return x * LIMIT\ndef load():\n    global LIMIT\n    LIMIT = 4\n",
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.count = torch.zeros(())\n"
    "    def forward(self, x):\n        self.count += 1\n        return x\nnet = torch.compile(Net())\n",
    "class Log:\n    def __init__(self):\n        self.count = 0\n    def add(self):\n        self.count += 1\n"
    "net = torch.compile(nn.Linear(2, 2))\nlog = Log()\nfor _ in range(3):\n    net(torch.ones(2))\n    log.add()\n",
    "net = torch.compile(nn.Linear(2, 2), dynamic=False)\n"
    "for batch in DataLoader([1], batch_size=2, drop_last=True):\n    net(batch)\n",
    "STATS = {'calls': 0}\n@torch.compile\ndef f(x):\n    return x * 2\ndef note():\n    STATS['calls'] += 1\n"
    "for _ in range(5):\n    f(torch.ones(2))\n    note()\n",
    "models = [nn.Linear(2, 2) for _ in range(3)]\nfor i, model in enumerate(models):\n    models[i] = "
    "torch.compile(model)\n",
    "def validate(net, x):\n    with torch.no_grad():\n        return net(x)\nnet = torch.compile(nn.Linear(2, 2))\n"
    "net(torch.ones(2)).sum().backward()\nvalidate(net, torch.ones(2))\n",
    "class Lazy:\n    def __init__(self):\n        self.f = None\n    def get(self, g):\n        if self.f is None:\n"
    "            self.f = torch.compile(g)\n        return self.f\n",
    "model = nn.Linear(2, 2)\ncompiled = torch.compile(model)\nfor _ in range(3):\n    compiled(torch.ones(2))\n"
    "model(torch.ones(2))\n",
])
def test_what_settles_or_never_changes_is_not_reported(program: str) -> None:
    assert places(HEAD + program) == []


def test_a_method_that_the_compiled_module_does_not_compile() -> None:
    source = HEAD + (
        "class Net(nn.Module):\n    def encode(self, x):\n        return x\n"
        "    def forward(self, x):\n        return x\n"
    )
    called = source + "net = torch.compile(Net())\nnet.encode(torch.ones(2))\n"
    assert places(called) == ["TT303 train.py:10"]
    assert places(called + "net(torch.ones(2))\n") == []


def test_a_flip_that_settles_is_p4() -> None:
    [finding] = findings(HEAD + """
net = torch.compile(nn.Linear(2, 2))
for _ in range(3):
    with torch.no_grad():
        net(torch.ones(2))
    net(torch.ones(2))
""")
    assert (finding.code, finding.severity.name) == ("TT209", "P4")


def test_a_recompile_names_the_frame_that_torch_reports() -> None:
    [finding] = findings(HEAD + "ITEMS = [1, 2]\n@torch.compile\ndef f(x, n):\n    return x * ITEMS[n]\n"
                                "for n in range(2):\n    f(torch.ones(3), n)\n")
    assert (finding.code, finding.location.line) == ("TT204", 9)
    assert finding.raised_at is not None
    assert (finding.raised_at.function, finding.raised_at.line) == ("f", 5)


def test_an_item_of_a_global_that_counts_in_compiled_code() -> None:
    function = "@torch.compile\ndef f(x):\n    STATS['calls'] += 1\n    return x\n"
    line = HEAD.count("\n") + 4
    assert places(HEAD + "STATS = {'calls': 0}\n" + function + "f(torch.ones(2))\n") == [f"TT220 train.py:{line}"]

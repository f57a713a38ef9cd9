"""Arguments that differ from call to call, found through loops, helpers and callers."""

import pytest

from tests.unit.lint.linted import findings, places

HEAD = "import random\nimport math\nimport torch\nfrom torch import nn\n"
STATIC = HEAD + "net = torch.compile(nn.Linear(4, 4), dynamic=False)\n"
PLAIN = HEAD + "@torch.compile\ndef f(x, y=None):\n    return x\n"
BOUND = HEAD + "@torch.compile\ndef f(x, n):\n    for _ in range(n):\n        x = x + 1\n    return x\n"

VARIES = [
    ("TT202", STATIC + "for n in range(3, 9):\n    net(torch.randn(n, 4))\n"),
    ("TT202", STATIC + "for _ in range(9):\n    n = random.randint(3, 9)\n    net(torch.randn(n, 4))\n"),
    ("TT202", STATIC + "sum(net(torch.zeros((2, n, 4))).sum() for n in (3, 4, 5))\n"),
    ("TT202", STATIC + "def batch(n):\n    return torch.ones(n, 4)\nfor i in range(5):\n    net(batch(i + 2))\n"),
    ("TT202", STATIC + "def batches():\n    for i in range(5):\n        yield torch.rand(i + 2, 4), i\n"
              "for x, label in batches():\n    net(x)\n"),
    ("TT202", STATIC + "def run(sizes):\n    for n in sizes:\n        net(torch.randn(n, 4))\nrun([3, 5, 7])\n"),
    ("TT202", STATIC + "x = torch.zeros(1, 4)\nfor _ in range(5):\n    net(x)\n    x = torch.cat([x, x[-1:]])\n"),
    ("TT202", STATIC + "x = torch.zeros(30, 4)\nfor n in range(2, 9):\n    net(x[:n])\n"),
    ("TT204", BOUND + "def epoch(e):\n    f(torch.ones(3), e + 1)\nfor e in range(5):\n    epoch(e)\n"),
    ("TT204", BOUND + "n = 1\nfor _ in range(5):\n    f(torch.ones(3), n)\n    n += 1\n"),
    ("TT204", BOUND + "n = 1\nwhile n < 40:\n    f(torch.ones(3), n)\n    n = n * 2\n"),
    ("TT204", HEAD + "class A(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.n = 0\n"
              "    def run(self):\n        for _ in range(5):\n            self.n += 1\n"
              "            f(torch.ones(3), self.n)\n"
              "@torch.compile\ndef f(x, n):\n    return [x for _ in range(n)]\nA().run()\n"),
    ("TT205", HEAD + "@torch.compile(dynamic=False)\ndef f(x, t):\n    return x / t\nt = 1.0\nfor _ in range(5):\n"
              "    f(torch.ones(3), t)\n    t = max(0.1, t - 0.05)\n"),
    ("TT205", HEAD + "@torch.compile\ndef f(x, age):\n    return x * math.exp(-age)\nfor i in range(5):\n"
              "    f(torch.ones(3), 0.5 * i)\n"),
    ("TT211", PLAIN + "for i in range(5):\n    x = torch.ones(3)\n    if i % 2:\n        x = x.half()\n    f(x)\n"),
    ("TT211", PLAIN + "for dtype in (torch.float32, torch.float64):\n    f(torch.ones(3, dtype=dtype))\n"),
    ("TT211", PLAIN + "for dtype in (torch.float32, torch.int64):\n    f(torch.ones(3).to(dtype))\n"),
    ("TT213", PLAIN + "x = torch.ones(3, 3)\nfor _ in range(3):\n    f(x)\n    f(x.T)\n"),
    ("TT214", PLAIN + "for _ in range(3):\n    f(torch.ones(3))\n    f(torch.ones(2, 3))\n"),
    ("TT214", PLAIN + "x = torch.ones(2, 3)\nfor _ in range(3):\n    f(x[0])\n    f(x)\n"),
    ("TT216", PLAIN + "for i in range(5):\n    f({f'k{i + j}': torch.ones(1) for j in range(2)})\n"),
    ("TT217", PLAIN + "kept = []\nfor _ in range(5):\n    kept.append(torch.ones(1))\n    f(kept)\n"),
    ("TT217", PLAIN + "def run():\n    kept = []\n    for _ in range(5):\n        kept.append(torch.ones(1))\n"
              "        f(kept)\nrun()\n"),
    ("TT217", PLAIN + "kept = []\nfor _ in range(5):\n    kept = kept + [torch.ones(1)]\n    f(kept)\n"),
    ("TT218", PLAIN + "for i in range(5):\n    if i < 2:\n        y = None\n    else:\n        y = torch.ones(1)\n"
              "    f(torch.ones(1), y)\n"),
    ("TT219", PLAIN + "for fn in (torch.sin, torch.cos, torch.tan, torch.exp):\n    f(torch.ones(1), fn)\n"),
    ("TT219", PLAIN + "def config():\n    class Config:\n        pass\n    return Config()\nfor _ in range(5):\n"
              "    f(torch.ones(1), config())\n"),
    ("TT223", PLAIN + "for _ in range(3):\n    state = 0.0\n"
              "    for x in torch.ones(3, 2):\n        state = f(x, state)\n"),
    ("TT224", PLAIN + "class Log:\n    def log(self, step):\n        f(torch.ones(1), f'run/{step}')\n"
              "log = Log()\nfor step in range(9):\n    log.log(step)\n"),
]
SETTLES = [
    STATIC + "for n in range(3, 9):\n    net(torch.randn(8, 4))\n",
    STATIC + "n = random.randint(3, 9)\nx = torch.randn(n, 4)\nfor _ in range(5):\n    net(x)\n",
    STATIC + "for i in range(3):\n    last = i\nfor _ in range(5):\n    net(torch.randn(last + 2, 4))\n",
    STATIC + "for n in range(3, 9):\n    x = torch.randn(n, 4)\n    torch._dynamo.mark_dynamic(x, 0)\n    net(x)\n",
    STATIC + "x = torch.zeros(8, 4)\nfor n in range(3, 9):\n    net(x * n)\n",
    BOUND + "for e in range(5):\n    f(torch.ones(3), 4)\n",
    BOUND + "def run(n):\n    for _ in range(3):\n        f(torch.ones(3), n)\nrun(4)\n",
    PLAIN + "for i in range(5):\n    f(torch.ones(3), i)\n",
    PLAIN + "for i in range(5):\n    f(torch.ones(3), 0.5 * i)\n",
    PLAIN + "def run(half):\n    x = torch.ones(3)\n    if half:\n        x = x.half()\n"
    "    for _ in range(3):\n        f(x)\nrun(True)\n",
    PLAIN + "for _ in range(5):\n    kept = []\n    for _ in range(3):\n        kept.append(torch.ones(1))\n"
    "    f(kept)\n",
    PLAIN + "for _ in range(5):\n    table = {}\n    for k in ('a', 'b'):\n        table[k] = torch.ones(1)\n"
    "    f(table)\n",
    PLAIN + "for i in range(5):\n    f({k: torch.ones(1) * i for k in ('a', 'b')})\n",
    PLAIN + "for fn in (torch.sin, torch.cos):\n    print(fn)\nfor _ in range(5):\n    f(torch.ones(1), torch.sin)\n",
    PLAIN + "name = f'run/{random.random()}'\nfor _ in range(5):\n    f(torch.ones(1), name)\n",
    PLAIN + "f(torch.ones(random.randint(1, 5)), f'{random.random()}')\n",
    PLAIN + "for i in range(5):\n    y = torch.ones(1) if i else torch.zeros(1)\n    f(torch.ones(1), y)\n",
]


@pytest.mark.parametrize(("code", "program"), VARIES)
def test_what_differs_between_calls_is_found(code: str, program: str) -> None:
    assert [place.split()[0] for place in places(program)] == [code]


@pytest.mark.parametrize("program", SETTLES)
def test_what_is_the_same_in_each_call_or_becomes_dynamic_is_not_reported(program: str) -> None:
    assert places(program) == []


@pytest.mark.parametrize(("values", "severity"), [("'a', 'b'", "P4"), ("'a', 'b', 'c', 'd', 'e'", "P3")])
def test_a_few_known_values_settle_and_are_p4(values: str, severity: str) -> None:
    [finding] = findings(PLAIN + f"for mode in ({values}):\n    f(torch.ones(1), mode)\n")
    assert (finding.code, finding.severity.name) == ("TT224", severity)


def test_the_cause_names_the_argument_and_the_compile_call() -> None:
    [finding] = findings(STATIC + "for n in range(3, 9):\n    net(torch.randn(n, 4))\n")
    assert "`torch.randn(n, 4)` has another size in other calls" in finding.cause
    assert "compiled at train.py:5" in finding.cause

"""lint follows a torch.compile to all that it compiles, and stops where the compiler does."""

from textwrap import indent

import pytest

from tests.unit.lint.linted import findings, places

HEAD = "import torch\nfrom torch import nn\n"
PRINTER = (
    HEAD
    + """
class Net(nn.Module):
    def forward(self, x):
        print(x.shape)
        return x
"""
)


@pytest.mark.parametrize(
    "program",
    [
        "net = torch.compile(Net())",
        "net = Net()\nnet.compile()",
        "net = Net()\nnet.forward = torch.compile(net.forward)",
        "from functools import partial\nfast = partial(torch.compile, backend='eager')\nnet = fast(Net())",
        "def make():\n    return torch.compile(Net())\nnet = make()",
        "def wrapped(module):\n    return torch.compile(module, dynamic=True)\nnet = wrapped(Net())",
        "def main():\n    model = nn.Sequential(nn.Linear(4, 4), Net())\n    torch.compile(model)(torch.ones(4))",
        "class Outer(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.blocks = nn.ModuleList([Net() for _ in range(3)])\n"
        "    def forward(self, x):\n        for block in self.blocks:\n            x = block(x)\n        return x\n"
        "net = torch.compile(Outer())",
        "class Outer(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.parts = nn.ModuleDict({'a': Net()})\n"
        "    def forward(self, x):\n        return self.parts['a'](x)\nnet = torch.compile(Outer())",
        "class Derived(Net):\n    def forward(self, x):\n        return super().forward(x) + 1\nnet = "
        "torch.compile(Derived())",
        "class Agent:\n    def __init__(self):\n        self.net = Net()\n        self.step = "
        "torch.compile(self._step)\n"
        "    def _step(self, x):\n        return self.net(x)\nAgent().step(torch.ones(3))",
        "def closed(net):\n    def inner(x):\n        return net(x)\n    return "
        "torch.compile(inner)\nclosed(Net())(torch.ones(2))",
        "f = torch.compile(lambda net, x: net(x))\nf(Net(), torch.ones(2))",
        "class Outer(nn.Sequential):\n    def __init__(self):\n        super().__init__(nn.Linear(4, 4), Net())\n"
        "net = torch.compile(Outer())",
        "class Outer(nn.ModuleList):\n    def __init__(self):\n        super().__init__([Net() for _ in range(3)])\n"
        "    def forward(self, x):\n        for block in self:\n            x = block(x)\n        return self[0](x)\n"
        "net = torch.compile(Outer())",
        "class Holder(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.parts = Parts({'a': Net()})\n    def forward(self, x):\n        return self.parts['a'](x)\n"
        "class Parts(nn.ModuleDict):\n    pass\nnet = torch.compile(Holder())",
        "def closed(net):\n    def inner(x):\n        return net(x)\n    return torch.compile(inner)\n"
        "def main():\n    step = closed(Net())\n    step(torch.ones(2))\nmain()",
    ],
)
def test_a_compile_call_of_any_form_reaches_the_forward(program: str) -> None:
    found = places(PRINTER + program + "\n")
    assert [place for place in found if place.endswith("train.py:6")] != []


@pytest.mark.parametrize(("build", "call"), [
    ("self.parts = nn.ModuleList()\nfor _ in range(3):\n    self.parts.append(Net())", "self.parts[0](x)"),
    ("self.parts = nn.Sequential()\nself.parts.add_module('a', Net())", "self.parts(x)"),
    ("self.parts = nn.ModuleDict()\nself.parts['a'] = Net()", "self.parts['a'](x)"),
    ("self.add_module('part', Net())", "self.part(x)"),
    ("for i in range(2):\n    setattr(self, f'part{i}', Net())", "getattr(self, f'part{x.dim()}')(x)"),
    ("parts = OrderedDict()\nfor i in range(2):\n    parts[f'a{i}'] = Net()\nself.parts = nn.Sequential(parts)",
     "self.parts(x)"),
    ("self.parts = nn.Sequential(OrderedDict([('a', nn.Linear(4, 4)), ('b', Net())]))", "self.parts(x)"),
])
def test_modules_that_are_added_one_by_one_are_reached(build: str, call: str) -> None:
    outer = (
        "from collections import OrderedDict\nclass Outer(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n{indent(build, ' ' * 8)}\n    def forward(self, x):\n        return {call}\n"
    )
    assert places(PRINTER + outer + "net = torch.compile(Outer())\n") == ["TT101 train.py:6"]


def test_a_print_that_no_compile_reaches_is_not_reported() -> None:
    assert (
        places(PRINTER + "net = Net()\nother = torch.compile(nn.Linear(4, 4))\nprint(net(other(torch.ones(4))))\n")
        == []
    )


def test_the_finding_carries_the_path() -> None:
    files = {
        "layers": HEAD + "def norm(x):\n    print('norm')\n    return x\n",
        "train": HEAD
        + "from layers import norm\nclass Net(nn.Module):\n    def forward(self, x):\n        return norm(x)\n"
        "net = torch.compile(Net())\n",
    }
    [finding] = findings(**files)
    assert "train.py:7 compiles Net.forward -> norm, called at train.py:6" in finding.cause
    assert finding.location.path.endswith("/layers.py")


@pytest.mark.parametrize(
    "guard",
    [
        "if not torch.compiler.is_compiling():",
        "if not torch.compiler.is_dynamo_compiling():",
        "if torch.jit.is_scripting():",
        "if DEBUG:",
        "if self.verbose:",
    ],
)
def test_code_that_a_guard_keeps_out_is_not_reported(guard: str) -> None:
    assert (
        places(f"""
import torch
from torch import nn
DEBUG = False
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.verbose = False
    def forward(self, x):
        {guard}
            print(x)
        return x
net = torch.compile(Net())
""")
        == []
    )


def test_the_branch_for_compiled_code_is_followed() -> None:
    assert places(
        HEAD + "@torch.compile\ndef f(x):\n    if torch.compiler.is_compiling():\n        print(x)\n    return x\n"
    ) == ["TT101 train.py:6"]


@pytest.mark.parametrize(
    "decorator", ["torch.compiler.disable", "torch._dynamo.disable", "torch.compiler.allow_in_graph"]
)
def test_the_path_ends_at_a_function_that_is_not_traced(decorator: str) -> None:
    found = places(
        HEAD + f"@{decorator}\ndef log(x):\n    print(x)\n@torch.compile\ndef f(x):\n    log(x)\n    return x + 1\n"
    )
    assert not any(place.startswith("TT101") for place in found)


def test_a_property_and_an_overridden_method_are_followed() -> None:
    assert places(
        HEAD
        + """
class Base(nn.Module):
    def forward(self, x):
        return self.branch(x) * self.scale
class Own(Base):
    @property
    def scale(self):
        print("scale")
        return 2
    def branch(self, x):
        print("branch")
        return x
net = torch.compile(Own())
"""
    ) == ["TT101 train.py:13", "TT119 train.py:10"]


def test_a_recursive_function_ends() -> None:
    assert places(HEAD + "@torch.compile\ndef f(x, n):\n    print(n)\n    return f(x, n - 1) if n else x\n") == [
        "TT101 train.py:5"
    ]


def test_a_block_above_the_call_of_a_helper_makes_it_eager() -> None:
    [finding] = findings(
        HEAD
        + """
def log(x):
    print(x)
@torch.compile
def f(xs):
    for x in xs:
        log(x)
    return xs
"""
    )
    assert (finding.code, finding.severity.name) == ("TT119", "P1")
    assert "the loop at line 8" in finding.cause


def test_fullgraph_makes_a_break_an_error() -> None:
    [finding] = findings(HEAD + "@torch.compile(fullgraph=True)\ndef f(x):\n    print(x)\n    return x\n")
    assert finding.code == "TT308"


HOOK = HEAD + "seen = []\ndef watch(module, args, out):\n    seen.append(out.max().item())\n"
SMALL = "net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\n"


@pytest.mark.parametrize("program", [
    SMALL + "net[0].register_forward_hook(watch)\n",
    SMALL + "net.register_forward_hook(watch)\n",
    SMALL + "for module in net.modules():\n    module.register_forward_hook(watch)\n",
    SMALL + "for name, module in net.named_children():\n    module.register_forward_hook(watch)\n",
    "net = nn.Sequential(*[nn.Linear(2, 2) for _ in range(3)], nn.ReLU(), nn.Tanh(), nn.ELU(), nn.GELU(), nn.SiLU())\n"
    "for module in net.modules():\n    module.register_forward_hook(watch)\n",
])
def test_a_hook_runs_in_the_graph_of_its_module(program: str) -> None:
    compiled = "fast = torch.compile(net)\nfast(torch.ones(2))\n"
    assert [place for place in places(HOOK + program + compiled) if place.endswith(":5")] != []


def test_hooks_that_compiled_code_does_not_run_are_not_followed() -> None:
    other = "net = nn.Linear(2, 2)\nother = nn.Linear(2, 2)\nother.register_forward_hook(watch)\n"
    assert places(HOOK + other + "torch.compile(net)(other(torch.ones(2)))\n") == []
    late = "net = nn.Linear(2, 2)\nfast = torch.compile(net)\nfast(torch.ones(2))\nnet.register_forward_hook(watch)\n"
    assert places(HOOK + late) == []


def test_a_forward_hook_in_a_constructor_and_a_backward_hook_with_an_effect() -> None:
    net = HEAD + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norms = nn.Linear(2, 2), []
        self.inner.register_forward_pre_hook(self.check)
    def check(self, module, args):
        print("checked")
    def forward(self, x):
        hidden = self.inner(x)
        hidden.register_hook(lambda grad: HOOK)
        return hidden.sum()
net = torch.compile(Net())
"""
    assert places(net.replace("HOOK", "grad.clamp(-1, 1)")) == ["TT101 train.py:10"]
    assert places(net.replace("HOOK", "self.norms.append(grad)")) == ["TT101 train.py:10", "TT116 train.py:13"]


@pytest.mark.parametrize("program", [
    "import functools\nfast = torch.compile(functools.partial(noisy, shout=True))\nfast(torch.ones(2))",
    "import functools\nfast = functools.partial(torch.compile(noisy), shout=True)\nfast(torch.ones(2))",
    "table = {}\ndef add(f):\n    table['f'] = f\n    return f\nadd(noisy)\n"
    "fast = torch.compile(table['f'])\nfast(torch.ones(2), True)",
    "class Agent:\n    def __init__(self):\n        self.run = torch.compile(self._run)\n    def _run(self, x):\n"
    "        return noisy(x, True)\nAgent().run(torch.ones(2))",
    "class Call(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return noisy(x, True)\n"
    "    @staticmethod\n    def backward(ctx, grad):\n        return grad\n"
    "@torch.compile\ndef f(x):\n    return Call.apply(x)\nf(torch.ones(2))",
    "OPTIONS = dict(fullgraph=False)\nfast = torch.compile(noisy, **OPTIONS)\nfast(torch.ones(2), True)",
])
def test_bound_options_tables_and_autograd_functions_are_followed(program: str) -> None:
    noisy = HEAD + "def noisy(x, shout):\n    if shout:\n        print('here')\n    return x\n"
    assert [place for place in places(noisy + program + "\n") if place.endswith(":5")] != []


def test_a_class_that_its_decorator_puts_into_a_table_is_followed_into_another_file() -> None:
    files = {
        "registry": "TABLE = {}\ndef register(name):\n    def add(cls):\n        TABLE[name] = cls\n"
                    "        return cls\n    return add\n",
        "nets": HEAD + "from registry import TABLE, register\n@register('net')\nclass Net(nn.Module):\n"
                       "    def forward(self, x):\n        print(x.shape)\n        return x\n"
                       "def build(name):\n    return TABLE[name]()\n",
        "train": "import torch\nfrom nets import build\nfast = torch.compile(build('net'))\nfast(torch.ones(2))\n",
    }
    assert places(**files) == ["TT101 nets.py:7"]


def test_the_options_of_a_compile_call_may_be_in_a_dict() -> None:
    source = HEAD + "OPTIONS = {'fullgraph': True}\n@torch.compile(**OPTIONS)\ndef f(x):\n    return x.item()\n"
    assert places(source) == ["TT308 train.py:6"]


TWO = (
    HEAD
    + """
class Quiet(nn.Module):
    def forward(self, x):
        return x
class Loud(nn.Module):
    def forward(self, x):
        print(x.shape)
        return x
NETS = {"quiet": Quiet, "loud": Loud}
FACTORY
def main():
    CALL(torch.ones(2))
main()
"""
)


BUILD = "def build(kind, fast=True):\n    net = NETS[kind]()\n    return torch.compile(net) if fast else net"
CHOOSE = (
    "def build(kind):\n    if kind == 'quiet':\n        return torch.compile(Quiet())\n"
    "    return torch.compile(Loud())"
)
MATCH = (
    "def build(kind):\n    match kind:\n        case 'quiet' | 'still':\n            return torch.compile(Quiet())\n"
    "        case _:\n            return torch.compile(Loud())"
)


@pytest.mark.parametrize(
    ("factory", "call", "reaches"),
    [
        (BUILD, "build('loud')", True),
        (BUILD, "build('quiet')", False),
        (BUILD, "build('loud', fast=False)", False),
        (BUILD, "[build(kind) for kind in names()][0]", True),
        (CHOOSE, "build('loud')", True),
        (CHOOSE, "build('quiet')", False),
        (MATCH, "build('loud')", True),
        (MATCH, "build('still')", False),
    ],
)
def test_a_factory_compiles_what_its_callers_ask_for(factory: str, call: str, reaches: bool) -> None:
    found = places(TWO.replace("FACTORY", factory).replace("CALL", call))
    assert bool(found) is reaches


@pytest.mark.parametrize(
    "program",
    [
        "class Booster:\n    def __init__(self, *names):\n        self.names = names\n"
        "    def apply(self, owner):\n        for name in self.names:\n"
        "            setattr(owner, name, torch.compile(getattr(owner, name)))\n"
        "class Agent:\n    def __init__(self):\n        self.net = Net()\n"
        "        Booster('step', 'other').apply(self)\n"
        "    def step(self, x):\n        return self.net(x)\n    def other(self, x):\n        return x\n"
        "Agent().step(torch.ones(3))",
        "def options():\n    return {'backend': 'eager', 'disable': False}\nnet = torch.compile(Net(), **options())",
        "net = torch.compile(nn.Sequential(Net()))",
    ],
)
def test_names_and_options_that_a_program_makes_are_followed(program: str) -> None:
    assert [place for place in places(PRINTER + program + "\n") if place.endswith("train.py:6")] != []


def test_a_bare_sequential_is_given_a_tensor() -> None:
    program = HEAD + (
        "class Net(nn.Module):\n    def forward(self, x):\n        if x.max() > 1:\n            x = x * 2\n"
        "        return x\nnet = torch.compile(nn.Sequential(Net()))\n"
    )
    assert places(program) == ["TT103 train.py:5"]


JIT = HEAD + (
    "import functools\n"
    "def jit(fn=None, *, dynamic=None):\n    def wrap(f):\n"
    "        compiled = torch.compile(f, backend='eager', dynamic=dynamic)\n"
    "        @functools.wraps(f)\n        def call(*args, **kwargs):\n"
    "            return compiled(*args, **kwargs)\n        return call\n"
    "    return wrap if fn is None else wrap(fn)\n"
)


def test_each_function_of_a_decorator_of_the_project_is_followed() -> None:
    functions = "".join(f"@jit\ndef f{n}(x):\n    return x.sum().item()\nf{n}(torch.ones(2))\n" for n in range(12))
    assert len(places(JIT + functions)) == 12


def test_the_calls_behind_a_wrapper_are_those_of_what_it_compiles() -> None:
    program = JIT + "@jit(dynamic=False)\ndef f(x):\n    return x * 2\nfor n in (3, 5, 7):\n    f(torch.ones(n))\n"
    assert places(program) == ["TT202 train.py:16"]


@pytest.mark.parametrize(("annotation", "expected"), [("Tensor", ["TT119 train.py:5"]), ("TensorDict", [])])
def test_an_argument_with_the_annotation_of_another_class_is_no_tensor(annotation: str, expected: list[str]) -> None:
    program = HEAD + f"@torch.compile\ndef f(td: {annotation}):\n    return td.sum() if 'key' in td else td\n"
    assert places(program.replace("Tensor)", "torch.Tensor)")) == expected


@pytest.mark.parametrize("listed", ["", "__all__ = ['Net', 'Other']\n"])
def test_a_star_import_gives_the_names_of_the_module(listed: str) -> None:
    found = places(
        train="import torch\nfrom shelf import *\nfast = torch.compile(Net())\n",
        shelf="import torch\nfrom nets import *\n", nets=PRINTER + listed,
    )
    assert [place for place in found if place.endswith("nets.py:6")] == ["TT101 nets.py:6"]


def test_a_guard_of_the_project_for_compiled_code() -> None:
    program = HEAD + (
        "def tracing():\n    if torch.__version__ < '2':\n        return False\n"
        "    return torch.compiler.is_compiling()\n"
        "@torch.compile\ndef f(x):\n    if not tracing():\n        print(x)\n    return x\n"
    )
    assert places(program) == []


@pytest.mark.parametrize(("body", "expected"), [
    ("return x.index_select(0, i)", []),
    ("if i.dim() != 1:\n            raise IndexError\n        return x", ["TT103 train.py:10"]),
])
def test_a_handler_is_reached_by_a_raise_alone(body: str, expected: list[str]) -> None:
    program = HEAD + (
        f"@torch.compile\ndef f(x, i):\n    try:\n        {body}\n    except IndexError:\n"
        "        if i.min() < 0:\n            x = -x\n        return x\n"
    )
    assert places(program) == expected


def test_random_random_cannot_be_traced() -> None:
    program = HEAD + "import random\n@torch.compile\ndef f(x):\n    return x if random.random() < 0.5 else -x\n"
    assert places(program) == ["TT125 train.py:6"]


def test_a_list_at_the_top_of_a_file_that_compiled_code_makes_longer() -> None:
    program = HEAD + "SEEN = []\n@torch.compile\ndef f(x):\n    SEEN.append(x)\n    return x\n"
    assert places(program) == ["TT217 train.py:6"]
    own = HEAD + "@torch.compile\ndef f(x):\n    seen = []\n    seen.append(x)\n    return x\n"
    assert places(own) == []


def test_a_counter_of_a_plain_object_recompiles_once() -> None:
    program = HEAD + (
        "class Meter:\n    def __init__(self):\n        self.n = 0\n    @torch.compile\n    def add(self, x):\n"
        "        self.n += 1\n        return x * self.n\nMeter().add(torch.ones(2))\n"
    )
    [found] = findings(program)
    assert (found.code, found.severity.name) == ("TT206", "P4")


TOOLS = HEAD + (
    "def quiet(x):\n    return x\ndef loud(x):\n    print(x.shape)\n    return x\n"
    "ALL = {f.__name__: f for f in (quiet, loud)}\nCONFIG = {'debug': False}\n"
)


def test_a_table_that_a_comprehension_makes_is_read_by_name() -> None:
    assert places(TOOLS + "fast = torch.compile(ALL['loud'])\n") == ["TT101 train.py:6"]
    assert places(TOOLS + "fast = torch.compile(ALL['quiet'])\n") == []
    assert places(TOOLS + "for name in ALL:\n    torch.compile(ALL[name])(torch.ones(2))\n") == ["TT101 train.py:6"]


def test_a_setting_of_a_dict_decides_unless_something_writes_to_it() -> None:
    program = TOOLS + (
        "@torch.compile\ndef f(x):\n    if CONFIG['debug']:\n        print(x.sum().item())\n    return x\n"
    )
    assert places(program) == []
    assert places(program + "CONFIG['debug'] = bool(input())\n") != []

"""Which values are tensors, and which Python needs their values."""

import pytest

from tests.unit.lint.linted import findings

BODY = """
import math
import torch
from torch import nn
from torch.nn import functional as F
ITEMS = [1, 2, 3]
class Net(nn.Module):
    def __init__(self, dim=4, mask=None, p=0.0):
        super().__init__()
        self.lin, self.p, self.mask = nn.Linear(dim, dim), p, mask
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.register_buffer("table", torch.zeros(4))
        self.names = ["a"]
    def forward(self, x, flag: bool = False, other=None):
        y = self.lin(x)
        {line}
        return y
net = torch.compile(Net())
"""


def codes(line: str) -> list[str]:
    return [f"{f.code} {f.severity.name}" for f in findings(BODY.replace("{line}", line.replace("\n", "\n        ")))]


@pytest.mark.parametrize(
    "line",
    [
        "if y.shape[0] > 4: y = y * 2",
        "if len(x) > 3: y = y * 2",
        "if self.training: y = y * 2",
        "if other is not None: y = y + other",
        "if isinstance(x, torch.Tensor): y = y + 1",
        "if self.p > 0: y = F.dropout(y, self.p)",
        "if flag: y = y * 2",
        "if x.dtype == torch.float16: y = y.float()",
        "if x.is_cuda and x.requires_grad: y = y * 2",
        "if self.mask is None: y = y * 2",
        "for layer in self.layers: y = layer(y)",
        "for i in range(x.size(0)): y = y + i",
        "n = int(y.shape[0])",
        "n = float(y.numel())",
        "assert x.ndim == 2, f'got {x.shape}'",
        "assert (x > 0).all()",
        "assert y.isfinite().all(), 'not finite'",
        "y = torch.where(y > 0, y, -y)",
        "y[y > 0] = 0.0",
        "y = y.masked_fill(y > 0, 0.0)",
        "n = len(self.names)",
        "if not self.names: y = y * 2",
        "y = y[ITEMS[0]]",
        "y = y.repeat_interleave(2)",
        "if 'a' in self.names: y = y * 2",
        "k = max(x.shape)",
        "y = math.sqrt(y.shape[-1]) * y",
        "if x.device.type == 'cuda': y = y * 2",
        "if hasattr(self, 'extra'): y = y * 2",
        "y = torch.nonzero_static(y, size=2)",
        "if torch.is_grad_enabled(): y = y * 2",
        "with torch.no_grad(): y = y * 2",
        "if y.shape == x.shape: y = y + x",
        "if any(t.dim() > 3 for t in (x, y)): y = y * 2",
        "if any(y > 0): y = y * 2",
    ],
)
def test_a_harmless_look_alike_is_not_reported(line: str) -> None:
    assert codes(line) == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("if y.sum() > 0: y = y * 2", "TT103"),
        ("flags = [(row > 0).all() for row in y]\nif any(flags): y = y * 2", "TT103"),
        ("if all([y.sum() > 0, x.sum() > 0]): y = y * 2", "TT103"),
        ("if any((row > 0).all() for row in y): y = y * 2", "TT113"),
        ("if not y.any(): y = y * 2", "TT103"),
        ("while y.norm() > 1: y = y / 2", "TT103"),
        ("y = y if y.max() > 1 else -y", "TT103"),
        ("if flag and y.mean() > 0: y = y * 2", "TT103"),
        ("if self.table.sum(): y = y * 2", "TT103"),
        ("assert y.isfinite().all(), f'bad {y}'", "TT103"),
        ("if bool(y.any()): y = y * 2", "TT103"),
        ("if torch.isnan(y).any(): raise ValueError", "TT103"),
        ("n = y.mean().item()", "TT104"),
        ("n = float(y.sum())", "TT104"),
        ("n = int(self.lin.weight.norm())", "TT104"),
        ("n = y.tolist()", "TT104"),
        ("if torch.allclose(y, x): y = y * 2", "TT104"),
        ("parts = [p.norm().item() for p in self.parameters()]", "TT104"),
        ("y = y[y > 0]", "TT105"),
        ("n = y.nonzero()", "TT105"),
        ("y = torch.unique(y)", "TT105"),
        ("n = torch.where(y > 0)", "TT105"),
        ("y = y.masked_select(y > 0)", "TT105"),
        ("keep = (y > 0) & (y < 1)\ny = y[keep]", "TT105"),
    ],
)
def test_python_that_needs_the_value_of_a_tensor_is_reported(line: str, code: str) -> None:
    assert codes(line) == [f"{code} P3"]


def test_a_number_of_numpy_and_a_checked_type_are_no_tensors() -> None:
    assert codes("import numpy as np\nscale = float(np.sqrt(y.shape[-1]))") == []
    assert codes("if isinstance(other, (int, float)):\n    y = y * float(other)") == []
    assert codes("if isinstance(y, float):\n    y = torch.tensor(float(y))") == []
    assert codes("import numpy as np\nscale = float(np.mean(self.names))") == ["TT104 P3"]


@pytest.mark.parametrize(("line", "code"), [
    ("flag = bool((y > 0).all())", "TT104"),
    ("flag = (y > 0).all() and y.sum() > 0", "TT103"),
    ("flag = any([(y > 0).all(), (y < 0).all()])", "TT103"),
    ("rows = [v for v in y if v > 0]", "TT103"),
])
def test_the_truth_of_a_tensor_is_asked_outside_of_an_if(line: str, code: str) -> None:
    assert codes(line) == [f"{code} P3"]


@pytest.mark.parametrize("line", [
    "flag = bool(self.names)",
    "flag = flag and (y > 0).all()",
    "flag = any([flag, self.training])",
    "rows = [v for v in y if v is not None]",
    "flag = (y > 0).all() & (y < 9).all()",
])
def test_the_truth_of_python_values_is_not_reported(line: str) -> None:
    assert codes(line) == []


@pytest.mark.parametrize("draw", ["rand(3)", "normal(size=3)", "normal(0.0, 1.0, 3)", "randint(0, 5, 3)"])
def test_an_array_of_random_numbers_is_traced(draw: str) -> None:
    assert codes(f"import numpy as np\ny = y + torch.tensor(np.random.{draw})") == []


@pytest.mark.parametrize("draw", ["rand()", "normal(0.0, 1.0)", "randint(5)", "permutation(3)", "beta(1, 1, size=3)"])
def test_a_single_random_number_of_numpy_breaks(draw: str) -> None:
    assert codes(f"import numpy as np\ny = y + np.random.{draw}") == ["TT114 P3"]


def test_a_tensor_that_the_graph_makes_and_that_starts_to_record() -> None:
    assert codes("z = torch.zeros(4)\nz.requires_grad_()") == ["TT110 P3"]
    assert codes("z = y.detach().requires_grad_()") == ["TT110 P3"]
    assert codes("z = torch.zeros(4, requires_grad=True)\nz.requires_grad_()") == []
    assert codes("y.requires_grad_()") == []


def test_a_shape_compared_with_an_unknown_value_is_not_a_tensor() -> None:
    source = "import torch\n@torch.compile\ndef f(x, size):\n    if x.shape != size:\n        x = x * 2\n    return x\n"
    assert [f.code for f in findings(source)] == []


def test_the_shape_of_anything_is_not_a_tensor() -> None:
    assert codes("for a, size in ((x, (4, 4)), ('y', 3)):\n    if a.shape != size:\n        y = y + 1") == []


@pytest.mark.parametrize(("test", "fix"), [
    ("other is not None and y.any()", "torch.where(y.any(), a, b) over both outcomes, under `if other is not None:`"),
    ("y.max() > 0 and not y.isnan().any()", "torch.where((y.max() > 0) & ~y.isnan().any(), a, b) over both outcomes;"),
])
def test_the_fix_reads_no_tensor_by_and_or_not(test: str, fix: str) -> None:
    [finding] = findings(BODY.replace("{line}", f"if {test}: y = y * 2"))
    assert finding.fix.text.startswith(fix)


def test_a_value_that_may_be_a_tensor_gives_p4_and_says_may() -> None:
    [finding] = findings("import torch\n@torch.compile\ndef f(x):\n    if x > 0:\n        return x * 2\n    return x\n")
    assert (finding.code, finding.severity.name) == ("TT103", "P4")
    assert " may " in finding.title


def test_the_argument_of_the_call_decides_what_a_parameter_is() -> None:
    source = "import torch\n@torch.compile\ndef f(x, n):\n    if n > 0:\n        return x * 2\n    return x\n"
    assert [f.code for f in findings(source + "f(torch.ones(3), 2)\n")] == []
    assert [f.code for f in findings(source + "f(torch.ones(3), torch.tensor(2))\n")] == ["TT103"]


def test_a_setting_of_dynamo_silences_what_it_cures() -> None:
    source = "import torch\n{}\n@torch.compile\ndef f(x):\n    return x / x.sum().item()\n"
    assert [f.code for f in findings(source.format(""))] == ["TT104"]
    assert [f.code for f in findings(source.format("torch._dynamo.config.capture_scalar_outputs = True"))] == []


def test_a_break_in_a_property_cannot_be_cut() -> None:
    source = """import torch
from torch import nn
class Net(nn.Module):
    @property
    def scale(self):
        return torch.ones(1).item()
    def forward(self, x):
        return x * self.scale
net = torch.compile(Net())
"""
    [finding] = findings(source)
    assert (finding.code, finding.location.line) == ("TT119", 6)
    assert "the property Net.scale" in finding.cause


@pytest.mark.parametrize(("base", "code"), [("nn.Module", "TT104"), ("object", "TT119")])
def test_a_break_in_a_property_of_a_submodule_can_be_cut(base: str, code: str) -> None:
    source = f"""import torch
from torch import nn
class Scale({base}):
    @property
    def value(self):
        return torch.ones(1).item()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()
    def forward(self, x):
        return x * self.scale.value
net = torch.compile(Net())
"""
    [finding] = findings(source)
    assert (finding.code, finding.location.line) == (code, 6)

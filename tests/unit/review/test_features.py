"""Names of torch that source uses, and the release that they came with."""

import re

import torch

from torchtriage.lint.source import parse
from torchtriage.review.features import features_of, torch_names
from torchtriage.review.torch_versions import _table, since


def names(source: str) -> tuple[str, ...]:
    return torch_names(parse("/p/a.py", source.encode()))


def test_names_are_cut_below_the_last_module() -> None:
    source = (
        "import torch\nimport torch.nn.functional as F\nfrom torch import nn\nfrom torch.profiler import profile\n"
        "class A(nn.Module):\n    pass\nx = F.relu(nn.Linear.forward)\n"
        "with profile():\n    torch.linalg.vector_norm(x)\n"
    )
    assert names(source) == (
        "torch.linalg.vector_norm", "torch.nn.Linear", "torch.nn.Module", "torch.nn.functional.relu",
        "torch.profiler.profile",
    )


def test_names_that_only_look_like_torch_do_not_count() -> None:
    assert names("import mytorch as torch\ntorch.stack(1)\nx.torch.cat()\n") == ()


def test_a_name_is_dated_by_the_releases_that_have_it() -> None:
    assert since("torch.stack") == "1.6 or earlier"
    assert (since("torch.linalg.norm"), since("torch.linalg.vector_norm")) == ("1.7", "1.9")
    assert (since("torch.inference_mode"), since("torch.profiler.profile")) == ("1.9", "1.8")
    assert (since("torch.compile"), since("torch.compiler.disable")) == ("2.0", "2.1")
    assert (since("torch.nn.attention.flex_attention.flex_attention"), since("torch._foreach_norm")) == ("2.5", "1.11")
    assert since("torch.nn.utils.get_total_norm") == "2.6"


def test_a_name_that_the_table_does_not_have_is_unknown() -> None:
    assert [(each.name, each.since) for each in features_of([("a.py", ["torch.no_such_thing"])])] == [
        ("torch.no_such_thing", "")
    ]


def test_every_name_of_the_table_is_in_the_installed_torch() -> None:
    missing = []
    for dotted in _table():
        value: object = torch
        for part in dotted.split(".")[1:]:
            value = getattr(value, part, None)
        if value is None and not re.match(r"torch\.(distributed|utils|nn|func|export|fx|mps|_dynamo)", dotted):
            missing.append(dotted)      # a module among the excepted ones is imported on demand
    assert missing == []

"""The example on the page of each TT7xx rule: lint of its Before gives the finding, lint of its After does not."""

import re
from pathlib import Path

import pytest

from torchtriage.findings import catalogue
from torchtriage.lint.check import lint

BLOCK = re.compile(r"(Before|After):\s*\n+```python\n(.*?)```", re.S)
FILE = re.compile(r"^# file: (\S+)\n", re.M)
CODES = [code for code in catalogue.codes() if code.startswith("TT7")]


def examples() -> list[tuple[str, str, str]]:
    return [
        (code, which, source) for code in CODES
        for which, source in BLOCK.findall(catalogue.rule(code).section("Example"))
    ]


def write_example(folder: Path, source: str) -> None:
    """The files of an example; one without names is a file of a project that has another one."""
    (folder / "pyproject.toml").write_text("")
    parts = FILE.split(source)
    if len(parts) == 1:
        parts = ["", "example.py", source, "other.py", "import os\n"]
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(("code", "which", "source"), examples(), ids=lambda value: value if len(value) < 8 else "")
def test_the_example_on_the_page_shows_the_rule(code: str, which: str, source: str, tmp_path: Path) -> None:
    write_example(tmp_path, source)
    seen = {finding.code for finding in lint([tmp_path], [str(tmp_path)]).findings}
    assert (code in seen) is (which == "Before"), seen
    if which == "After":
        assert not {other for other in seen if other.startswith("TT7")} - {"TT712", "TT720"}


def test_every_rule_has_both_examples() -> None:
    assert len(examples()) == 2 * len(CODES)


@pytest.mark.parametrize(("which", "is_finite"), [("Before", False), ("After", True)])
def test_the_cure_of_an_overflowing_norm_does_not_overflow(which: str, is_finite: bool) -> None:
    torch = pytest.importorskip("torch")
    names: dict[str, object] = {}
    exec(dict(BLOCK.findall(catalogue.rule("TT704").section("Example")))[which], names)
    layer = torch.nn.Linear(2, 2)
    for param in layer.parameters():
        param.grad = torch.full_like(param, 1e20)
    norm = names["grad_norm"](layer)  # type: ignore[operator]
    assert bool(torch.isfinite(torch.as_tensor(norm))) is is_finite

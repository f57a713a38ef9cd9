"""The torch.compile calls that the source of the main script has."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from torchtriage.capture.taps.compile_sites import MainScript

TORCH = "/venv/lib/python3.11/site-packages/torch/__init__.py"


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("torch")
    module.__file__ = TORCH
    exec(compile("def compile(model): return model", TORCH, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = ModuleType("__main__")
    path = tmp_path / "train.py"
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", module)
    return path


@pytest.mark.parametrize(("source", "sites"), [
    ("import torch\ndef build(m):\n    return torch.compile(m)\n", [(3, "build")]),
    ("import torch as t\nif flag:\n    m = t.compile(m, dynamic=True)\n", [(3, "<module>")]),
    ("from torch import compile as c\nm = c(m)\n", [(2, "<module>")]),
    ("import torch.nn\nm = torch.compile(m)\n", [(2, "<module>")]),
    ("import torch\ndef f():\n    @torch.compile\n    def g(x): ...\n", [(3, "f")]),
    ("import torch\ndef f():\n    @torch.compile(dynamic=True)\n    def g(x): ...\n", [(3, "f")]),
    ("import torch\nopt = SGD(m.parameters())\nm.compile()\n", [(3, "<module>")]),
    ("import torch\nself.m.compile(fullgraph=True)\n", [(2, "<module>")]),
    # Calls of another compile().
    ("import re, torch\nre.compile('a')\nre.compile(pattern='a')\n", []),
    ("import torch\nmodel.compile(optimizer='adam', loss='mse')\nmodel.state_dict()\n", []),
    ("import torch\ntemplate.compile()\n", []),
    ("import torch\ncompile('1', 'x', 'eval')\n", []),
    ("import torch\nx = 'torch.compile(model)'  # torch.compile(model)\n", []),
    ("import torch\nm = torch.compile(\n", []),
])
def test_calls_of_torch_compile_are_found(source: str, sites: list[tuple[int, str]], main: Path) -> None:
    main.write_text(source)
    assert [(site.line, site.function) for site in MainScript().compile_sites()] == sites


def test_a_program_that_replaces_torch_compile_has_no_sites(main: Path, torch: ModuleType) -> None:
    main.write_text("import torch\nm = torch.compile(m)\n")
    assert MainScript().compile_sites()
    torch.compile = lambda model: model  # type: ignore[attr-defined]
    assert not MainScript().compile_sites()


def test_a_script_is_known_after_python_has_removed_its_name(main: Path) -> None:
    main.write_text("import torch\nm = torch.compile(m)\n")
    script = MainScript()
    del sys.modules["__main__"].__file__
    assert script.compile_sites()


def test_a_script_that_was_edited_during_the_run_has_no_sites(main: Path) -> None:
    main.write_text("import torch\nm = torch.compile(m)\n")
    script = MainScript()
    os.utime(main, (1, 1))
    assert not script.compile_sites()


def test_an_installed_main_script_and_a_notebook_have_no_sites(monkeypatch: pytest.MonkeyPatch, main: Path) -> None:
    sys.modules["__main__"].__file__ = "/venv/lib/python3.12/site-packages/torch/distributed/run.py"
    assert not MainScript().compile_sites()
    sys.modules["__main__"].__file__ = None
    assert not MainScript().compile_sites()

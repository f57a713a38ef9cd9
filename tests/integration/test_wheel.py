"""The sdist and the wheel, installed into empty environments, work; without a C compiler they say what is missing."""

import importlib.util
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.metadata import Metadata

from tests.programs import environment, write

ROOT = Path(__file__).parents[2]
LIBRARIES = {"_guard_meter", "_process_end", "_tensor_stats", "_lstm"}
PROGRAM = """
import os, time, torch
f = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
for size in range(2, 14):
    f(torch.ones(size))
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
print("done", flush=True)
time.sleep(1)       # without the native part, os._exit loses the last quarter of a second
os._exit(0)
"""
NO_COMPILER = {"CC": "/nonexistent", "PATH": ""}

pytestmark = pytest.mark.thorough


def run(words: list[str], folder: Path, **variables: str) -> str:
    done = subprocess.run(words, cwd=folder, env=environment(variables), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)], ROOT)
    [path] = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as pip does."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    [tree] = folder.iterdir()
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], tree)
    [path] = folder.glob("*.whl")
    return path


def installed(package: Path, folder: Path, **variables: str) -> Path:
    """The Python of a new environment that has only this package, and torch and rich of this environment."""
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)], ROOT)
    [site_packages] = folder.glob("lib/python3*/site-packages")
    places = {str(Path(str(importlib.util.find_spec(name).origin)).parents[1])      # type: ignore[union-attr]
              for name in ("torch", "rich", "hatchling", "packaging")}
    (site_packages / "others.pth").write_text("\n".join(sorted(places)))
    python = folder / "bin" / "python"
    flags = ["--no-deps", "--no-build-isolation", "--ignore-installed", "--no-index"]
    run([sys.executable, "-m", "pip", "--python", str(python), "install", *flags, str(package)], folder, **variables)
    where = run([str(python), "-c", "import torchtriage; print(torchtriage.__file__)"], folder)
    assert Path(where.strip()).is_relative_to(site_packages)
    return python


def report_of(python: Path, folder: Path) -> dict[str, Any]:
    return dict(json.loads(run([str(python), "-m", "torchtriage", "report", "out.triage", "--format", "json"], folder)))


def test_the_metadata_are_valid(sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as archive:
        [name] = [name for name in archive.getnames() if name.endswith("PKG-INFO")]
        of_sdist = archive.extractfile(name)
        assert of_sdist is not None
        texts = [of_sdist.read()]
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        texts += [file.read(name) for name in names if name.endswith(".dist-info/METADATA")]
    for text in texts:
        metadata = Metadata.from_email(text, validate=True)
        assert metadata.description_content_type == "text/markdown"
        assert metadata.requires_python is not None
        assert "3.11" in metadata.requires_python
    assert "torchtriage.pth" in names
    assert {Path(name).stem for name in names if name.endswith(".so")} == LIBRARIES


def test_the_wheel_runs_the_demo_and_observes_other_commands(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "venv")
    out = run([str(python.with_name("torchtriage")), "demo"], tmp_path)
    assert "TT203" in out or "TT301" in out, out
    write(tmp_path, PROGRAM)
    assert run([str(python), "train.py"], tmp_path, TORCHTRIAGE="out.triage").startswith("done\n")
    report = report_of(python, tmp_path)
    assert report["findings"][0]["code"] == "TT301"
    assert "compiler" not in str(report["not_seen"])


def test_without_a_compiler_the_sdist_works_and_reports_say_what_is_missing(sdist: Path, tmp_path: Path) -> None:
    python = installed(sdist, tmp_path / "venv", **NO_COMPILER)
    [site_packages] = (tmp_path / "venv").glob("lib/python3*/site-packages")
    assert list(site_packages.rglob("torchtriage/**/*.so")) == []
    write(tmp_path, PROGRAM)
    run([str(python), "-m", "torchtriage", "run", "-o", "out", "train.py"], tmp_path, **NO_COMPILER)
    report = report_of(python, tmp_path)
    assert report["findings"][0]["code"] == "TT301"
    assert "C compiler" in str(report["not_seen"])

"""`dir` of a public package lists its public names, including those that are not loaded yet."""

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["torchtriage", "torchtriage.telemetry", "torchtriage.rl"])
def test_dir_lists_the_public_names_without_loading_them(package: str) -> None:
    assert dir(importlib.import_module(package)) == sorted(importlib.import_module(package).__all__)
    no_torch = "assert 'torch' not in sys.modules"
    program = f"import sys, {package}; {no_torch}; dir({package}); {no_torch}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)

"""`dir` of a public package lists its public names, also those that are not loaded yet."""

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["torchtriage", "torchtriage.telemetry", "torchtriage.rl"])
def test_dir_lists_the_public_names_without_loading_them(package: str) -> None:
    assert dir(importlib.import_module(package)) == sorted(importlib.import_module(package).__all__)
    program = f"import sys, {package}; assert 'torch' not in sys.modules; dir({package}); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

"""The lines of the guide to training frameworks; tests/integration/test_callbacks.py runs the real packages."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from torchtriage.capture.readers.scalar_names import logged_series_name
from torchtriage.errors import TriageError

TEXT = (Path(__file__).parent.parent.parent / "docs" / "guides" / "frameworks.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)


@pytest.mark.parametrize("block", BLOCKS)
def test_each_block_imports_names_that_exist(block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchtriage."):
            try:
                module = importlib.import_module(node.module or "")
            except TriageError as error:
                pytest.skip(str(error))
            assert all(hasattr(module, alias.name) for alias in node.names)


def test_there_is_a_block_for_each_framework() -> None:
    assert len(BLOCKS) == 4


def test_the_names_of_scalars_that_it_gives_are_known() -> None:
    names = re.search(r"write it\n\(([^)]*)\)", TEXT)
    assert names is not None
    assert all(logged_series_name(name) for name in re.findall(r"`([^`]+)`", names[1]))

"""The benchmarks import each other as scripts do; those of growth use one thread, as the growth environments."""

import sys
from pathlib import Path

from tests.unit.rl.growth.conftest import _one_thread  # noqa: F401

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

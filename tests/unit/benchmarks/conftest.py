"""The growth benchmarks use the same small networks as the growth environments: one thread."""

from tests.unit.rl.growth.conftest import _one_thread  # noqa: F401

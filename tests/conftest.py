"""Tests may run in workers of xdist; what they start must not take itself for one."""

import os


def pytest_configure() -> None:
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        del os.environ[name]

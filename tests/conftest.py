"""What holds for every test: a busy machine fails none, and no worker's marks reach a child.

Hypothesis keeps no clock. Tests may run in workers of xdist; what they start must not take itself
for one. A shell lets what it starts in the background ignore Ctrl-C; what tests start must hear it.
"""

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure() -> None:
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        del os.environ[name]
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

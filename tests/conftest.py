"""Settings for every test: results do not depend on a busy machine, on workers of xdist or on the shell.

Hypothesis has no deadline. Tests may run in a worker of xdist, but processes that they start must not take themselves
for one. A shell makes background processes ignore Ctrl-C, but processes that tests start must receive it.
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

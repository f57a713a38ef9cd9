"""Runs the program in a separate process, without interfering with it."""

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from torchtriage.launch import environment

TICK_SECONDS = 0.25


def python_command(script: Sequence[str], module: bool) -> list[str]:
    """The command `python script.py args` or `python -m pkg args`, with the interpreter that runs torchtriage."""
    return [sys.executable, *(["-m"] if module else []), *script]


def observed_environment(
    base: Mapping[str, str], folder: str, run_id: str, measure: bool, telemetry: bool = True,
) -> dict[str, str]:
    """An environment in which the command and every Python process that it starts join the recording."""
    env = dict(base)
    env[environment.FOLDER] = folder
    env[environment.RUN_ID] = run_id
    if measure:
        env[environment.MEASURE] = "1"
    if not telemetry:
        env[environment.TELEMETRY] = "0"
    return env


def run_to_end(command: Sequence[str], env: Mapping[str, str], tick: Callable[[], None] | None = None) -> int:
    """Run the command with our stdin, stdout and stderr; returns its exit status, 128 + N if signal N ended it."""
    passer = _SignalPasser()
    # Ctrl-C reaches the entire process group: the program decides what it means, and we wait in order to report. The
    # handlers are there before the program is, which may have a signal sent to us as soon as it runs. A signal that is
    # ignored, as under nohup, stays so: the program inherits that.
    handled = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, passer.handle) for number in handled}
    try:
        child = subprocess.Popen(list(command), env=dict(env))
        passer.start(child)
        while True:
            try:
                status = child.wait(TICK_SECONDS if tick else None)
                return status if status >= 0 else 128 - status
            except subprocess.TimeoutExpired:
                if tick:
                    tick()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _SignalPasser:
    """Passes SIGTERM on to the program, also one that came before it was started."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._has_ended = False

    def start(self, child: "subprocess.Popen[bytes]") -> None:
        self._child = child
        if self._has_ended:
            child.terminate()

    def handle(self, received: int, frame: FrameType | None) -> None:
        if received != signal.SIGTERM:
            return
        self._has_ended = True
        if self._child is not None:
            self._child.terminate()

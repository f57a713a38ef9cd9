"""The errors of torchtriage, kept apart from those of the program that pass through its frames."""

import os
import sys


class TriageError(Exception):
    """An error that the user can act on: its message says what was asked, what was found and what to do."""


class CommandError(TriageError):
    """A command cannot continue; the message goes to stderr, and the exit code to the shell."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def hide_frame(error: BaseException) -> None:
    """Remove the frame that catches `error` from its traceback, so that the program does not see our frames.

    A bare `raise` does not add the frame again.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


def pass_on_signals(error: BaseException) -> None:
    """Raise `error` again if a signal handler of the program raised it in our code, as a timeout does.

    Such an error is meant for the program, so we must not suppress it.
    """
    import signal  # not at the top, because every process loads this module

    handlers = [handler for number in signal.valid_signals() if callable(handler := signal.getsignal(number))]
    codes = {getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers}
    codes |= {getattr(type(handler).__call__, "__code__", None) for handler in handlers}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            raise error
        trace = trace.tb_next


def level_of_the_caller() -> int:
    """The stacklevel, seen from the function that calls this, of the first frame outside torch and torchtriage."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("torch", "torchtriage"):
        frame, level = frame.f_back, level + 1
    return level


def _stderr() -> tuple[int, int] | None:
    """The file behind descriptor 2; None if it is closed."""
    try:
        status = os.fstat(2)
    except OSError:
        return None
    return status.st_dev, status.st_ino


_stderr_at_start = _stderr()


def tell(text: str) -> None:
    """Write a line to the stderr with which this process started, for an observed program.

    If the program closed it, descriptor 2 may be one of its files by now, and nothing is written.
    """
    if _stderr_at_start is None or _stderr() != _stderr_at_start:
        return
    try:
        os.write(2, f"torchtriage: {text}\n".encode(errors="backslashreplace"))
    except OSError:
        pass

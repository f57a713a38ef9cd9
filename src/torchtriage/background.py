"""A background thread that the program does not notice."""

import _thread
import contextlib
import ctypes
import signal
from collections.abc import Callable, Iterator

own_threads: set[int] = set()      # identifiers of threads on which telemetry calls libraries that the program uses too
# A thread that causes one of these must be able to receive it.
_SYNCHRONOUS = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"}


class BackgroundThread:
    """Runs a function that must not raise.

    It is absent from threading.enumerate(), receives no signals, which the program may wait for, and is not traced by
    a profiler that the program installs on all threads. Like a daemon thread, it does not keep the process alive. The
    function must not call threading.current_thread(), as logging does: that would add the thread to the list.
    """

    def __init__(self, run: Callable[[], None]) -> None:
        """Start at once; raises RuntimeError if there can be no more threads, or if the interpreter is ending."""
        self._run = run
        self._running = _thread.allocate_lock()
        self._running.acquire()
        with _default_stack(), _blocked_signals():
            _thread.start_new_thread(self._main, ())

    def join(self, seconds: float) -> bool:
        """Wait until the function has returned; returns whether it has."""
        has_ended = self._running.acquire(timeout=seconds)
        if has_ended:
            self._running.release()
        return has_ended

    def _main(self) -> None:
        try:
            _stay_untraced()
            self._run()
        finally:
            self._running.release()


def _stay_untraced() -> None:
    """Pause tracing on this thread: torch.profiler with stacks, for one, installs its profiler on all threads."""
    state, pause = ctypes.pythonapi["PyThreadState_Get"], ctypes.pythonapi["PyThreadState_EnterTracing"]
    state.restype, pause.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    pause(state())


@contextlib.contextmanager
def _default_stack() -> Iterator[None]:
    """The program may have set a size that is enough for its own threads only."""
    size = _thread.stack_size(0)
    try:
        yield
    finally:
        _thread.stack_size(size)


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """A new thread inherits the mask of the thread that starts it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    asynchronous = {number for number in signal.valid_signals() if getattr(number, "name", "") not in _SYNCHRONOUS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, asynchronous)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

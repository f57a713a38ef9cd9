"""A background thread is absent from threading, takes no signal of the program, and has a full stack."""

import os
import subprocess
import sys
import threading
import time

from torchtriage.background import BackgroundThread


def test_the_thread_is_absent_from_threading() -> None:
    before, running, end = threading.enumerate(), threading.Event(), threading.Event()
    thread = BackgroundThread(lambda: (running.set(), end.wait(60))[0])
    assert running.wait(60)
    assert threading.enumerate() == before
    assert not thread.join(0.01)
    end.set()
    assert thread.join(60)
    assert thread.join(0)


WAITS_FOR_A_SIGNAL = """
import os, signal, threading
from torchtriage.background import BackgroundThread

end = threading.Event()
thread = BackgroundThread(lambda: end.wait(60) and None)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.kill(os.getpid(), signal.SIGUSR1)        # its default action would end the process
assert signal.sigtimedwait({signal.SIGUSR1}, 60) is not None
end.set()
assert thread.join(60)
"""


def test_a_signal_that_the_program_waits_for_does_not_go_to_the_thread() -> None:
    """In a process without other threads, which would take the signal."""
    subprocess.run([sys.executable, "-c", WAITS_FOR_A_SIGNAL], check=True, timeout=600)


def test_the_thread_does_not_inherit_a_small_stack() -> None:
    previous, results = threading.stack_size(32 * 1024), []
    try:
        thread = BackgroundThread(lambda: results.append(_depth(400)))
        assert threading.stack_size() == 32 * 1024
    finally:
        threading.stack_size(previous)
    assert thread.join(60)
    assert results == [400]


def _depth(number: int) -> int:
    """Recursion that passes through C in each frame."""
    return 1 + max(map(_depth, [number - 1])) if number > 1 else 1


def test_threads_may_start_and_end_often() -> None:
    num_before = len(os.listdir("/proc/self/task"))
    for _ in range(50):
        assert BackgroundThread(lambda: None).join(60)
    deadline = time.monotonic() + 60
    while len(os.listdir("/proc/self/task")) > num_before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/task")) <= num_before

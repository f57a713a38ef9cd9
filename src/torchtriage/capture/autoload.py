"""Runs at the start of every Python process of an observed run: joins the recording and waits for torch."""

import atexit
import os
import sys
import time

from torchtriage.launch import environment


def start() -> None:
    """Called by torchtriage.pth when TORCHTRIAGE is set; costs next to nothing in a process that never imports torch."""
    if sys.flags.no_site or getattr(sys, "_torchtriage_observed", False):
        return
    sys._torchtriage_observed = True  # type: ignore[attr-defined]
    folder = environment.join_folder(os.environ)
    if folder is None:
        return
    _mark_joined(folder)
    from torchtriage.launch.imports import ImportWatcher

    ImportWatcher().when_imported("torch._C", lambda _: _arm(folder))


def _mark_joined(folder: str) -> None:
    """Lets the reader tell "torch was never imported" from "nothing of ours ran in there"."""
    try:
        with open(os.path.join(folder, "joined"), "x"):
            pass
    except OSError:
        pass  # another process was first, or the folder is gone


def _arm(folder: str) -> None:
    """torch is being imported: start the recorder and the taps."""
    from pathlib import Path

    from torchtriage.capture.facts import process_facts
    from torchtriage.capture.observe import Observer
    from torchtriage.recording.recorder import Recorder

    started = time.time()
    is_main = os.environ.get("TORCHTRIAGE_PARENT") == str(os.getppid()) or "RANK" in os.environ
    recorder = Recorder(Path(folder), lambda: process_facts(started), always=is_main)
    observer = Observer(recorder.add, measure=os.environ.get(environment.MEASURE) == "1")
    observer.arm_for_run()
    recorder.follow(observer)
    atexit.register(recorder.close)
    _close_before_hard_exit(recorder)


def _close_before_hard_exit(recorder: "object") -> None:
    """os._exit skips atexit, and every forked worker of multiprocessing ends with it."""
    hard_exit = os._exit

    def _exit(status: int) -> None:
        try:
            recorder.close()  # type: ignore[attr-defined]
        finally:
            hard_exit(status)

    os._exit = _exit  # type: ignore[assignment]

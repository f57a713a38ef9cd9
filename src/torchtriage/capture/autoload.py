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
    _is_first(folder, "joined")
    from torchtriage.launch.imports import ImportWatcher

    ImportWatcher().when_imported("torch._C", lambda _: _arm(folder))


def _is_first(folder: str, what: str) -> bool:
    """Leave a mark in the folder; whether no process of the run has before.

    "joined" lets the reader tell "torch was never imported" from "nothing of ours ran in there".
    """
    try:
        with open(os.path.join(folder, what), "x"):
            return True
    except OSError:
        return False


def _arm(folder: str) -> None:
    """torch is being imported: start the recorder and the taps."""
    from pathlib import Path

    from torchtriage.capture.facts import process_facts
    from torchtriage.capture.observe import Observer
    from torchtriage.recording.recorder import Recorder

    started = time.time()
    # One process says what was watched even if nothing happens in it; so does every rank.
    always = _is_first(folder, "imported_torch") or "RANK" in os.environ
    recorder = Recorder(Path(folder), lambda: process_facts(started), always=always)
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

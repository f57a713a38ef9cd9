"""Entry point in every Python process of an observed run, which joins the recording once torch is imported."""

from __future__ import annotations

import atexit
import os
import sys
import time

from torchtriage.errors import tell
from torchtriage.launch import environment

TYPE_CHECKING = False   # see launch/imports.py
if TYPE_CHECKING:
    from torchtriage.capture.operations.arming import OperationsTaps
    from torchtriage.capture.policy.taps import PolicyTaps
    from torchtriage.capture.proof.taps import ProofTaps
    from torchtriage.recording.recorder import Recorder

recorder: Recorder | None = None     # of this process, from the import of torch on


def start() -> None:
    """Called by torchtriage.pth when TORCHTRIAGE is set.

    It costs next to nothing in a process that never imports torch.
    """
    if sys.flags.no_site or getattr(sys, "_torchtriage_observed", False):
        return
    sys._torchtriage_observed = True  # type: ignore[attr-defined]
    folder = environment.join_folder(os.environ)
    if folder is None:
        return
    _is_first(folder, "joined")
    from torchtriage.launch.imports import ImportWatcher

    proof, operations = _proof(folder), _operations()
    ImportWatcher().when_imported("torch._C", lambda _: _arm(folder, proof, operations))


def _is_first(folder: str, what: str) -> bool:
    """Leave a file of this name in the folder; returns whether this is the first process of the run to do so.

    The file "joined" lets the reader distinguish "torch was never imported" from "torchtriage never ran".
    """
    try:
        with open(os.path.join(folder, what), "x"):
            return True
    except OSError:
        return False


def _arm(folder: str, proof: ProofTaps | None, operations: OperationsTaps | None) -> None:
    """Start the recorder and the taps; called while torch is being imported."""
    global recorder
    from pathlib import Path

    from torchtriage.capture.observer import Observer
    from torchtriage.capture.process_end import watch_end
    from torchtriage.capture.process_facts import process_facts
    from torchtriage.recording import recorder as recorders
    from torchtriage.recording.events import Tap
    from torchtriage.recording.recorder import Recorder

    started = time.time()
    # The first process, and every rank, records what was watched even if nothing happens in it.
    always = _is_first(folder, "imported_torch") or "RANK" in os.environ
    recorder = recorders.current = Recorder(Path(folder), lambda: process_facts(started), always=always)
    measure = os.environ.get(environment.MEASURE, "").lower() in ("1", "true")
    telemetry = os.environ.get(environment.TELEMETRY, "").lower() not in ("0", "false")
    policy = _policy(folder, recorder)
    observer = Observer(
        recorder.add, measure=measure, on_first_step=recorder.start, telemetry=telemetry, policy=policy,
        clock=proof.clock if proof is not None else None,
    )
    observer.arm_for_run()
    if operations is not None:
        operations.arm(observer.steps.current)
    recorder.follow(observer)
    atexit.register(recorder.close)
    # os._exit skips atexit, and forked workers of multiprocessing end with it. If exec fails, the program continues.
    problem = watch_end(recorder.close, recorder.sync)
    if problem:
        recorder.add(Tap(name="os._exit and exec", state="absent", detail=problem, time=started, pid=os.getpid()))


def _policy(folder: str, recorder: Recorder) -> PolicyTaps | None:
    """The shape policy of this run; a policy that cannot be read forces nothing and is reported once per run."""
    text = os.environ.get(environment.POLICY)
    if not text:
        return None
    from torchtriage.capture.policy.policy import parse_policy
    from torchtriage.capture.policy.taps import PolicyTaps
    from torchtriage.recording.events import Tap

    try:
        return PolicyTaps(parse_policy(text))
    except (ValueError, OSError) as error:
        if _is_first(folder, "policy_refused"):
            tell(f"{environment.POLICY}: {error}; the program runs unmodified")
        recorder.add(Tap(name="policy", state="absent", detail=str(error), time=time.time(), pid=os.getpid()))
        return None


def _operations() -> OperationsTaps | None:
    """What `verify --locate` compares or records; a request that cannot be read is reported and changes nothing."""
    text = os.environ.get(environment.OPERATIONS)
    if not text:
        return None
    from torchtriage.capture.operations.arming import OperationsTaps
    from torchtriage.capture.operations.request import parse_request

    try:
        taps = OperationsTaps(parse_request(text))
        taps.arm_early()
        return taps
    except ValueError as error:
        tell(f"{environment.OPERATIONS}: {error}; the program runs unmodified")
        return None


def _proof(folder: str) -> ProofTaps | None:
    """The taps of a run of `torchtriage verify`, armed; a setting that cannot be read is reported and changes nothing.

    They are made before torch is imported, because they seed its generators right after the import.
    """
    text = os.environ.get(environment.PROOF)
    if not text:
        return None
    from torchtriage.capture.proof.setting import parse_setting
    from torchtriage.capture.proof.taps import ProofTaps

    try:
        taps = ProofTaps(parse_setting(text), folder)
        taps.arm()
        return taps
    except (ValueError, OSError) as error:
        tell(f"{environment.PROOF}: {error}; the program runs unmodified")
        return None

"""The means by which torchtriage reaches into torch: replace a name of torch's, and keep Dynamo away from our code.

Every private name of torch that capture/ uses is in this folder: here, in dynamo.py, training.py or shapes.py. Each is
behind a feature test, and each function says what is lost without its name.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from torchtriage.errors import hide_frame, pass_on_signals

Undo = Callable[[], None]


def module(name: str) -> Any:
    """A torch module that is already loaded, or None; this never imports one."""
    return sys.modules.get(name)


def replaced(owner: Any, name: str, note: Any, make: Callable[[Any, list[Any]], Any]) -> Undo | None:
    """Put make(original, notes) in place of a name of torch's for as long as there are notes.

    Returns a function that takes this note away, or None if torch has no such name. Several observations share one
    replacement, so they may end in any order.
    """
    current = getattr(owner, name, None)
    if current is None:
        return None
    notes: list[Any] | None = getattr(current, "torchtriage_notes", None)
    if notes is None:
        notes = []
        replacement = make(current, notes)
        replacement.torchtriage_notes, replacement.torchtriage_original = notes, current
        setattr(owner, name, replacement)
    notes.append(note)

    def undo() -> None:
        notes.remove(note)
        latest = getattr(owner, name)
        if not notes and getattr(latest, "torchtriage_notes", None) is notes:
            setattr(owner, name, latest.torchtriage_original)

    return undo


def is_torch_file(path: str) -> bool:
    """Whether a file is torch's own; the program itself may be in a folder called torch."""
    folder = os.path.dirname(getattr(module("torch"), "__file__", None) or "")
    return bool(folder) and path.startswith(folder + os.sep)


def notifier(notes: list[Any]) -> Callable[..., None]:
    """A function that calls every note with its argument, while Dynamo does not see the frames that the notes run."""
    swap = frame_callback_swap()

    def notify(subject: Any) -> None:
        callback = swap(None)
        try:
            for note in tuple(notes):
                note(subject)
        except Exception as error:      # a missed observation is better than a failed step
            pass_on_signals(error)
        finally:
            swap(callback)

    return never_compile(notify)


def frame_callback_swap() -> Callable[[Any], Any]:
    """A C function that replaces Dynamo's frame callback on this thread and returns the previous one.

    While the callback is None, Dynamo does not see our frames.
    """
    try:
        from torch._C._dynamo.eval_frame import set_eval_frame
    except ImportError:
        return lambda callback: callback
    swap: Callable[[Any], Any] = set_eval_frame
    return swap


def never_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have Dynamo's frame evaluator run this function's own frames unchanged; returns the function.

    The same is set for hide_frame, which such functions call.
    """
    try:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    except ImportError:
        return function
    for code in (function.__code__, hide_frame.__code__):
        set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.DEFAULT))
    return function

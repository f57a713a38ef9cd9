"""The means by which torchtriage replaces a name of torch's without Dynamo seeing our code.

Every private name of torch that capture/ uses is in this folder: here, in dynamo.py, training.py or shapes.py. Each is
behind a feature test, and each function says what is lost without its name.
"""

import ctypes
import functools
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
    """A function that calls every note with its argument, unseen; a failure of a note does not reach the program."""
    def notify(subject: Any) -> None:
        try:
            for note in tuple(notes):
                note(subject)
        except Exception as error:      # a missed observation is better than a failed step
            pass_on_signals(error)

    return unseen(notify)


def unseen(function: Callable[[Any], None]) -> Callable[[Any], None]:
    """The function, except that neither Dynamo nor a profiler or tracer of the program sees the frames that it runs."""
    swap = frame_callback_swap()

    def run(subject: Any) -> None:
        state = None
        if _profiler() is not None or _tracer() is not None:
            state = _thread_state()
            _pause_tracing(state)
        callback = swap(None)
        try:
            function(subject)
        finally:
            swap(callback)
            if state is not None:
                _resume_tracing(state)

    return never_compile(run)


def _python_function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of Python's C interface; the attributes of ctypes.pythonapi belong to the program."""
    function = ctypes.pythonapi[name]
    function.restype, function.argtypes = result, arguments
    return function


# A profiler sees calls of built-in functions, but none through `partial` or ctypes.
_profiler, _tracer = functools.partial(sys.getprofile), functools.partial(sys.gettrace)
_thread_state = _python_function("PyThreadState_Get", ctypes.c_void_p)
_pause_tracing = _python_function("PyThreadState_EnterTracing", None, ctypes.c_void_p)
_resume_tracing = _python_function("PyThreadState_LeaveTracing", None, ctypes.c_void_p)


def frame_callback_swap() -> Callable[[Any], Any]:
    """A C function that replaces Dynamo's frame callback on this thread and returns the previous one.

    While the callback is None, Dynamo does not see our frames.
    """
    swap: Callable[[Any], Any] = getattr(_eval_frame(), "set_eval_frame", lambda callback: callback)
    return swap


def never_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have Dynamo's frame evaluator run this function's own frames unchanged; returns the function.

    The same is set for hide_frame, which such functions call.
    """
    eval_frame = _eval_frame()
    if hasattr(eval_frame, "set_code_exec_strategy"):
        skip = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT)
        for code in (function.__code__, hide_frame.__code__):
            eval_frame.set_code_exec_strategy(code, skip)
    return function


def _eval_frame() -> Any:
    """torch._C._dynamo.eval_frame, found by its attributes: it cannot be imported while torch is being imported."""
    return getattr(getattr(module("torch._C"), "_dynamo", None), "eval_frame", None)

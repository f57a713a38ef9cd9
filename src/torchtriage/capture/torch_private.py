"""Every private name of torch that torchtriage touches: each behind a feature test, each saying what is lost without it."""

import logging
import os
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from torchtriage.errors import hide_frame, pass_on_signals


def module(name: str) -> Any:
    """A torch module that is already loaded, or None; nothing is imported for our sake."""
    return sys.modules.get(name)


def replaced(owner: Any, name: str, note: Any, make: Callable[[Any, list[Any]], Any]) -> Callable[[], None] | None:
    """Put make(original, notes) in the place of a name of torch's while there are notes; returns the undoing of this one.

    Observations share the one replacement, so they may end in any order. None if torch has no such name.
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
        found = getattr(owner, name)
        if not notes and getattr(found, "torchtriage_notes", None) is notes:
            setattr(owner, name, found.torchtriage_original)

    return undo


def is_torch_file(path: str) -> bool:
    """Whether a file is torch's own; a program may well lie in a folder that is called torch."""
    folder = os.path.dirname(getattr(module("torch"), "__file__", None) or "")
    return bool(folder) and path.startswith(folder + os.sep)


def lookup_interned_string(index: int) -> str | None:
    """A file name that torch interned before we listened; without it a late watcher shows `<string 7>`."""
    structured = module("torch._logging.structured")
    table: dict[str, int] = getattr(structured, "INTERN_TABLE", {})
    return next((text for text, number in table.items() if number == index), None)


def is_recompile() -> bool:
    """Whether the compile under way is not the first of its frame; True where torch cannot tell, so that nothing is lost."""
    guards = module("torch._guards")
    try:
        compile_id = guards.CompileContext.current_compile_id()
        return compile_id is None or compile_id.frame_compile_id != 0
    except AttributeError:
        return True


def wrap_trace_structured(internal: ModuleType, wrap: Callable[[Callable[..., None]], Callable[..., None]]) -> bool:
    """Filter records before their payload is made; without it each compile takes some percent longer."""
    original = getattr(internal, "trace_structured", None)
    if original is None:
        return False
    internal.trace_structured = wrap(original)  # type: ignore[attr-defined]
    return True


class _EnabledLogger:
    """torch's graph-break logger, except that it says it is enabled; what it prints is unchanged."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        return True

    def is_really_enabled(self) -> bool:
        return bool(self._logger.isEnabledFor(logging.DEBUG))


def ask_for_whole_frame_breaks(convert_frame: ModuleType) -> Callable[[], None] | None:
    """convert_frame traces a break that skips a whole frame only while its logger is enabled."""
    return replaced(convert_frame, "graph_break_log", None, lambda logger, _: _EnabledLogger(logger))


def is_asked_by_us(record: logging.LogRecord) -> bool:
    """Whether torch traces this break only because of `ask_for_whole_frame_breaks`; the program's own trace goes without it."""
    if not str(getattr(record, "payload", "")).startswith("Graph break: "):
        return False
    logger = getattr(module("torch._dynamo.convert_frame"), "graph_break_log", None)
    return isinstance(logger, _EnabledLogger) and not logger.is_really_enabled()


def wrap_add_skip_reason(convert_frame: ModuleType, note: Callable[[str, Any], None]) -> Callable[[], None] | None:
    """Frames that Dynamo skips (2.13 and later); before, a skipped generator leaves no sign."""
    def make(original: Any, notes: list[Any]) -> Any:
        def add_skip_reason(reason: str, frame: Any) -> None:
            for note in tuple(notes):
                note(reason, frame.f_code)
            original(reason, frame)

        return add_skip_reason

    return replaced(convert_frame, "add_skip_reason", note, make)


def wrap_optimize(dynamo: ModuleType, note: Callable[[dict[str, Any], FrameType], None]) -> Callable[[], None] | None:
    """Every torch.compile call passes here; without it a finding cannot name the call that made the frame."""
    def make(original: Any, notes: list[Any]) -> Any:
        def optimize(*args: Any, **kwargs: Any) -> Any:
            for note in tuple(notes):
                note(kwargs, sys._getframe(1))
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise

        return optimize

    return replaced(dynamo, "optimize", note, make)


def set_guard_hook(hook: Callable[[bool], bool] | None) -> tuple[bool, Any]:
    """Install the guard-complete hook; (False, None) if torch has none. The second item is the hook it replaced."""
    try:
        from torch._C._dynamo.eval_frame import set_guard_complete_hook
    except ImportError:
        return False, None
    return True, set_guard_complete_hook(hook)


def wrap_compiled_pieces(output_graph: ModuleType, wrap: Callable[[str, Any], Any]) -> Callable[[], None] | None:
    """Hand every compiled piece, with its compile id, to `wrap`; without it --measure has nothing to time.

    A piece is taken where the new bytecode will find it: what the backend returned is looked at by Dynamo before that.
    """
    def make(original: Any, wraps: list[Any]) -> Any:
        def install_global_unsafe(self: Any, name: str, value: Any) -> None:
            if name.startswith("__compiled_fn"):
                compile_id = module("torch._guards").CompileContext.current_compile_id()
                for wrap in tuple(wraps):
                    value = wrap(str(compile_id), value)
            original(self, name, value)

        return install_global_unsafe

    return replaced(getattr(output_graph, "OutputGraph", None), "install_global_unsafe", wrap, make)


def wrap_record_function(profiler_module: ModuleType, note: Callable[[str, FrameType], None]) -> Callable[[], None] | None:
    """Call `note` at the end of every record_function block; returns the undoing. Without it no event knows its step."""
    swap = frame_callback_swap()

    def make(original: Any, notes: list[Any]) -> Any:
        def leave(self: Any, kind: Any, error: Any, trace: Any) -> Any:
            result = original(self, kind, error, trace)
            if kind is None:
                callback = swap(None)
                try:
                    for note in tuple(notes):
                        note(self.name, sys._getframe(1))
                except Exception as error_of_ours:  # a step that is not counted is better than one that fails
                    pass_on_signals(error_of_ours)
                finally:
                    swap(callback)
            return result

        return never_compile(leave)

    return replaced(getattr(profiler_module, "record_function", None), "__exit__", note, make)


def frame_callback_swap() -> Callable[[Any], Any]:
    """A C function that swaps Dynamo's frame callback on this thread for another; while it is None, Dynamo is not offered our frames."""
    try:
        from torch._C._dynamo.eval_frame import set_eval_frame
    except ImportError:
        return lambda callback: callback
    swap: Callable[[Any], Any] = set_eval_frame
    return swap


def never_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Tell Dynamo's frame evaluator to run this function's own frames as they are."""
    try:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    except ImportError:
        return function
    set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.DEFAULT))
    return function

"""Every private name of torch that torchtriage touches: each behind a feature test, each saying what is lost without it."""

import logging
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from torchtriage.errors import hide_frame


def module(name: str) -> Any:
    """A torch module that is already loaded, or None; nothing is imported for our sake."""
    return sys.modules.get(name)


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


def ask_for_whole_frame_breaks(convert_frame: ModuleType) -> bool:
    """convert_frame traces a break that skips a whole frame only while its logger is enabled."""
    logger = getattr(convert_frame, "graph_break_log", None)
    if logger is None:
        return False
    if not isinstance(logger, _EnabledLogger):
        convert_frame.graph_break_log = _EnabledLogger(logger)  # type: ignore[attr-defined]
    return True


def is_asked_by_us(record: logging.LogRecord) -> bool:
    """Whether torch traces this break only because of `ask_for_whole_frame_breaks`; the program's own trace goes without it."""
    if not str(getattr(record, "payload", "")).startswith("Graph break: "):
        return False
    logger = getattr(module("torch._dynamo.convert_frame"), "graph_break_log", None)
    return isinstance(logger, _EnabledLogger) and not logger.is_really_enabled()


def wrap_add_skip_reason(convert_frame: ModuleType, note: Callable[[str, Any], None]) -> bool:
    """Frames that Dynamo skips (2.13 and later); before, a skipped generator leaves no sign."""
    original = getattr(convert_frame, "add_skip_reason", None)
    if original is None:
        return False

    def add_skip_reason(reason: str, frame: Any) -> None:
        note(reason, frame.f_code)
        original(reason, frame)

    convert_frame.add_skip_reason = add_skip_reason  # type: ignore[attr-defined]
    return True


def wrap_optimize(dynamo: ModuleType, note: Callable[[dict[str, Any], FrameType], None]) -> bool:
    """Every torch.compile call passes here; without it a finding cannot name the call that made the frame."""
    original = getattr(dynamo, "optimize", None)
    if original is None:
        return False

    def optimize(*args: Any, **kwargs: Any) -> Any:
        note(kwargs, sys._getframe(1))
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    dynamo.optimize = optimize  # type: ignore[attr-defined]
    return True


def set_guard_hook(hook: Callable[[bool], bool] | None) -> tuple[bool, Any]:
    """Install the guard-complete hook; (False, None) if torch has none. The second item is the hook it replaced."""
    try:
        from torch._C._dynamo.eval_frame import set_guard_complete_hook
    except ImportError:
        return False, None
    return True, set_guard_complete_hook(hook)


def wrap_compiled_pieces(output_graph: ModuleType, wrap: Callable[[str, Any], Any]) -> bool:
    """Hand every compiled piece, with its compile id, to `wrap`; without it --measure has nothing to time.

    A piece is taken where the new bytecode will find it: what the backend returned is looked at by Dynamo before that.
    """
    graph_class = getattr(output_graph, "OutputGraph", None)
    original = getattr(graph_class, "install_global_unsafe", None)
    if graph_class is None or original is None:
        return False

    def install_global_unsafe(self: Any, name: str, value: Any) -> None:
        if name.startswith("__compiled_fn"):
            value = wrap(str(module("torch._guards").CompileContext.current_compile_id()), value)
        original(self, name, value)

    graph_class.install_global_unsafe = install_global_unsafe
    return True


def wrap_record_function(profiler_module: ModuleType, note: Callable[[str, FrameType], None]) -> Callable[[], None] | None:
    """Call `note` at the end of every record_function block; returns the undoing. Without it no event knows its step."""
    block = getattr(profiler_module, "record_function", None)
    original = getattr(block, "__exit__", None)
    if block is None or original is None:
        return None
    swap = frame_callback_swap()

    def leave(self: Any, kind: Any, error: Any, trace: Any) -> Any:
        if kind is None:
            callback = swap(None)
            try:
                note(self.name, sys._getframe(1))
            except Exception:
                pass  # a step that is not counted is better than one that fails
            finally:
                swap(callback)
        return original(self, kind, error, trace)

    block.__exit__ = never_compile(leave)

    def undo() -> None:
        block.__exit__ = original

    return undo


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

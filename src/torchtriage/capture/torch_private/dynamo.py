"""The private names of torch.compile: structured trace, compile calls, guards, compiled pieces."""

import functools
import logging
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from torchtriage.capture.torch_private.base import Undo, is_torch_file, module, replaced
from torchtriage.errors import hide_frame


def lookup_interned_string(index: int) -> str | None:
    """A file name that torch interned before we listened; without it a late watcher shows `<string 7>`."""
    structured = module("torch._logging.structured")
    table: dict[str, int] = getattr(structured, "INTERN_TABLE", {})
    return next((text for text, number in table.items() if number == index), None)


def is_recompile() -> bool:
    """Whether the compile in progress is not the first of its frame; True where torch does not say."""
    guards = module("torch._guards")
    try:
        compile_id = guards.CompileContext.current_compile_id()
        return compile_id is None or compile_id.frame_compile_id != 0
    except AttributeError:
        return True


def wrap_trace_structured(internal: ModuleType, wrap: Callable[[Callable[..., None]], Callable[..., None]]) -> bool:
    """Filter records before their payload is made; without it each compile takes a few percent longer."""
    original = getattr(internal, "trace_structured", None)
    if original is None:
        return False
    internal.trace_structured = wrap(original)  # type: ignore[attr-defined]
    return True


class _EnabledLogger:
    """torch's graph-break logger, except that it reports itself as enabled; its output is unchanged."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        return True

    def is_really_enabled(self) -> bool:
        return bool(self._logger.isEnabledFor(logging.DEBUG))


def ask_for_whole_frame_breaks(convert_frame: ModuleType) -> Undo | None:
    """Have convert_frame trace breaks that skip an entire frame, which it does only while its logger is enabled."""
    return replaced(convert_frame, "graph_break_log", None, lambda logger, _: _EnabledLogger(logger))


def is_asked_by_us(record: logging.LogRecord) -> bool:
    """Whether torch traces this break only because of `ask_for_whole_frame_breaks`.

    The program's own trace does not contain such a record.
    """
    if not str(getattr(record, "payload", "")).startswith("Graph break: "):
        return False
    logger = getattr(module("torch._dynamo.convert_frame"), "graph_break_log", None)
    return isinstance(logger, _EnabledLogger) and not logger.is_really_enabled()


def wrap_add_skip_reason(convert_frame: ModuleType, note: Callable[[str, Any], None]) -> Undo | None:
    """Call `note` with the reason and the code of each frame that Dynamo skips.

    Before 2.13 torch has no such name, and a skipped generator leaves no sign.
    """
    def make(original: Any, notes: list[Any]) -> Any:
        @functools.wraps(original)
        def add_skip_reason(reason: str, frame: Any) -> None:
            for note in tuple(notes):
                note(reason, frame.f_code)
            original(reason, frame)

        return add_skip_reason

    return replaced(convert_frame, "add_skip_reason", note, make)


CompileNote = Callable[[dict[str, Any], FrameType], Callable[[Any], None] | None]


def wrap_optimize(dynamo: ModuleType, note: CompileNote) -> Undo | None:
    """Call `note` with the arguments and the frame of every torch.compile call.

    `note` may change the arguments. It may return a function, which is then called with the resulting context. Without
    this name a finding cannot name the call that compiled the frame, and no policy can be forced on it.
    """
    def make(original: Any, notes: list[Any]) -> Any:
        @functools.wraps(original)
        def optimize(*args: Any, **kwargs: Any) -> Any:
            if args and "backend" not in kwargs:
                kwargs["backend"], *args = args     # type: ignore[assignment]  # notes find it by its name
            caller = sys._getframe(1)
            context_callbacks = [note(kwargs, caller) for note in tuple(notes)]
            try:
                context = original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            for callback in context_callbacks:
                if callback is not None:
                    callback(context)
            return context

        return optimize

    return replaced(dynamo, "optimize", note, make)


def running_context() -> Any:
    """The context, made by `optimize`, of the compiled function that is running; None if this thread runs none.

    Without these names a compile is assigned to the last torch.compile call of its function.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name in ("compile_wrapper", "_fn") and code.co_filename.endswith("_dynamo/eval_frame.py"):
            return frame.f_locals.get("self")
        frame = frame.f_back
    return None


def backend_options(backend: Any) -> dict[str, Any]:
    """What torch.compile made of mode= and options=; empty for defaults and for a backend that torch does not wrap."""
    made = getattr(backend, "config", None) or getattr(backend, "kwargs", None)
    if not type(backend).__name__.startswith("_TorchCompile") or not isinstance(made, dict):
        return {}
    return {**made, **made["options"]} if isinstance(made.get("options"), dict) else made


def set_guard_hook(hook: Callable[[bool], bool] | None) -> tuple[bool, Any]:
    """Install the guard-complete hook; returns (True, the hook it replaced), or (False, None) if torch has none."""
    try:
        from torch._C._dynamo.eval_frame import set_guard_complete_hook
    except ImportError:
        return False, None
    return True, set_guard_complete_hook(hook)


def wrap_compiled_pieces(output_graph: ModuleType, wrap: Callable[[str, Any, Any], Any]) -> Undo | None:
    """Replace every compiled piece by wrap(compile id, piece, OutputGraph).

    A piece is replaced where the new bytecode will find it, because Dynamo examines what the backend returned before
    that. Without this name no piece is measured and no input size is seen.
    """
    def make(original: Any, wraps: list[Any]) -> Any:
        @functools.wraps(original)
        def install_global_unsafe(self: Any, name: str, value: Any) -> None:
            if name.startswith("__compiled_fn"):
                compile_id = module("torch._guards").CompileContext.current_compile_id()
                for wrap in tuple(wraps):
                    value = wrap(str(compile_id), value, self)
            original(self, name, value)

        return install_global_unsafe

    return replaced(getattr(output_graph, "OutputGraph", None), "install_global_unsafe", wrap, make)


def compiled_from(function: Any) -> Any:
    """The callable or module that torch.compile was given to make this one; None if it is not compiled or unknown."""
    if getattr(function, "_torchdynamo_disable", False):
        return None     # torch.compiler.disable leaves the same name
    original_module = getattr(function, "_orig_mod", None)
    if original_module is not None:
        return original_module
    return getattr(function, "_torchdynamo_orig_callable", None)


def wrap_is_compiling(compiler: ModuleType) -> None:
    """While the stance is force_eager, `is_compiling()` is True for code of the program below a torch.compile call.

    torch's own code keeps its answer. Without these names the program takes its branches for eager code.
    """
    for name in ("is_compiling", "is_dynamo_compiling"):
        original = getattr(compiler, name, None)
        if original is not None:
            setattr(compiler, name, _as_compiled(original))


def _as_compiled(original: Callable[[], bool]) -> Callable[[], bool]:
    @functools.wraps(original)
    def is_compiling() -> bool:
        caller = sys._getframe(1)
        return original() or (not is_torch_file(caller.f_code.co_filename) and _is_below_compile_call(caller))

    return is_compiling


def _is_below_compile_call(frame: FrameType | None) -> bool:
    """Whether the nearest call of torch.compile's wrapper on the stack is not one of torch.compiler.disable."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith("_dynamo/eval_frame.py") and code.co_name in ("compile_wrapper", "_fn"):
            return code.co_name == "compile_wrapper"
        frame = frame.f_back
    return False

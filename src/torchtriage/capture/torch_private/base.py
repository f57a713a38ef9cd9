"""Every private name of torch that torchtriage touches: each behind a feature test, each saying what is lost without it.

Those that only a shape policy needs are in torch_private_shapes.py.
"""

import functools
import logging
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType, ModuleType
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


def wrap_optimize(dynamo: ModuleType, note: Callable[[dict[str, Any], FrameType], Callable[[Any], None] | None]) -> (
    Callable[[], None] | None
):
    """Every torch.compile call passes here; without it a finding cannot name the call that made the frame, nor a policy be forced on it.

    `note` may change the arguments, and may return what shall be called with the context that comes of them.
    """
    def make(original: Any, notes: list[Any]) -> Any:
        def optimize(*args: Any, **kwargs: Any) -> Any:
            if args and "backend" not in kwargs:
                kwargs["backend"], *args = args     # type: ignore[assignment]  # what is noted has its name
            caller = sys._getframe(1)
            wanting = [note(kwargs, caller) for note in tuple(notes)]
            try:
                context = original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            for made in filter(None, wanting):
                made(context)
            return context

        return optimize

    return replaced(dynamo, "optimize", note, make)


def set_guard_hook(hook: Callable[[bool], bool] | None) -> tuple[bool, Any]:
    """Install the guard-complete hook; (False, None) if torch has none. The second item is the hook it replaced."""
    try:
        from torch._C._dynamo.eval_frame import set_guard_complete_hook
    except ImportError:
        return False, None
    return True, set_guard_complete_hook(hook)


def wrap_compiled_pieces(output_graph: ModuleType, wrap: Callable[[str, Any, Any], Any]) -> Callable[[], None] | None:
    """Hand every compiled piece to `wrap`, with its compile id and OutputGraph; without it nothing is measured and no size seen.

    A piece is taken where the new bytecode will find it: what the backend returned is looked at by Dynamo before that.
    """
    def make(original: Any, wraps: list[Any]) -> Any:
        def install_global_unsafe(self: Any, name: str, value: Any) -> None:
            if name.startswith("__compiled_fn"):
                compile_id = module("torch._guards").CompileContext.current_compile_id()
                for wrap in tuple(wraps):
                    value = wrap(str(compile_id), value, self)
            original(self, name, value)

        return install_global_unsafe

    return replaced(getattr(output_graph, "OutputGraph", None), "install_global_unsafe", wrap, make)


def wrap_record_function(profiler_module: ModuleType, prefix: str, note: Callable[[FrameType], None], name: str = "__exit__") -> (
    Callable[[], None] | None
):
    """Call `note` at the end (or `__enter__`: at the start) of every record_function block whose name begins so; returns the undoing.

    Without it no event knows its step.
    """
    def make_exit(original: Any, notes: list[Any]) -> Any:
        tell = telling(notes)

        @functools.wraps(original)      # TorchScript compiles this class from its source, which it finds through __wrapped__
        def leave(self: Any, kind: Any, error: Any, trace: Any) -> Any:
            result = original(self, kind, error, trace)
            if kind is None and self.name.startswith(prefix):
                tell(sys._getframe(1))
            return result

        return never_compile(leave)

    def make_enter(original: Any, notes: list[Any]) -> Any:
        tell = telling(notes)

        @functools.wraps(original)
        def enter(self: Any) -> Any:
            if self.name.startswith(prefix):
                tell(sys._getframe(1))
            return original(self)

        return never_compile(enter)

    return replaced(getattr(profiler_module, "record_function", None), name, note, make_exit if name == "__exit__" else make_enter)


def clip_code() -> CodeType | None:
    """The code that every clipping function of torch.nn.utils runs in, its own function beside it as `func`."""
    code = getattr(getattr(module("torch.nn.utils.clip_grad"), "clip_grad_value_", None), "__code__", None)
    return code if isinstance(code, CodeType) and "func" in code.co_freevars else None


def unscale_code() -> CodeType | None:
    """The code in which GradScaler looks at the gradients of an optimizer, before its step or instead of it."""
    scaler = getattr(module("torch.amp.grad_scaler"), "GradScaler", None)
    code = getattr(getattr(scaler, "_unscale_grads_", None), "__code__", None)
    return code if isinstance(code, CodeType) and {"self", "optimizer", "inv_scale"} <= {*code.co_varnames} else None


def wrap_no_grad(grad_mode: ModuleType, codes: tuple[CodeType | None, CodeType | None], note: Callable[[FrameType], None]) -> (
    Callable[[], None] | None
):
    """Call `note` where code of these enters no_grad(), which Dynamo passes over; a wrapper of the function itself would be traced.

    Without it gradients are seen only after clipping, and steps that GradScaler skips are not seen.
    """
    first, second = codes

    def make(original: Any, notes: list[Any]) -> Any:
        tell, getframe = telling(notes), sys._getframe

        @functools.wraps(original)
        def enter(self: Any) -> None:
            original(self)
            frame = getframe(1)
            if frame.f_code is first or frame.f_code is second:
                tell(frame)

        return never_compile(enter)

    return replaced(getattr(grad_mode, "no_grad", None), "__enter__", note, make)


def wrap_backward(autograd: ModuleType, note: Callable[[Any], None]) -> Callable[[], None] | None:
    """Call `note` with the tensors that backward() begins at; without it the loss of a script is not known."""
    def make(original: Any, notes: list[Any]) -> Any:
        tell = telling(notes)

        @functools.wraps(original)
        def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("accumulate_grad"):
                tell(t_outputs)
            try:
                return original(t_outputs, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise

        return never_compile(run)

    return replaced(autograd, "_engine_run_backward", note, make)


def telling(notes: list[Any]) -> Callable[..., None]:
    """Tells all, while Dynamo is not offered what they run."""
    swap = frame_callback_swap()

    def tell(what: Any) -> None:
        callback = swap(None)
        try:
            for note in tuple(notes):
                note(what)
        except Exception as error:      # what is not seen is better than a step that fails
            pass_on_signals(error)
        finally:
            swap(callback)

    return never_compile(tell)


def frame_callback_swap() -> Callable[[Any], Any]:
    """A C function that swaps Dynamo's frame callback on this thread for another; while it is None, Dynamo is not offered our frames."""
    try:
        from torch._C._dynamo.eval_frame import set_eval_frame
    except ImportError:
        return lambda callback: callback
    swap: Callable[[Any], Any] = set_eval_frame
    return swap


def never_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Tell Dynamo's frame evaluator to run this function's own frames as they are, and hide_frame's, which such functions call."""
    try:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    except ImportError:
        return function
    for code in (function.__code__, hide_frame.__code__):
        set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.DEFAULT))
    return function


def compiled_from(function: Any) -> Any:
    """What torch.compile made this callable of, or None if it is not compiled (or torch does not tell)."""
    if getattr(function, "_torchdynamo_disable", False):
        return None     # torch.compiler.disable leaves the same name
    whole_module = getattr(function, "_orig_mod", None)
    return whole_module if whole_module is not None else getattr(function, "_torchdynamo_orig_callable", None)

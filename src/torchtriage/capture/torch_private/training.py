"""The private names of torch that a training step passes through: backward, clipping, GradScaler, the optimizer."""

import functools
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FrameType, ModuleType
from typing import Any

from torchtriage.capture.torch_private.base import Undo, module, never_compile, notifier, replaced
from torchtriage.errors import hide_frame

DECORATOR = "_contextlib.py"    # the file of torch in which a function that is decorated with no_grad() enters it
FrameNote = Callable[[FrameType], None]
# A profiler of the program sees calls of built-in functions, but not through `partial`.
_caller = functools.partial(sys._getframe, 1)


def wrap_record_function(
    profiler_module: ModuleType, prefix: str, note: FrameNote, name: str = "__exit__",
) -> Undo | None:
    """Call `note` at the end of every record_function block whose name has this prefix (at its start for `__enter__`).

    Without this name no event knows its step.
    """
    length = len(prefix)

    def make_exit(original: Any, notes: list[Any]) -> Any:
        notify = notifier(notes)

        # TorchScript compiles this class from its source, which it finds through __wrapped__.
        @functools.wraps(original)
        def leave(self: Any, kind: Any, error: Any, trace: Any) -> Any:
            result = original(self, kind, error, trace)
            if kind is None and self.name[:length] == prefix:
                notify(_caller())
            return result

        return never_compile(leave)

    def make_enter(original: Any, notes: list[Any]) -> Any:
        notify = notifier(notes)

        @functools.wraps(original)
        def enter(self: Any) -> Any:
            if self.name[:length] == prefix:
                notify(_caller())
            return original(self)

        return never_compile(enter)

    make = make_exit if name == "__exit__" else make_enter
    return replaced(getattr(profiler_module, "record_function", None), name, note, make)


def without_function_modes() -> AbstractContextManager[Any]:
    """A context in which a TorchFunctionMode of the program, or a tensor subclass, does not see our operations."""
    disabled = getattr(module("torch._C"), "DisableTorchFunction", nullcontext)
    context: AbstractContextManager[Any] = disabled()
    return context


def clip_code() -> CodeType | None:
    """The code in which every clipping function of torch.nn.utils runs; its variable `func` is the function itself."""
    code = getattr(getattr(module("torch.nn.utils.clip_grad"), "clip_grad_value_", None), "__code__", None)
    return code if isinstance(code, CodeType) and "func" in code.co_freevars else None


def unscale_code() -> CodeType | None:
    """The code in which GradScaler checks the gradients of an optimizer, before its step or instead of it."""
    scaler = getattr(module("torch.amp.grad_scaler"), "GradScaler", None)
    code = getattr(getattr(scaler, "_unscale_grads_", None), "__code__", None)
    return code if isinstance(code, CodeType) and {"self", "optimizer", "inv_scale"} <= {*code.co_varnames} else None


def wrap_no_grad(
    grad_mode: ModuleType, codes: tuple[CodeType | None, CodeType | None], note: FrameNote,
) -> Undo | None:
    """Call `note` where one of these code objects, or code outside torch, enters no_grad().

    Dynamo does not trace no_grad(), but it would trace a wrapper of the clipping function itself. Without this name
    gradients are seen only after clipping, and steps that GradScaler skips are not seen.
    """
    first, second = codes

    def make(original: Any, notes: list[Any]) -> Any:
        notify, caller = notifier(notes), _caller
        folder = os.path.dirname(module("torch").__file__) + os.sep
        length = len(folder)

        @functools.wraps(original)
        def enter(self: Any) -> None:
            original(self)
            frame = caller()
            code = frame.f_code
            if code is first or code is second or code.co_filename[:length] != folder:
                notify(frame)
            elif code.co_filename[-14:] == DECORATOR:
                user = frame.f_back     # of a function that is decorated with no_grad()
                if user is not None and user.f_code.co_filename[:length] != folder:
                    notify(user)

        return never_compile(enter)

    return replaced(getattr(grad_mode, "no_grad", None), "__enter__", note, make)


def wrap_backward(autograd: ModuleType, note: Callable[[Any], None]) -> Undo | None:
    """Call `note` with the tensors that backward() starts from; without it the loss of a script is unknown."""
    def make(original: Any, notes: list[Any]) -> Any:
        notify = notifier(notes)

        @functools.wraps(original)
        def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if "accumulate_grad" in kwargs and kwargs["accumulate_grad"]:  # noqa: RUF019 - a profiler would see get()
                notify(t_outputs)
            try:
                return original(t_outputs, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise

        return never_compile(run)

    return replaced(autograd, "_engine_run_backward", note, make)


def wrap_save(serialization: ModuleType, note: Callable[[Any], None]) -> Undo | None:
    """Call `note` with each object that torch.save writes; without it saved tensors are not compared."""
    def make(original: Any, notes: list[Any]) -> Any:
        notify = notifier(notes)

        @functools.wraps(original)
        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            notify(obj)
            return original(obj, *args, **kwargs)

        return never_compile(save)

    return replaced(serialization, "_save", note, make)


def wrap_load_state_dict(modules: ModuleType, note: Callable[[Any], None]) -> Undo | None:
    """Call `note` with (module, result) after load_state_dict(); without it names that do not match are not seen."""
    def make(original: Any, notes: list[Any]) -> Any:
        notify = notifier(notes)

        @functools.wraps(original)
        def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                result = original(self, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            notify((self, result))
            return result

        return never_compile(load_state_dict)

    return replaced(getattr(modules, "Module", None), "load_state_dict", note, make)

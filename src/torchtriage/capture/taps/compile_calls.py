"""The torch.compile calls of the program: their place, target and arguments."""

import inspect
from types import CodeType, FrameType
from typing import Any

from torchtriage.capture.torch_private.base import is_torch_file
from torchtriage.recording.events import CompileCall


def compile_call(arguments: dict[str, Any], frame: FrameType, **columns: Any) -> CompileCall:
    """The event of a call; `frame` is the frame of torch.compile itself, or of another function of torch below it."""
    target = frame.f_locals.get("model")
    code = code_of(target)
    user = _outside_torch(frame)
    backend = arguments.get("backend")
    if isinstance(backend, str):
        name = backend
    else:
        name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None) or type(backend).__name__
    return CompileCall(
        path=user.f_code.co_filename, line=user.f_lineno, function=user.f_code.co_name,
        target=_name_of(target), target_path=code.co_filename if code else "",
        target_line=code.co_firstlineno if code else None, dynamic=arguments.get("dynamic"),
        fullgraph=bool(arguments.get("nopython")), backend=name, disabled=bool(arguments.get("disable")), **columns,
    )


def code_of(target: Any) -> CodeType | None:
    """The code object whose frame Dynamo will see: that of a function, a module's forward or a decorator's wrapper."""
    target = _module_or_function(target)
    if not inspect.isroutine(target) and hasattr(target, "forward"):
        target = target.forward
    code = getattr(getattr(target, "__func__", target), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _module_or_function(target: Any) -> Any:
    """The module behind a bound `_call_impl`, which is what Module.compile() compiles; other targets unchanged."""
    owner = getattr(target, "__self__", None)
    is_call_of_module = getattr(target, "__name__", "") == "_call_impl" and owner is not None
    return owner if is_call_of_module else target


def _name_of(target: Any) -> str:
    target = _module_or_function(target)
    if hasattr(target, "forward") and not inspect.isroutine(target):
        return f"{type(target).__name__}.forward"
    return str(getattr(target, "__qualname__", type(target).__name__)).replace("<locals>.", "")


def _outside_torch(frame: FrameType) -> FrameType:
    """The innermost frame that is not torch's own."""
    caller: FrameType | None = frame
    while caller is not None:
        if not is_torch_file(caller.f_code.co_filename):
            return caller
        caller = caller.f_back
    return frame

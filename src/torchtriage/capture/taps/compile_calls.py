"""Which torch.compile calls the program makes: where, on what, with which arguments."""

import inspect
from types import CodeType, FrameType
from typing import Any

from torchtriage.capture.torch_private import base as torch_private
from torchtriage.recording.events import CompileCall


def compile_call(arguments: dict[str, Any], frame: FrameType, **columns: Any) -> CompileCall:
    """The call as the user wrote it; `frame` is torch's own frame that was reached through it."""
    target = frame.f_locals.get("model")
    code = code_of(target)
    user = _outside_torch(frame)
    backend = arguments.get("backend")
    name = backend if isinstance(backend, str) else getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None)
    return CompileCall(
        path=user.f_code.co_filename, line=user.f_lineno, function=user.f_code.co_name,
        target=_name_of(target), target_path=code.co_filename if code else "", target_line=code.co_firstlineno if code else None,
        dynamic=arguments.get("dynamic"), fullgraph=bool(arguments.get("nopython")), backend=name or type(backend).__name__,
        disabled=bool(arguments.get("disable")), **columns,
    )


def code_of(target: Any) -> CodeType | None:
    """The code object whose frame Dynamo will see: a function's own, a module's forward, a decorator's wrapper."""
    owner = getattr(target, "__self__", None)
    if getattr(target, "__name__", "") == "_call_impl" and owner is not None:
        target = owner  # Module.compile() compiles the bound _call_impl
    if not inspect.isroutine(target) and hasattr(target, "forward"):
        target = target.forward
    code = getattr(getattr(target, "__func__", target), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _name_of(target: Any) -> str:
    owner = getattr(target, "__self__", None)
    if getattr(target, "__name__", "") == "_call_impl" and owner is not None:
        target = owner
    if hasattr(target, "forward") and not inspect.isroutine(target):
        return f"{type(target).__name__}.forward"
    return str(getattr(target, "__qualname__", type(target).__name__)).replace("<locals>.", "")


def _outside_torch(frame: FrameType) -> FrameType:
    walk: FrameType | None = frame
    while walk is not None:
        if not torch_private.is_torch_file(walk.f_code.co_filename):
            return walk
        walk = walk.f_back
    return frame

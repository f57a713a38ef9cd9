"""The torch.compile calls of the program: their place, target, arguments."""

import inspect
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

from torchtriage.capture.torch_private.base import is_torch_file
from torchtriage.capture.torch_private.dynamo import backend_options
from torchtriage.recording.events import CompileCall

MAX_EACH = 100      # calls of one line that are recorded one by one; then one event stands for as many as came before

MAX_OPTIONS = 300   # characters


class RepeatedCalls:
    """Bounds the events of a torch.compile call in a loop: their number grows with the logarithm of the calls."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, CompileCall] = {}     # the last call of a line, with those it stands for

    def add(self, call: CompileCall) -> CompileCall | None:
        """The event to record; None while the calls of this line are only counted."""
        key = (call.path, call.line, call.target, call.dynamic)
        self._counts[key] += 1
        if self._counts[key] <= MAX_EACH:
            return call
        before = self._waiting.get(key)
        self._waiting[key] = replace(call, num_calls=before.num_calls + 1 if before is not None else 1)
        is_doubled = 2 * self._waiting[key].num_calls >= self._counts[key]
        return self._waiting.pop(key) if is_doubled else None

    def rest(self) -> Iterator[CompileCall]:
        """The events of the calls that were only counted."""
        yield from self._waiting.values()
        self._waiting.clear()

    def start_over(self) -> None:
        self._counts.clear()
        self._waiting.clear()


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
        fullgraph=bool(arguments.get("nopython")), backend=name, options=_text(backend_options(backend)),
        disabled=bool(arguments.get("disable")), **columns,
    )


def _text(options: dict[str, Any]) -> str:
    """The options that are plain values; the repr of an object may run code of the program."""
    plain = {name: value for name, value in options.items() if isinstance(value, bool | int | float | str)}
    return ", ".join(f"{name}={value!r}" for name, value in sorted(plain.items()))[:MAX_OPTIONS]


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

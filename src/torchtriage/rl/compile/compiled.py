"""Functions compiled to one graph; an error says why that failed, then what to do."""

import functools
import signal
import subprocess
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import torch
import torch._dynamo

from torchtriage.errors import TriageError

# tanh computed from exp: inductor's own took a fifth of an update. The error is at most 1e-7, which is large relative
# to a tiny value and irrelevant to a layer. Kernels called from C++ instead of Python: 8 % more steps per second at
# the same compile time.
FASTER = {"cpp.use_decompose_tanh": True, "cpp_wrapper": True}
P = ParamSpec("P")
R = TypeVar("R")

# Failed compiles; other exceptions are raised by the function itself.
_FAILURES = (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit)


class Timed(Generic[P, R]):
    """A function with the time of its first call that succeeded, which includes all its compiling."""

    is_first = True  # the first of this function in the process; for a later one everything may be compiled already

    def __init__(self, function: Callable[P, R]) -> None:
        self.first_seconds: float | None = None
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.first_seconds is None:
            began = time.perf_counter()
            result = self._call(*args, **kwargs)
            self.first_seconds = time.perf_counter() - began
            return result
        return self._call(*args, **kwargs)

    def _call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)


class Compiled(Timed[P, R]):
    """`make(*constants)` as one full graph of fixed shapes. After a failed compile the next call tries again.

    The function may depend only on its tensors and on the constants, which are hashable. Functions with equal
    constants share one compile, so ten trainings in a process compile once. The only guards checked at a call are
    those on the tensors.
    """

    def __init__(
        self, make: Callable[..., Callable[P, R]], *constants: Hashable, name: str, backend: str = "inductor"
    ) -> None:
        shared = _shared_function(make, constants, backend)
        super().__init__(shared.function)
        self.name, self.is_first = name, not shared.num_users
        shared.num_users += 1

    def _call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            try:
                return self._function(*args, **kwargs)
            except _FAILURES as error:
                if not _was_interrupted(error):
                    raise
                return self._function(*args, **kwargs)
        except _FAILURES as error:
            raise TriageError(
                f"{self.name} does not compile as one graph: {_reason(error)}; {_advice(error)}"
            ) from error


@dataclass(slots=True)
class _Shared:
    function: Any
    num_users: int = 0


@functools.cache
def _shared_function(make: Callable[..., Any], constants: tuple[Hashable, ...], backend: str) -> _Shared:
    function = make(*constants)
    # Dynamo keeps graphs with the code object, which all functions of one def share. Without a copy, graphs for other
    # constants would be used for this function, since only tensors are checked, and would count towards its recompile
    # limit.
    function.__code__ = function.__code__.replace()
    options = {"guard_filter_fn": _needed_guards} | (FASTER if backend == "inductor" else {})
    # With TORCH_COMPILE_DISABLE=1 everything runs eager, but torch 2.14 raises where a full graph is asked for.
    fullgraph = not torch._dynamo.config.disable
    return _Shared(torch.compile(function, fullgraph=fullgraph, dynamic=False, backend=backend, options=options))


def _needed_guards(guards: Sequence[Any]) -> list[bool]:
    """Keep the guards on tensors and on the state of torch, which have no name.

    The others are on constants and took a fifth of a policy step.
    """
    return [guard.guard_type == "TENSOR_MATCH" or not guard.name for guard in guards]


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C ended the C++ compiler: a terminal sends the signal to it as well.

    A training that finishes its update then needs to compile again.
    """
    while error is not None:
        if isinstance(error, subprocess.CalledProcessError) and error.returncode == -signal.SIGINT:
            return True
        error = error.__cause__ or error.__context__
    return False


def _reason(error: BaseException) -> str:
    """The first line of torch's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


def _advice(error: BaseException) -> str:
    text = str(error).lower()
    if isinstance(error, torch._dynamo.exc.FailOnRecompileLimitHit):
        return "pass tensors of one shape (pad the last minibatch with weight 0), or do not compile (--no-compile)"
    if "c++ compiler" in text or "invalidcxxcompiler" in text:
        return "install a C++ compiler (g++ or clang++, or name one in CXX), or do not compile (--no-compile)"
    return "do not compile (--no-compile)"

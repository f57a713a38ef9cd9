"""Compile a function to one graph, or say why that failed and what to do."""

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

# tanh by way of exp, off by 1e-7 at most, which is much of a small value and nothing to a layer: inductor's own was a
# fifth of an update. Kernels called from C++ and not from Python: 8 % more steps a second, and no more time to compile.
FASTER = {"cpp.use_decompose_tanh": True, "cpp_wrapper": True}
P = ParamSpec("P")
R = TypeVar("R")

_FAILURES = (
    torch._dynamo.exc.TorchDynamoException,
    torch._dynamo.exc.FailOnRecompileLimitHit,
)  # others are the function's own


class Timed(Generic[P, R]):
    """A function, and how long its first call took that came through: whatever it compiles is in that."""

    is_first = True  # of the process with this function; else its first call may find all compiled

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
    """`make(*constants)` as one full graph of fixed shapes. A failure is raised and not remembered: the next call tries
    again.

    The function may depend on nothing but its tensors and the constants, which are hashable: equal functions share one
    compile (ten trainings in a process compile once), and it is checked at every call that the tensors are as before,
    and no more.
    """

    def __init__(
        self, make: Callable[..., Callable[P, R]], *constants: Hashable, name: str, backend: str = "inductor"
    ) -> None:
        shared = _compiled(make, constants, backend)
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
def _compiled(make: Callable[..., Any], constants: tuple[Hashable, ...], backend: str) -> _Shared:
    function = make(*constants)
    # Dynamo keeps graphs with the code object, which all functions of one def share: without a copy those of other
    # constants would be taken for this one's, as nothing but tensors is checked, and would count towards its limit of
    # recompiles.
    function.__code__ = function.__code__.replace()
    options = {"guard_filter_fn": _needed} | (FASTER if backend == "inductor" else {})
    return _Shared(torch.compile(function, fullgraph=True, dynamic=False, backend=backend, options=options))


def _needed(guards: Sequence[Any]) -> list[bool]:
    """Those on tensors and on the state of torch, which have no name; others are on constants.
    They were a fifth of a policy step.
    """
    return [guard.guard_type == "TENSOR_MATCH" or not guard.name for guard in guards]


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C ended the C++ compiler, which a terminal sends it to as well:
    a training that finishes its update needs it again.
    """
    while error is not None:
        if isinstance(error, subprocess.CalledProcessError) and error.returncode == -signal.SIGINT:
            return True
        error = error.__cause__ or error.__context__
    return False


def _reason(error: BaseException) -> str:
    """What torch says, in its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


def _advice(error: BaseException) -> str:
    text = str(error).lower()
    if isinstance(error, torch._dynamo.exc.FailOnRecompileLimitHit):
        return (
            "give tensors of one shape (pad the last minibatch with weight 0), or run without compiling (--no-compile)"
        )
    if "c++ compiler" in text or "invalidcxxcompiler" in text:
        return "install a C++ compiler (g++ or clang++, or name one in CXX), or run without compiling (--no-compile)"
    return "run without compiling (--no-compile)"

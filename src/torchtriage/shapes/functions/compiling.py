"""How the calls of this folder compile a function: one region a bucket or policy, and the function behind one that is compiled already."""

import inspect
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from torchtriage.capture.observer import Observer
from torchtriage.capture.torch_private import dynamo as torch_private
from torchtriage.diagnosis.totals import busy_seconds
from torchtriage.errors import TriageError
from torchtriage.recording.events import CompileEnd, CompileStart, Event, LimitHit, Recompile


def uncompiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What torch.compile was given, or `fn` itself."""
    return torch_private.compiled_from(fn) or fn


def name_of(fn: Callable[..., Any]) -> str:
    """Of a function, or of the class of a module."""
    return str(getattr(fn, "__name__", type(fn).__name__))


def bucket_compiler(fn: Callable[..., Any], options: Mapping[str, Any]) -> Callable[[], Callable[..., Any]]:
    """Makes the callable of one more bucket.

    Buckets of one function share its code, so together they reach torch's recompile limit and the rest would run eager without a word:
    each is a region of its own where torch has such (2.13), else it has a frame of its own around the function.
    """
    import torch

    if "dynamic" in options:
        raise TriageError(f"dynamic={options['dynamic']!r} was given, but every bucket is one fixed size; leave it out")
    if uncompiled(fn) is not fn or hasattr(fn, "bucket_of"):
        if options:
            raise TriageError(f"{', '.join(options)} was given for a function that is compiled already; "
                              "give the function as it was before torch.compile")
        return lambda: fn
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        return lambda: torch.compile(fn, dynamic=False, isolate_recompiles=True, **options)
    return lambda: torch.compile(_with_own_frame(fn), dynamic=False, **options)


def _with_own_frame(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function in a frame whose code is no other's: Dynamo keeps what it compiled, and counts it, by the code object."""
    def bucket(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    bucket.__code__ = bucket.__code__.replace()
    return bucket


def parameter_names(fn: Callable[..., Any]) -> list[str]:
    """The names of what can be given by position; a builtin may not tell, and is named by position then."""
    try:
        parameters = inspect.signature(getattr(fn, "forward", fn)).parameters.values()
    except ValueError:
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


class Compiles:
    """`with Compiles() as seen:`, then `seen.num`, `seen.seconds`, `seen.events`; warm calls emit nothing, so it costs them nothing."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._observer = Observer(self.events.append)

    def __enter__(self) -> "Compiles":
        self._observer.arm_for_block()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._observer.disarm()

    @property
    def num(self) -> int:
        return sum(isinstance(e, CompileStart) for e in self.events)

    @property
    def seconds(self) -> float:
        return busy_seconds([e for e in self.events if isinstance(e, CompileEnd) and e.seconds is not None])

    @property
    def recompiles(self) -> list[Recompile]:
        return [e for e in self.events if isinstance(e, Recompile)]

    @property
    def limits(self) -> list[LimitHit]:
        return [e for e in self.events if isinstance(e, LimitHit)]

    @property
    def num_eager_calls(self) -> int:
        """Calls that ran eager after a limit, by the silent-eager meter."""
        counted = self._observer.facts()["eager_calls"]
        return int(counted["eager"]) if counted else 0


def synchronise() -> None:
    import torch

    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def device_name() -> str:
    import torch

    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return str(accelerator.type) if accelerator is not None else "cpu"


def reset_peak_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak_memory_bytes() -> int | None:
    """Of the device since the last reset; on the host the peak of a process cannot be reset, so that is not known."""
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else None

"""Compiles functions for this folder while it observes the compiles."""

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
    """The function that was given to torch.compile, or `fn` itself."""
    return torch_private.compiled_from(fn) or fn


def name_of(fn: Callable[..., Any]) -> str:
    """The name of a function, or of the class of a module."""
    return str(getattr(fn, "__name__", type(fn).__name__))


def bucket_compiler(fn: Callable[..., Any], options: Mapping[str, Any]) -> Callable[[], Callable[..., Any]]:
    """Returns a function that makes the callable of one more bucket.

    The buckets of one function share its code, so together they would reach torch's recompile limit, and the remaining
    ones would silently run eagerly. So each bucket is a separate compile region where torch has them (2.13), else it
    gets its own frame around the function.
    """
    import torch

    if "dynamic" in options:
        raise TriageError(f"dynamic={options['dynamic']!r} was given, but every bucket is one fixed size; leave it out")
    if uncompiled(fn) is not fn or hasattr(fn, "bucket_of"):
        if options:
            raise TriageError(f"{', '.join(options)} was given for a function that is already compiled; "
                              "give the function that was passed to torch.compile")
        return lambda: fn
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        return lambda: torch.compile(fn, dynamic=False, isolate_recompiles=True, **options)
    return lambda: torch.compile(_with_own_frame(fn), dynamic=False, **options)


def _with_own_frame(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function in a frame with its own code object, by which Dynamo stores and counts what it compiled."""
    def bucket(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    bucket.__code__ = bucket.__code__.replace()
    return bucket


def parameter_names(fn: Callable[..., Any]) -> list[str]:
    """The names of the positional parameters; empty for a builtin without a signature."""
    try:
        parameters = inspect.signature(getattr(fn, "forward", fn)).parameters.values()
    except ValueError:
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


class Compiles:
    """`with Compiles() as compiles:` observes compiles. Warm calls emit no event, so observing them is free."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._observer = Observer(self.events.append)

    def __enter__(self) -> "Compiles":
        self._observer.arm_for_block()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
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
        """Calls that ran eagerly after a limit, by the silent-eager meter."""
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
    """Of the device since the last reset; None on the host, where the peak of a process cannot be reset."""
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else None

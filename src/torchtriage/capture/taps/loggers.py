"""The loggers tap: the scalars that the program passes to its own loggers, by the names that the rules know."""

import functools
from _thread import get_ident
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torchtriage.background import own_threads
from torchtriage.capture.readers.scalar_names import logged_series_name
from torchtriage.capture.torch_private.base import Undo, module, never_compile, notifier, replaced
from torchtriage.errors import hide_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggerClass:
    """A method of a library that receives scalars: one with its name, or several in a dict."""

    label: str                      # as a report names the logger
    module: str
    name: str
    method: str
    parameters: Sequence[str]       # those that hold the scalars: a name and a value, or a dict
    has_waited: bool = True         # the method itself reads a value from its device


LOGGERS = (
    LoggerClass(
        label="Stable-Baselines3 Logger", module="stable_baselines3.common.logger", name="Logger", method="record",
        parameters=("key", "value"), has_waited=False,
    ),
    LoggerClass(
        label="SummaryWriter", module="torch.utils.tensorboard.writer", name="SummaryWriter", method="add_scalar",
        parameters=("tag", "scalar_value"),
    ),
    LoggerClass(
        label="tensorboardX", module="tensorboardX.writer", name="SummaryWriter", method="add_scalar",
        parameters=("tag", "scalar_value"),
    ),
    LoggerClass(label="wandb", module="wandb.sdk.wandb_run", name="Run", method="log", parameters=("data",)),
    LoggerClass(
        label="Trackio", module="trackio.run", name="Run", method="log", parameters=("metrics",), has_waited=False),
)


@dataclass(frozen=True, slots=True)
class Logged:
    """The scalars of one call whose names are known: by the name of their series, the program's name and value."""

    logger: Any
    kind: LoggerClass
    scalars: Mapping[str, tuple[str, Any]]


def arm(kind: LoggerClass, library: ModuleType, note: Callable[[Logged], None]) -> Undo | None:
    """Call `note` after each call that passed known scalars; None if the library has no such method."""
    def make(original: Any, notes: list[Any]) -> Any:
        notify, compiler = notifier(notes), module("torch.compiler")

        def log(self: Any, *args: Any, **kwargs: Any) -> Any:
            if compiler is not None and compiler.is_compiling():
                return original(self, *args, **kwargs)
            try:
                result = original(self, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            notify((self, args, kwargs))
            return result

        # Dynamo decides by its file whether it traces a function, and names it by its code.
        code = getattr(original, "__code__", None)
        if code is not None:
            log.__code__ = log.__code__.replace(
                co_filename=code.co_filename, co_name=code.co_name, co_qualname=code.co_qualname,
                co_firstlineno=code.co_firstlineno,
            )
        return never_compile(functools.wraps(original)(log))

    def read(call: tuple[Any, Sequence[Any], Mapping[str, Any]]) -> None:
        if get_ident() in own_threads:      # telemetry's own sinks write to the same loggers
            return
        logger, args, kwargs = call
        scalars = known_scalars(kind.parameters, args, kwargs)
        if scalars:
            note(Logged(logger, kind, scalars))

    return replaced(getattr(library, kind.name, None), kind.method, read, make)


def known_scalars(
    parameters: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any],
) -> dict[str, tuple[str, Any]]:
    """The arguments of a call whose names are known: by the name of their series, the program's name and value."""
    given = [args[at] if at < len(args) else kwargs.get(name) for at, name in enumerate(parameters)]
    passed = {given[0]: given[1]} if len(given) == 2 else given[0]
    if type(passed) is not dict:
        return {}
    scalars: dict[str, tuple[str, Any]] = {}
    for name, value in passed.items():
        series = logged_series_name(name) if isinstance(name, str) else None
        if series is not None and value is not None:
            scalars.setdefault(series, (name, value))
    return scalars

"""A handler on PyTorch's trace logger that stays, whatever the program does to logging."""

import logging
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchtriage.capture import torch_private
from torchtriage.capture.translate import ARTIFACTS, KINDS, NO_PAYLOAD, OUR_FOLDERS, Translator
from torchtriage.recording.events import Event, StackEntry

LOGGER_NAME = "torch.__trace"


class TraceHandler(logging.Handler):
    """Turns trace records into events on the spot; nothing of a record is kept."""

    def __init__(self, sink: Callable[[Event], None], step: Callable[[], int | None],
                 lookup_string: Callable[[int], str | None], on_error: Callable[[Exception], None]) -> None:
        super().__init__(logging.DEBUG)
        self._translator = Translator(lookup_string)
        self._sink = sink
        self._step = step
        self._on_error = on_error

    def emit(self, record: logging.LogRecord) -> None:
        # Records also come while compiled code runs, when Dynamo would take our own functions for the program's.
        swap = torch_private.frame_callback_swap()
        callback = swap(None)
        try:
            metadata: dict[str, Any] = record.metadata  # type: ignore[attr-defined]  # torch puts both on the record
            payload: str | None = record.payload  # type: ignore[attr-defined]
            caller = _calling_line() if "dynamo_start" in metadata else None
            for event in self._translator.feed(metadata, payload, caller, time=record.created, step=self._step(), pid=os.getpid()):
                self._sink(event)
        except Exception as error:  # reaches the user's compiled call otherwise
            self._on_error(error)
        finally:
            swap(callback)

    def unfinished(self) -> list[Event]:
        """Recompiles that torch announced and did not come back to."""
        return list(self._translator.finish())

    def close(self) -> None:
        """logging.config closes every handler it knows of; this one has nothing to close."""


def _calling_line() -> StackEntry | None:
    """The innermost line that is neither torch's, nor logging's, nor ours: it called the frame that is being compiled."""
    frame: FrameType | None = sys._getframe(2)
    passed = (*OUR_FOLDERS, os.path.dirname(logging.__file__))
    while frame is not None:
        path = frame.f_code.co_filename
        if f"{os.sep}torch{os.sep}" not in path and not path.startswith(passed) and not path.startswith("<"):
            return StackEntry(path=path, line=frame.f_lineno, function=frame.f_code.co_name)
        frame = frame.f_back
    return None


class _KeptHandlers(list[logging.Handler]):
    """A logger's handlers, of which ours cannot be cleared away."""

    def clear(self) -> None:
        self[:] = [h for h in self if isinstance(h, TraceHandler)]


def attach(handler: TraceHandler) -> Callable[[], None]:
    """Add the handler so that dictConfig, logging.disable and handlers.clear() leave it in place; returns the undoing."""
    logger = logging.getLogger(LOGGER_NAME)
    before = logger.__class__
    # dictConfig(disable_existing_loggers) sets `disabled`, and before 2.13 logging.disable() silences the logger;
    # a subclass that ignores both is the only hold that survives them.
    if not getattr(before, "kept_by_torchtriage", False):
        logger.__dict__.pop("disabled", None)
        logger.__class__ = _kept(before)
    if not isinstance(logger.handlers, _KeptHandlers):
        logger.handlers = _KeptHandlers(logger.handlers)
    logger.addHandler(handler)

    def detach() -> None:
        logger.removeHandler(handler)
        if not any(isinstance(h, TraceHandler) for h in logger.handlers):
            logger.__class__ = before
            logger.__dict__["disabled"] = False
            logger.handlers = list(logger.handlers)

    return detach


def _kept(base: type[logging.Logger]) -> type[logging.Logger]:
    class KeptLogger(base):  # type: ignore[valid-type, misc]  # the class is whatever the logger had
        kept_by_torchtriage = True
        disabled = property(lambda _: False, lambda _, __: None)

        def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
            return bool(level >= self.level)

    return KeptLogger


def filtered(original: Callable[..., None], is_recompile: Callable[[], bool]) -> Callable[..., None]:
    """torch's trace_structured, which returns early for records that only we would receive and do not need."""
    logger = logging.getLogger(LOGGER_NAME)
    swap = torch_private.frame_callback_swap()

    def trace_structured(name: str, metadata_fn: Callable[[], Any] = dict, **options: Any) -> None:
        callback = swap(None)
        try:
            pass_on(name, metadata_fn, options)
        finally:
            swap(callback)

    def pass_on(name: str, metadata_fn: Callable[[], Any], options: dict[str, Any]) -> None:
        if name != "artifact":
            # Writing out the guards is the dearest payload we keep; only a recompile needs it.
            needed = name in KINDS and (name != "dynamo_cpp_guards_str" or is_recompile())
            if needed or _others_listen(logger):
                original(name, metadata_fn, **options)
            return
        if not _others_listen(logger):
            metadata = metadata_fn()
            artifact = metadata.get("name")
            if artifact not in ARTIFACTS:
                return
            if artifact in NO_PAYLOAD:
                options["payload_fn"] = lambda: None
        original(name, metadata_fn, **options)

    return torch_private.never_compile(trace_structured)


def _others_listen(logger: logging.Logger) -> bool:
    return any(not isinstance(h, TraceHandler) and type(h).__name__ != "LazyTraceHandler" for h in logger.handlers)

"""A handler on PyTorch's trace logger that stays, whatever the program does to logging."""

import logging
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchtriage.capture.readers.records import ARTIFACTS, KINDS, NO_PAYLOAD, OUR_FOLDERS, Translator
from torchtriage.capture.torch_private import base as torch_private
from torchtriage.recording.events import Event, StackEntry

LOGGER_NAME = "torch.__trace"
LEFT_OUT = 2    # callers that torch leaves out of the stack of a frame that it compiles


class TraceHandler(logging.Handler):
    """Turns trace records into events on the spot; nothing of a record is kept.

    The logger hands it each record by `take`. As a handler it only shows torch that somebody listens.
    """

    def __init__(self, sink: Callable[[Event], None], step: Callable[[], int | None],
                 lookup_string: Callable[[int], str | None], on_error: Callable[[Exception], None]) -> None:
        super().__init__(logging.DEBUG)
        self._translator = Translator(lookup_string)
        self._sink = sink
        self._step = step
        self._on_error = on_error

    def emit(self, record: logging.LogRecord) -> None:
        """`take` has had the record."""

    def take(self, record: logging.LogRecord) -> None:
        # Records also come while compiled code runs, when Dynamo would take our own functions for the program's.
        swap = torch_private.frame_callback_swap()
        callback = swap(None)
        try:
            metadata: dict[str, Any] = record.metadata  # type: ignore[attr-defined]  # torch puts both on the record
            payload: str | None = record.payload  # type: ignore[attr-defined]
            callers = _calling_lines() if "dynamo_start" in metadata else ()
            for event in self._translator.feed(metadata, payload, callers, time=record.created, step=self._step(), pid=os.getpid()):
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


def _calling_lines() -> tuple[StackEntry, ...]:
    """The two innermost lines that are neither torch's, nor logging's, nor ours: the last called the frame that is being compiled."""
    frame: FrameType | None = sys._getframe(2)
    passed = (*OUR_FOLDERS, os.path.dirname(logging.__file__))
    found: list[StackEntry] = []
    while frame is not None and len(found) < LEFT_OUT:
        path = frame.f_code.co_filename
        if not path.startswith((*passed, "<")) and not torch_private.is_torch_file(path):
            found.insert(0, StackEntry(path=path, line=frame.f_lineno, function=frame.f_code.co_name))
        frame = frame.f_back
    return tuple(found)


def attach(handler: TraceHandler) -> Callable[[], None]:
    """Let the trace logger hand its records to the handler, whatever the program does to it; returns the undoing."""
    logger: Any = logging.getLogger(LOGGER_NAME)
    if not getattr(logger, "kept_by_torchtriage", False):
        logger.ours = []
        logger.__class__ = _kept(type(logger))
    logger.ours.append(handler)

    def detach() -> None:
        logger.ours.remove(handler)
        logger.removeHandler(handler)
        if not logger.ours:
            del logger.ours
            logger.__class__ = type(logger).__bases__[0]

    return detach


def is_attached(handler: TraceHandler) -> bool:
    """Whether records still reach the handler."""
    logger = logging.getLogger(LOGGER_NAME)
    return getattr(type(logger), "kept_by_torchtriage", False) and handler in getattr(logger, "ours", ())


def _kept(base: type[logging.Logger]) -> type[logging.Logger]:
    """dictConfig disables the logger, other programs clear its handlers or raise its level: only its class is out of their reach."""
    class KeptLogger(base):  # type: ignore[valid-type, misc]  # the class is whatever the logger had
        kept_by_torchtriage = True
        # What the program sets lies in the instance, where it is found again when the class is restored.
        disabled = property(lambda _: False, lambda self, value: self.__dict__.update(disabled=value))
        level = property(lambda _: logging.DEBUG, lambda self, value: self.__dict__.update(level=value))

        @property
        def handlers(self) -> list[logging.Handler]:
            found: list[logging.Handler] = self.__dict__["handlers"]
            found.extend(handler for handler in self.ours if handler not in found)
            return found

        @handlers.setter
        def handlers(self, value: list[logging.Handler]) -> None:
            self.__dict__["handlers"] = value

        def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
            return True

        def handle(self, record: logging.LogRecord) -> None:
            if _others_would_get(record, self) and not torch_private.is_asked_by_us(record):
                super().handle(record)
            for handler in tuple(self.ours):
                handler.take(record)

    return KeptLogger


def _others_would_get(record: logging.LogRecord, logger: logging.Logger) -> bool:
    """Whether the logger would pass the record on if it were not kept."""
    state = logger.__dict__
    if state["disabled"] or record.levelno < state["level"]:
        return False
    return "isEnabledFor" in state or logger.manager.disable < record.levelno   # 2.13 overrides it, so that logging.disable() has no say


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
    """Whether a handler of the program's or of TORCH_TRACE waits for records; torch's own does not if it has no folder to write to."""
    return any(not isinstance(h, TraceHandler) and getattr(h, "root_dir", "") is not None for h in logger.handlers)

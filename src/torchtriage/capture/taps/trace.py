"""The trace tap: a handler on PyTorch's trace logger that stays attached, whatever the program does to logging."""

import functools
import logging
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchtriage.capture.readers.records import ARTIFACTS, KINDS, NO_PAYLOAD, OUR_FOLDERS, Translator
from torchtriage.capture.torch_private import base as torch_private
from torchtriage.capture.torch_private.dynamo import is_asked_by_us
from torchtriage.recording.events import Event, StackEntry

LOGGER_NAME = "torch.__trace"
LEFT_OUT = 2    # callers that torch leaves out of the stack of a frame that it compiles


class TraceHandler(logging.Handler):
    """Turns each trace record into events at once, and keeps nothing of the record.

    The logger passes it each record by `take`. As a handler it only makes torch see that the logger has a listener.
    """

    def __init__(self, sink: Callable[[Event], None], step: Callable[[], int | None],
                 lookup_string: Callable[[int], str | None], on_error: Callable[[Exception], None]) -> None:
        super().__init__(logging.DEBUG)
        self._translator = Translator(lookup_string)
        self._sink = sink
        self._step = step
        self._on_error = on_error
        # Records also arrive while compiled code runs, when Dynamo would trace our functions like the program's.
        self.take = torch_private.unseen(self._take)

    def emit(self, record: logging.LogRecord) -> None:
        """Nothing to do: `take` has already had the record."""

    def _take(self, record: logging.LogRecord) -> None:
        try:
            metadata: dict[str, Any] = record.metadata  # type: ignore[attr-defined]  # torch puts both on the record
            payload: str | None = record.payload  # type: ignore[attr-defined]
            callers = _calling_lines() if "dynamo_start" in metadata else ()
            columns = {"time": record.created, "step": self._step(), "pid": os.getpid()}
            for event in self._translator.feed(metadata, payload, callers, **columns):
                self._sink(event)
        except Exception as error:  # it would reach the user's compiled call otherwise
            self._on_error(error)

    def unfinished(self) -> list[Event]:
        """Recompiles that torch announced without a later record of their outcome."""
        return list(self._translator.finish())

    def close(self) -> None:
        """Nothing to do: logging.config closes every handler that it knows of."""


def _calling_lines() -> tuple[StackEntry, ...]:
    """The two innermost lines that are not in torch, logging or torchtriage, outermost first.

    The last of them called the frame that is being compiled.
    """
    frame: FrameType | None = sys._getframe(3)
    hidden = (*OUR_FOLDERS, os.path.dirname(logging.__file__), "<")
    entries: list[StackEntry] = []
    while frame is not None and len(entries) < LEFT_OUT:
        path = frame.f_code.co_filename
        if not path.startswith(hidden) and not torch_private.is_torch_file(path):
            entries.insert(0, StackEntry(path=path, line=frame.f_lineno, function=frame.f_code.co_name))
        frame = frame.f_back
    return tuple(entries)


def attach(handler: TraceHandler) -> Callable[[], None]:
    """Have the trace logger pass its records to the handler, whatever the program does; returns the detach function."""
    logger: Any = logging.getLogger(LOGGER_NAME)
    if not getattr(logger, "kept_by_torchtriage", False):
        logger.ours = []
        logger.__class__ = _persistent_class(type(logger))
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


def _persistent_class(base: type[logging.Logger]) -> type[logging.Logger]:
    """A logger class that keeps our handlers.

    dictConfig disables the logger, and programs clear its handlers or raise its level; none of them changes its class.
    """
    class PersistentLogger(base):  # type: ignore[valid-type, misc]  # the base is the class that the logger had
        kept_by_torchtriage = True
        # The values that the program sets are stored in the instance, and take effect when the class is restored.
        disabled = property(lambda _: False, lambda self, value: self.__dict__.update(disabled=value))
        level = property(lambda _: logging.DEBUG, lambda self, value: self.__dict__.update(level=value))

        @property
        def handlers(self) -> list[logging.Handler]:
            handlers: list[logging.Handler] = self.__dict__["handlers"]
            handlers.extend(handler for handler in self.ours if handler not in handlers)
            return handlers

        @handlers.setter
        def handlers(self, value: list[logging.Handler]) -> None:
            self.__dict__["handlers"] = value

        def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
            return True

        def handle(self, record: logging.LogRecord) -> None:
            if _others_would_get(record, self) and not is_asked_by_us(record):
                super().handle(record)
            for handler in tuple(self.ours):
                handler.take(record)

    return PersistentLogger


def _others_would_get(record: logging.LogRecord, logger: logging.Logger) -> bool:
    """Whether the logger would pass the record on if its class were unchanged."""
    state = logger.__dict__
    if state["disabled"] or record.levelno < state["level"]:
        return False
    # torch 2.13 overrides isEnabledFor in the instance, so that logging.disable() has no effect.
    return "isEnabledFor" in state or logger.manager.disable < record.levelno


def filtered(original: Callable[..., None], is_recompile: Callable[[], bool]) -> Callable[..., None]:
    """torch's trace_structured, except that it returns early for records that only we would receive and do not need."""
    logger = logging.getLogger(LOGGER_NAME)
    swap = torch_private.frame_callback_swap()

    @functools.wraps(original)
    def trace_structured(name: str, metadata_fn: Callable[[], Any] = dict, **options: Any) -> None:
        callback = swap(None)
        try:
            pass_on(name, metadata_fn, options)
        finally:
            swap(callback)

    def pass_on(name: str, metadata_fn: Callable[[], Any], options: dict[str, Any]) -> None:
        if name != "artifact":
            # The text of the guards is the most expensive payload that we need, and only a recompile needs it.
            is_needed = name in KINDS and (name != "dynamo_cpp_guards_str" or is_recompile())
            if is_needed or _others_listen(logger):
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
    """Whether a handler of the program or of TORCH_TRACE receives records; torch's own needs a folder to write to."""
    for handler in logger.handlers:
        has_folder = getattr(handler, "root_dir", "") is not None
        if has_folder and not isinstance(handler, TraceHandler):
            return True
    return False

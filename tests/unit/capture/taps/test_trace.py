"""The handler on torch's trace logger survives changes to logging; detaching it restores the logger."""

import logging
import logging.config
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from torchtriage.capture.taps.trace import LOGGER_NAME, TraceHandler, attach, filtered
from torchtriage.recording.events import CompileStart, Event, Recompile

START = {
    "dynamo_start": {"stack": [{"line": 3, "name": "f", "filename": "/app/train.py"}]}, "frame_id": 0,
    "frame_compile_id": 1,
}
REASONS = {"artifact": {"name": "recompile_reasons"}, "frame_id": 0, "frame_compile_id": 1}


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    """torch's trace logger, alone; everything of logging is put back at the end.

    It propagates, because pytest puts handlers of its own on a logger that does not.
    """
    logger = logging.getLogger(LOGGER_NAME)
    kept = (logger.__class__, dict(logger.__dict__), list(logging.root.handlers), logging.root.manager.disable)
    logger.__dict__.pop("isEnabledFor", None)   # where torch is loaded, it has set this, and that nothing propagates
    logger.propagate = True
    logger.setLevel(logging.DEBUG)
    logger.handlers = []
    logger.filters = []
    yield logger
    logger.__class__ = kept[0]
    logger.__dict__.clear()
    logger.__dict__.update(kept[1])
    logging.root.handlers[:] = kept[2]
    logging.disable(kept[3])


class Sink:
    def __init__(self, step: int | None = None) -> None:
        self.events: list[Event] = []
        self.errors: list[Exception] = []
        self.handler = TraceHandler(self.events.append, lambda: step, lambda index: None, self.errors.append)


def trace(logger: logging.Logger, metadata: Any = START, payload: str | None = None) -> None:
    """What torch's trace_structured does with a record."""
    logger.debug("", extra={"metadata": metadata, "payload": payload})


def test_a_record_becomes_an_event_with_its_columns(logger: logging.Logger) -> None:
    sink = Sink(step=7)
    attach(sink.handler)
    trace(logger)
    [event] = sink.events
    assert isinstance(event, CompileStart)
    assert (
        event.path, event.line, event.compile_id, event.step, event.pid,
    ) == ("/app/train.py", 3, "0/1", 7, os.getpid())
    assert event.time > 0


def test_the_line_that_called_the_frame_is_on_its_stack(logger: logging.Logger) -> None:
    sink = Sink()
    attach(sink.handler)
    trace(logger)
    [event] = sink.events
    assert [entry.path for entry in event.stack] == [__file__, __file__, "/app/train.py"]


def test_a_recompile_in_progress_is_an_event_at_the_end(logger: logging.Logger) -> None:
    sink = Sink()
    attach(sink.handler)
    trace(logger, REASONS, "k == 2")
    assert sink.events == []
    [event] = sink.handler.unfinished()
    assert isinstance(event, Recompile)
    assert sink.handler.unfinished() == []


def test_a_failure_of_ours_never_reaches_the_program(logger: logging.Logger) -> None:
    sink = Sink()

    def full(event: Event) -> None:
        raise OSError("disk full")

    handler = TraceHandler(full, lambda: None, lambda index: None, sink.errors.append)
    attach(handler)
    trace(logger)
    logger.debug("a record without metadata")
    assert [type(error) for error in sink.errors] == [OSError, AttributeError]


def disabled_by_dict_config(logger: logging.Logger) -> None:
    loggers = [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    others = [logger for logger in loggers if not logger.disabled]
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
    for other in others:
        if other.name != LOGGER_NAME:
            other.disabled = False      # later tests listen to them


SILENCERS: dict[str, Callable[[logging.Logger], Any]] = {
    "disabled": lambda logger: setattr(logger, "disabled", True),
    "dictConfig": disabled_by_dict_config,
    "logging.disable": lambda logger: logging.disable(logging.CRITICAL),
    "handlers.clear": lambda logger: logger.handlers.clear(),
    "basicConfig": lambda logger: logging.basicConfig(force=True),
    "shutdown": lambda logger: logging.shutdown(),
    "setLevel": lambda logger: logger.setLevel(logging.CRITICAL),
    "handlers replaced": lambda logger: setattr(logger, "handlers", []),
    "removeHandler": lambda logger: [logger.removeHandler(handler) for handler in list(logger.handlers)],
    "a filter": lambda logger: logger.addFilter(lambda record: False),
}


@pytest.mark.parametrize("silence", SILENCERS.values(), ids=SILENCERS)
def test_the_handler_survives_changes_to_logging(
    logger: logging.Logger, silence: Callable[[logging.Logger], Any],
) -> None:
    sink = Sink()
    attach(sink.handler)
    silence(logger)
    trace(logger)
    assert len(sink.events) == 1


def test_a_logger_that_was_disabled_before_still_gives_events(logger: logging.Logger) -> None:
    logger.disabled = True
    sink = Sink()
    attach(sink.handler)
    trace(logger)
    assert len(sink.events) == 1


def test_clearing_the_handlers_removes_those_of_the_program(logger: logging.Logger) -> None:
    theirs = logging.NullHandler()
    logger.addHandler(theirs)
    sink = Sink()
    attach(sink.handler)
    logger.handlers.clear()
    assert logger.handlers == [sink.handler]


def test_the_handlers_of_the_program_still_receive_records(logger: logging.Logger) -> None:
    seen: list[logging.LogRecord] = []
    theirs = logging.Handler()
    theirs.emit = seen.append  # type: ignore[method-assign]
    logger.addHandler(theirs)
    attach(Sink().handler)
    trace(logger)
    assert len(seen) == 1


@pytest.mark.parametrize(
    "silence", ["disabled", "dictConfig", "logging.disable", "setLevel", "handlers replaced", "a filter"],
)
def test_the_program_can_still_silence_its_own_handlers(logger: logging.Logger, silence: str) -> None:
    seen: list[logging.LogRecord] = []
    theirs = logging.Handler()
    theirs.emit = seen.append  # type: ignore[method-assign]
    logger.addHandler(theirs)
    attach(Sink().handler)
    SILENCERS[silence](logger)
    trace(logger)
    assert seen == []


def state(logger: logging.Logger) -> Any:
    return (
        logger.__class__, type(logger.handlers), list(logger.handlers),
        {**logger.__dict__, "handlers": None, "_cache": None},
    )


@pytest.mark.parametrize("disabled", [True, False])
def test_detaching_restores_the_logger(logger: logging.Logger, disabled: bool) -> None:
    logger.disabled = disabled
    logger.addHandler(logging.NullHandler())
    before = state(logger)
    attach(Sink().handler)()
    assert state(logger) == before


def test_changes_by_the_program_remain_after_detaching(logger: logging.Logger) -> None:
    detach = attach(Sink().handler)
    logger.disabled = True
    logger.setLevel(logging.ERROR)
    logger.handlers = [logging.NullHandler()]
    detach()
    assert (logger.disabled, logger.level, len(logger.handlers)) == (True, logging.ERROR, 1)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_handlers_may_detach_in_any_order(logger: logging.Logger, order: tuple[int, ...]) -> None:
    before = state(logger)
    sinks = [Sink(), Sink()]
    detach = [attach(sink.handler) for sink in sinks]
    for which in order:
        trace(logger)
        detach[which]()
    assert state(logger) == before
    assert len(sinks[order[-1]].events) > len(sinks[order[0]].events)


class Torch:
    """Stands for torch's trace_structured and notes what reaches it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any]] = []

    def __call__(
        self, name: str, metadata_fn: Callable[[], Any] = dict, payload_fn: Callable[[], Any] = lambda: "payload",
    ) -> None:
        self.calls.append((name, metadata_fn(), payload_fn()))


@pytest.mark.parametrize(("name", "artifact", "reaches"), [
    ("dynamo_start", None, True),
    ("compilation_metrics", None, True),
    ("chromium_event", None, False),
    ("dynamo_output_graph", None, False),
    ("artifact", "recompile_reasons", True),
    ("artifact", "before_pre_grad_graph", False),
])
def test_records_without_a_listener_are_not_made(
    logger: logging.Logger, name: str, artifact: str | None, reaches: bool,
) -> None:
    torch = Torch()
    metadata = {"name": artifact} if artifact else {}
    attach(Sink().handler)
    filtered(torch, lambda: False)(name, lambda: metadata)
    assert [call[0] for call in torch.calls] == ([name] if reaches else [])
    logger.addHandler(logging.NullHandler())
    filtered(torch, lambda: False)(name, lambda: metadata)
    assert torch.calls[-1] == (name, metadata, "payload")


@pytest.mark.parametrize("is_recompile", [True, False])
def test_guards_are_written_out_only_for_a_recompile(is_recompile: bool) -> None:
    torch = Torch()
    filtered(torch, lambda: is_recompile)("dynamo_cpp_guards_str")
    assert len(torch.calls) == is_recompile


def test_the_payload_of_a_cache_hit_is_not_made() -> None:
    torch = Torch()
    filtered(torch, lambda: False)("artifact", lambda: {"name": "fx_graph_cache_hit"})
    filtered(torch, lambda: False)("artifact", lambda: {"name": "fx_graph_cache_bypass"})
    assert [call[2] for call in torch.calls] == [None, "payload"]


def test_the_lazy_handler_of_torch_is_not_a_listener(logger: logging.Logger) -> None:
    class LazyTraceHandler(logging.NullHandler):
        root_dir = None     # TORCH_TRACE is not set

    torch = Torch()
    logger.addHandler(LazyTraceHandler())
    filtered(torch, lambda: False)("chromium_event")
    assert torch.calls == []


def test_the_calling_lines_are_not_in_torch_or_torchtriage(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = ModuleType("torch")
    torch.__file__ = "/venv/site-packages/torch/__init__.py"
    monkeypatch.setitem(sys.modules, "torch", torch)
    space: dict[str, Any] = {"logger": logger, "record": {"metadata": START, "payload": None}}
    source = "def compiling():\n    logger.debug('', extra=record)\n"
    exec(compile(source, "/venv/site-packages/torch/_logging.py", "exec"), space)
    exec(compile("def step():\n    compiling()\ndef main():\n    step()\n", "/home/me/torch/train.py", "exec"), space)
    sink = Sink()
    attach(sink.handler)
    space["main"]()
    stack = [(entry.path, entry.line) for entry in sink.events[0].stack[:2]]
    assert stack == [("/home/me/torch/train.py", 4), ("/home/me/torch/train.py", 2)]

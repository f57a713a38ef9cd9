"""`with torchtriage.watch() as seen:` records what torch.compile does in a block, with its findings."""

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from torchtriage.capture.observer import Observer
from torchtriage.capture.process_facts import your_roots
from torchtriage.capture.taps.trace import LOGGER_NAME
from torchtriage.diagnosis.report import build_report
from torchtriage.findings.model import Finding
from torchtriage.findings.proof.verdict import Proof
from torchtriage.findings.report import Report
from torchtriage.recording.events import CompileCall, Event, GraphBreak, LimitHit, Placed, Recompile
from torchtriage.recording.recording import Process, Recording
from torchtriage.recording.sources import source_around
from torchtriage.text import counted, row, short_place

MAX_NAMED = 4       # findings in the one-line form

P = ParamSpec("P")
R = TypeVar("R")


class Seen:
    """The events and findings of a watched block so far; complete once the block has ended."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._facts: dict[str, Any] = {}

    @property
    def graph_breaks(self) -> list[GraphBreak]:
        return [e for e in self._events if isinstance(e, GraphBreak)]

    @property
    def recompiles(self) -> list[Recompile]:
        return [e for e in self._events if isinstance(e, Recompile)]

    @property
    def limits(self) -> list[LimitHit]:
        return [e for e in self._events if isinstance(e, LimitHit)]

    @property
    def findings(self) -> list[Finding]:
        return list(self.report.findings)

    @property
    def report(self) -> Report:
        return build_report(self.recording, with_events=True)

    @staticmethod
    def verify(before: "str | os.PathLike[str]", after: "str | os.PathLike[str]", **options: Any) -> Proof:
        """`torchtriage.verify`, for a test that uses the fixture `triage`."""
        from torchtriage.proof.verify import verify

        return verify(before, after, **options)

    def __str__(self) -> str:
        """The findings with their causes and fixes."""
        from torchtriage.reporters import terminal

        return terminal.render(self.report)

    def __repr__(self) -> str:
        """One line: pytest shortens a longer one, and then shows neither a cause nor a fix."""
        findings = self.report.findings
        named = row((f"{f.code} at {short_place(f.location.path, f.location.line)}" for f in findings), MAX_NAMED)
        return f"<{counted(len(findings), 'finding')}{f': {named}' if named else ''}>"

    def _repr_html_(self) -> str:
        """The HTML that a notebook displays."""
        from torchtriage.reporters import notebook

        return notebook.render(self.report)

    @property
    def recording(self) -> Recording:
        """The events as a recording of one process."""
        places: dict[tuple[str, int], bool] = {}        # whether a torch.compile call is there
        for event in self._events:
            if isinstance(event, Placed):
                own = (event.path, event.line or 0)
                places[own] = places.get(own, False) or isinstance(event, CompileCall)
                for entry in event.stack:
                    places.setdefault((entry.path, entry.line), False)
        sources = {}
        for place, is_call in places.items():
            source = source_around(*place, with_class=is_call)
            if source is not None:
                sources[place] = source
        process = Process(events=tuple(self._events), facts=self._facts, sources=sources)
        return Recording(processes=(process,), facts={"cwd": os.getcwd()}, origin="watch")


class watch:  # noqa: N801 - used as a function, a context manager and a decorator
    """Watch a block, or every call of a function. It can be nested, and restores logging and Dynamo at its end.

    `roots` are folders whose code is yours, in addition to the script's folder and the working folder.
    """

    def __init__(self, roots: Sequence[str] = ()) -> None:
        self._roots = roots
        self.seen = Seen()
        self._observer: Observer | None = None
        self._captured: list[logging.Handler] = []
        self._depth = 0     # a decorated function may call itself, or run on several threads
        self._lock = threading.Lock()

    def __enter__(self) -> Seen:
        with self._lock:
            if self._depth == 0:
                self._begin()
            self._depth += 1
        return self.seen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._observer is not None:
                self._observer.disarm()
                for handler in self._captured:
                    handler.removeFilter(_is_no_trace)
                self.seen._facts.update(self._observer.facts())

    def _begin(self) -> None:
        import torch

        self.seen._facts.update(
            start=time.time(),
            pid=os.getpid(),
            your_roots=[*your_roots(), *self._roots],
            torch=str(torch.__version__),
            cwd=os.getcwd(),
            torch_dir=os.path.dirname(torch.__file__),
        )
        self._observer = Observer(self.seen._events.append)
        self._observer.arm_for_block()
        self._captured = _filter_captured_trace()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator: `function.seen` has the events and findings of all calls."""

        @functools.wraps(function)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        watched.seen = self.seen  # type: ignore[attr-defined]
        return watched


def _filter_captured_trace() -> list[logging.Handler]:
    """Keep records of torch's trace logger out of pytest's log handlers, and return these handlers.

    Pytest 9.2 captures records even of loggers that do not propagate; hundreds of trace records without a text would
    follow the finding.
    """
    handlers = logging.getLogger(LOGGER_NAME).handlers
    captured = [handler for handler in handlers if type(handler).__module__ == "_pytest.logging"]
    for handler in captured:
        handler.addFilter(_is_no_trace)
    return captured


def _is_no_trace(record: logging.LogRecord) -> bool:
    return record.name != LOGGER_NAME

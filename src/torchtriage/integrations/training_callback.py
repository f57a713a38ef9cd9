"""What the callbacks for training frameworks have in common: a Monitor per optimizer, and findings for its logger."""

import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchtriage.errors import TriageError
from torchtriage.findings.model import Finding, Severity
from torchtriage.recording.events import Anomaly, Event
from torchtriage.recording.recording import Process, Recording
from torchtriage.recording.series import GRAD_NORM

if TYPE_CHECKING:
    from torchtriage.telemetry.monitor import Monitor
    from torchtriage.telemetry.observation import Observation

PREFIX = "torchtriage/"         # of the names in the framework's logger: torchtriage/TT402
MIN_SECONDS = 5.0               # between two diagnoses while the training runs
REST = 100.0                    # the pause after a diagnosis, in durations of that diagnosis
logger = logging.getLogger("torchtriage")


def needs(package: str, error: ImportError) -> TriageError:
    return TriageError(
        f"torchtriage.integrations.{package.replace('-', '_')} needs {package}, which is not installed ({error}); "
        f"install it with: pip install {package}"
    )


class _Collected:
    """A sink that keeps the curves and anomalies of one Monitor in memory."""

    name = "findings"

    def __init__(self) -> None:
        from torchtriage.telemetry.sinks.curves import Curves

        self.curves = Curves()
        self.anomalies: list[Anomaly] = []

    def write(self, observation: "Observation") -> None:
        self.curves.write(observation)

    def event(self, event: Event) -> None:
        self.curves.event(event)
        if isinstance(event, Anomaly):
            self.anomalies.append(event)

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    name: str
    monitor: "Monitor"
    sink: _Collected


class TrainingWatch:
    """Watches the optimizers of a training, and reports each finding once, as soon as it is known.

    A finding is logged as a warning (P3 and P4 as information) by `logging.getLogger("torchtriage")`, and as the number
    `torchtriage/CODE`, its number of events, by `log`, the framework's own logger. None of its methods raises.
    """

    def __init__(self, log: Callable[[dict[str, float]], None]) -> None:
        self._log = log
        self._watched: list[_Watched] = []
        self._hooks: list[Any] = []             # of optimizers
        self._metrics: dict[str, Any] = {}
        self._reported: set[str] = set()
        self._num_seen = 0              # anomalies at the last diagnosis
        self._next_time = float("-inf")
        self._is_off = False

    def watch(self, model: Any, optimizer: Any, *, name: str = "", scaler: Any = None) -> "Monitor | None":
        """Monitor a model; with its optimizer, every step of which is then observed."""
        from torchtriage.telemetry.monitor import Monitor
        from torchtriage.telemetry.sampling.parameters import claims

        try:
            sink = _Collected()
            monitor = Monitor(model, optimizer, sinks=(sink,), scaler=scaler)
            claims.discard(monitor)     # `torchtriage run` records this training itself, and sees more of it
            self._watched.append(_Watched(name=name, monitor=monitor, sink=sink))
        except Exception as error:      # a missed observation is better than a failed training
            self._fail(error)
            return None
        return monitor

    def follow(self, model: Any, optimizer: Any, *, name: str = "") -> None:
        """Monitor a model, and observe each step of its optimizer with hooks of the optimizer."""
        monitor = self.watch(model, optimizer, name=name)
        if monitor is None:
            return
        get_monitor = weakref.ref(monitor)

        def before(*_: Any) -> None:
            monitor = get_monitor()
            if monitor is not None:
                monitor.after_backward(as_used=True)

        def after(*_: Any) -> None:
            monitor = get_monitor()
            if monitor is not None:
                self.step(monitor)

        self._hooks += [optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after)]

    def note(self, metrics: Mapping[str, Any]) -> None:
        """Numbers of the framework, which are recorded with the next observation if their names are known.

        The norm of the gradients is measured.
        """
        import numpy as np

        from torchtriage.capture.readers.scalar_names import logged_series_name

        for name, value in metrics.items():
            series = logged_series_name(name) if isinstance(name, str) else None
            if series not in (None, GRAD_NORM) and isinstance(value, int | float | np.number):
                self._metrics[str(series)] = float(value)

    def step(self, monitor: "Monitor") -> None:
        """A step of the optimizer has ended; its gradients are still there."""
        is_first = bool(self._watched) and monitor is self._watched[0].monitor
        metrics: dict[str, Any] = {}
        if is_first and monitor.is_looking:
            metrics, self._metrics = self._metrics, {}
        monitor.step(metrics)

    def report(self, is_last: bool = False) -> None:
        """Called on the framework's thread, often: reports the findings that are new since the last call."""
        num_anomalies = sum(len(watched.sink.anomalies) for watched in self._watched)
        is_due = num_anomalies > self._num_seen and time.monotonic() >= self._next_time
        if self._is_off or not (is_due or is_last) or not _is_main_process():
            return
        began = time.monotonic()
        self._num_seen = num_anomalies
        try:
            for finding in self._findings():
                if finding.fingerprint not in self._reported:
                    self._reported.add(finding.fingerprint)
                    self._tell(finding)
        except Exception as error:
            self._fail(error)
        now = time.monotonic()
        self._next_time = now + max(MIN_SECONDS, REST * (now - began))

    def close(self) -> None:
        """Called at the end of a training: reports what its last observations show, then stops watching."""
        for hook in self._hooks:
            hook.remove()
        for watched in self._watched:
            watched.monitor.close()
        self.report(is_last=True)
        self._watched.clear()

    def _findings(self) -> list[Finding]:
        from torchtriage.diagnosis.diagnose import diagnose

        processes = []
        for watched in self._watched:
            facts = dict(watched.monitor.facts())
            if len(self._watched) > 1:
                facts["name"] = watched.name
            watched.sink.curves.close()         # all curves now, and not when the next write is due
            series = {one.name: one for one in watched.sink.curves.series()}
            processes.append(Process(events=tuple(watched.sink.anomalies), series=series, facts=facts))
        return diagnose(Recording(processes=tuple(processes), origin="watch"))

    def _tell(self, finding: Finding) -> None:
        level = logging.WARNING if finding.severity <= Severity.P2 else logging.INFO
        logger.log(
            level, "%s %s  %s; why: %s; fix: %s; more: torchtriage explain %s", finding.code, finding.severity.name,
            finding.title, finding.cause, finding.fix.text, finding.code,
        )
        self._log({PREFIX + finding.code: float(finding.evidence.num_events)})

    def _fail(self, error: Exception) -> None:
        self._is_off = True
        logger.warning("disabled for the rest of this run after an internal error", exc_info=error)


def _is_main_process() -> bool:
    return os.environ.get("RANK", "0") == "0"

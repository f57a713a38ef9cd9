"""Sinks: destinations of observations besides the recording, each written on its own thread."""

from collections.abc import Callable, Mapping
from typing import Protocol

from torchtriage.errors import TriageError
from torchtriage.recording.events import Event
from torchtriage.telemetry.observation import Observation


class Sink(Protocol):
    """Receives observations one by one on a background thread; `name` identifies it in warnings."""

    name: str

    def write(self, observation: Observation) -> None: ...

    def event(self, event: Event) -> None:
        """An anomaly, a skipped step or an event of the program."""

    def close(self) -> None: ...


def missing(package: str, extra: str, error: ImportError) -> TriageError:
    return TriageError(
        f"the {extra} sink needs {package}, which is not installed ({error}); "
        f"install it with: pip install 'torchtriage[{extra}]'"
    )


def make_sink(spec: str) -> Sink:
    """Make a sink from `jsonl:FILE`, `tensorboard:FOLDER`, `wandb:PROJECT`, `trackio:PROJECT`, `stdout`."""
    kind, _, target = spec.partition(":")
    if kind not in _MAKERS:
        raise TriageError(f"sink must be one of {', '.join(_MAKERS)} (as in jsonl:FILE), got {spec!r}")
    if kind != "stdout" and not target:
        raise TriageError(f"the {kind} sink needs a target, got {spec!r}; write {kind}:NAME")
    return _MAKERS[kind](target)


def _jsonl(target: str) -> Sink:
    from torchtriage.telemetry.sinks.jsonl import JsonlSink

    return JsonlSink(target)


def _tensorboard(target: str) -> Sink:
    from torchtriage.telemetry.sinks.tensorboard import TensorBoardSink

    return TensorBoardSink(target)


def _wandb(target: str) -> Sink:
    from torchtriage.telemetry.sinks.wandb import WandbSink

    return WandbSink(project=target)


def _trackio(target: str) -> Sink:
    from torchtriage.telemetry.sinks.trackio import TrackioSink

    return TrackioSink(project=target)


def _stdout(target: str) -> Sink:
    from torchtriage.telemetry.sinks.stdout import StdoutSink

    return StdoutSink()


_MAKERS: Mapping[str, Callable[[str], Sink]] = {
    "jsonl": _jsonl, "tensorboard": _tensorboard, "wandb": _wandb, "trackio": _trackio, "stdout": _stdout,
}

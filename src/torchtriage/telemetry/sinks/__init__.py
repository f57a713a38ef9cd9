"""Where observations go beside the recording; each is written on a thread of its own."""

from collections.abc import Callable, Mapping
from typing import Protocol

from torchtriage.errors import TriageError
from torchtriage.recording.events import Event
from torchtriage.telemetry.observation import Observation


class Sink(Protocol):
    """Takes observations one by one, on a background thread; `name` is what it is called when it fails."""

    name: str

    def write(self, observation: Observation) -> None: ...

    def event(self, event: Event) -> None:
        """An anomaly or a skipped step."""

    def close(self) -> None: ...


def missing(package: str, extra: str, error: ImportError) -> TriageError:
    do = f"install it with: pip install 'torchtriage[{extra}]'"
    return TriageError(f"the {extra} sink needs {package}, which is not installed ({error}); {do}")


def make_sink(spec: str) -> Sink:
    """`jsonl:FILE`, `tensorboard:FOLDER`, `wandb:PROJECT`, `trackio:PROJECT`, `stdout`."""
    kind, _, target = spec.partition(":")
    if kind not in _MAKERS:
        raise TriageError(f"sink must be one of {', '.join(_MAKERS)} (as in jsonl:FILE), got {spec!r}")
    if kind in ("jsonl", "tensorboard", "wandb", "trackio") and not target:
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

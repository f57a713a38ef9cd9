"""Observations as TensorBoard scalars or histograms; curves of tensors are grouped by quantity."""

from typing import Any

from torchtriage.recording.events import Anomaly, Event
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sinks import missing
from torchtriage.telemetry.statistics.histogram import FIRST_EXPONENT


class TensorBoardSink:
    """Writes event files into a folder with torch's SummaryWriter."""

    name = "tensorboard"

    def __init__(self, folder: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise missing("tensorboard", "tensorboard", error) from error
        self._writer: Any = SummaryWriter(folder)

    def write(self, observation: Observation) -> None:
        for name, value in observation.flat().items():
            self._writer.add_scalar(name, value, observation.step, walltime=observation.time)
        for name, counts in observation.histograms.items():
            limits = [float(FIRST_EXPONENT + i) for i in range(len(counts))]
            num = sum(counts)
            mean = sum(limit * count for limit, count in zip(limits, counts, strict=True))
            squares = sum(limit * limit * count for limit, count in zip(limits, counts, strict=True))
            self._writer.add_histogram_raw(
                name, min=limits[0], max=limits[-1], num=num, sum=mean, sum_squares=squares, bucket_limits=limits,
                bucket_counts=list(counts), global_step=observation.step, walltime=observation.time,
            )

    def event(self, event: Event) -> None:
        if isinstance(event, Anomaly):
            self._writer.add_text("anomalies", f"{event.code} {event.text}", event.step, walltime=event.time)

    def close(self) -> None:
        self._writer.close()

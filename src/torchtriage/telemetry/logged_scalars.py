"""The scalars that a program passes to its own loggers, as series beside those that taps measure."""

import time
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from torchtriage.recording.recording import Series
from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.sampling.parameters import claims
from torchtriage.telemetry.sampling.sampler import is_busy, is_profiled
from torchtriage.telemetry.sinks.curves import Curves
from torchtriage.telemetry.statistics.columns import is_dtensor, why_no_number


class LoggedScalars:
    """A series is what the first logger passed under the first name: others repeat it, or log an evaluation."""

    def __init__(self) -> None:
        self._curves = Curves()
        self._sources: dict[str, tuple[str, weakref.ref[Any]]] = {}     # the name and logger of each series
        self._labels: dict[str, str] = {}                   # by series

    def add(
        self, label: str, logger: Any, scalars: Mapping[str, tuple[str, Any]], step: int, has_waited: bool,
    ) -> None:
        """`scalars`: by series, the program's name and value.

        `has_waited`: the logger has read the values from their device, so that reading them again is cheap.
        """
        values = {}
        for series, (name, value) in scalars.items():
            number = _number(value, has_waited) if self._is_first(series, name, logger) else None
            if number is not None:
                values[series] = number
                self._labels[series] = label
        if values:
            self._curves.write(Observation(step=step, time=time.time(), values=values))

    def _is_first(self, series: str, name: str, logger: Any) -> bool:
        """Whether this is the source of the series; a new logger takes over from one that is gone."""
        first_name, get_logger = self._sources.get(series, (name, None))
        first = get_logger() if get_logger is not None else None
        if first is None:
            self._sources[series] = first_name, weakref.ref(logger)
        return name == first_name and (first is None or first is logger)

    def series(self, measured: "set[str]") -> list[Series]:
        """Those whose quantities are not measured; none of a program that reports its quantities to a Monitor."""
        if claims:
            return []
        return [one for one in self._curves.series() if one.name not in measured]

    def labels(self, measured: "set[str]") -> dict[str, str]:
        """The logger of each series."""
        return {} if claims else {name: label for name, label in self._labels.items() if name not in measured}

    def close(self) -> None:
        self._curves.close()


def _number(value: Any, may_read: bool) -> float | None:
    if isinstance(value, str | bool) or is_dtensor(value) or why_no_number(value):
        return None
    if isinstance(value, torch.Tensor):
        if is_busy() or is_profiled() or not (value.is_cpu or may_read):
            return None
        value = value.item()
    elif isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):      # an array of several elements, or an enormous int
        return None

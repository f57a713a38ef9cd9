"""A series of means in bounded memory."""

from torchtriage.recording.recording import Series


class MeanSeries:
    """Collects values one by one, in at most `max_points` points (an even number).

    At first each point is one value. Whenever all points are full, neighbours merge, and each point is the mean of
    twice as many values. For curves whose extremes matter, telemetry's downsampling keeps minimum and maximum instead.
    """

    __slots__ = ("_max_points", "_num_values", "_stride", "_sums")

    def __init__(self, max_points: int) -> None:
        self._max_points = max_points
        self._num_values = 0
        self._sums: list[float] = []    # each over `stride` values
        self._stride = 1

    def add(self, value: float) -> None:
        if self._num_values == self._max_points * self._stride:
            self._sums = [a + b for a, b in zip(self._sums[::2], self._sums[1::2], strict=True)]
            self._stride *= 2
        if self._num_values % self._stride == 0:
            self._sums.append(0.0)
        self._sums[-1] += value
        self._num_values += 1

    def series(self, name: str, first_step: int) -> Series:
        """The means as a series; the first value belongs to `first_step`."""
        means = [total / self._stride for total in self._sums]
        if self._stride > 1:
            num_in_last = self._num_values - (len(self._sums) - 1) * self._stride   # may be less than a full point
            means[-1] = self._sums[-1] / num_in_last
        steps = [first_step + i * self._stride for i in range(len(means))]
        return Series(name=name, steps=steps, values=means)

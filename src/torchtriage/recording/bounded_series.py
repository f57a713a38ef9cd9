"""A series of means in bounded memory."""

from torchtriage.recording.recording import Series


class MeanSeries:
    """Takes values one by one: exact at first; beyond `max_points` (an even number) every point is the mean of its values.

    Whenever all points are full, neighbours merge and each point covers twice as many values. A curve whose extremes
    matter is kept by telemetry's downsampling instead, which keeps the smallest and largest value of each stretch.
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
            num_in_last = self._num_values - (len(self._sums) - 1) * self._stride   # it may still lack some of its values
            means[-1] = self._sums[-1] / num_in_last
        steps = [first_step + i * self._stride for i in range(len(means))]
        return Series(name=name, steps=steps, values=means)

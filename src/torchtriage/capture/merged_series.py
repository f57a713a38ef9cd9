"""A series in bounded memory: exact at first, then neighbours are merged and every point stands for twice as many values."""

from torchtriage.recording.recording import Series


class MergedSeries:
    """Takes values one by one; once `max_points` (an even number) are full, pairs become one and the stride doubles."""

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
        """Each point the mean of the values it stands for; the first value belongs to `first_step`."""
        if self._stride == 1:
            means = list(self._sums)
        else:
            num_last = self._num_values - (len(self._sums) - 1) * self._stride      # the last point may still lack some of its values
            means = [*(total / self._stride for total in self._sums[:-1]), *(total / num_last for total in self._sums[-1:])]
        return Series(name=name, steps=[first_step + i * self._stride for i in range(len(means))], values=means)

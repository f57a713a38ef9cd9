"""The piece timer of --measure: times compiled pieces, with the gap to the next piece on the same thread."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from torchtriage.capture.torch_private.base import never_compile
from torchtriage.errors import hide_frame
from torchtriage.recording.events import Event, GapTime, PieceTime


class PieceTimer:
    """Sums times per compile id, so memory is bounded by the number of compiles.

    A call of a piece costs two clock reads and two additions.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, list[float]] = {}
        self._gaps: dict[tuple[str, str], list[float]] = {}
        self._thread = threading.local()
        self.num_compiles = 0   # set by the observer: a gap that contains a compile is not a run-time cost

    def wrap(self, compile_id: str, piece: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.perf_counter
        sums = self._pieces.setdefault(compile_id, [0, 0.0])
        gaps = self._gaps
        thread = self._thread

        def timed_piece(*args: Any) -> Any:
            start = clock()
            last = getattr(thread, "last", None)
            if last is not None and last[2] == self.num_compiles:
                gap = gaps.get((last[0], compile_id))
                if gap is None:
                    gap = gaps.setdefault((last[0], compile_id), [0, 0.0])
                gap[0] += 1
                gap[1] += start - last[1]
            try:
                result = piece(*args)
            except BaseException as error:
                hide_frame(error)
                raise
            end = clock()
            sums[0] += 1
            sums[1] += end - start
            thread.last = (compile_id, end, self.num_compiles)
            return result

        return never_compile(timed_piece)

    def start_over(self) -> None:
        """Reset the sums; a forked child inherits the pieces and the times of its parent."""
        for sums in self._pieces.values():
            sums[:] = [0, 0.0]
        self._gaps.clear()
        self._thread.last = None

    def events(self, **columns: Any) -> Iterator[Event]:
        """The sums so far; of several events for the same piece the reader takes the last."""
        for compile_id, (calls, seconds) in list(self._pieces.items()):
            yield PieceTime(compile_id=compile_id, calls=int(calls), seconds=seconds, **columns)
        for (before, after), (calls, seconds) in list(self._gaps.items()):
            yield GapTime(compile_id=before, to_compile_id=after, calls=int(calls), seconds=seconds, **columns)

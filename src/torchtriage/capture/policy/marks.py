"""Counts the program's own calls of the functions that mark sizes (mark_dynamic, ...), by their place in the source."""

from typing import Any

from torchtriage.capture.torch_private import base as torch_private
from torchtriage.capture.torch_private.shapes import Mark

CALLS = ("mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_unbacked")
MAX_MARKS = 1000        # distinct places and dimensions


class ShapeMarks:
    """Counts by place, function and dimension."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, str, int | None], int] = {}

    def note(self, mark: Mark) -> None:
        call, args, kwargs, frame = mark
        path = frame.f_code.co_filename
        if torch_private.is_torch_file(path):
            return      # torch calls the same functions for each of several dimensions, and for its own tensors
        index = args[1] if len(args) > 1 else kwargs.get("index")
        for dim in index if isinstance(index, (list, tuple)) else (index,):
            key = (path, frame.f_lineno, call, dim if isinstance(dim, int) else None)
            if key in self._counts or len(self._counts) < MAX_MARKS:
                self._counts[key] = self._counts.get(key, 0) + 1

    def facts(self) -> dict[str, Any]:
        keys = ("path", "line", "call", "dim", "num")
        return {"marks": [dict(zip(keys, (*key, num), strict=True)) for key, num in list(self._counts.items())]}

    def start_over(self) -> None:
        self._counts.clear()

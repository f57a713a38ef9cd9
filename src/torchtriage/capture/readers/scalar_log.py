"""Reads the scalars that other loggers wrote as the series that the learning rules know.

TensorBoard event files, CSV with a header (progress.csv of Stable-Baselines3), JSON lines, and the log_history of
Transformers.
"""

import csv
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torchtriage.capture.readers.event_file import Scalar, is_event_file, scalars
from torchtriage.capture.readers.scalar_names import series_name, step_name
from torchtriage.errors import TriageError
from torchtriage.files import open_regular
from torchtriage.recording.recording import Process, Recording, Series
from torchtriage.text import and_more, counted, row

MAX_BYTES = 256 << 20       # of a file of text
MAX_LINE = 1 << 20          # characters
MAX_POINTS = 100_000        # per series; of more of them every second, fourth, ... is kept
MAX_NAMES = 4096
MAX_NAMED = 8               # unknown names in an error
# In folders: of Stable-Baselines3 and of the CSVLogger of Lightning. A trainer_state.json is read only from the folder
# itself: each checkpoint below has one with the same history.
_TABLES = ("progress.csv", "metrics.csv")
_HISTORY = "trainer_state.json"


def is_scalar_log(path: Path, head: bytes) -> bool:
    """Whether a file is an event file, or has a name and a beginning of a table of scalars."""
    if is_event_file(head):
        return True
    text = head.lstrip()
    if path.suffix in (".csv", ".jsonl", ".ndjson") and not text:
        return True         # of a training that ended before its first row; as such it is refused
    if path.suffix in (".jsonl", ".ndjson"):
        return text.startswith(b"{")
    if path.suffix == ".json":
        return text.startswith(b"{") and b'"log_history"' in head
    first = text.split(b"\n", 1)[0]
    return path.suffix == ".csv" and b"," in first and b"\0" not in first


def scalar_logs(folder: Path) -> list[Path]:
    """The event files in a folder, else the tables; links are not followed."""
    events, tables = [], []
    for path in sorted(folder.rglob("*")):
        is_table = path.name in _TABLES or path == folder / _HISTORY
        if path.is_symlink() or not path.is_file() or not (is_table or "tfevents" in path.name):
            continue
        with open_regular(path) as file:
            head = file.read(1 << 16)
        if is_event_file(head):
            events.append(path)
        elif is_table and is_scalar_log(path, head):
            tables.append(path)
    return events or tables


def read_scalar_logs(paths: Iterable[Path]) -> Recording:
    """One process per folder of files: loggers begin new files, and some write one per scalar."""
    by_folder: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        by_folder[path.parent].append(path)
    first = next(iter(by_folder.values()))[0]
    processes: list[Process] = []
    unknown: dict[str, None] = {}
    for folder, files in by_folder.items():
        series = _Points()
        for path in files:
            for scalar in _scalars_of(path):
                series.add(scalar)
        unknown.update(series.unknown)
        if series.points:
            facts: dict[str, Any] = {"num_steps": series.last_step}
            if len(by_folder) > 1:
                facts["name"] = folder.name
            processes.append(Process(series=series.series(), facts=facts))
    if not processes:
        raise TriageError(_refusal(first, list(unknown)))
    return Recording(processes=tuple(processes), origin="scalars", path=str(first))


def _refusal(path: Path, unknown: list[str]) -> str:
    named = f"{row(unknown[:MAX_NAMED])}{and_more(len(unknown) - MAX_NAMED)}" if unknown else "no scalar at all"
    return (
        f"{path} is a log of scalars, but none has a name that the rules know: it has {named}; they know names such as "
        "loss, grad_norm, train/approx_kl, losses/approx_kl, rollout/ep_rew_mean, and all of docs/metrics.md"
    )


class _Points:
    """Collects the points of the known series, in bounded memory.

    A series is what has its first name: under another one a log repeats it, such as the mean of the entire training.
    """

    def __init__(self) -> None:
        self.points: dict[str, list[tuple[int, float]]] = {}
        self.unknown: dict[str, None] = {}
        self.last_step = 0
        self._names: dict[str, str] = {}        # in the log, by series
        self._strides: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def add(self, scalar: Scalar) -> None:
        name = series_name(scalar.name)
        if name is None:
            if len(self.unknown) < MAX_NAMES:
                self.unknown[scalar.name] = None
            return
        if name not in self.points and len(self.points) >= MAX_NAMES:
            return
        if self._names.setdefault(name, scalar.name) != scalar.name:
            return
        points = self.points.setdefault(name, [])
        stride = self._strides.setdefault(name, 1)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        self.last_step = max(self.last_step, scalar.step)
        if (count - 1) % stride:
            return
        points.append((scalar.step, scalar.value))
        if len(points) >= MAX_POINTS:
            del points[1::2]
            self._strides[name] = 2 * stride

    def series(self) -> dict[str, Series]:
        found = {}
        for name, points in self.points.items():
            points.sort(key=lambda point: point[0])
            found[name] = Series(
                name=name, steps=[step for step, _ in points], values=[value for _, value in points])
        return found


def _scalars_of(path: Path) -> Iterator[Scalar]:
    with open_regular(path, follow=True) as file:
        head = file.read(1 << 16)
        file.seek(0)
        if is_event_file(head):
            yield from scalars(file)
            return
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise TriageError(f"{path} has {counted(size >> 20, 'MB', 'MB')}; at most {MAX_BYTES >> 20} are read")
        text = file.read(MAX_BYTES).decode("utf-8", "replace")
    if path.suffix == ".csv":
        rows = _csv_rows(text)
    elif path.suffix == ".json":
        rows = _history_rows(text)
    else:
        rows = _json_rows(text)
    yield from _scalars_of_rows(rows)


def _scalars_of_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[Scalar]:
    """Rows without a count of steps are numbered."""
    for number, values in enumerate(rows, start=1):
        column = step_name(list(values))
        step = _number(values[column]) if column is not None else float(number)
        if step is None or not 0 <= step < 1 << 53:
            continue
        for name, value in values.items():
            read = None if name == column else _number(value)
            if read is not None:
                yield Scalar(name, int(step), read)


def _number(value: Any) -> float | None:
    """A number, or the text of one; NaN is one, as the rules look for it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or value == "":
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.inf if isinstance(value, int) else None


def _csv_rows(text: str) -> Iterator[dict[str, str]]:
    lines = (line for line in text.splitlines() if len(line) <= MAX_LINE and "\0" not in line)
    try:
        reader = csv.reader(lines)
        header = next(reader, [])
        for cells in reader:
            yield dict(zip(header[:MAX_NAMES], cells, strict=False))
    except csv.Error:       # such as a field that is larger than the limit
        return


def _json_rows(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if len(line) > MAX_LINE:
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):        # the last line of a run that was killed is cut off
            continue
        if isinstance(values, dict):
            yield dict(itertools.islice(_flat(values), MAX_NAMES))


def _history_rows(text: str) -> Iterator[dict[str, Any]]:
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        return
    history = state.get("log_history") if isinstance(state, dict) else None
    for values in history if isinstance(history, list) else ():
        if isinstance(values, dict):
            yield values


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The items, those of an inner object such as `values` or `metrics` beside them."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from value.items()
        else:
            yield name, value

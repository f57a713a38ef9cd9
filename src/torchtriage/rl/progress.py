"""Progress of a training: a bar on a terminal, otherwise ten lines."""

import math
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from torchtriage.recording.series import EPISODE_RETURN_MEAN, STEPS_PER_SECOND

LINES = 10
NUMBERS = {  # label: name of the series, format
    "return": (EPISODE_RETURN_MEAN, "{:,.1f}"),
    "steps/s": (STEPS_PER_SECOND, "{:,.0f}"),
    "KL": ("train/approx_kl", "{:.4f}"),
}


class Progress:
    """`with Progress(total) as progress: progress(steps, numbers)`; messages are printed above the bar."""

    def __init__(
        self, total: int, *, label: str = "", quiet: bool = False, bar: bool = True, file: TextIO | None = None
    ) -> None:
        self._total, self._label, self._quiet, self._file = total, label, quiet, file or sys.stderr
        self._next = 1
        self._bar: Any = None
        self._task: Any = None
        self._wants_bar = bar and not quiet and self._file.isatty()

    def __enter__(self) -> "Progress":
        if self._wants_bar:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[numbers]}"),
                console=Console(file=self._file),
                transient=True,
                refresh_per_second=4,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._label or "training", total=self._total, numbers="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, steps: int, numbers: Mapping[str, float]) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=min(steps, self._total), numbers=_text(numbers))
        elif steps >= self._next * self._total / LINES:
            self._next = math.floor(steps * LINES / self._total) + 1
            self.say(f"{min(1.0, steps / self._total):4.0%}  {steps:,} steps, {_text(numbers)}")

    def say(self, text: str) -> None:
        if self._quiet:
            return
        prefix = f"{self._label}: " if self._label else ""
        line = f"torchtriage: {prefix}{text}"
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=self._file, flush=True)


def _text(numbers: Mapping[str, float]) -> str:
    texts = []
    for label, (name, template) in NUMBERS.items():
        value = numbers.get(name, math.nan)
        if not math.isnan(value):
            texts.append(f"{label} {template.format(value)}")
    return ", ".join(texts)

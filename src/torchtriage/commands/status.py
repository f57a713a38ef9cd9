"""The status line that `run` shows on a tty while torch is compiling."""

import sqlite3
import sys
import time
from pathlib import Path

from torchtriage.recording.events import CompileEnd, CompileStart, from_payload
from torchtriage.recording.reader import LAUNCHER_FILE
from torchtriage.text import printable

SHOW_AFTER_SECONDS = 1.0
_ORDINALS = {1: "1st", 2: "2nd", 3: "3rd"}


class StatusLine:
    """Reads from the growing recording what is being compiled: "compiling Policy.forward, 2nd time, 14 s"."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shown = ""

    def __call__(self) -> None:
        try:
            text = self._text()
        except (sqlite3.Error, OSError):
            return
        if text != self._shown:
            self._write(text)

    def clear(self) -> None:
        if self._shown:
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{printable(text)}" if text else "\r\x1b[K")
        sys.stderr.flush()
        self._shown = text

    def _text(self) -> str:
        for path in self._folder.glob("*.sqlite"):
            start = running_compile(path) if path.name != LAUNCHER_FILE else None
            if start is not None and time.time() - start.time > SHOW_AFTER_SECONDS:
                number = int((start.compile_id or "0/0").rpartition("/")[2]) + 1
                again = f", {_ORDINALS.get(number, f'{number}th')} time" if number > 1 else ""
                return f"torchtriage: compiling {_name(start)}{again}, {time.time() - start.time:.0f} s"
        return ""


def _name(start: CompileStart) -> str:
    """The function, or the line that calls it if torch compiles it through its own wrapper."""
    from torchtriage.diagnosis.places import is_wrapped

    if is_wrapped(start) and len(start.stack) > 1:
        return f"the module called at {Path(start.stack[-2].path).name}:{start.stack[-2].line}"
    return start.function


def running_compile(path: Path) -> CompileStart | None:
    """The compile that a process has started and not ended."""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.1)
    try:
        row = db.execute(
            "select kind, payload, time, compile_id from events where kind in (?, ?) order by id desc limit 1",
            (CompileStart.kind, CompileEnd.kind),
        ).fetchone()
    finally:
        db.close()
    if row is None or row[0] != CompileStart.kind:
        return None
    event = from_payload(row[0], row[1], time=row[2], compile_id=row[3])
    return event if isinstance(event, CompileStart) else None

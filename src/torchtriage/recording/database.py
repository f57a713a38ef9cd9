"""Opens the SQLite file of a process to be read. A file from elsewhere may be damaged, or made to do harm.

Only regular files are opened, the schema runs no code, and neither a row nor the file can take forever or fill the
memory.
"""

import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torchtriage.errors import TriageError
from torchtriage.files import open_regular, replace_file

MAX_BYTES = 1 << 30     # of a file; 200,000 events, the most that a process records, take about 200 MB
MAX_VALUE = 64 << 20    # bytes of one text or blob; the largest are source lines and facts of some 100 kB
ROW_SECONDS = 10.0      # to read one row, which takes microseconds
MIN_ROW = 4             # bytes that any row takes in a file
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE, sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000, sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 20, sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 2, sqlite3.SQLITE_LIMIT_VDBE_OP: 10_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 8, sqlite3.SQLITE_LIMIT_ATTACHED: 0, sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 8,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1, sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_PRAGMAS = ("trusted_schema=off", "cell_size_check=on", "query_only=on", "mmap_size=0")


class Database:
    """The tables of one file. Errors are sqlite3.Error, or TriageError where the file is not what it should be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._num_bytes = 0
        self._max_bytes = _checked_size(path)
        self._deadline = time.monotonic() + ROW_SECONDS
        self._db = self._guarded(_connected(path))
        try:
            self.is_empty()
        except sqlite3.OperationalError:
            # In a folder that is read-only a log cannot be read, as that needs a write; a file without a log can.
            self._db.close()
            has_log = os.path.exists(f"{path}-wal")
            self._db = self._guarded(_copy_in_memory(path) if has_log else _connected(path, "&immutable=1"))

    def close(self) -> None:
        self._db.close()

    def is_empty(self) -> bool:
        return self._db.execute("select 1 from sqlite_master").fetchone() is None

    def rows(self, table: str, columns: Sequence[str], order: str = "") -> Iterator[tuple[Any, ...]]:
        """The rows of a table. A view is refused, and so is a computed column: either can be endless."""
        self._check_table(table, columns)
        try:
            yield from self._counted(f"select {', '.join(columns)} from {table} {order}")
        except sqlite3.OperationalError as error:
            if time.monotonic() > self._deadline:
                raise sqlite3.OperationalError(f"a row takes longer than {ROW_SECONDS:g} s") from error
            raise

    def _guarded(self, db: sqlite3.Connection) -> sqlite3.Connection:
        for limit, value in _LIMITS.items():
            db.setlimit(limit, value)
        for pragma in _PRAGMAS:
            db.execute(f"pragma {pragma}")
        db.set_progress_handler(lambda: time.monotonic() > self._deadline, 1000)
        db.text_factory = _decoded
        return db

    def _check_table(self, table: str, columns: Sequence[str]) -> None:
        kinds = self._counted("select type, rootpage from sqlite_master where name = ?", table)
        if not any(kind == "table" and page for kind, page in kinds):
            raise TriageError(f"{self._path} has no table {table}; it is not a recording of torchtriage")
        hidden = dict(self._counted("select name, hidden from pragma_table_xinfo(?)", table))
        for name in columns:
            if hidden.get(name, 1):
                raise TriageError(f"{self._path} has no values {table}.{name}; it is not a recording of torchtriage")

    def _counted(self, query: str, *values: str) -> Iterator[tuple[Any, ...]]:
        """The rows, until one takes too long, or all together are larger than the file: its pages then form a loop."""
        self._deadline = time.monotonic() + ROW_SECONDS
        for row in self._db.execute(query, values):
            self._deadline = time.monotonic() + ROW_SECONDS
            self._num_bytes += MIN_ROW + sum(len(value) for value in row if isinstance(value, str | bytes))
            if self._num_bytes > self._max_bytes:
                self._max_bytes = _checked_size(self._path)     # it may have grown
                if self._num_bytes > self._max_bytes:
                    raise sqlite3.DatabaseError("its rows are larger than the file")
            yield row


def _checked_size(path: Path) -> int:
    """Bytes of the file and its logs; TriageError if one of them is no regular file, or they are too large.

    They are not opened here: closing a file releases the locks that this process has on it as a writer.
    """
    size = 0
    for suffix in ("", "-wal", "-shm", "-journal"):
        try:
            status = os.lstat(f"{path}{suffix}")
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(status.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
            raise TriageError(f"{path}{suffix} is {kind}; a recording has regular files only")
        size += status.st_size
    if size > MAX_BYTES:
        raise TriageError(f"{path} is larger than {MAX_BYTES:,} bytes, which no recording is")
    return size


def _connected(path: Path, more: str = "") -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{more}", uri=True, timeout=5.0)


def _copy_in_memory(path: Path) -> sqlite3.Connection:
    """The file together with the log beside it, which SQLite reads only where it can write an index of the log."""
    db = sqlite3.connect(":memory:")
    with tempfile.TemporaryDirectory(prefix="torchtriage-") as folder:
        for suffix in ("", "-wal"):
            with open_regular(f"{path}{suffix}") as file:
                replace_file(f"{folder}/copy.sqlite{suffix}", file)
        copy = sqlite3.connect(f"{folder}/copy.sqlite")
        try:
            copy.backup(db)
        finally:
            copy.close()
    return db


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:      # the file is damaged here
        return text.decode("utf-8", "replace")

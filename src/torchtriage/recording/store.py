"""The file of one process: a versioned SQLite database that can be read while it grows."""

import array
import ctypes
import json
import math
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from torchtriage.errors import TriageError
from torchtriage.files import read_regular, replace_file
from torchtriage.recording.database import Database
from torchtriage.recording.events import COLUMNS, Event, from_payload, to_payload
from torchtriage.recording.facts import Damage
from torchtriage.recording.recording import Process, Series, Source
from torchtriage.recording.validation import WrongTypeError, checked, parsed_json
from torchtriage.text import counted

SCHEMA = 1
ERROR_SUFFIX = ".error"     # of a file beside that of a process: why its last rows could not be written
MAX_ERROR = 1 << 16     # bytes of that file
NOTHING_WRITTEN = "its process has just started, or was killed as it started"
COPY_SECONDS = 60.0     # the greatest age of the copy on a network file system while the run continues
NETWORK_FILE_SYSTEMS = (
    "nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "fuse", "9p", "afs", "ceph", "glusterfs", "orangefs", "panfs",
)

_SOURCE_ROW = tuple[str, int, int, str, str]     # path, line, first line, text, qualname

# One transaction: a reader finds an empty file or all of these tables.
_TABLES = f"""
begin;
create table if not exists facts (key text primary key, value text not null);
create table if not exists events (id integer primary key, kind text not null, time real, step integer, rank integer,
    pid integer, compile_id text, payload text not null);
create table if not exists sources (path text not null, line integer not null, first_line integer not null,
    text text not null, qualname text not null, primary key (path, line));
create table if not exists series (name text primary key, steps blob not null, data blob not null);
insert or ignore into facts values ('schema', '{SCHEMA}');
commit;
"""


class FilesLostError(OSError):
    """The open files of a recording are no longer ours to write."""


class Writer:
    """Appends to one file; every call is one transaction, so that a kill leaves a consistent file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local: Path | None = None
        self._copied = time.monotonic()
        self._texts: dict[tuple[str, int], tuple[str, ...]] = {}    # the first text that begins at a line of a file
        self._db = self._open()
        self._inodes = _inodes(self._local or self.path)
        self._descriptors = _descriptors_of(self._inodes)

    def check(self) -> None:
        """Raise FilesLostError if the program has closed our descriptors, or if the file was deleted or moved.

        SQLite would write to whatever has the number of a closed descriptor now, which may be a file of the program.
        """
        for descriptor, inode in self._descriptors.items():
            if _inode(descriptor) != inode:
                raise FilesLostError("the program closed the open file of the recording, as os.closerange does")
        if _inode(self._local or self.path) != self._inodes[0]:
            raise FilesLostError(f"{self.path} was deleted or moved while the program ran")

    def abandon(self) -> None:
        """Never use the file again, and never close it, not even when the interpreter ends."""
        ctypes.pythonapi["Py_IncRef"](ctypes.py_object(self._db))

    def _open(self) -> sqlite3.Connection:
        if not _on_network(self.path):
            db = _connect(self.path)
            try:
                if db.execute("pragma journal_mode=wal").fetchone()[0] == "wal":
                    return _prepared(db)
            except sqlite3.OperationalError:
                pass
            db.close()
            with suppress(OSError):
                _unlink(self.path)
        # Where WAL is not available, a lock over the network could block a step, so the file grows on a local disk.
        self._local = Path(tempfile.mkdtemp(prefix="torchtriage-")) / self.path.name
        try:
            db = _prepared(_connect(self._local))
        except sqlite3.Error:
            shutil.rmtree(self._local.parent, ignore_errors=True)
            raise
        self._copy_early(db)
        return db

    def put(
        self, events: Iterable[Event] = (), facts: Mapping[str, Any] | None = None,
        sources: Mapping[tuple[str, int], Source] | None = None, series: Iterable[Series] = (),
    ) -> None:
        series, events = list(series), list(events)
        if not (series or events or facts or sources):
            return
        event_rows = [_event_row(event) for event in events]
        fact_rows = [(key, json.dumps(value)) for key, value in (facts or {}).items()]
        source_rows = [self._source_row(path, line, source) for (path, line), source in (sources or {}).items()]
        series_rows = [(one.name, _floats(one.steps), _floats(one.values)) for one in series]
        with self._db as db:
            db.executemany(
                "insert into events (kind, time, step, rank, pid, compile_id, payload) values (?,?,?,?,?,?,?)",
                event_rows,
            )
            db.executemany("insert or replace into facts values (?,?)", fact_rows)
            db.executemany("insert or ignore into sources values (cast(? as text),?,?,cast(? as text),?)", source_rows)
            db.executemany("insert or replace into series values (?,?,?)", series_rows)
        if self._local and time.monotonic() - self._copied > COPY_SECONDS:
            self._copy_early(self._db)

    def put_facts(self, facts: Mapping[str, Any]) -> None:
        self.put(facts=facts)

    def _source_row(self, path: str, line: int, source: Source) -> tuple[Any, ...]:
        """The row of a place; a function is stored with the first of its places, and left out of the others."""
        known = self._texts.get((path, source.first_line))
        self._texts.setdefault((path, source.first_line), source.lines)
        text = "" if known == source.lines else "\n".join(source.lines)
        return _encoded(path), line, source.first_line, _encoded(text), source.qualname

    def close(self) -> None:
        if self._local:
            try:
                self._copy(self._db)
            except OSError as error:
                raise OSError(f"{error}; the recording is in {self._local}") from error
            self._db.close()
            shutil.rmtree(self._local.parent, ignore_errors=True)
            return
        # One file is easier to copy, and to open read-only, than a file with a log beside it.
        try:
            self._db.execute("pragma journal_mode=delete")
        except sqlite3.OperationalError:
            pass  # a reader holds the file open; the log stays beside it
        self._db.close()

    def _copy_early(self, db: sqlite3.Connection) -> None:
        """Copy while the run continues; a copy that fails is made again later."""
        self._copied = time.monotonic()
        with suppress(OSError):
            self._copy(db)

    def _copy(self, db: sqlite3.Connection) -> None:
        """Replace the copy at the destination in one operation, so that a reader never sees half of it."""
        db.commit()
        assert self._local is not None
        with self._local.open("rb") as file:
            replace_file(self.path, file)


def _event_row(event: Event) -> tuple[Any, ...]:
    return (event.kind, *(getattr(event, column) for column in COLUMNS), to_payload(event))


def _floats(values: Iterable[float]) -> bytes:
    return array.array("f", values).tobytes()


def read_process(path: Path) -> Process:
    """One file of a recording, also while it is being written. A row that cannot be read is left out and reported."""
    damage: list[Damage] = []
    try:
        with closing(Database(path)) as db:
            if db.is_empty():
                error = _read_error(path.with_suffix(ERROR_SUFFIX), damage).get("recorder_error")
                raise TriageError(f"{path} is empty: {error or NOTHING_WRITTEN}")
            facts = _read_facts(db, damage)
            _check_schema(path, facts, damage)
            events = _read_events(db, damage)
            sources, series = _read_sources(db, damage), _read_series(db, damage)
    except (sqlite3.Error, OSError, ValueError) as error:
        raise TriageError(_unreadable(path, error)) from error
    facts.update(_read_error(path.with_suffix(ERROR_SUFFIX), damage))
    return Process(events=tuple(events), facts=facts, sources=sources, series=series, unreadable=tuple(damage))


def _rows(
    db: Database, table: str, columns: Sequence[str], damage: list[Damage], order: str = "",
) -> Iterator[tuple[Any, ...]]:
    """The rows of a table up to the first that cannot be read; the loss of the others is added to `damage`."""
    number = 0
    try:
        for row in db.rows(table, columns, order):
            yield row
            number += 1
    except sqlite3.Error as error:
        damage.append(Damage(name=f"the rest of {table}", problem=f"{error}; {counted(number, 'row')} could be read"))


def _read_facts(db: Database, damage: list[Damage]) -> dict[str, Any]:
    facts = {}
    for key, value in _rows(db, "facts", ("key", "value"), damage):
        try:
            facts[checked(key, str)] = parsed_json(value)
        except (TypeError, ValueError) as error:
            problem = str(error) if isinstance(error, WrongTypeError) else "it is not JSON"
            damage.append(Damage(name=str(key), problem=problem))
    return facts


def _read_error(path: Path, damage: list[Damage]) -> dict[str, Any]:
    """The text that a process left beside its file because it could not write into it, as a fact."""
    try:
        return {"recorder_error": read_regular(path, MAX_ERROR).decode("utf-8", "replace")}
    except FileNotFoundError:
        return {}
    except OSError as error:
        damage.append(Damage(name=path.name, problem=error.strerror or str(error)))
        return {}


def _read_events(db: Database, damage: list[Damage]) -> list[Event]:
    events = []
    for kind, payload, *columns in _rows(db, "events", ("kind", "payload", *COLUMNS), damage, "order by id"):
        events.append(from_payload(kind, payload, **dict(zip(COLUMNS, columns, strict=True))))
    return events


def _read_sources(db: Database, damage: list[Damage]) -> dict[tuple[str, int], Source]:
    sources = {}
    texts: dict[tuple[str, int], str] = {}      # of the first place; other places of the same function have none
    num_damaged = 0
    columns = ("path", "line", "first_line", "text", "qualname")
    for path, line, first, text, qualname in _rows(db, "sources", columns, damage, "order by rowid"):
        try:
            checked((path, line, first, text, qualname), _SOURCE_ROW)
        except WrongTypeError:
            num_damaged += 1
            continue
        text = text or texts.get((path, first), "")
        texts.setdefault((path, first), text)
        sources[path, line] = Source(first_line=first, lines=tuple(text.split("\n")), qualname=qualname)
    if num_damaged:
        damage.append(Damage(name="sources", problem=f"source lines of {counted(num_damaged, 'place')} cannot be read"))
    return sources


def _read_series(db: Database, damage: list[Damage]) -> dict[str, Series]:
    all_series = {}
    for name, step_bytes, value_bytes in _rows(db, "series", ("name", "steps", "data"), damage):
        try:
            steps, values = array.array("f", step_bytes), array.array("f", value_bytes)
            is_consistent = isinstance(name, str) and len(steps) == len(values) and math.isfinite(sum(steps))
        except (TypeError, ValueError):     # not bytes, or not four for each number
            is_consistent = False
        if is_consistent:
            all_series[name] = Series(name=name, steps=steps, values=values)
        else:
            damage.append(Damage(name=f"series {name}", problem="its steps and values do not match"))
    return all_series


def _unreadable(path: Path, problem: object) -> str:
    return f"cannot read {path}: {problem}; the file is damaged or not a recording of torchtriage"


def _check_schema(path: Path, facts: Mapping[str, Any], damage: Sequence[Damage]) -> None:
    schema = facts.get("schema")
    if "schema" not in facts and damage:
        raise TriageError(_unreadable(path, damage[-1].problem))
    if not isinstance(schema, int):
        raise TriageError(f"{path} has no schema number; it is not a recording of torchtriage")
    if schema > SCHEMA:
        raise TriageError(
            f"{path} has schema {schema}, this torchtriage reads up to {SCHEMA}; "
            f"upgrade torchtriage, or read it with version {facts.get('torchtriage', '?')}"
        )


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=5.0, check_same_thread=False)


def _prepared(db: sqlite3.Connection) -> sqlite3.Connection:
    db.execute("pragma synchronous=normal")
    db.executescript(_TABLES)
    return db


def _encoded(text: str) -> bytes:
    """Text as bytes: a file name that is not UTF-8 has lone surrogates, which sqlite3 refuses as text."""
    return text.encode("utf-8", "surrogatepass")


def _unlink(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _inode(file: Path | str | int) -> tuple[int, int] | None:
    """What a path or a descriptor refers to; None if it refers to nothing."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _inodes(path: Path) -> list[tuple[int, int] | None]:
    """Of the file, its log and the index of the log."""
    return [_inode(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")]


def _descriptors_of(inodes: Iterable[tuple[int, int] | None]) -> dict[int, tuple[int, int]]:
    """The open descriptors of these files; none where the system does not list descriptors."""
    wanted = set(inodes)
    try:
        numbers = [int(name) for name in os.listdir("/dev/fd") if name.isdigit()]
    except OSError:
        return {}
    found = {}
    for number in numbers:
        inode = _inode(number)
        if inode is not None and inode in wanted:
            found[number] = inode
    return found


def _on_network(path: Path) -> bool:
    """Whether the folder is on a file system of another machine, where WAL is unsafe even if SQLite accepts it."""
    try:
        mounts = Path("/proc/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return False
    folder = str(path.parent.resolve())
    longest, file_system = "", ""       # the mount point that is nearest to the folder
    for mount in mounts:
        _, point, kind, *_ = mount.split(" ")
        point = point.replace("\\040", " ")
        is_above = folder == point or folder.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(longest):
            longest, file_system = point, kind
    return file_system.startswith(NETWORK_FILE_SYSTEMS)

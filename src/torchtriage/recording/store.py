"""The file of one process: a versioned SQLite database that can be read while it grows."""

import array
import json
import math
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from torchtriage.errors import TriageError
from torchtriage.recording.events import COLUMNS, Event, from_payload, to_payload
from torchtriage.recording.facts import Damage
from torchtriage.recording.recording import Process, Series, Source
from torchtriage.recording.validation import WrongTypeError, checked
from torchtriage.text import counted

SCHEMA = 1
ERROR_SUFFIX = ".error"     # of a file beside that of a process: why its last rows could not be written
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


class Writer:
    """Appends to one file; every call is one transaction, so that a kill leaves a consistent file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local: Path | None = None
        self._copied = time.monotonic()
        self._texts: dict[tuple[str, int], tuple[str, ...]] = {}    # the first text that begins at a line of a file
        self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        if not _on_network(self.path):
            db = _connect(self.path)
            try:
                if db.execute("pragma journal_mode=wal").fetchone()[0] == "wal":
                    return _prepared(db)
            except sqlite3.OperationalError:
                pass
            db.close()
            _unlink(self.path)
        # Where WAL is not available, a lock over the network could block a step, so the file grows on a local disk.
        self._local = Path(tempfile.mkdtemp(prefix="torchtriage-")) / self.path.name
        db = _prepared(_connect(self._local))
        self._copy(db)
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
            self._copy(self._db)

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
            self._copy(self._db)
            self._db.close()
            shutil.rmtree(self._local.parent, ignore_errors=True)
            return
        # One file is easier to copy, and to open read-only, than a file with a log beside it.
        try:
            self._db.execute("pragma journal_mode=delete")
        except sqlite3.OperationalError:
            pass  # a reader holds the file open; the log stays beside it
        self._db.close()

    def _copy(self, db: sqlite3.Connection) -> None:
        """Replace the copy at the destination in one operation, so that a reader never sees half of it."""
        half = self.path.with_suffix(".part")
        try:
            db.commit()
            assert self._local is not None
            shutil.copyfile(self._local, half)
            os.replace(half, self.path)
        except OSError:
            _unlink(half)
        self._copied = time.monotonic()


def _event_row(event: Event) -> tuple[Any, ...]:
    return (event.kind, *(getattr(event, column) for column in COLUMNS), to_payload(event))


def _floats(values: Iterable[float]) -> bytes:
    return array.array("f", values).tobytes()


def read_process(path: Path) -> Process:
    """One file of a recording, also while it is being written. A row that cannot be read is left out and reported."""
    damage: list[Damage] = []
    try:
        with closing(_connect_to_read(path)) as db:
            if db.execute("select 1 from sqlite_master").fetchone() is None:
                raise TriageError(f"{path} is empty: its process has just started, or was killed as it started")
            db.text_factory = _decoded
            facts = _read_facts(db, damage)
            _check_schema(path, facts)
            events = _read_events(db)
            sources, series = _read_sources(db, damage), _read_series(db, damage)
        error_file = path.with_suffix(ERROR_SUFFIX)
        if error_file.exists():
            facts["recorder_error"] = error_file.read_text(encoding="utf-8", errors="replace")
    except (sqlite3.DatabaseError, ValueError) as error:
        problem = f"cannot read {path}: {error}; the file is damaged or not a recording of torchtriage"
        raise TriageError(problem) from error
    return Process(events=tuple(events), facts=facts, sources=sources, series=series, unreadable=tuple(damage))


def _read_facts(db: sqlite3.Connection, damage: list[Damage]) -> dict[str, Any]:
    facts = {}
    for key, value in db.execute("select key, value from facts"):
        try:
            facts[key] = json.loads(value)
        except (TypeError, ValueError, RecursionError):
            damage.append(Damage(name=str(key), problem="it is not JSON"))
    return facts


def _read_events(db: sqlite3.Connection) -> list[Event]:
    events = []
    for kind, payload, *columns in db.execute(f"select kind, payload, {', '.join(COLUMNS)} from events order by id"):
        events.append(from_payload(kind, payload, **dict(zip(COLUMNS, columns, strict=True))))
    return events


def _read_sources(db: sqlite3.Connection, damage: list[Damage]) -> dict[tuple[str, int], Source]:
    sources = {}
    texts: dict[tuple[str, int], str] = {}      # of the first place; other places of the same function have none
    num_damaged = 0
    rows = db.execute("select path, line, first_line, text, qualname from sources order by rowid")
    for path, line, first, text, qualname in rows:
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


def _read_series(db: sqlite3.Connection, damage: list[Damage]) -> dict[str, Series]:
    all_series = {}
    for name, step_bytes, value_bytes in db.execute("select name, steps, data from series"):
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


def _check_schema(path: Path, facts: Mapping[str, Any]) -> None:
    schema = facts.get("schema")
    if not isinstance(schema, int):
        raise TriageError(f"{path} has no schema number; it is not a recording of torchtriage")
    if schema > SCHEMA:
        raise TriageError(
            f"{path} has schema {schema}, this torchtriage reads up to {SCHEMA}; "
            f"upgrade torchtriage, or read it with version {facts.get('torchtriage', '?')}"
        )


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=5.0, check_same_thread=False)


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """A read-only connection.

    With a log beside the file in a read-only folder, reading needs a write, so the connection is to a copy in memory.
    Without a log, the file is opened as immutable.
    """
    uri = path.absolute().as_uri()
    try:
        db = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=5.0)
        db.execute("select 1 from facts limit 1")
        return db
    except sqlite3.OperationalError:
        if Path(f"{path}-wal").exists():
            return _copy_in_memory(path)
        return sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True)


def _copy_in_memory(path: Path) -> sqlite3.Connection:
    """The file together with the log beside it, which SQLite reads only where it can write an index of the log."""
    db = sqlite3.connect(":memory:")
    with tempfile.TemporaryDirectory(prefix="torchtriage-") as folder:
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", f"{folder}/copy.sqlite{suffix}")
        copy = sqlite3.connect(f"{folder}/copy.sqlite")
        try:
            copy.backup(db)
        finally:
            copy.close()
    return db


def _prepared(db: sqlite3.Connection) -> sqlite3.Connection:
    db.execute("pragma synchronous=normal")
    db.executescript(_TABLES)
    return db


def _encoded(text: str) -> bytes:
    """Text as bytes: a file name that is not UTF-8 has lone surrogates, which sqlite3 refuses as text."""
    return text.encode("utf-8", "surrogatepass")


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:      # the file is damaged here
        return text.decode("utf-8", "replace")


def _unlink(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


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

"""The folder of tickets: read every file, write one at a time, never overwrite a change made by someone else."""

import codecs
import difflib
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torchtriage.errors import CommandError, TriageError
from torchtriage.files import read_regular, replace_file
from torchtriage.text import listed
from torchtriage.tickets.files.read import CONFLICT, TicketFile, parse
from torchtriage.tickets.files.render import render
from torchtriage.tickets.model import Problem, Ticket
from torchtriage.tickets.naming import ticket_file_name

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
MAX_FILE_BYTES = 16 << 20   # a ticket has a few kilobytes, the largest batch report some hundreds


@dataclass(slots=True, kw_only=True)
class Store:
    """`files` are the usable tickets, `conflicted` those with a merge conflict.

    `others` holds the text of each Markdown file that is not a ticket; `unreadable` lists the files that cannot be
    decoded; `raw` holds the bytes of each ticket file when it was read.
    """

    folder: Path
    files: list[TicketFile] = field(default_factory=list)
    conflicted: list[TicketFile] = field(default_factory=list)
    others: dict[Path, str] = field(default_factory=dict)
    unreadable: list[Problem] = field(default_factory=list)
    raw: dict[Path, bytes] = field(default_factory=dict)

    @property
    def every(self) -> list[TicketFile]:
        """All tickets, those with a merge conflict included, by path."""
        return sorted([*self.files, *self.conflicted], key=lambda file: str(file.path))

    @property
    def ids(self) -> list[str]:
        """Every ID in use, and the names of the unreadable files: their IDs must not be assigned again."""
        return [*(file.ticket.id for file in self.every), *(Path(problem.path).stem for problem in self.unreadable)]

    def problems(self) -> list[Problem]:
        """The problems that make files unusable, or ambiguous."""
        problems = list(self.unreadable)
        for file in self.every:
            problems += [problem for problem in file.problems if problem.kind in (CONFLICT, "broken-table")]
        by_id: dict[str, list[TicketFile]] = defaultdict(list)
        for file in self.every:
            by_id[file.ticket.id].append(file)
        for ticket_id, (first, *duplicates) in by_id.items():
            for file in duplicates if ticket_id else ():
                message = f"{ticket_id} is also the ID of {first.path}; give one of them a new ID"
                problems.append(Problem(path=str(file.path), line=None, kind="duplicate-id", message=message))
        return problems

    def find(self, ticket_id: str) -> TicketFile:
        """The ticket with this ID, ignoring case."""
        matches = [file for file in self.every if file.ticket.id.casefold() == ticket_id.casefold()]
        if len(matches) > 1:
            paths = listed(file.path for file in matches)
            raise CommandError(f"{ticket_id} is the ID of {paths}; give one of them a new ID")
        if not matches:
            near = difflib.get_close_matches(ticket_id.upper(), [file.ticket.id for file in self.every], n=1)
            hint = f"did you mean {near[0]}?" if near else "list them with: torchtriage ticket list"
            raise CommandError(f"no ticket {ticket_id} in {self.folder}; {hint}")
        if matches[0] in self.conflicted:
            raise CommandError(f"{matches[0].path} has an unresolved merge conflict; resolve it first")
        return matches[0]

    def save(self, file: TicketFile) -> None:
        """Write the new text of a file; refused if the file has changed since it was read."""
        before = self.raw[file.path]
        if _bytes_of(file.path) != before:
            raise TriageError(_changed(file.path))
        bom, encoding = encoding_of(before)
        self.raw[file.path] = bom + file.text.encode(encoding)
        write_bytes(file.path, self.raw[file.path])
        self.files = [file if old.path == file.path else old for old in self.files]

    def add(self, ticket: Ticket, text: str | bytes | None = None) -> TicketFile:
        """Create a file for a ticket; `text` is its text if it has one already."""
        path = self.folder / ticket_file_name(ticket.id, ticket.title)
        if text is None:
            text = render(ticket)
        data = text if isinstance(text, bytes) else text.encode()
        write_new(path, data)
        file = parse(decode(data), path)
        self.raw[path] = data
        self.files.append(file)
        return file


def open_store(folder: Path) -> Store:
    """Every ticket below a folder; a folder that does not exist is empty."""
    store = Store(folder=folder)
    if folder.exists() and not folder.is_dir():
        raise CommandError(
            f"{folder} is not a folder; name another with --folder, or set tickets in [tool.torchtriage]"
        )
    for path in _markdown_files(folder):
        try:
            data = read_regular(path, MAX_FILE_BYTES, follow=True)
            file = parse(decode(data), path)
        except (OSError, UnicodeDecodeError) as error:
            message = f"cannot be read: {unreadable_reason(error)}"
            store.unreadable.append(Problem(path=str(path), line=None, kind="unreadable", message=message))
            continue
        if not file.is_ticket:
            store.others[path] = file.text
            continue
        store.raw[path] = data
        has_conflict = any(problem.kind == CONFLICT for problem in file.problems)
        (store.conflicted if has_conflict else store.files).append(file)
    return store


def _markdown_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(".md") and not name.startswith("."):
                yield Path(parent, name)


def unreadable_reason(error: OSError | UnicodeDecodeError) -> str:
    """Why a file could not be read as text."""
    return getattr(error, "strerror", None) or "it is not UTF-8 text"


def encoding_of(data: bytes) -> tuple[bytes, str]:
    """(byte order mark, encoding) of a file."""
    return next(((bom, name) for bom, name in _BOMS if data.startswith(bom)), (b"", "utf-8"))


def decode(data: bytes) -> str:
    """The text of a file; raises UnicodeDecodeError if it is not text."""
    bom, encoding = encoding_of(data)
    text = data[len(bom):].decode(encoding)
    if "\0" in text:
        raise UnicodeDecodeError(encoding, data[:1], 0, 1, "a null character")
    return text


def read_text(path: Path) -> str:
    """The text of a file with its line endings unchanged; raises CommandError if it cannot be read."""
    try:
        return decode(read_regular(path, MAX_FILE_BYTES, follow=True))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {path}: {unreadable_reason(error)}") from error


def replace_text(path: Path, before: str, after: str) -> None:
    """Replace the text of a file; refused if it is no longer `before`, the text that was read."""
    data = path.read_bytes()
    bom, encoding = encoding_of(data)
    if decode(data) != before:
        raise CommandError(_changed(path))
    write_bytes(path, bom + after.encode(encoding))


def _changed(path: Path) -> str:
    return f"{path} has changed since it was read; nothing was written, run the command again"


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file as a whole; raises CommandError if it cannot be written."""
    try:
        replace_file(path, data)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}; the file is unchanged") from error


def write_new(path: Path, data: bytes) -> None:
    """Create a file; raises CommandError if it exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("xb").close()     # reserves the name, with the default mode of new files
    except FileExistsError:
        raise CommandError(f"{path} already exists; nothing was overwritten") from None
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}; name another folder with --folder") from error
    try:
        write_bytes(path, data)
    except CommandError:
        path.unlink(missing_ok=True)
        raise


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None

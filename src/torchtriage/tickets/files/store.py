"""The folder of tickets: reads all of them, names what it cannot read, writes one at a time and never over a change of somebody else's."""

import codecs
import difflib
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torchtriage.errors import CommandError, TriageError
from torchtriage.tickets.files.read import is_ticket, parse
from torchtriage.tickets.files.render import render
from torchtriage.tickets.files.trouble import CONFLICT
from torchtriage.tickets.model import Problem, Ticket, TicketFile
from torchtriage.tickets.naming import file_name

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass(slots=True, kw_only=True)
class Store:
    """`files` are the tickets one can work with, `conflicted` those with a merge conflict in them, `others` the Markdown files that
    are no tickets; `unreadable` names what could not be decoded. `raw` holds each file's bytes as they were read."""

    folder: Path
    files: list[TicketFile] = field(default_factory=list)
    conflicted: list[TicketFile] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)
    unreadable: list[Problem] = field(default_factory=list)
    raw: dict[Path, bytes] = field(default_factory=dict)

    @property
    def every(self) -> list[TicketFile]:
        return sorted([*self.files, *self.conflicted], key=lambda file: str(file.path))

    @property
    def ids(self) -> list[str]:
        """Every ID in use, and the names of the files that could not be read: theirs must not be given again."""
        return [*(file.ticket.id for file in self.every), *(Path(problem.path).stem for problem in self.unreadable)]

    def problems(self) -> list[Problem]:
        """What keeps files from being used."""
        found = list(self.unreadable)
        for file in self.every:
            found += [problem for problem in file.problems if problem.kind in (CONFLICT, "broken-table")]
        by_id: dict[str, list[TicketFile]] = defaultdict(list)
        for file in self.every:
            by_id[file.ticket.id].append(file)
        for same in by_id.values():
            for file in same[1:] if same[0].ticket.id else ():
                message = f"{file.ticket.id} is also the ID of {same[0].path}; give one of them another"
                found.append(Problem(path=str(file.path), line=None, kind="duplicate-id", message=message))
        return found

    def find(self, ticket_id: str) -> TicketFile:
        """The one ticket with this ID, in any case."""
        found = [file for file in self.every if file.ticket.id.casefold() == ticket_id.casefold()]
        if len(found) > 1:
            raise CommandError(f"{ticket_id} is the ID of {' and of '.join(str(file.path) for file in found)}; give one of them another")
        if not found:
            near = difflib.get_close_matches(ticket_id.upper(), [file.ticket.id for file in self.every], n=1)
            hint = f"did you mean {near[0]}?" if near else "list them with: torchtriage ticket list"
            raise CommandError(f"no ticket {ticket_id} in {self.folder}; {hint}")
        if found[0] in self.conflicted:
            raise CommandError(f"{found[0].path} has a merge conflict in it; resolve it first")
        return found[0]

    def save(self, file: TicketFile) -> None:
        """Write the new text of a file that was read; refused if it changed meanwhile."""
        before = self.raw[file.path]
        if _bytes_of(file.path) != before:
            raise TriageError(f"{file.path} changed while torchtriage was at work; nothing was written, run the command again")
        bom, encoding = encoding_of(before)
        self.raw[file.path] = bom + file.text.encode(encoding)
        write_bytes(file.path, self.raw[file.path])
        self.files = [file if old.path == file.path else old for old in self.files]

    def add(self, ticket: Ticket, text: str | bytes | None = None) -> TicketFile:
        """A new file for a ticket, with the text it has elsewhere if there is one."""
        path = self.folder / file_name(ticket.id, ticket.title)
        data = text if isinstance(text, bytes) else (render(ticket) if text is None else text).encode()
        write_new(path, data)
        file = parse(decoded(data), path)
        self.raw[path] = data
        self.files.append(file)
        return file


def open_store(folder: Path) -> Store:
    """Every ticket below a folder that need not exist."""
    store = Store(folder=folder)
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is no folder; name another with --folder, or set tickets in [tool.torchtriage]")
    for path in _markdown_files(folder):
        try:
            data = path.read_bytes()
            file = parse(decoded(data), path)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            store.unreadable.append(Problem(path=str(path), line=None, kind="unreadable", message=f"cannot be read: {reason}"))
            continue
        if not is_ticket(file):
            store.others.append(path)
            continue
        store.raw[path] = data
        has_conflict = any(problem.kind == CONFLICT for problem in file.problems)
        (store.conflicted if has_conflict else store.files).append(file)
    return store


def _markdown_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(names) if name.lower().endswith(".md") and not name.startswith("."))


def encoding_of(data: bytes) -> tuple[bytes, str]:
    """(byte order mark, encoding) of a file."""
    return next(((bom, name) for bom, name in _BOMS if data.startswith(bom)), (b"", "utf-8"))


def decoded(data: bytes) -> str:
    """The text of a file; UnicodeDecodeError if it is none."""
    bom, encoding = encoding_of(data)
    text = data[len(bom):].decode(encoding)
    if "\0" in text:
        raise UnicodeDecodeError(encoding, data[:1], 0, 1, "a null character")
    return text


def read_text(path: Path) -> str:
    """The text of a file that should be there and be text, with the line endings that it has."""
    try:
        return decoded(path.read_bytes())
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"cannot read {path}: it is not UTF-8 text") from error


def replace_text(path: Path, before: str, after: str) -> None:
    """Write a new text over the one that was read; refused if the file changed meanwhile."""
    data = path.read_bytes()
    bom, encoding = encoding_of(data)
    if decoded(data) != before:
        raise CommandError(f"{path} changed while torchtriage was at work; nothing was written, run the command again")
    write_bytes(path, bom + after.encode(encoding))


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file as a whole, with the mode it had: a reader sees the old text or the new one."""
    target = path.resolve()
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            shutil.copymode(target, name)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}; it is as it was") from error


def write_new(path: Path, data: bytes) -> None:
    """Make a file that must not exist."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("xb").close()     # claims the name, with the mode that new files have here
    except FileExistsError:
        raise CommandError(f"{path} exists; nothing was overwritten") from None
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

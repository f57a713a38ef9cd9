"""The folder of tickets: other files are skipped, damaged ones are reported, nothing is ever lost."""

import codecs
import os
import stat
from pathlib import Path

import pytest

from tests.unit.tickets.samples import REPORT, TICKETS, seed_text
from torchtriage.errors import CommandError, TriageError
from torchtriage.findings.model import Category
from torchtriage.tickets.batches.imports import import_file
from torchtriage.tickets.files.edit import set_field
from torchtriage.tickets.files.read import TicketFile
from torchtriage.tickets.files.store import open_store
from torchtriage.tickets.model import Status, Ticket
from torchtriage.tickets.naming import highest_batch, letters_of, next_id, ticket_file_name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in TICKETS:
        (tmp_path / f"{name}.md").write_bytes(seed_text(name).encode())
    return tmp_path


def test_a_missing_folder_is_empty(tmp_path: Path) -> None:
    assert open_store(tmp_path / "none").files == []


def test_files_that_are_not_tickets_are_skipped(folder: Path) -> None:
    (folder / "README.md").write_text("# Findings\n\n| ID | Severity |\n|---|---|\n| B7-PT-07 | P4 |\n")
    (folder / "batch7.md").write_bytes(REPORT.read_bytes())
    (folder / "notes.txt").write_text(seed_text("B7-PT-07"))
    (folder / ".drafts").mkdir()
    (folder / ".drafts" / "x.md").write_text(seed_text("B7-PT-07"))
    store = open_store(folder)
    assert sorted(file.ticket.id for file in store.files) == sorted(TICKETS)
    assert [path.name for path in store.others] == ["README.md", "batch7.md"]
    assert store.problems() == []


def test_tickets_in_subfolders_are_found(folder: Path) -> None:
    (folder / "closed").mkdir()
    (folder / "B7-PT-07.md").rename(folder / "closed" / "B7-PT-07.md")
    assert open_store(folder).find("b7-pt-07").path == folder / "closed" / "B7-PT-07.md"


def test_damaged_files_are_reported_and_the_others_work(folder: Path) -> None:
    (folder / "binary.md").write_bytes(b"\x89PNG\x00\xff")
    (folder / "null.md").write_bytes(b"# Finding Ticket: x\x00")
    (folder / "copy.md").write_bytes((folder / "B7-PT-07.md").read_bytes())
    (folder / "B5-PT-06.md").write_text("<<<<<<< HEAD\n" + seed_text("B5-PT-06") + "=======\n>>>>>>> other\n")
    store = open_store(folder)
    assert [(Path(p.path).name, p.kind) for p in store.problems()] == [
        ("binary.md", "unreadable"), ("null.md", "unreadable"), ("B5-PT-06.md", "merge-conflict"),
        ("copy.md", "duplicate-id"),
    ]
    assert store.find("B8-PT-06").ticket.id == "B8-PT-06"
    with pytest.raises(CommandError, match=r"B7-PT-07 is the ID of .*B7-PT-07\.md and .*copy\.md"):
        store.find("B7-PT-07")
    with pytest.raises(CommandError, match="merge conflict"):
        store.find("B5-PT-06")


def test_the_nearest_id_is_suggested(folder: Path) -> None:
    with pytest.raises(CommandError, match=r"no ticket B7-PT-7 in .*; did you mean B7-PT-07\?"):
        open_store(folder).find("B7-PT-7")


@pytest.mark.parametrize("bom", [b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_encoding_byte_order_mark_and_line_endings_are_kept(tmp_path: Path, bom: bytes, ending: str) -> None:
    encoding = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(bom, "utf-8")
    text = seed_text("B5-PT-06").replace("\n", ending)
    path = tmp_path / "x.md"
    path.write_bytes(bom + text.encode(encoding))
    path.chmod(0o640)
    store = open_store(tmp_path)
    store.save(set_field(store.files[0], "status", Status.CLOSED))
    assert path.read_bytes() == bom + text.replace("`open`", "`closed`").encode(encoding)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_changed_since_it_was_read_is_not_overwritten(folder: Path) -> None:
    store = open_store(folder)
    file = store.find("B7-PT-07")
    file.path.write_text("somebody else's work")
    with pytest.raises(TriageError, match="has changed since it was read"):
        store.save(set_field(file, "status", "closed"))
    file.path.unlink()
    with pytest.raises(TriageError, match="has changed since it was read"):
        store.save(set_field(file, "status", "closed"))
    assert not file.path.exists()


def test_a_file_can_be_saved_twice(folder: Path) -> None:
    store = open_store(folder)
    store.save(set_field(store.find("B7-PT-07"), "status", "closed"))
    store.save(set_field(store.find("B7-PT-07"), "severity", "P1"))
    ticket = open_store(folder).find("B7-PT-07").ticket
    assert (ticket.status, ticket.severity) == ("closed", "P1")


def test_a_symbolic_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.md").write_text(seed_text("B7-PT-07"))
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "x.md").symlink_to(tmp_path / "real" / "x.md")
    store = open_store(tmp_path / "linked")
    store.save(set_field(store.files[0], "status", "closed"))
    assert (tmp_path / "linked" / "x.md").is_symlink()
    assert "`closed`" in (tmp_path / "real" / "x.md").read_text()


def test_a_new_ticket_never_overwrites_a_file(tmp_path: Path) -> None:
    store = open_store(tmp_path / "docs" / "findings")
    file = store.add(Ticket(id="B1-PT-01", title="It's 100% broken!"))
    assert file.path == tmp_path / "docs" / "findings" / "B1-PT-01-it-s-100-broken.md"
    with pytest.raises(CommandError, match="already exists; nothing was overwritten"):
        store.add(Ticket(id="B1-PT-01", title="It's 100% broken!"))


@pytest.mark.parametrize(("agent", "letters"), [
    ("pytorch", "PT"), ("DRL", "DRL"), ("codereview", "CR"), ("torchtriage", "TT"), ("numerics", "NU"),
    ("memory safety", "MS"),
    ("Ünïcode", "UN"), ("你好", "XX"), ("", "XX"),
])
def test_the_letters_of_an_agent(agent: str, letters: str) -> None:
    assert letters_of(agent) == letters


def test_numbers_continue_within_a_batch_and_agent() -> None:
    in_use = ["B7-PT-07", "b7-pt-11-some-file", "B7-DRL-20", "B8-PT-30", "other"]
    assert next_id(7, "pytorch", in_use) == "B7-PT-12"
    assert next_id(7, "codereview", in_use) == "B7-CR-01"
    assert (highest_batch(in_use), highest_batch([])) == (8, 0)


@pytest.mark.parametrize(("title", "name"), [
    ("Dynamic Tensor Size", "B7-PT-07-dynamic-tensor-size.md"), ("", "B7-PT-07.md"),
    ("../../etc/passwd", "B7-PT-07-etc-passwd.md"),
    ("word " * 40, "B7-PT-07-word-word-word-word-word-word-word-word-word-word.md"),
    ("x" * 99, f"B7-PT-07-{'x' * 50}.md"),
])
def test_file_names(title: str, name: str) -> None:
    assert ticket_file_name("B7-PT-07", title) == name


def test_an_id_cannot_escape_the_folder() -> None:
    assert ticket_file_name("../../B7", "x") == "B7-x.md"


def test_a_ticket_file_is_imported_byte_for_byte(tmp_path: Path) -> None:
    source = tmp_path / "000.txt"
    source.write_bytes(codecs.BOM_UTF8 + seed_text("B5-PT-06").replace("\n", "\r\n").encode())
    store = open_store(tmp_path / "docs")
    [file] = import_file(store, source, "2025-01-01")
    assert isinstance(file, TicketFile)
    assert file.path.read_bytes() == source.read_bytes()
    [message] = import_file(store, source, "2025-01-01")
    assert message == f"{source}: B5-PT-06 already exists ({file.path}); not imported"


def test_a_batch_report_is_imported_as_one_ticket_per_finding(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    files = [file for file in import_file(store, REPORT, "2025-01-01") if isinstance(file, TicketFile)]
    assert len(files) == 21
    ticket = next(file.ticket for file in files if file.ticket.id == "B7-EM-01")
    assert ticket.with_(wrong="", fix="", report_file="") == Ticket(
        id="B7-EM-01", title="Grad norm overflow to inf for large gradients", severity="P1", batch="7", agent="pytorch",
        created="2025-01-01", updated="2025-01-01",
        files=("/home/john/esper-lite/src/esper/simic/telemetry/emitters.py",), lines="639-650",
        summary="Grad norm overflow to inf for large gradients", report_section='"Detailed Findings Table"',
        categories=frozenset({Category.NUMERICS}),
    )
    assert ticket.wrong.startswith("**Potential NaN in grad norm:** `compute_grad_norm_surrogate()` computes")
    assert next(file.ticket.lines for file in files if file.ticket.id == "B7-GE-01") == ""


@pytest.mark.parametrize(("text", "message"), [
    (b"hello", "is neither a ticket"), (b"\xff\x00", "not UTF-8"), (b"# Finding Ticket: x\n", "has no Ticket ID"),
    (b"# Finding Ticket: x\n\n| Ticket ID | B1-PT-01 |\n|--|--|\n<<<<<<< a\n=======\n>>>>>>> b\n", "merge conflict"),
])
def test_a_file_that_cannot_be_imported_is_reported(tmp_path: Path, text: bytes, message: str) -> None:
    source = tmp_path / "x.txt"
    source.write_bytes(text)
    [result] = import_file(open_store(tmp_path / "docs"), source, "2025-01-01")
    assert isinstance(result, str)
    assert message in result
    assert not (tmp_path / "docs").exists()


def test_a_pipe_or_device_among_tickets_is_not_read(folder: Path) -> None:
    os.mkfifo(folder / "B1-PT-01.md")
    (folder / "B1-PT-02.md").symlink_to("/dev/zero")
    (folder / "B1-PT-03.md").symlink_to(folder / "nowhere")
    store = open_store(folder)
    assert len(store.files) == len(TICKETS)
    assert [problem.message for problem in store.unreadable] == [
        "cannot be read: it is not a regular file", "cannot be read: it is not a regular file",
        "cannot be read: No such file or directory",
    ]


def test_a_pipe_is_not_imported(folder: Path) -> None:
    os.mkfifo(folder / "new.md")
    [reason] = import_file(open_store(folder), folder / "new.md", "2026-01-01")
    assert str(reason).endswith("it is not a regular file")

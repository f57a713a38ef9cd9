"""Tickets of a real program: created from its run, closed when it is fixed, reopened when the finding comes back."""

import shutil
from pathlib import Path

from tests.programs import Done, command, observe, write
from torchtriage.tickets.files.store import open_store
from torchtriage.tickets.model import Ticket

TESTS = Path(__file__).parent.parent
SICK = """
    import torch
    import debug_telemetry

    def act(x):
        y = x * 2
        print("mean", y.mean())
        return y + 1

    compiled = torch.compile(act, backend="eager")
    for _ in range(3):
        compiled(torch.ones(4))
    debug_telemetry.collect_per_layer_gradients(torch.nn.Linear(2, 2))
"""
TELEMETRY = """
    def collect_per_layer_gradients(model):
        return [p.grad for p in model.parameters()]
"""


def ticket(folder: Path, *words: str) -> Done:
    done = command(folder, "ticket", *words)
    assert done.returncode == 0, done.stderr
    return done


def the_ticket(folder: Path, ticket_id: str) -> Ticket:
    return open_store(folder / "docs" / "findings").find(ticket_id).ticket


def test_a_ticket_is_created_closed_and_reopened_with_its_finding(tmp_path: Path) -> None:
    write(tmp_path, TELEMETRY, "debug_telemetry.py")
    assert observe(tmp_path, SICK).codes == ["TT101"]
    ticket(tmp_path, "import", str(TESTS / "unit" / "tickets" / "seeds" / "B7-PT-07.md"))

    done = ticket(tmp_path, "new", "out.triage")
    assert "ticked    B7-PT-07  Verify debug code is not in compiled paths: no compiled function is" in done.stdout
    assert "created   B8-TT-01  P3  docs/findings/B8-TT-01-print-breaks-act.md\n" in done.stdout
    created = the_ticket(tmp_path, "B8-TT-01")
    assert (created.files, created.lines, created.function) == (("train.py",), "6", "act")
    assert created.report_file == "out.triage"
    assert 'print("mean", y.mean())' in created.wrong

    path = next((tmp_path / "docs" / "findings").glob("B8-TT-01*"))
    path.write_text(path.read_text().replace("### Impact\n", "### Impact\n\nMy own words.\n"))
    assert ticket(tmp_path, "new", "out.triage").stdout == ""

    observe(tmp_path, SICK.replace('print("mean", y.mean())', "pass"), flags=["--force"])
    done = ticket(tmp_path, "new", "out.triage")
    ticked = "ticked    B8-TT-01  0 graph breaks at train.py:6 in the next recording: act was compiled once"
    assert ticked in done.stdout
    assert "close?    B8-TT-01  not in out.triage, where act was compiled\n" in done.stdout
    hint = "torchtriage: 1 change proposed; apply with: torchtriage ticket new out.triage --apply\n"
    assert done.stderr.endswith(hint)
    assert the_ticket(tmp_path, "B8-TT-01").status == "open"
    assert "closed    B8-TT-01" in ticket(tmp_path, "new", "out.triage", "--apply").stdout
    assert the_ticket(tmp_path, "B8-TT-01").status == "closed"
    assert "B8-TT-01" not in command(tmp_path, "ticket", "check").stdout

    observe(tmp_path, SICK, flags=["--force"])
    assert "reopened  B8-TT-01  it came back in out.triage\n" in ticket(tmp_path, "new", "out.triage", "--apply").stdout
    back = the_ticket(tmp_path, "B8-TT-01")
    assert (back.status, any(box.is_ticked for box in back.verification)) == ("open", False)
    assert back.impact.startswith("My own words.\n")


def test_a_run_and_lint_confirm_one_ticket_that_a_person_wrote(tmp_path: Path) -> None:
    observe(tmp_path, SICK.replace("    import debug_telemetry\n", "").partition("    debug_telemetry")[0])
    by_hand = ["--title", "Print in act cuts the graph", "--file", "train.py", "--function", "act"]
    ticket(tmp_path, "new", *by_hand, "--category", "torch.compile")
    done = ticket(tmp_path, "new", "out.triage")
    assert 'confirmed B1-CR-01  TT101 at train.py:5: same file, same function, the ticket says "print"' in done.stdout
    assert "created" not in done.stdout
    path = next((tmp_path / "docs" / "findings").iterdir())
    first = path.read_text()
    assert "| **Last seen in** | `out.triage` |" in first
    assert ticket(tmp_path, "new", "out.triage").stdout == ""
    assert "created" not in ticket(tmp_path, "new", "--lint", "train.py").stdout
    assert (path.read_text(), len(list(path.parent.iterdir()))) == (first, 1)


def test_a_trace_and_a_log_create_tickets_only_once(tmp_path: Path) -> None:
    for source in ("traces/train-torch2.13.log", "logs/breaks-torch2.13.log"):
        shutil.copy(TESTS / "recordings" / source, tmp_path / "source.log")
        folder = tmp_path / source.replace("/", "-")
        assert "created   B1-TT-01" in ticket(tmp_path, "new", "source.log", "--folder", str(folder)).stdout
        before = {path: path.read_bytes() for path in folder.iterdir()}
        assert "created" not in ticket(tmp_path, "new", "source.log", "--folder", str(folder)).stdout
        assert {path: path.read_bytes() for path in folder.iterdir()} == before
        assert open_store(folder).problems() == []

"""`torchtriage review` of a program and of a recorded run of it: one hazard is one ticket."""

import subprocess
from pathlib import Path

import pytest

from tests.programs import TORCHTRIAGE, environment, write

pytestmark = pytest.mark.thorough

PROGRAM = """
    import torch


    def act(x):
        y = x * 2
        print("mean", y.mean())
        return y + 1


    def other(x):
        print("no call reaches this")
        return x


    compiled = torch.compile(act, backend="eager")
    unused = torch.compile(other, backend="eager")
    for _ in range(3):
        compiled(torch.ones(4))
"""


def triage(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [*TORCHTRIAGE, *words], cwd=folder, env=environment(), capture_output=True, text=True, timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_source_and_the_run_are_reviewed_together(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "app").mkdir()      # the run names paths below the script's folder, the source those of the project
    write(tmp_path / "app", PROGRAM)
    assert triage(tmp_path, "review", "app/train.py").count("created   B1-TT-") == 2
    triage(tmp_path, "run", "-q", "-o", "a.triage", "app/train.py")

    # The ticket of the source gains the evidence of the run; what only the run shows is new.
    out = triage(tmp_path, "review", "app/train.py", "--recording", "a.triage")
    assert "confirmed B1-TT-01  TT101 by a.triage" in out
    assert out.count("created   B1-TT-03") == out.count("created") == 1
    triage(tmp_path, "ticket", "check")

    # Reviewed together from the start: as many tickets, and one for the break that both show.
    words = ("review", "app/train.py", "--batch", "2", "--folder", "together")
    out = triage(tmp_path, *words, "--recording", "a.triage")
    assert out.count("created   B2-TT-") == 3
    [both] = [p.read_text() for p in (tmp_path / "together").glob("B2-*act*.md")]
    assert "seen in this run and in the source" in both
    [unseen] = [p.read_text() for p in (tmp_path / "together").glob("B2-*breaks-other*.md")]
    assert "not seen in a.triage" in unseen
    text = (tmp_path / "together" / "batch-2-review.md").read_text()
    assert "and what torch compiled in a.triage" in text
    for again in ((*words, "--recording", "a.triage"), words):      # with the run, and with the source alone
        assert "created" not in triage(tmp_path, *again)
    triage(tmp_path, "ticket", "check", "--folder", "together")

"""`torchtriage fix` on real programs, as a user runs it: diffs, --apply, refusals, trials."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = '''\
"""A sick program."""
import torch
from torch import nn   # layers


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear( 4, 4 )     # small

    def forward(self, x):
        # a message
        print("input", x.shape, x.abs().max())   # to be seen
        assert (x < 9).all(), f"too large: {x.max()}"
        scale = self.linear(x).abs().max().item()
        return self.linear(x) / scale


torch.manual_seed(0)
net = torch.compile(Net(), backend="eager", dynamic=False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for rows in (3, 4, 5, 6):
    loss = net(torch.ones(rows, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.5f}")
'''


def triage(folder: Path, *words: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torchtriage", *words], cwd=folder, capture_output=True, text=True, timeout=900,
        **settings,
    )


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words], cwd=folder, check=True,
        capture_output=True, text=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program, committed, and its recording."""
    folder = tmp_path_factory.mktemp("project").resolve()
    (folder / "train.py").write_text(PROGRAM)
    (folder / ".gitignore").write_text("*.triage\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    done = triage(folder, "run", "-q", "-o", "train.triage", "train.py")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def project(recorded: Path) -> Any:
    """The same folder; what a test changes in it is undone, as the recording holds its path."""
    yield recorded
    shutil.rmtree(recorded / ".git")
    (recorded / "train.py").write_text(PROGRAM)
    git(recorded, "init", "-q")
    git(recorded, "add", ".")
    git(recorded, "commit", "-qm", "first")


def test_each_finding_has_a_diff_with_its_label(recorded: Path) -> None:
    done = triage(recorded, "fix", "train.triage")
    assert done.returncode == 0, done.stderr
    assert "[safe: cannot change a number] `if not torch.compiler.is_compiling():` around the message" in done.stdout
    assert "+        if not torch.compiler.is_compiling():\n" in done.stdout
    assert "[safe: cannot change a number] `torch._assert_async((x < 9).all(), 'too large')`" in done.stdout
    assert "[review: read it before you apply it] `self.linear(x).abs().max().detach()`" in done.stdout
    assert "to apply 4 edits (safe or setting): torchtriage fix train.triage --apply" in done.stdout
    assert (recorded / "train.py").read_text() == PROGRAM


def test_the_same_as_json(recorded: Path) -> None:
    done = triage(recorded, "fix", "train.triage", "--format", "json", "--select", "TT101")
    data = json.loads(done.stdout)
    (finding,) = data["findings"]
    assert (finding["code"], finding["edits"][0]["label"]) == ("TT101", "safe")
    assert finding["edits"][0]["diff"].startswith("--- a/train.py\n+++ b/train.py\n")
    assert data["together"]["diff"] == finding["edits"][0]["diff"]
    assert data["written"] == []


def test_applied_edits_cure_and_keep_the_rest_of_the_file(project: Path, tmp_path: Path) -> None:
    done = triage(project, "fix", "train.triage", "--apply")
    assert done.returncode == 0, done.stderr
    assert "wrote train.py" in done.stdout
    text = (project / "train.py").read_text()
    for kept in ('"""A sick program."""', "nn   # layers", "nn.Linear( 4, 4 )     # small", "# a message",
                 "# to be seen"):
        assert kept in text
    assert git(project, "diff", "--stat").startswith(" train.py")
    again = triage(project, "run", "--format", "json", "-o", str(tmp_path / "again.triage"), "train.py")
    printed, _, report = again.stdout.partition("{")
    codes = {f["code"] for f in json.loads("{" + report)["findings"] if f["severity"] < "P4"}
    assert not codes & {"TT101", "TT103", "TT104", "TT202"}
    before = triage(project, "run", "-q", "-o", str(tmp_path / "x.triage"), "--", sys.executable, "-c", PROGRAM)
    result = re.compile(r"result (\S+)")
    assert result.search(printed)[1] == result.search(before.stdout)[1]  # type: ignore[index]


def test_a_patch_is_written_instead(recorded: Path, tmp_path: Path) -> None:
    patch = tmp_path / "cure.patch"
    done = triage(recorded, "fix", "train.triage", "--label", "safe", "-o", str(patch))
    assert done.returncode == 0, done.stderr
    git(recorded, "apply", "--check", str(patch))
    assert "is_compiling" in patch.read_text()
    assert "capture_scalar_outputs" not in patch.read_text()
    again = triage(recorded, "fix", "train.triage", "-o", str(patch))
    assert (again.returncode, "overwrite it with --force" in again.stderr) == (2, True)


def test_a_file_with_uncommitted_changes_is_not_written_without_force(project: Path) -> None:
    path = project / "train.py"
    path.write_text(PROGRAM + "\n# mine\n")
    done = triage(project, "fix", "train.triage", "--apply")
    assert done.returncode == 2
    assert "nothing was written" in done.stderr
    assert "has uncommitted changes" in done.stderr
    assert path.read_text() == PROGRAM + "\n# mine\n"
    assert triage(project, "fix", "train.triage", "--apply", "--force").returncode == 0
    assert path.read_text().endswith("\n# mine\n")


def test_without_git_nothing_is_written_without_force(project: Path) -> None:
    shutil.move(project / ".git", project / "git-away")
    try:
        done = triage(project, "fix", "train.triage", "--apply")
    finally:
        shutil.move(project / "git-away", project / ".git")
    assert done.returncode == 2
    assert "is not in a git repository" in done.stderr


@pytest.mark.parametrize(("text", "reason"), [
    (PROGRAM.replace("x.shape, ", ""), "changed since the recording"),
    (PROGRAM.replace("def __init__(self):", "def __init__(self:"), "changed since the recording|not valid Python"),
])
def test_a_file_that_changed_is_not_edited(text: str, reason: str, project: Path) -> None:
    (project / "train.py").write_text(text)
    done = triage(project, "fix", "train.triage", "--apply", "--force")
    assert done.returncode == 0
    assert re.search(reason, done.stdout)
    assert "4 findings, 0 with an edit" in done.stdout or "5 findings, 0 with an edit" in done.stdout
    assert (project / "train.py").read_text() == text


def test_a_file_outside_of_the_working_folder_is_refused(recorded: Path, tmp_path: Path) -> None:
    done = triage(tmp_path, "fix", str(recorded / "train.triage"))
    assert "is outside of the project" in done.stdout
    assert "run fix in its folder" in done.stdout


def test_line_endings_of_windows_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(PROGRAM.replace("    ", "\t").replace("\n", "\r\n").encode())
    assert triage(tmp_path, "run", "-q", "-o", "train.triage", "train.py").returncode == 0
    done = triage(tmp_path, "fix", "train.triage", "--apply", "--force")
    assert "wrote train.py" in done.stdout, done.stdout + done.stderr
    content = path.read_bytes()
    assert content.count(b"\n") == content.count(b"\r\n")
    assert b"\t\tif not torch.compiler.is_compiling():\r\n\t\t\tprint(" in content


@pytest.mark.parametrize(("words", "message"), [
    (["fix"], "no recording; make one with"),
    (["fix", "train.py"], "is a script, not a recording; try: torchtriage fix --verify train.py"),
    (["fix", "nowhere.triage"], "nothing at nowhere.triage"),
    (["fix", "train.triage", "--label", "best"], "use safe, setting and review"),
    (["fix", "train.triage", "--format", "html"], "fix has no format 'html'"),
    (["fix", "train.triage", "--budget", "5m"], "--budget is for trials"),
    (["fix", "train.triage", "--appply"], "did you mean --apply?"),
    (["fix", "--verify"], "--verify needs a script"),
    (["fix", "--verify", "gone.py"], "no script at gone.py"),
    (["fix", "train.py", "--verify", "train.py"], "is not a .triage folder; the proofs of --verify are kept in one"),
    (["fix", "--apply", "--verify", "train.py"], "apply it with git apply"),
])
def test_wrong_words_end_with_what_to_do(words: list[str], message: str, recorded: Path) -> None:
    done = triage(recorded, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_without_libcst_the_message_names_the_extra(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "libcst.py").write_text("raise ImportError('no libcst here')\n")
    done = triage(recorded, "fix", "train.triage", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2
    assert "pip install torchtriage[fix]" in done.stderr


SMALL = '''\
import torch


@torch.compile(backend="eager")
def f(x):
    print("largest", x.abs().max())
    return x.relu() + x.mean().item()


torch.manual_seed(0)
total = sum(f(torch.randn(4)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
'''


@pytest.mark.thorough
def test_trials_keep_what_is_proven_and_leave_a_patch(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL)
    triage(tmp_path, "run", "-q", "-o", "small.triage", "small.py")
    done = triage(tmp_path, "fix", "small.triage", "--format", "json", "--budget", "10m", "--verify", "small.py")
    assert done.returncode == 0, done.stderr
    assert "2 proofs kept in small.triage" in done.stderr
    report = json.loads(triage(tmp_path, "report", "small.triage", "--format", "json").stdout)
    assert {f["code"]: f["verified"] for f in report["findings"] if f["severity"] < "P4"} == {
        "TT101": True, "TT104": True}
    data = json.loads(done.stdout)
    assert {f["code"]: f["verified"] for f in data["findings"]} == {"TT101": True, "TT104": True}
    assert data["together"]["verdict"] == "verified"
    assert (tmp_path / "small.py").read_text() == SMALL
    assert data["patch_path"] == "small-fix.patch"
    git(tmp_path, "init", "-q")
    git(tmp_path, "apply", "small-fix.patch")
    text = (tmp_path / "small.py").read_text()
    assert "is_compiling" in text or "reorderable_logging_functions" in text    # the first one that is verified
    assert ".detach()" in text


@pytest.mark.thorough
def test_ctrl_c_leaves_what_was_shown_so_far(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL)
    command = [sys.executable, "-m", "torchtriage", "fix", "--verify", "small.py"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "trying" in line:
            break
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Ctrl-C ended the trials" in out
    assert "not tried" in out
    assert "Traceback" not in err


@pytest.mark.thorough
def test_a_program_that_fails_is_reported(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import torch\nraise SystemExit('no data')\n")
    done = triage(tmp_path, "fix", "--verify", "broken.py")
    assert "no edit was tried" in done.stdout
    assert not list(tmp_path.glob("*.patch"))

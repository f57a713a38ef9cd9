"""Bad input gets a clear error and loses nothing: the program, its status, its traceback, its recording."""

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.programs import TORCHTRIAGE, WAIT_FOR_BREAKS, Outcome, command, environment, observe, plain, write

AS_ROOT = os.geteuid() == 0
BREAK = """\
import torch
@torch.compile(backend="eager")
def f(x):
    print("inside")
    return x + 1
f(torch.ones(2))
"""


@contextmanager
def started(folder: Path, source: str, *flags: str) -> Iterator["subprocess.Popen[str]"]:
    """`torchtriage run` in a separate process group, from the moment the script has printed "ready"."""
    script = write(folder, source)
    words = [*TORCHTRIAGE, "run", "-o", str(folder / "out.triage"), *flags, script.name]
    child = subprocess.Popen(
        words,
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    try:
        while (line := child.stdout.readline()) != "ready\n":
            assert line, "the program ended before it was ready"
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def outcome(child: "subprocess.Popen[str]", folder: Path) -> Outcome:
    stdout, stderr = child.communicate(timeout=600)
    return Outcome(child.returncode, stdout, stderr, folder / "out.triage")


# The script

def test_a_missing_script_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    done = command(tmp_path, "run", "-o", "out", "nowhere.py")
    assert done.returncode == 2
    assert "no script at nowhere.py" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(AS_ROOT, reason="root may read everything")
def test_an_unreadable_script_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "print(1)").chmod(0)
    done = command(tmp_path, "run", "train.py")
    assert done.returncode == 2
    assert "cannot read train.py: permission denied" in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    "source",
    [
        "raise ValueError('mine')",
        "def f():\n    1 / 0\nf()",
        "x = (",
        "import sys; sys.exit(3)",
        "import sys; sys.exit('a message')",
        "import os; os._exit(5)",
        "import os; os.abort()",
        "raise KeyboardInterrupt",
        "import nowhere",
        "raise ExceptionGroup('two', [ValueError(1), KeyError(2)])",
        "b'\\xff'.decode()",
    ],
)
def test_a_script_fails_as_it_does_without_torchtriage(source: str, tmp_path: Path) -> None:
    script = write(tmp_path, source)
    alone = plain(tmp_path, script)
    seen = observe(tmp_path, source, flags=["-q"])
    assert seen.stderr == alone.stderr
    assert seen.status == (alone.returncode if alone.returncode >= 0 else 128 - alone.returncode)
    assert seen.status != 0


def test_a_directory_is_run_as_python_would_run_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").mkdir()
    alone = plain(tmp_path, tmp_path / "train.py")
    seen = command(tmp_path, "run", "-q", "-o", "out", "train.py")
    assert (seen.returncode, seen.stderr) == (alone.returncode, alone.stderr)
    assert "can't find '__main__' module" in seen.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("place", "body"),
    [
        ("_C.py", "raise ImportError('libtorch.so: cannot open shared object file')"),
        ("_C.py", "raise RuntimeError('no driver')"),
        ("_logging/_internal.py", "x = ("),
        ("_dynamo/__init__.py", "import nowhere"),
        ("_dynamo/__init__.py", "raise RuntimeError('later')"),
    ],
)
def test_a_broken_torch_fails_as_it_does_without_torchtriage(body: str, place: str, tmp_path: Path) -> None:
    """The awaited modules are imported through a loader of torchtriage, which must not be in the traceback."""
    write_torch(tmp_path / "torch", {place: body})
    script = write(tmp_path, "import torch")
    alone = plain(tmp_path, script)
    seen = observe(tmp_path, "import torch", flags=["-q"])
    assert "Error" in alone.stderr
    assert seen.stderr == alone.stderr
    assert seen.status == alone.returncode == 1


def write_torch(folder: Path, bodies: dict[str, str]) -> None:
    """A package with the awaited module names, with only these bodies in it."""
    sources = {"__init__.py": "import torch._C\nimport torch._logging._internal\nimport torch._dynamo\n"}
    for name in ("_C.py", "_logging/__init__.py", "_logging/_internal.py", "_dynamo/__init__.py"):
        sources[name] = bodies.get(name, "")
    for name, text in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.thorough
def test_errors_of_torch_have_no_frame_of_torchtriage(tmp_path: Path) -> None:
    source = """
        import sys, traceback, torch
        def attempt(function, *args, **kwargs):
            try:
                function(*args, **kwargs)
            except Exception:
                traceback.print_exc()
        def prints(x):
            print("inside")
            return x + 1
        def wrong_shape(x):
            return x @ torch.ones(3, 3)
        def fails_when_run(x, i):
            return torch.index_select(x, 0, i)
        def broken_backend(graph, inputs):
            raise ZeroDivisionError("in the backend")
        attempt(torch._dynamo.optimize, "nowhere")
        attempt(torch.compile, prints, backend="nowhere")
        attempt(torch.compile(prints, backend="eager", fullgraph=True), torch.ones(2))
        attempt(torch.compile(wrong_shape, backend="eager"), torch.ones(2, 2))
        attempt(torch.compile(fails_when_run, backend="eager"), torch.ones(2), torch.tensor([7]))
        attempt(torch.compile(prints, backend=broken_backend), torch.ones(2))
        torch.optim.SGD([torch.ones(1, requires_grad=True)]).step(lambda: 1 / 0)
        """
    script = write(tmp_path, source)
    alone = plain(tmp_path, script)
    assert alone.stderr.count("Traceback") >= 7
    for flags in (["-q"], ["-q", "--measure", "-f"]):
        seen = observe(tmp_path, source, flags=flags)
        assert without_stamps(seen.stderr) == without_stamps(alone.stderr)
        assert seen.status == alone.returncode == 1


def without_stamps(log: str) -> str:
    """torch's log lines begin with the time and the process."""
    return re.sub(r"^([VIWE])\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ ", r"\1 ", log, flags=re.M)


def test_ctrl_c_reaches_the_program_and_findings_are_still_printed(tmp_path: Path) -> None:
    source = BREAK + """\
import time
try:
    print("ready", flush=True)
    time.sleep(60)
finally:
    print("finally ran", flush=True)
"""
    with started(tmp_path, source) as child:
        os.killpg(child.pid, signal.SIGINT)
        seen = outcome(child, tmp_path)
    assert seen.status == 130
    assert "finally ran" in seen.stdout
    assert "TT101" in seen.stdout
    assert "KeyboardInterrupt" in seen.stderr
    assert "torchtriage/" not in seen.stderr
    assert seen.codes == ["TT101"]


@pytest.mark.thorough
def test_a_program_that_catches_ctrl_c_continues(tmp_path: Path) -> None:
    source = """
        import sys, time
        try:
            print("ready", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print("caught", flush=True)
            sys.exit(7)
        """
    with started(tmp_path, source) as child:
        os.killpg(child.pid, signal.SIGINT)
        seen = outcome(child, tmp_path)
    assert seen.status == 7
    assert seen.stdout.startswith("caught\n")


@pytest.mark.thorough
def test_sigterm_is_passed_on_to_the_program(tmp_path: Path) -> None:
    source = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(9)))
        print("ready", flush=True)
        time.sleep(60)
        """
    with started(tmp_path, source) as child:
        child.terminate()
        seen = outcome(child, tmp_path)
    assert seen.status == 9
    assert seen.stdout.startswith("asked to end\n")


@pytest.mark.thorough
def test_a_killed_program_leaves_a_recording_that_says_it_did_not_end(tmp_path: Path) -> None:
    source = BREAK + WAIT_FOR_BREAKS + "import signal\nwait_for_breaks(1)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    seen = observe(tmp_path, source)
    assert seen.status == 137
    assert sorted(seen.codes) == ["TT101", "TT902"]
    assert seen.report["run"]["exit_status"] == 137
    assert "TT902" in seen.stdout


@pytest.mark.thorough
def test_os_exit_loses_no_event(tmp_path: Path) -> None:
    seen = observe(tmp_path, BREAK + "import os\nos._exit(5)\n")
    assert seen.status == 5
    assert seen.codes == ["TT101"]
    assert seen.report["totals"]["compiles"] == 2


# Torch

def test_a_program_without_torch_gets_a_message(tmp_path: Path) -> None:
    seen = observe(tmp_path, "print('done')")
    assert seen.status == 0
    assert seen.stdout.startswith("done\n")
    assert "torch was never imported" in seen.finding("TT903")["title"]


def test_a_command_that_is_not_python_gets_a_message(tmp_path: Path) -> None:
    done = command(tmp_path, "run", "-o", "out", "--", "true")
    assert done.returncode == 0
    assert "no process joined" in done.stdout


def test_a_program_that_never_compiles_learns_what_was_observed(tmp_path: Path) -> None:
    write(tmp_path, "import torch; torch.ones(2).sum()")
    direct = command(tmp_path, "run", "-o", "direct", "train.py")
    below = command(tmp_path, "run", "-o", "below", "--", "sh", "-c", f"{sys.executable} train.py; true")
    for done in (direct, below):
        assert done.returncode == 0
        assert "no findings" in done.stdout
        assert "watched: " in done.stdout
        assert "trace" in done.stdout.split("watched: ")[1]
        assert "never imported" not in done.stdout


@pytest.mark.thorough
def test_a_python_without_torch_keeps_its_import_error(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=600)
    python = tmp_path / "bare" / "bin" / "python"
    site = next((tmp_path / "bare").glob("lib/python*/site-packages"))
    root = Path(__file__).parents[2]
    (site / "src.pth").write_text(f"{root / 'src'}\n")
    shutil.copy(root / "torchtriage.pth", site)
    write(tmp_path, "import torch")
    alone = subprocess.run(
        [python, "train.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=600
    )
    assert "No module named 'torch'" in alone.stderr
    done = command(tmp_path, "run", "-q", "-o", "out", "--", str(python), "train.py")
    assert (done.returncode, done.stderr) == (1, alone.stderr)
    assert "torch was never imported" in done.stdout


# The output

def test_an_earlier_run_is_kept_without_force_and_replaced_with_it(tmp_path: Path) -> None:
    script = write(tmp_path, "print('ran')")
    assert command(tmp_path, "run", "-o", "out", script.name).returncode == 0
    before = sorted((p.name, p.stat().st_mtime_ns) for p in (tmp_path / "out.triage").iterdir())
    refused = command(tmp_path, "run", "-o", "out", script.name)
    assert refused.returncode == 2
    assert "earlier run" in refused.stderr
    assert "--force" in refused.stderr
    assert "ran" not in refused.stdout
    assert before == sorted((p.name, p.stat().st_mtime_ns) for p in (tmp_path / "out.triage").iterdir())
    forced = command(tmp_path, "run", "--force", "-o", "out", script.name)
    assert forced.returncode == 0
    assert "ran" in forced.stdout


@pytest.mark.parametrize("kind", ["folder", "database", "file"])
def test_files_that_are_not_a_recording_are_never_deleted(kind: str, tmp_path: Path) -> None:
    script = write(tmp_path, "print('ran')")
    target = tmp_path / "out.triage"
    kept = target
    if kind != "file":
        target.mkdir()
        kept = target / {"folder": "thesis.tex", "database": "users.sqlite"}[kind]
    kept.write_text("years of work")
    for flags in ([], ["--force"]):
        done = command(tmp_path, "run", *flags, "-o", "out.triage", script.name)
        assert done.returncode == 2
        assert "not a recording" in done.stderr
        assert "ran" not in done.stdout
        assert kept.read_text() == "years of work"


@pytest.mark.parametrize("folder", [".", "1", "thesis"])
def test_a_folder_of_the_user_is_neither_joined_nor_deleted(folder: str, tmp_path: Path) -> None:
    script = write(tmp_path, "print('ran')")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    done = plain(tmp_path, script, env={"TORCHTRIAGE": folder})
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "such as run.triage; the program runs unobserved" in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.thorough
@pytest.mark.parametrize("output", ["/proc/x.triage", "train.py/x.triage", "full"])
def test_the_script_runs_even_if_the_output_cannot_be_written(output: str, tmp_path: Path) -> None:
    script = write(tmp_path, "import os, sys; print('ran', os.environ.get('TORCHTRIAGE')); sys.exit(4)")
    words = [*TORCHTRIAGE, "run", "-o", output, script.name]
    if output == "full":    # a file may have only the run id, as on a full disk
        words = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *words]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 4, done.stderr
    assert done.stdout == "ran None\n"
    assert "cannot write" in done.stderr
    assert "runs unobserved" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_the_script_continues_if_the_disk_fills_up(tmp_path: Path) -> None:
    source = """
        import sys, torch
        torch._dynamo.config.recompile_limit = 100
        @torch.compile(backend="eager", dynamic=False)
        def f(x):
            return x + 1
        for size in range(2, 60):
            f(torch.ones(size))
        print("ran")
        sys.exit(3)
        """
    script = write(tmp_path, source)
    words = ["sh", "-c", 'ulimit -f 200; exec "$@"', "sh", *TORCHTRIAGE, "run", "-o", "out", script.name]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 3
    assert done.stdout.startswith("ran\n")
    assert "TT904" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("output", ["/proc/x.triage", "out"])
def test_a_command_that_does_not_exist_is_named_and_leaves_nothing(output: str, tmp_path: Path) -> None:
    done = command(tmp_path, "run", "-o", output, "--", "no-such-command")
    assert done.returncode == 2
    assert "cannot start no-such-command" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


# Words and settings

@pytest.mark.parametrize(("words", "said"), [
    (["run"], "nothing to run"),
    (["run", "--no-such-flag", "train.py"], "--no-such-flag"),
    (["report", "--no-such-flag", "x"], "--no-such-flag"),
    (["report"], "the following arguments are required"),
    (["no-such-command"], "invalid choice: 'no-such-command'"),
    ([], "COMMAND"),
    (["explain", "TT999"], "no rule 'TT999'"),
    (["explain", "TT30I"], "did you mean TT"),
    (["explain", "GB9999"], "no GB9999"),
    (["report", "nowhere.triage"], "nothing at nowhere.triage"),
    (["report", ".", "--fail-on", "P9"], "must be P0, P1, P2, P3, P4 or never, got 'P9'"),
    (["report", ".", "--format", "xml"], "invalid choice: 'xml'"),
    (["report", "."], "holds no recording and no trace"),
    (["report", "-", "--update-baseline"], "add --baseline FILE"),
    (["report", "-", "--baseline", "nowhere.json"], "nowhere.json"),
])
def test_wrong_arguments_exit_with_2_and_say_what_to_do(words: list[str], said: str, tmp_path: Path) -> None:
    done = command(tmp_path, *words, stdin="")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("table", "said"), [
    ("fail_on = 'P1'", "did you mean 'fail-on'?"),
    ("wibble = 1", "valid keys: select"),
    ("fail-on = 'P7'", "must be P0, P1, P2, P3, P4 or never"),
    ("select = 3", "must be a list of codes, got 3"),
    ("color = 'pink'", "must be one of auto, always, never"),
    ("measure = 'yes'", "must be true or false"),
    ("format = 'xml'", "must be one of text, json"),
    ("not toml", "cannot read"),
])
def test_wrong_settings_exit_with_2_and_name_the_file(table: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.torchtriage]\n{table}\n")
    write(tmp_path, "print('ran')")
    done = command(tmp_path, "run", "-o", "out", "train.py")
    assert done.returncode == 2
    assert said in done.stderr
    assert "pyproject.toml" in done.stderr
    assert "ran" not in done.stdout
    assert not (tmp_path / "out.triage").exists()


# What is read

@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording and, beside it, the TORCH_TRACE folder of the same run."""
    folder = tmp_path_factory.mktemp("recorded")
    seen = observe(folder, BREAK, env={"TORCH_TRACE": str(folder / "trace")})
    assert seen.status == 0
    return seen.folder


def copied(recording: Path, folder: Path) -> Path:
    return Path(shutil.copytree(recording, folder / "copy.triage"))


def process_file(folder: Path) -> Path:
    return next(p for p in folder.glob("*.sqlite") if p.name != "launcher.sqlite")


def test_a_newer_recording_is_refused_with_what_to_do(recording: Path, tmp_path: Path) -> None:
    folder = copied(recording, tmp_path)
    with sqlite3.connect(process_file(folder)) as db:
        db.execute("update facts set value = '99' where key = 'schema'")
    done = command(tmp_path, "report", str(folder))
    assert done.returncode == 2
    assert "has schema 99" in done.stderr
    assert "upgrade torchtriage" in done.stderr
    assert done.stdout == ""


def test_an_event_of_a_later_version_is_counted(recording: Path, tmp_path: Path) -> None:
    folder = copied(recording, tmp_path)
    with sqlite3.connect(process_file(folder)) as db:
        db.execute("insert into events (kind, payload) values ('telepathy', '{}')")
    done = command(tmp_path, "report", str(folder), "--format", "json")
    assert done.returncode == 0
    assert {f["code"] for f in json.loads(done.stdout)["findings"]} == {"TT101", "TT906"}


@pytest.mark.parametrize("damage", ["text", "empty", "cut", "zeroed", "no tables"])
def test_a_damaged_file_is_named(damage: str, recording: Path, tmp_path: Path) -> None:
    folder = copied(recording, tmp_path)
    path = process_file(folder)
    whole = path.read_bytes()
    if damage == "no tables":
        path.unlink()
        sqlite3.connect(path).close()
        path.touch()
    else:
        path.write_bytes({"text": b"not a database at all" * 100, "empty": b"", "cut": whole[: len(whole) // 2 - 100],
                          "zeroed": whole[:4096] + b"\0" * (len(whole) - 4096)}[damage])
    done = command(tmp_path, "report", str(folder))
    assert done.returncode == 2
    assert path.name in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("value", ["{", "7"])
def test_a_damaged_fact_is_left_out_and_reported(value: str, recording: Path, tmp_path: Path) -> None:
    folder = copied(recording, tmp_path)
    with sqlite3.connect(process_file(folder)) as db:
        db.execute("update facts set value = ? where key = 'your_roots'", (value,))
    done = command(tmp_path, "report", str(folder), "--format", "json")
    assert done.returncode == 0, done.stderr
    found = {f["code"]: f["title"] for f in json.loads(done.stdout)["findings"]}
    assert set(found) == {"TT101", "TT908"}
    assert found["TT908"].startswith("your_roots of process ")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n\n",
        random.Random(0).randbytes(5000),
        b"{" * 10_000,
        b"\0" * 10_000,
        b"\xff\xfe\x00caf\xe9 [__recompiles] Recompiling function caf\xe9\n\x80\x81",
        b"V9999 99:99:99.999999 1 torch/_dynamo/x.py:1] [0/0] [__recompiles] Recompiling",
        b'V1115 23:29:16.365000 1 torch/x.py:1] {"dynamo_start": ',
        b'V1115 23:29:16.365000 1 torch/x.py:1] {"artifact": {"name": 3}, "frame_id": {}}\n\tx\n',
        b'V1115 23:29:16.365000 1 torch/x.py:1] {"compilation_metrics": [], "rank": "x"}\n',
        b'V1115 23:29:16.365000 1 torch/x.py:1] '
        b'{"compilation_metrics": {"duration_us": "x", "co_name": 3}, "frame_id": 0}\n',
        b'V1115 23:29:16.365000 1 torch/x.py:1] '
        b'{"dynamo_start": {"stack": [{"filename": [], "line": "x", "name": null}]}, "frame_id": 0}\n',
        b'V1115 23:29:16.365000 1 torch/x.py:1] {"create_symbol": {"source": 3, "val": []}, "rank": {}}\n',
        b'V0000 99:99:99.365000 1 torch/x.py:1] {"dynamo_start": {"stack": [1]}}\n',
    ],
    ids=range(14),
)
def test_any_bytes_are_reported_on_or_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(content)
    done = command(tmp_path, "report", "input")
    is_of_torch = b"torch/" in content or b"[__recompiles]" in content
    is_empty = not content.strip()
    assert done.returncode == (0 if is_of_torch or is_empty else 2), done.stderr
    assert bool(done.stdout) == (done.returncode == 0)
    assert "Traceback" not in done.stderr
    piped = subprocess.run(
        [*TORCHTRIAGE, "report", "-"], input=content, env=environment(), capture_output=True, timeout=600
    )
    assert piped.returncode == done.returncode, piped.stderr


@pytest.mark.thorough
def test_any_folder_is_reported_on_or_refused(tmp_path: Path) -> None:
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "folder" / "below" / "image.png").write_bytes(random.Random(1).randbytes(5000))
    (tmp_path / "folder" / "loop").symlink_to(tmp_path / "folder")
    (tmp_path / "folder" / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "folder" / "pipe")
    done = command(tmp_path, "report", "folder")
    assert done.returncode == 2
    assert "holds no recording and no trace" in done.stderr


@pytest.mark.thorough
def test_a_trace_cut_anywhere_is_read_up_to_there(recording: Path, tmp_path: Path) -> None:
    from torchtriage.commands.report import read_source
    from torchtriage.diagnosis.report import build_report

    whole = next((recording.parent / "trace").glob("*.log")).read_bytes()
    path = tmp_path / "cut.log"
    num_events = 0
    for size in [*range(0, len(whole), 997), len(whole)]:
        path.write_bytes(whole[:size])
        report = build_report(read_source(str(path)), with_events=True)
        assert len(report.events.get("graph_breaks", ())) >= num_events
        num_events = len(report.events.get("graph_breaks", ()))
    assert num_events == 1
    assert [f.code for f in report.findings] == ["TT101"]


@pytest.mark.thorough
def test_a_trace_with_any_value_in_any_field_is_read(recording: Path, tmp_path: Path) -> None:
    from torchtriage.commands.base import rendered
    from torchtriage.commands.report import read_source
    from torchtriage.diagnosis.report import build_report

    lines = next((recording.parent / "trace").glob("*.log")).read_text().split("\n")
    heads = [number for number, line in enumerate(lines) if "] {" in line and not line.startswith("\t")]
    for seed in range(100):
        rng = random.Random(seed)
        wild = list(lines)
        for number in rng.sample(heads, 10):
            prefix, _, text = wild[number].partition("] ")
            wild[number] = f"{prefix}] {json.dumps(with_a_wild_value(json.loads(text), rng))}"
        (tmp_path / "wild.log").write_text("\n".join(wild))
        report = build_report(read_source(str(tmp_path / "wild.log")), with_events=True)
        for format_ in ("text", "json"):
            assert rendered(report, format_, colour=False, verbose=True, next_command="")


def with_a_wild_value(record: Any, rng: random.Random) -> Any:
    """The record with one of its values, at any depth, dropped or replaced by one of another type."""
    inside: Any = record
    while True:
        key = rng.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
        if not isinstance(inside[key], (dict, list)) or not inside[key] or rng.random() < 0.2:
            break
        inside = inside[key]
    if rng.random() < 0.3:
        del inside[key]
    else:
        inside[key] = rng.choice([None, [], {}, "x", -1, 3.5, True, "0/1", [1], {"a": 1}, 10**30, ""])
    return record


def test_a_closed_output_pipe_is_not_an_error(recording: Path, tmp_path: Path) -> None:
    write(tmp_path, "import sys; sys.exit(3)")
    for status, words in [
        (0, ["report", str(recording), "-v"]), (1, ["report", "-q", str(recording), "--fail-on", "P4"]),
        (0, ["report", str(recording), "--format", "json", "--events"]), (0, ["explain"]), (0, ["explain", "TT301"]),
        (3, ["run", "-q", "-o", "out", "train.py"]),
    ]:
        child = subprocess.Popen(
            [*TORCHTRIAGE, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            cwd=tmp_path,
        )
        assert child.stdout is not None
        child.stdout.close()
        assert child.stderr is not None
        assert child.stderr.read() == ""
        assert child.wait(timeout=600) == status


def test_the_report_does_not_touch_the_recording(recording: Path) -> None:
    before = sorted((p.name, p.stat().st_mtime_ns) for p in recording.iterdir())
    time.sleep(0.01)
    assert command(recording.parent, "report", str(recording)).returncode == 0
    assert before == sorted((p.name, p.stat().st_mtime_ns) for p in recording.iterdir())


@pytest.mark.parametrize(
    "text", ["import torch\n\nprint(torch.ones(2))\n", "step,loss\n1,0.5\n2,0.25\n", "MIT License\n"],
)
def test_report_refuses_a_file_without_a_line_of_torch(text: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text(text)
    done = command(tmp_path, "report", "file.txt")
    assert (done.returncode, done.stdout) == (2, "")
    assert "file.txt is not a recording, a trace or a log of torch" in done.stderr

"""One function per reader: it reads a damaged input, which a seed determines, as a user's command does.

A reader may refuse an input with a clear error. It must not end in a traceback, and must not hang.
"""

import copy
import dataclasses
import functools
import json
import os
import random
import shutil
import signal
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, closing, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

from tests.event_files import event_record
from tests.fuzz.damage import NAN, VALUES, damaged_bytes, damaged_json, flipped
from torchtriage.commands.main import main
from torchtriage.config import FORMATS
from torchtriage.errors import TriageError

RECORDINGS = Path(__file__).parents[1] / "recordings"
RUNS = sorted((RECORDINGS / "runs").glob("*.triage"))
TRACES = sorted((RECORDINGS / "traces").glob("*.log"))
LOGS = sorted((RECORDINGS / "logs").glob("*.log"))
TICKETS = sorted((Path(__file__).parents[1] / "unit" / "tickets" / "seeds").glob("*.md"))
SCALARS = {
    "events.out.tfevents.1.host": b"".join(
        event_record(step, {"losses/approx_kl": 0.01, "charts/episodic_return": float(step), "other": 1.0})
        for step in range(40)
    ),
    "progress.csv": b"time/total_timesteps,train/approx_kl,rollout/ep_rew_mean\n"
                    + b"".join(b"%d,0.01,%d\n" % (step, step) for step in range(40)),
    "log.jsonl": b"".join(b'{"step": %d, "loss": 0.5, "values": {"grad_norm": 1}}\n' % step for step in range(40)),
    "trainer_state.json": b'{"log_history": [' + b", ".join(
        b'{"step": %d, "loss": 0.5, "grad_norm": "1.0"}' % step for step in range(40)) + b"]}",
}
SETTINGS = """\
[tool.torchtriage]
select = ["TT1", "TT2"]
fail-on = "never"
format = "text"
measure = false
color = "auto"
[tool.torchtriage.train]
lr = 0.1
hidden = [64, 64]
envs = 8
"""
MAX_SECONDS = 120   # a damaged input takes a second, and more on a busy machine


class HangError(BaseException):
    """A reader did not end; not an Exception, so that no reader can catch it."""


def recording_bytes(draw: random.Random, folder: Path) -> None:
    """A recording in which bytes of a file are wrong, or missing."""
    run = _copy(draw, folder)
    path = draw.choice(sorted(run.iterdir()))
    damage = flipped if path.suffix == ".sqlite" and draw.random() < 0.8 else damaged_bytes
    content = path.read_bytes()
    if content:
        path.write_bytes(damage(draw, content))
    _report(draw, run)


def recording_values(draw: random.Random, folder: Path) -> None:
    """A recording with facts, events, sources or series of a wrong type."""
    run = _copy(draw, folder)
    path = draw.choice(sorted(run.glob("*.sqlite")))
    with closing(sqlite3.connect(path)) as db, db:
        for _ in range(draw.choice([1, 2, 5])):
            try:
                _damage_row(draw, db)
            except (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError):
                continue
    _report(draw, run)


def recording_files(draw: random.Random, folder: Path) -> None:
    """A recording with a link, a pipe, a folder or other content in place of a file."""
    run = _copy(draw, folder)
    names = [path.name for path in run.iterdir()]
    stem = draw.choice(sorted(run.glob("*.sqlite"))).stem
    name = draw.choice([*sorted(names), f"{stem}.error", f"{stem}.sqlite-wal", f"{stem}.sqlite-journal", "x-1.sqlite"])
    path = run / name
    path.unlink(missing_ok=True)
    kind = draw.randrange(5)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(draw.choice(["nowhere", "/dev/zero", "/etc/passwd", name, ".", "/proc/self/mem"]))
    elif kind == 2:
        path.mkdir()
    else:
        other = draw.choice(RUNS) / "launcher.sqlite"
        path.write_bytes(draw.choice([b"", draw.randbytes(5000), other.read_bytes()]))
    _report(draw, run)


def study(draw: random.Random, folder: Path) -> None:
    """A recording with a damaged shape study."""
    studies = [run for run in RUNS if (run / "shapes.json").exists()]
    run = Path(shutil.copytree(draw.choice(studies), folder / "x.triage"))
    value = json.loads((run / "shapes.json").read_text())
    (run / "shapes.json").write_text(damaged_json(draw, value), encoding="utf-8", errors="surrogatepass")
    _report(draw, run)


def proofs(draw: random.Random, folder: Path) -> None:
    """A recording with a damaged file of proofs."""
    run = Path(shutil.copytree(draw.choice(RUNS), folder / "x.triage"))
    value = {"schema": 1, "proofs": [{
        "fingerprint": "f00d", "label": "safe", "text": "`x.detach()`", "numbers": "equal", "num_steps": 8,
        "seconds_before": 0.03, "seconds_after": 0.02, "ratio_low": 0.6, "ratio_high": None, "torch": "2.13.0",
    }]}
    (run / "proofs.json").write_text(damaged_json(draw, value), encoding="utf-8", errors="surrogatepass")
    _report(draw, run)


def trace(draw: random.Random, folder: Path) -> None:
    path = folder / "trace.log"
    lines = draw.choice(TRACES).read_text(errors="replace").splitlines(keepends=True)
    for _ in range(draw.choice([0, 1, 3])):
        index = draw.randrange(len(lines))
        head, brace, rest = lines[index].partition("] {")
        if brace and not head.startswith("\t"):
            lines[index] = head + "] " + damaged_json(draw, json.loads("{" + rest)) + "\n"
    content = "".join(lines).encode("utf-8", "surrogatepass")
    path.write_bytes(damaged_bytes(draw, content) if draw.random() < 0.7 else content)
    _report(draw, path)


def log(draw: random.Random, folder: Path) -> None:
    path = folder / "train.log"
    path.write_bytes(damaged_bytes(draw, draw.choice(LOGS).read_bytes()))
    _report(draw, path)


def scalars(draw: random.Random, folder: Path) -> None:
    """A log of another logger, damaged: an event file, a table, JSON lines, the history of a trainer."""
    name, content = draw.choice(list(SCALARS.items()))
    path = folder / name
    path.write_bytes(damaged_bytes(draw, content))
    _report(draw, path)


def tickets(draw: random.Random, folder: Path) -> None:
    for path in TICKETS:
        content = path.read_bytes()
        (folder / path.name).write_bytes(damaged_bytes(draw, content) if draw.random() < 0.6 else content)
    words = draw.choice([["list"], ["check"], ["list", "--format", "json"], ["report"], ["show", "B7-PT-07"]])
    _command("ticket", *words, "--folder", str(folder))


def baseline(draw: random.Random, folder: Path) -> None:
    value = {"schema": 1, "findings": [{"fingerprint": "0123456789abcdef", "code": "TT101", "title": "a break"}] * 3}
    path = folder / "baseline.json"
    path.write_text(damaged_json(draw, value), encoding="utf-8", errors="surrogatepass")
    if draw.random() < 0.3:
        path.write_bytes(damaged_bytes(draw, path.read_bytes()))
    _command("report", str(LOGS[0]), "--baseline", str(path))


def config(draw: random.Random, folder: Path) -> None:
    from torchtriage.commands.train import settings
    from torchtriage.rl.config import FIELDS, from_file, resolved

    (folder / "pyproject.toml").write_bytes(damaged_bytes(draw, SETTINGS.encode()))
    (folder / "train.toml").write_bytes(damaged_bytes(draw, SETTINGS.partition("train]\n")[2].encode()))
    with chdir(folder):
        _command("explain", "TT101")
        _refused(lambda: resolved(from_file(Path("train.toml"))))
        flags: Any = type("Flags", (), {"config": None, **dict.fromkeys(FIELDS)})
        _refused(lambda: settings(flags))


def checkpoint(draw: random.Random, folder: Path) -> None:
    """Resume from a checkpoint with damaged bytes, or with wrong values in its parts."""
    import torch

    from torchtriage.rl.trainer import Trainer

    settings, content = _checkpoint()
    path = folder / "update-00000001.pt"
    path.write_bytes(content)
    if draw.random() < 0.5:
        damage = draw.choice([flipped, damaged_bytes])
        path.write_bytes(damage(draw, content))
    else:
        saved = torch.load(path, weights_only=True)
        for _ in range(draw.choice([1, 1, 3])):
            _damage_part(draw, saved, [*VALUES, torch.ones(3), b"x"])
        torch.save(saved, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _refused(Trainer(dataclasses.replace(settings, resume=str(folder)))._begin)


READERS: dict[str, Callable[[random.Random, Path], None]] = {
    function.__name__: function
    for function in (
        recording_bytes, recording_values, recording_files, study, proofs, trace, log, scalars, tickets, baseline,
        config, checkpoint)
}


def read_damaged(name: str, seed: int) -> None:
    """Read the input of a seed; raises AssertionError, or the reader's own error, if the reader fails."""
    draw = random.Random(f"{name} {seed}")
    if name == checkpoint.__name__:
        _checkpoint()       # imports torch, which takes long the first time and must not be interrupted
    with tempfile.TemporaryDirectory(prefix="torchtriage-fuzz-") as folder, _alarm():
        READERS[name](draw, Path(folder))


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(received: int, frame: FrameType | None) -> None:
        raise HangError(f"the reader has not ended after {MAX_SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(MAX_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _command(*words: str) -> None:
    stdout, stderr = StringIO(), StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            status = main(words)
        except SystemExit as error:
            status = error.code
    said = stderr.getvalue()
    assert status in (0, 1, 2), f"status {status}"
    assert "Traceback" not in said, said[-3000:]
    assert status != 2 or said.startswith("torchtriage: "), said[:500]


def _report(draw: random.Random, path: Path) -> None:
    flags = [flag for flag in ("--redact", "--events", "--verbose") if draw.random() < 0.3]
    _command("report", str(path), "--format", draw.choice(FORMATS), *flags)


def _refused(read: Callable[[], object]) -> None:
    try:
        read()
    except TriageError:
        pass


def _copy(draw: random.Random, folder: Path) -> Path:
    return Path(shutil.copytree(draw.choice(RUNS), folder / "x.triage"))


def _damage_row(draw: random.Random, db: sqlite3.Connection) -> None:
    table, columns = draw.choice([
        ("facts", ("key", "value", "value", "value")),
        ("events", ("kind", "time", "step", "rank", "pid", "compile_id", "payload", "payload", "payload")),
        ("sources", ("path", "line", "first_line", "text", "qualname")),
        ("series", ("name", "steps", "data")),
    ])
    column = draw.choice(columns)
    rows = db.execute(f"select rowid, {column} from {table}").fetchall()
    if not rows:
        return
    rowid, value = draw.choice(rows)
    if column in ("value", "payload") and draw.random() < 0.8:
        try:
            new: Any = damaged_json(draw, json.loads(value))
        except (TypeError, ValueError):
            return
    else:
        new = draw.choice([None, -1, 2**62, 1e308, NAN, "", "text", "\0", b"", b"\xff" * 7, b"\0\0\xc0\x7f" * 3])
    db.execute(f"update {table} set {column} = ? where rowid = ?", (new, rowid))


def _damage_part(draw: random.Random, part: Any, values: list[Any]) -> None:
    while True:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        key = draw.choice(keys)
        inner = part[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.8:
            part = inner
            continue
        if isinstance(part, dict) and draw.random() < 0.2:
            del part[key]
        else:
            part[key] = copy.deepcopy(draw.choice(values))
        return


@functools.cache
def _checkpoint() -> tuple[Any, bytes]:
    """(config, content) of the checkpoint of a small training."""
    from torchtriage.rl.config import resolved
    from torchtriage.rl.trainer import Trainer

    small = {"compile": "no", "envs": 2, "steps": 8, "batch": 8, "epochs": 1, "hidden": (4,), "total_steps": 16,
             "eval_episodes": 0, "telemetry_level": "OFF"}
    with tempfile.TemporaryDirectory() as folder:
        settings = resolved(small, {"checkpoint": folder})
        Trainer(settings).train()
        [path] = Path(folder).iterdir()
        return settings, path.read_bytes()

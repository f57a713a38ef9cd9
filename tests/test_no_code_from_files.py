"""No file that torchtriage reads can run code: nothing in the package unpickles or evaluates it."""

import ast
import dataclasses
import json
import os
import pickle
import shutil
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.tickets.samples import seed_text
from torchtriage.commands.main import main
from torchtriage.errors import TriageError

PACKAGE = Path(__file__).parent.parent / "src" / "torchtriage"
RECORDINGS = Path(__file__).parent / "recordings"
LOG = RECORDINGS / "logs" / "breaks-torch2.13.log"
MODULES = {"pickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "code", "codeop"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
# Whether an edited file is valid Python; the compiled code is dropped.
CHECKED = {"remedies/rewriting.py": ["compile"]}


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def forbidden(tree: ast.AST) -> Iterator[str]:
    """What in a module could run code from a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            flags = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if name in BUILTINS:
                yield name
            elif name.endswith("torch.load") and flags.get("weights_only") != "True":
                yield "torch.load without weights_only=True"
            elif flags.get("allow_pickle", "False") != "False":
                yield f"{name} with allow_pickle"


@pytest.mark.parametrize("source", [
    "import pickle", "from pickle import loads", "import yaml.loader", "eval('1')", "exec(text)", "torch.load(path)",
    "torch.load(path, weights_only=False)", "np.load(path, allow_pickle=True)", "import shelve as s", "import marshal",
])
def test_the_search_finds_what_runs_code(source: str) -> None:
    assert list(forbidden(ast.parse(source)))


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_in_the_package_runs_what_it_reads(path: Path) -> None:
    found = list(forbidden(ast.parse(path.read_text())))
    assert found == CHECKED.get(path.relative_to(PACKAGE).as_posix(), [])


@pytest.fixture
def payloads(tmp_path: Path) -> list[bytes]:
    """Code in the forms in which Python, YAML and templates would run it."""
    folder = tmp_path / "sprung"
    code = f"__import__('os').mkdir({str(folder)!r})"
    texts = [code, f"{{{code}}}", f"!!python/object/apply:os.mkdir [{str(folder)!r}]"]
    return [*(pickle.dumps(Trap(folder), protocol) for protocol in (0, 2, 5)), *map(str.encode, texts)]


def planted(kind: str, payload: bytes, folder: Path) -> list[str]:
    """A command that reads an input of this kind with the payload in every place that takes text or bytes."""
    text = payload.decode("latin-1")
    if kind == "recording":
        run = Path(shutil.copytree(RECORDINGS / "runs" / "demo-torch2.13.triage", folder / "x.triage"))
        for path in run.glob("*.sqlite"):
            with closing(sqlite3.connect(path)) as db, db:
                for key in ("argv", "cwd", "host", "train", "policy", "x"):
                    db.execute("insert or replace into facts values (?, ?)", (key, json.dumps(text)))
                db.execute("insert into facts values ('raw', ?)", (payload,))
                row = (payload, text)
                db.execute("insert into events (kind, payload, compile_id) values ('graph_break', ?, ?)", row)
                db.execute("insert into series values (?, ?, ?)", (text, payload, payload))
                db.execute("insert into sources values (?, 1, 1, ?, ?)", (text, text, text))
            path.with_suffix(".error").write_bytes(payload)
        (run / "shapes.json").write_bytes(payload)
        (run / "proofs.json").write_bytes(payload)
        (run / "run_id").write_bytes(payload)
        return ["report", str(run), "--format", "html"]
    if kind == "database":
        (folder / "x.triage").mkdir()
        (folder / "x.triage" / "box-1.sqlite").write_bytes(payload)
        return ["report", str(folder / "x.triage")]
    if kind == "log":
        (folder / "x.log").write_bytes(LOG.read_bytes().replace(b"print", payload) + payload)
        return ["report", str(folder / "x.log")]
    if kind == "trace":
        trace = (RECORDINGS / "traces" / "train-torch2.13.log").read_bytes()
        (folder / "x.log").write_bytes(trace.replace(b"print", payload.replace(b"\n", b"\n\t")) + payload)
        return ["report", str(folder / "x.log")]
    if kind == "baseline":
        (folder / "b.json").write_bytes(payload)
        return ["report", str(LOG), "--baseline", str(folder / "b.json")]
    if kind == "tickets":
        (folder / "x.md").write_bytes(seed_text("B7-PT-07").encode().replace(b"torch", payload))
        return ["ticket", "check", "--folder", str(folder)]
    (folder / "pyproject.toml").write_bytes(b"[tool.torchtriage]\nselect = '''" + payload + b"'''\n")
    return ["explain", "TT101"]


@pytest.mark.parametrize("kind", [
    pytest.param("recording", marks=pytest.mark.thorough), "database", "log", "trace", "baseline", "tickets",
    "settings",
])
def test_code_in_a_file_is_not_run(
    kind: str, payloads: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number, payload in enumerate(payloads):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert main(planted(kind, payload, folder)) in (0, 1, 2)
        assert not (tmp_path / "sprung").exists()


@pytest.mark.thorough
def test_code_in_a_checkpoint_is_not_run(payloads: list[bytes], tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    import torch

    from torchtriage.rl.config import resolved
    from torchtriage.rl.trainer import Trainer

    config = resolved({"compile": "no", "envs": 2, "steps": 8, "batch": 8, "epochs": 1, "hidden": (4,),
                       "total_steps": 16, "eval_episodes": 0, "checkpoint": str(tmp_path / "checkpoint")})
    Trainer(config).train()
    [path] = (tmp_path / "checkpoint").iterdir()
    content = path.read_bytes()
    config = dataclasses.replace(config, resume=str(path.parent))

    def resume() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                Trainer(config)._begin()
            except TriageError:
                pass
        assert not (tmp_path / "sprung").exists()

    for payload in payloads:
        path.write_bytes(payload)
        resume()
        path.write_bytes(content)
        saved = torch.load(path, weights_only=True)
        tensor = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        for part in saved["state"]["environments"]["vector"]:
            for value in (tensor, payload, [payload] * 2):
                saved["state"]["environments"]["vector"][part] = value
                torch.save(saved, path)
                resume()

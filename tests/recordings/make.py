"""Makes the recordings in `runs` again with the installed torch: `python tests/recordings/make.py [NAME...]`."""

import importlib.util
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

RUNS = Path(__file__).parent / "runs"
REPOSITORY = RUNS.parents[2]
COMMANDS = {
    "demo": ["demo", "--measure"],
    "explosion": ["run", "explosion.py"],
    "ppo": [
        "train", "--env", "CartPoleNoVel-v1", "--no-compile", "--envs", "4", "--steps", "64", "--batch", "64",
        "--epochs", "20", "--total-steps", "8192", "--lr", "0.05", "--clip", "5", "--max-grad-norm", "1000",
        "--eval-episodes", "1",
    ],
    "shapes": ["shapes", "--budget", "3m", "--rounds", "3", "shapes.py"],
    "shapes_eager": ["shapes", "--budget", "5m", "--rounds", "4", "--backend", "eager", "shapes.py"],
}


def main() -> None:
    for name in sys.argv[1:] or COMMANDS:
        target = RUNS / f"{name}-torch{'.'.join(version('torch').split('.')[:2])}.triage"
        with tempfile.TemporaryDirectory() as folder:
            recording = record(name, Path(folder))
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            for path in sorted(recording.iterdir()):
                copy(path, target / path.name, folder)
        size = sum(path.stat().st_size for path in target.iterdir())
        print(f"{target.name}: {size} bytes", file=sys.stderr)


def record(name: str, folder: Path) -> Path:
    """The recording of one command, made in an empty folder without the caller's settings."""
    for program in RUNS.glob("*.py"):
        shutil.copy(program, folder)
    command, *words = COMMANDS[name]
    env = {"PATH": os.environ["PATH"], "HOME": folder, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "torchtriage", command, "-o", f"{name}.triage", *words],
        cwd=folder, env=env, stdin=subprocess.DEVNULL, check=True,
    )
    return folder / f"{name}.triage"


def copy(source: Path, target: Path, folder: str) -> None:
    """Copy a file without the paths of this machine; a database becomes one compact file."""
    if source.name.endswith(("-wal", "-shm")):
        return
    with source.open("rb") as file:
        is_database = file.read(6) == b"SQLite"
    if not is_database:
        target.write_text(neutral(source.read_text(encoding="utf-8"), folder), encoding="utf-8")
        return
    with sqlite3.connect(source) as db, sqlite3.connect(target) as copied:
        db.backup(copied)
        copied.execute("pragma journal_mode=delete")
        copied.create_function("neutral", 1, lambda text: neutral(text, folder))
        copied.execute("update facts set value = neutral(value)")
        copied.execute("update events set payload = neutral(payload)")
        copied.execute("update sources set path = neutral(path), text = neutral(text)")
        copied.commit()
        copied.execute("vacuum")


def neutral(text: str, folder: str) -> str:
    """The text with neutral names for the folders of the program, the environment, Python and torchtriage."""
    # torch shortens paths from the left, so only the name of the folder itself is certain to be there.
    text = re.sub(rf"[\w./-]*{Path(folder).name}\b", "/app", text)
    packages = f"/venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    replacements = {
        site_packages("torch"): packages,
        str(REPOSITORY / "src"): packages,
        sys.prefix: "/venv",
        sys.base_prefix: "/python",
        str(REPOSITORY): "/torchtriage",
    }
    for path, replacement in replacements.items():
        text = re.sub(rf"{re.escape(path)}(?=[/\"]|$)", replacement, text)
    return text


def site_packages(name: str) -> str:
    """The folder that contains a package, found without importing it."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parents[1])


if __name__ == "__main__":
    main()

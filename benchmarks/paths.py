"""Lists the Python files of torchtriage that a datum passes through, in the order in which they are first called.

Each command runs under a profile function that is installed in all its processes. A file counts if at least one of its
functions is called. Calls while a module is imported and while the flags of all commands are declared do not count, nor
do __init__.py files. The list is an upper bound: it also has the files that start the program, and the rules that look
at the recording and report nothing.

    python benchmarks/paths.py              all paths
    python benchmarks/paths.py --only break
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TORCHTRIAGE = (sys.executable, "-m", "torchtriage")
PACKAGE = Path(__file__).resolve().parent.parent / "src" / "torchtriage"

# Writes each file to $PATHS_LOG/PROCESS_ID when one of its functions is first called. The generated
# methods of a dataclass have no file, so the file of their globals counts.
TRACER = """
import os, sys, threading

if "PATHS_LOG" in os.environ:
    package, files = os.environ["PATHS_PACKAGE"], set()

    def is_import(frame):
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_globals["__name__"] != "__main__":
                return True
            if frame.f_code.co_name == "build_parser":      # every command declares its flags
                return True
            frame = frame.f_back
        return False

    def profile(frame, event, argument):
        if event != "call" or not frame.f_code.co_flags & 1:    # not a function: a module or a class body
            return
        name = frame.f_globals.get("__file__") or ""
        if name.startswith(package) and name not in files and not is_import(frame):
            files.add(name)
            with open(os.path.join(os.environ["PATHS_LOG"], str(os.getpid())), "a") as log:
                log.write(name[len(package) + 1:] + "\\n")

    sys.setprofile(profile)
    threading.setprofile(profile)
"""

BREAK = """
import torch

@torch.compile(backend="eager")
def forward(x):
    y = x + 1
    print("here")
    return y * 2

for _ in range(3):
    forward(torch.ones(2))
"""

TRAINING = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
"""

SIZES = """
import torch

@torch.compile(backend="eager")
def score(x):
    return (x.sin() * x.cos()).sum()

for length in list(range(20, 26)) * 4:
    score(torch.ones(length))
"""

# name: programs to write, commands to run first, the command to trace
PATHS: dict[str, tuple[dict[str, str], list[list[str]], list[str]]] = {
    "break": ({"train.py": BREAK}, [], ["run", "train.py"]),
    "gradient": ({"train.py": TRAINING}, [], ["run", "--html", "train.py"]),
    "shapes": ({"train.py": SIZES}, [], ["shapes", "--budget", "4m", "train.py"]),
    "ticket": (
        {},
        [
            ["ticket", "new", "--title", "A print in the forward", "--file", "train.py", "--folder", "findings"],
            ["ticket", "new", "--title", "Shapes that vary", "--file", "train.py", "--folder", "findings"],
            ["ticket", "report", "-o", "findings/report.md", "--folder", "findings"],
        ],
        ["ticket", "check", "--folder", "findings"],
    ),
}


def files_of(programs: dict[str, str], preparations: list[list[str]], command: list[str]) -> list[str]:
    """The files in the order of their first call; those of the first process come first."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tracer").mkdir()
        (folder / "log").mkdir()
        (folder / "tracer" / "sitecustomize.py").write_text(TRACER)
        for program, text in programs.items():
            (folder / program).write_text(text)
        for words in preparations:
            subprocess.run([*TORCHTRIAGE, *words], cwd=folder, check=True, capture_output=True)
        python_path = os.pathsep.join([str(folder / "tracer"), os.environ.get("PYTHONPATH", "")])
        environment = {
            **os.environ,
            "PYTHONPATH": python_path,
            "PATHS_LOG": str(folder / "log"),
            "PATHS_PACKAGE": str(PACKAGE),
        }
        subprocess.run([*TORCHTRIAGE, *command], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        files: dict[str, None] = {}
        for log in sorted((folder / "log").iterdir(), key=lambda path: int(path.name)):
            files.update(dict.fromkeys(log.read_text().splitlines()))
    return [file for file in files if not file.endswith("__init__.py")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(PATHS))
    options = parser.parse_args()
    for name, (programs, preparations, command) in PATHS.items():
        if options.only in (None, name):
            files = files_of(programs, preparations, command)
            print(f"{name}: torchtriage {' '.join(command)}: {len(files)} files")
            print("\n".join(f"    {file}" for file in files))


if __name__ == "__main__":
    main()

"""Lists the Python files of torchtriage that a datum passes through, in the order in which it reaches them.

Each command runs under a profile function that is installed in all its processes (of a shape study only in the one that
directs it). When a function of torchtriage returns, its local variables and its result are searched for the datum: a
text or a number that occurs nowhere else in the program, also inside of lists, dicts, dataclasses, arrays and tensors,
but not inside of a complete recording or report, which every rule is given. A file counts if the datum is found in one
of its functions; __init__.py files do not count. The number of files of which any function runs is printed too, without
calls during imports; --all lists them, marked with a dot. Files in which the list differs from that of
docs/internals/how-it-works.md are marked with + and -.

    python benchmarks/paths.py              all paths
    python benchmarks/paths.py --all        with the files that run without having the datum
    python benchmarks/paths.py --only break
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

TORCHTRIAGE = (sys.executable, "-m", "torchtriage")
ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "torchtriage"
PAGE = ROOT / "docs" / "internals" / "how-it-works.md"

# Appends files to $PATHS_LOG/PROCESS_ID: "ran FILE" at the first call of one of its functions, "datum FILE" when the
# datum is first found there. The generated methods of a dataclass have no file, so the file of their globals counts.
TRACER = '''
import array, os, struct, sys, threading

is_traced = "PATHS_LOG" in os.environ and ("TORCHTRIAGE" not in os.environ or "PATHS_IN_CHILDREN" in os.environ)
if is_traced:
    package, datum = os.environ["PATHS_PACKAGE"], bytes.fromhex(os.environ["PATHS_DATUM"]).decode()
    number = float(datum) if datum.isdigit() else None
    encodings = [datum.encode()] if number is None else [struct.pack("<f", number), struct.pack("<d", number)]
    seen = {"ran": set(), "datum": set()}
    COMPLETE = {"Recording", "Process", "Report", "History", "Recorder", "Store", "Reading"}

    def is_start_up(frame):
        while frame is not None:
            name = frame.f_code.co_name
            if name == "build_parser" or (name == "<module>" and frame.f_globals["__name__"] != "__main__"):
                return True
            frame = frame.f_back
        return False

    def has_datum(value, depth):
        kind = type(value)
        if kind is str:
            return datum in value
        if kind is bytes:
            return any(encoding in value for encoding in encodings)
        if kind is array.array:
            return any(encoding in value.tobytes() for encoding in encodings)
        if number is not None and kind is float:
            return abs(value - number) < 0.01
        if number is not None and kind.__name__ in ("Tensor", "Parameter", "ndarray"):
            if kind.__name__ == "Parameter":
                value = value.grad
                if value is None:
                    return False
            table = value.detach().numpy() if hasattr(value, "detach") else value
            return table.dtype.kind == "f" and table.size < 100_000 and bool((abs(table - number) < 0.01).any())
        if depth == 0 or kind.__name__ in COMPLETE:
            return False
        if kind in (list, tuple, set, frozenset) or isinstance(value, tuple):
            return any(has_datum(item, depth - 1) for item in list(value)[:200])
        if kind is dict:
            return any(has_datum(item, depth - 1) for pair in list(value.items())[:200] for item in pair)
        if hasattr(kind, "__dataclass_fields__"):
            return any(has_datum(getattr(value, name, None), depth - 1) for name in kind.__dataclass_fields__)
        return False

    def note(what, name):
        seen[what].add(name)
        with open(os.path.join(os.environ["PATHS_LOG"], str(os.getpid())), "a") as log:
            log.write(what + " " + name[len(package) + 1:] + "\\n")

    def show_what_is_hidden(name, module):
        # The taps and the background threads hide themselves from a profile function.
        if name.endswith("capture/torch_private/base.py"):
            module["_pause_tracing"] = module["_resume_tracing"] = lambda state: None
        elif name.endswith("torchtriage/background.py"):
            module["_stay_untraced"] = lambda: sys.setprofile(profile)

    def profile(frame, event, argument):
        name = frame.f_globals.get("__file__") or ""
        if event not in ("call", "return") or not name.startswith(package):
            return
        if not frame.f_code.co_flags & 1:    # not a function: a module or class body
            if event == "return":
                show_what_is_hidden(name, frame.f_globals)
            return
        if name in seen["datum"]:
            return
        if name not in seen["ran"] and not is_start_up(frame):
            note("ran", name)
        if event == "return":
            try:
                if any(has_datum(value, 4) for value in (*frame.f_locals.values(), argument)):
                    note("datum", name)
            except Exception:
                pass

    sys.setprofile(profile)
    threading.setprofile(profile)
'''

BREAK = """
import torch

@torch.compile(backend="eager")
def forward(x):
    y = x + 1
    torch._dynamo.graph_break(msg="xyzzy")
    return y * 2

for _ in range(3):
    forward(torch.ones(2))
"""

TRAINING = """
import torch

weight = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([weight], lr=1e-9)
for _ in range(30):
    optimizer.zero_grad()
    (weight * (12344 + 1)).sum().backward()
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

TICKET = ["ticket", "new", "--folder", "findings", "--file", "train.py", "--title"]


@dataclass(frozen=True, kw_only=True)
class DatumPath:
    """A command with a datum in it."""

    heading: str  # of its list in the docs
    command: list[str]
    datum: str  # an integer is compared with numbers
    program: str = ""
    preparations: list[list[str]] = field(default_factory=list)
    is_in_children: bool = True


PATHS = {
    "break": DatumPath(
        heading="A graph break, from torch to the terminal",
        command=["run", "train.py"],
        program=BREAK,
        datum="xyzzy",
    ),
    "gradient": DatumPath(
        heading="A gradient norm, from the optimizer's step to the HTML report",
        command=["run", "--html", "train.py"],
        program=TRAINING,
        datum="12345",
    ),
    "ticket": DatumPath(
        heading="A ticket file, from disk to `ticket check`",
        command=["ticket", "check", "--folder", "findings"],
        preparations=[
            [*TICKET, "A print of xyzzy in the forward"],
            [*TICKET, "Shapes that vary"],
            ["ticket", "report", "-o", "findings/report.md", "--folder", "findings"],
        ],
        datum="xyzzy",
    ),
    "shapes": DatumPath(
        heading="A shape policy, from its choice to the advice",
        command=["shapes", "--budget", "100s", "train.py"],
        program=SIZES,
        datum="dynamic=True",
        is_in_children=False,  # a run that is measured under a profile function is too slow for the budget
    ),
}


def files_of(path: DatumPath) -> tuple[list[str], list[str]]:
    """(files that the datum reaches; other files of which a function runs), each in order."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tracer").mkdir()
        (folder / "log").mkdir()
        (folder / "tracer" / "sitecustomize.py").write_text(TRACER)
        (folder / "train.py").write_text(path.program)
        for words in path.preparations:
            subprocess.run([*TORCHTRIAGE, *words], cwd=folder, check=True, capture_output=True)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder / "tracer"), os.environ.get("PYTHONPATH", "")]),
            "PATHS_LOG": str(folder / "log"),
            "PATHS_PACKAGE": str(PACKAGE),
            "PATHS_DATUM": path.datum.encode().hex(),  # not as it is: every function with the environment would have it
        }
        if path.is_in_children:
            environment["PATHS_IN_CHILDREN"] = "1"
        subprocess.run([*TORCHTRIAGE, *path.command], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        # The launcher has the smallest process id and reads what the others wrote, so it comes last.
        logs = sorted((folder / "log").iterdir(), key=lambda log: int(log.name), reverse=True)
        lines = [line.split() for log in logs for line in log.read_text().splitlines()]
    files = dict.fromkeys(file for what, file in lines if what == "datum" and not file.endswith("__init__.py"))
    others = dict.fromkeys(file for _, file in lines if file not in files and not file.endswith("__init__.py"))
    return list(files), list(others)


def files_in_docs(heading: str) -> set[str]:
    """The files that the docs list below this heading."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"### {heading}\n")
    names = re.findall(r"`([\w/]+\.py)`", re.split(r"^##", rest, maxsplit=1, flags=re.M)[0])
    return {name.removeprefix("src/torchtriage/") for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(PATHS))
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    for name, path in PATHS.items():
        if options.only in (None, name):
            files, others = files_of(path)
            print(f"{name}: the datum reaches {len(files)} of {len(files) + len(others)} files that run")
            in_docs = files_in_docs(path.heading)
            for file in files:
                print(f"  {' ' if file in in_docs else '+'} {file}")
            for file in sorted(in_docs - set(files)):
                print(f"  - {file}")
            if options.all:
                print(*(f"  . {file}" for file in others), sep="\n")


if __name__ == "__main__":
    main()

"""Whether `replay` names the operation that made the first NaN or Inf: 21 faults in five models, eager and compiled.

    python benchmarks/provenance.py [--only NAME ...] [--backends eager aot_eager inductor]
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import HERE, clean_environment, machine, run, save, table

from torchtriage.diagnosis.learning.origin import explanation, fix
from torchtriage.proof.budget import TimeLimit
from torchtriage.proof.locate.replay import Replay, recorded_fault
from torchtriage.recording.origins.origin import Origin, OriginState
from torchtriage.recording.reader import read_recording

PROGRAM = HERE / "provenance_cases" / "program.py"
MIN_SHARE = 0.95
SECONDS = 300.0
# No code of torchtriage was changed for these: they were right when they were first run.
HELD_OUT = frozenset({
    "angle gradient", "bfloat16 rounding", "log(1 - D)", "where and log", "optimizer in float16", "deviation gradient",
    "power gradient",
})
IN_BACKWARD = frozenset({
    "sqrt gradient", "angle gradient", "where and log", "deviation gradient", "power gradient",
})
IN_INPUT = frozenset({"bad data", "bad embedding"})
WITH_INDUCTOR = ("log of 0", "masked row", "where and log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What was said of one fault, and whether it is right."""

    fault: str
    backend: str
    is_held_out: bool
    is_right: bool
    has_fix: bool
    seconds: float
    text: str


def lines() -> dict[str, int]:
    """The line of each fault."""
    found = {}
    for number, line in enumerate(PROGRAM.read_text().splitlines(), start=1):
        if match := re.search(r"    # (.+)$", line):
            found[match[1]] = number
    return found


def is_right(origin: Origin, fault: str, line: int) -> bool:
    operation = origin.operation
    if fault == "bad embedding":
        return origin.state == OriginState.INPUT and origin.input is not None and origin.input.name == "embed.weight"
    state = OriginState.INPUT if fault in IN_INPUT else OriginState.OPERATION
    if operation is None or origin.state != state:
        return False
    is_place = (Path(operation.path).name, operation.line) == (PROGRAM.name, line)
    return is_place and operation.is_backward == (fault in IN_BACKWARD)


def named(fault: str, backend: str, line: int) -> Named:
    began = time.monotonic()
    words = [str(PROGRAM), fault, *([backend] if backend != "eager" else [])]
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "run.triage"
        command = [sys.executable, "-m", "torchtriage", "run", "-q", "-o", str(recording), *words]
        run(command, env=clean_environment(TORCHINDUCTOR_COMPILE_THREADS="1"), cwd=Path(folder), timeout=SECONDS)
        read = read_recording(recording)
        replay = Replay(
            recording=read, work=Path(folder) / "work", limit=TimeLimit(seconds=SECONDS), say=lambda _: None)
        origin = replay.find(recorded_fault(read, None))
    row = Named(
        fault=fault, backend=backend, is_held_out=fault in HELD_OUT, is_right=is_right(origin, fault, line),
        has_fix=bool(fix(origin)), seconds=time.monotonic() - began, text=f"{explanation(origin)} fix: {fix(origin)}")
    print(f"{'right' if row.is_right else 'WRONG'}  {fault}, {backend}: {row.text}  ({row.seconds:.0f} s)", flush=True)
    return row


def cases(only: Sequence[str], backends: Sequence[str]) -> list[tuple[str, str]]:
    names = [name for name in lines() if name in _faults() and (not only or name in only)]
    return [
        (name, backend) for name in names for backend in backends if backend != "inductor" or name in WITH_INDUCTOR
    ]


def _faults() -> set[str]:
    return set(re.findall(r'"([^"]+)": (?:Mlp|Cnn|Lm|Vae|Gan)\b', PROGRAM.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--backends", nargs="+", default=["eager", "aot_eager", "inductor"])
    args = parser.parse_args()
    before = machine()
    rows = [named(fault, backend, lines()[fault]) for fault, backend in cases(args.only, args.backends)]
    header = ["", "right", "held out, right", "with a fix"]
    counts = []
    for backend in args.backends:
        of_backend = [row for row in rows if row.backend == backend]
        held = [row for row in of_backend if row.is_held_out]
        counts.append([
            backend, f"{sum(row.is_right for row in of_backend)} of {len(of_backend)}",
            f"{sum(row.is_right for row in held)} of {len(held)}", sum(row.has_fix for row in of_backend),
        ])
    print(table(header, counts))
    if not args.only:
        save("provenance", before, {"rows": rows})
    share = sum(row.is_right for row in rows) / max(1, len(rows))
    return int(share < MIN_SHARE)


if __name__ == "__main__":
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    sys.exit(main())

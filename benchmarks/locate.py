"""Whether eighteen seeded miscompilations and the known ones of torch are located, and nothing in healthy programs.

    python benchmarks/locate.py [--only NAME ...]
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from common import HERE, machine, save, table

from torchtriage.findings.proof.location import DifferencePlace, LocationState
from torchtriage.proof.budget import TimeLimit
from torchtriage.proof.locate.locate import Locator
from torchtriage.proof.sides import Side
from torchtriage.reporters.proof.location import location_sentence

CASES = HERE / "locate_cases"
MIN_LOCATED = 17
SECONDS = 600.0
HEALTHY = ("eager", "aot_eager", "inductor")
BUGS = {
    "zero-dim float64 write": ("zero_dim_write.py", "total.add_(1.0)"),
    "flex_attention, 24 keys": ("flex_rows.py 24", ""), "flex_attention, 40 keys": ("flex_rows.py 40", ""),
    "flex_attention, 200 keys": ("flex_rows.py 200", ""),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """What was said of one program, and whether it is right."""

    name: str
    expected: str
    is_right: bool
    seconds: float
    text: str


def faults() -> dict[str, tuple[str, int]]:
    """Each fault, its program and the line that it is in."""
    found: dict[str, tuple[str, int]] = {}
    for script, edits in (("program.py", "miscompile.py"), ("recurrent.py", "recurrent.py")):
        lines, source = (CASES / script).read_text().splitlines(), (CASES / edits).read_text()
        comments = {line.rpartition("# ")[2]: number for number, line in enumerate(lines, start=1) if "  # " in line}
        found |= {name: (script, line) for name, line in comments.items() if f'"{name}":' in source}
    return found


def found_in(*words: str, step: int | None = 1) -> tuple[DifferencePlace, float]:
    """Compiled against eager for one program, with the first step as the bad one."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        side = Side(label=words[0], command=(sys.executable, str(CASES / words[0]), *words[1:]), cwd=CASES)
        limit = TimeLimit(seconds=SECONDS)
        locator = Locator(work=Path(work), limit=limit, say=lambda _: None, step=step)
        return locator.compiled(side), time.monotonic() - began


def result(name: str, expected: str, is_right: bool, place: DifferencePlace, seconds: float) -> Located:
    row = Located(
        name=name, expected=expected, is_right=is_right, seconds=seconds, text=location_sentence(place))
    print(f"{'right' if is_right else 'WRONG'}  {name}: {row.text}  ({seconds:.0f} s)", flush=True)
    return row


def seeded(name: str, script: str, line: int) -> Located:
    place, seconds = found_in(script, name)
    operation = place.operation
    is_right = operation is not None and (operation.path, operation.line) == (script, line)
    return result(name, f"{script}:{line}", is_right, place, seconds)


def healthy(backend: str) -> Located:
    place, seconds = found_in("program.py", backend)
    return result(f"healthy, {backend}", "agrees", place.state is LocationState.AGREES, place, seconds)


def bug(name: str) -> Located:
    command, text = BUGS[name]
    place, seconds = found_in(*command.split(), step=None)
    operation = place.operation
    is_right = operation is not None and (not text or text in source_line(operation.path, operation.line))
    return result(name, text or "flex_attention", is_right, place, seconds)


def source_line(path: str, line: int | None) -> str:
    lines = (CASES / path).read_text().splitlines()
    return lines[line - 1] if line is not None else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="faults, backends or bugs of torch")
    only = parser.parse_args().only
    before = machine()
    wanted = [(name, lambda name=name, place=place: seeded(name, *place)) for name, place in faults().items()]
    wanted += [(name, lambda name=name: healthy(name)) for name in HEALTHY]
    wanted += [(name, lambda name=name: bug(name)) for name in BUGS]
    rows = [run() for name, run in wanted if not only or name in only]
    print()
    print(table(("program", "expected", "right", "seconds", "said"), [
        (row.name, row.expected, "yes" if row.is_right else "no", f"{row.seconds:.0f}", row.text) for row in rows]))
    if not only:
        num_located = sum(row.is_right for row in rows if row.name in faults())
        num_quiet = sum(row.is_right for row in rows if row.name.startswith("healthy"))
        print(f"\nlocated: {num_located} of {len(faults())} seeded (goal: {MIN_LOCATED}); "
              f"healthy programs without a difference: {num_quiet} of {len(HEALTHY)}")
        save("locate", before, {"rows": rows, "located": num_located, "healthy": num_quiet})


if __name__ == "__main__":
    main()

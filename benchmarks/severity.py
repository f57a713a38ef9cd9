"""Whether the same bug gets the same severity in a 50-step and in a 5,000-step run of the same program."""

import argparse
import ast
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import PROGRAMS, clean_environment, machine, note, run, save, table

SHORT, LONG = 50, 5_000
MIN_EQUAL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One finding in both runs; None where that run does not have it."""

    program: str
    code: str
    place: str
    short: str | None
    long: str | None

    @property
    def is_equal(self) -> bool:
        return self.short == self.long


def program_names() -> list[str]:
    """The names in hazards.PROGRAMS, read without importing torch."""
    tree = ast.parse((PROGRAMS / "hazards.py").read_text())
    values = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "PROGRAMS"]
    return [ast.unparse(e) for value in values if isinstance(value, ast.Tuple) for e in value.elts]


def findings(program: str, steps: int, options: argparse.Namespace) -> dict[tuple[str, str], dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out.triage"
        words = [sys.executable, "-m", "torchtriage"]
        flags = ["-q", *(["--measure"] if options.measure else []), "-o", out]
        ended = run(
            [*words, "run", *flags, str(PROGRAMS / "hazards.py"), program, str(steps)],
            clean_environment(),
            Path(folder),
        )
        report = json.loads(run([*words, "report", out, "--format", "json"], clean_environment()).stdout)
    if options.keep:
        (options.keep / f"{program}-{steps}.json").write_text(json.dumps(report, indent=1))
    note(f"  {program}, {steps} steps: {len(report['findings'])} findings, {ended.seconds:.0f} s")
    return {(f["code"], f["fingerprint"]): f for f in report["findings"]}


def compared(program: str, options: argparse.Namespace) -> list[Pair]:
    short, long = (findings(program, steps, options) for steps in (SHORT, LONG))
    pairs = []
    for key in sorted(short.keys() | long.keys()):
        either = short.get(key) or long[key]
        pairs.append(
            Pair(
                program=program,
                code=either["code"],
                place=f"{Path(either['path'] or 'unknown').name}:{either['line']}",
                short=short[key]["severity"] if key in short else None,
                long=long[key]["severity"] if key in long else None,
            )
        )
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="comma-separated names of programs")
    parser.add_argument(
        "--measure", action="store_true", help="run with --measure, so that breaks have an observed share as well"
    )
    parser.add_argument("--keep", type=Path, help="keep the reports in this folder")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    before = machine()
    names = [name for name in program_names() if not options.only or name in options.only.split(",")]
    pairs = [pair for name in names for pair in compared(name, options)]
    in_both = [p for p in pairs if p.short and p.long]
    equal = sum(p.is_equal for p in in_both)
    rows = [[p.program, p.code, p.place, p.short or "-", p.long or "-", "" if p.is_equal else "differs"] for p in pairs]
    print(table(["program", "code", "place", f"{SHORT} steps", f"{LONG} steps", ""], rows))
    print(f"\n{len(names)} programs, {len(in_both)} findings in both runs, {len(pairs) - len(in_both)} in one only")
    print(f"equal severity: {equal} of {len(in_both)} ({equal / max(1, len(in_both)):.0%}), target >= {MIN_EQUAL:.0%}")
    print(f"counting those in one run only as unequal: {equal} of {len(pairs)} ({equal / max(1, len(pairs)):.0%})")
    results = {"pairs": pairs, "equal": equal, "in_both": len(in_both), "share": equal / max(1, len(in_both))}
    save("severity-measure" if options.measure else "severity", before, results)


if __name__ == "__main__":
    main()

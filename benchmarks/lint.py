"""Hazards that lint finds in source, harmless look-alikes that it leaves alone, and findings on well-kept packages.

python benchmarks/lint.py [--project DIR] [--advice DIR] [--packages NAME,NAME] [--speed FILES]
    [--misses]

The project marks its lines: `# hazard: TT102` is found if a finding of this code is on that line; `# harmless`, and
every line without a mark, must have none. The programs of lint_programs are marked in the same way, also with TT7xx,
and linted one by one. The advice cases are the programs of benchmarks/advice_cases, each with its
cures; --advice also reads a folder with expect.json and programs/. ruff and TorchFix are run on the project if they
are installed.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advice_cases import (
    agents,
    autograd,
    branches,
    calls,
    coverage,
    iteration,
    logs,
    mixed,
    pictures,
    scalars,
    sequences,
    services,
    shapes,
    sizes,
    state,
    values,
)
from common import HERE, machine, note, save, table

from torchtriage.findings.model import Finding, Severity
from torchtriage.lint.check import findings_in, lint
from torchtriage.lint.project import read_tree

FAMILIES = (
    agents, autograd, branches, calls, coverage, iteration, logs, mixed, pictures, scalars, sequences, services, shapes,
    sizes, state, values,
)
PROJECT = HERE / "lint_project"
PROGRAMS = HERE / "lint_programs"
MARK = re.compile(r"#\s*(?:hazard: (TT\d{3}(?:/TT\d{3})*)|(harmless))")
PACKAGES = ("stable_baselines3", "accelerate", "einops", "torchmetrics")
COMPILE_RULES = ("TT1", "TT2", "TT3")
Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Hazards with how many were found, look-alikes with how many were reported, and other findings."""

    name: str
    num_hazards: int
    missed: tuple[str, ...]
    num_harmless: int = 0
    wrong: tuple[str, ...] = ()

    @property
    def num_found(self) -> int:
        return self.num_hazards - len(self.missed)

    def row(self) -> list[str]:
        reported = self.num_found + len(self.wrong)
        recall = f"{self.num_found / self.num_hazards:.0%}" if self.num_hazards else "-"
        precision = f"{self.num_found / reported:.0%}" if reported else "-"
        return [self.name, f"{self.num_found}/{self.num_hazards}", recall, str(len(self.wrong)), precision]


def marks(folder: Path) -> tuple[dict[Place, str], set[Place]]:
    """(hazards with their code, harmless lines) of a project."""
    return marks_in(sorted(folder.rglob("*.py")))


def marks_in(paths: Iterable[Path]) -> tuple[dict[Place, str], set[Place]]:
    """(hazards with their code, harmless lines) of files."""
    hazards, harmless = {}, set()
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = MARK.search(line)
            if found and found[1]:
                hazards[str(path), number] = found[1]
            elif found:
                harmless.add((str(path), number))
    return hazards, harmless


def compile_findings(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.code.startswith(COMPILE_RULES)]


def place(finding: Finding) -> Place:
    return finding.location.path, finding.location.line or 0


def project_score(folder: Path) -> Score:
    hazards, harmless = marks(folder)
    found: dict[Place, set[str]] = {}
    for finding in compile_findings(lint([folder], [str(folder)]).findings):
        found.setdefault(place(finding), set()).add(finding.code)
    missed = [f"{code} {at[0]}:{at[1]}" for at, code in hazards.items() if code not in found.get(at, ())]
    wrong = [f"{', '.join(codes)} {at[0]}:{at[1]}" for at, codes in found.items() if at not in hazards]
    return Score(
        name="project",
        num_hazards=len(hazards),
        missed=tuple(missed),
        num_harmless=len(harmless),
        wrong=tuple(wrong),
    )


def programs_score(folder: Path, name: str) -> Score:
    """Programs that are linted one by one: a hazard is found by its code and line, other findings of P3 are wrong."""
    missed, wrong, num_hazards = [], [], 0
    for path in sorted(folder.iterdir()):
        hazards, _ = marks(path) if path.is_dir() else marks_in([path])
        found: dict[Place, set[str]] = {}
        for finding in lint([path], [str(folder)]).findings:
            if finding.severity <= Severity.P3 or finding.code in hazards.get(place(finding), ""):
                found.setdefault(place(finding), set()).add(finding.code)
        num_hazards += len(hazards)
        missed += [
            f"{code} {path.name}:{at[1]}, reported {sorted(f'{c}:{a[1]}' for a, cs in found.items() for c in cs)}"
            for at, code in hazards.items() if not found.get(at, set()) & set(code.split("/"))
        ]
        wrong += [
            f"{code} {path.name}:{at[1]}"
            for at, codes in found.items() for code in codes if code not in hazards.get(at, "")
        ]
    return Score(name=name, num_hazards=num_hazards, missed=tuple(missed), wrong=tuple(wrong))


def linted(source: str) -> list[Finding]:
    return compile_findings(findings_in(read_tree({"/case/program.py": source.encode()}, ("/case",))))


def cases_score() -> Score:
    """A case counts as found if a finding has one of its codes; a finding on a control or a cured case is wrong."""
    cases = [case for family in FAMILIES for case in vars(family).get("CASES", ())]
    sick = [case for case in cases if not case.is_control]
    missed, wrong = [], []
    for case in sick:
        codes = {finding.code for finding in linted(case.source)}
        if not any(code.startswith(tuple(case.codes)) for code in codes):
            missed.append(f"{case.name} {'/'.join(case.codes)}, reported {', '.join(sorted(codes)) or 'nothing'}")
        for option in case.options[:1]:
            left = [f for f in linted(case.twin(option)) if f.severity <= Severity.P3 and f.code.startswith(case.codes)]
            wrong += [
                f"{case.name} cured: {f.code} at line {f.location.line}" for f in left if f.code not in option.leaves
            ]
    for case in (case for case in cases if case.is_control):
        wrong += [
            f"{case.name}: {f.code} at line {f.location.line}" for f in linted(case.source) if f.severity <= Severity.P3
        ]
    return Score(name="advice cases", num_hazards=len(sick), missed=tuple(missed), wrong=tuple(wrong))


def folder_score(folder: Path) -> Score:
    """The programs of a folder with expect.json: its hazards that can be seen in source, and the cured twins."""
    expected: Mapping[str, Any] = json.loads((folder / "expect.json").read_text())
    programs = folder / "programs"
    missed, wrong, num_hazards = [], [], 0
    for name, want in expected.items():
        codes = {
            f.code
            for f in compile_findings(lint([programs / f"{name}.py", programs / "kit"], [str(programs)]).findings)
        }
        if want["codes"] and want.get("lint", "no") != "no":
            num_hazards += 1
            if not any(code.startswith(tuple(want["codes"])) for code in codes):
                missed.append(f"{name} ({want['lint']}) {'/'.join(want['codes'])}, reported {sorted(codes)}")
        elif not want["codes"]:
            wrong += [f"{name}: {code}" for code in codes]
        if (programs / f"{name}_cured.py").exists():
            cured = lint([programs / f"{name}_cured.py", programs / "kit_cured"], [str(programs)]).findings
            wrong += [f"{name}_cured: {f.code} at line {f.location.line}" for f in compile_findings(cured)]
    return Score(name=folder.name, num_hazards=num_hazards, missed=tuple(missed), wrong=tuple(wrong))


def package_row(name: str) -> list[str] | None:
    """Findings of P3 or worse per 1,000 lines of an installed package, of all rules."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    result = lint([folder], [str(folder)])
    severe = [finding for finding in result.findings if finding.severity <= Severity.P3]
    lines = int(result.facts["num_lines"])
    for finding in severe:
        note(f"  {finding.code} {finding.severity.name} {finding.location}  {finding.title}")
    return [name, str(lines), str(len(severe)), f"{1000 * len(severe) / max(lines, 1):.2f}"]


def peer_rows(folder: Path) -> list[list[str]]:
    """Compile hazards of the project on whose line a peer reports anything."""
    hazards, harmless = marks(folder)
    rows = []
    for name, command, pattern in (
        (
            "ruff, all rules",
            ["-m", "ruff", "check", "--select", "ALL", "--output-format", "concise", "--isolated"],
            r"^(.+?\.py):(\d+):",
        ),
        ("TorchFix", ["-m", "torchfix", "--select", "ALL"], r"^(.+?\.py):(\d+):"),
    ):
        if importlib.util.find_spec(command[1]) is None:
            note(f"  {name} is not installed")
            continue
        ran = subprocess.run([sys.executable, *command, str(folder)], capture_output=True, text=True, cwd=folder)
        found = re.findall(pattern, ran.stdout, re.M)
        places = {(str((folder / path).resolve()), int(line)) for path, line in found}
        rows.append(
            [name, f"{len(places & set(hazards))}/{len(hazards)}", str(len(places & harmless)), str(len(places))]
        )
    return rows


def speed_rows(num_files: int) -> list[list[str]]:
    """Seconds of `torchtriage lint` on so many files of torchtriage itself, with and without a cache."""
    origin = HERE.parent / "src"
    source = sorted(origin.rglob("*.py"))
    rows = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "pyproject.toml").write_text("")
        for number in range(num_files):
            path = folder / f"copy{number // len(source)}" / source[number % len(source)].relative_to(origin)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source[number % len(source)], path)
        lines = sum(len(path.read_bytes().splitlines()) for path in folder.rglob("*.py"))
        for name in ("cold", "warm"):
            started, used = time.perf_counter(), os.times()
            subprocess.run([sys.executable, "-m", "torchtriage", "lint", ".", "-q"], cwd=folder, capture_output=True)
            after = os.times()
            processor = after.children_user + after.children_system - used.children_user - used.children_system
            wall = time.perf_counter() - started
            rows.append([name, str(num_files), str(lines), f"{wall:.2f} s", f"{processor:.2f} s"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, default=PROJECT)
    parser.add_argument("--advice", type=Path, help="a folder with expect.json and programs/")
    parser.add_argument("--packages", default=",".join(PACKAGES))
    parser.add_argument("--speed", type=int, default=0, metavar="FILES", help="time lint on so many files")
    parser.add_argument("--misses", action="store_true", help="name what was missed and what was reported wrongly")
    options = parser.parse_args()
    before = machine()
    scores = [project_score(options.project.resolve()), cases_score()]
    scores += [programs_score(PROGRAMS / name, f"{name} programs") for name in ("sick", "healthy")]
    if options.advice:
        scores.append(folder_score(options.advice.resolve()))
    header = ["source", "found", "recall", "wrong", "precision"]
    text = table(header, [score.row() for score in scores])
    for score in scores if options.misses else ():
        text += "".join(f"\nmissed in {score.name}: {each}" for each in score.missed)
        text += "".join(f"\nwrong in {score.name}: {each}" for each in score.wrong)
    packages = [row for row in map(package_row, options.packages.split(",")) if row is not None]
    text += "\n\n" + table(["package", "lines", "P3 or worse", "per 1,000 lines"], packages)
    peers = peer_rows(options.project.resolve())
    if peers:
        text += "\n\n" + table(["peer", "on a hazard's line", "on a harmless line", "lines reported"], peers)
    if options.speed:
        text += "\n\n" + table(["cache", "files", "lines", "time", "processor time"], speed_rows(options.speed))
    print(text)
    save("lint", before, {"table": text})


if __name__ == "__main__":
    main()

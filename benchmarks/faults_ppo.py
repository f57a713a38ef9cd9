"""Faults in hand-written PPO programs, found by `torchtriage run` with no edit, and healthy variants.

    python benchmarks/faults_ppo.py [--fork] [--only TEXT] [--seeds 2] [--updates 30] [--held-out only|without|with]

A fault is found if any finding of P0 to P2 is reported; its cause is first if the first finding has one of the codes
that name it. Every third fault and healthy variant is held out: limits were chosen without them.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import faults
from common import clean_environment, machine, note, run, save, table
from ppo_cases.changes import FAULTS, HEALTHY, Change

from torchtriage.diagnosis.diagnose import diagnose
from torchtriage.findings.model import Finding, Severity
from torchtriage.recording.reader import read_recording

PROGRAMS = Path(__file__).parent / "ppo_cases"
SEVERE = (Severity.P0, Severity.P1, Severity.P2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The findings of one run."""

    change: Change
    seed: int
    is_held_out: bool
    codes: tuple[str, ...]
    severe: tuple[str, ...]
    num_p3: int
    first_step: int | None

    @property
    def is_cause_first(self) -> bool:
        return bool(self.codes) and self.codes[0] in self.change.causes


def judged(change: Change, seed: int, num_updates: int, is_held_out: bool, is_forked: bool) -> Judged:
    with tempfile.TemporaryDirectory() as folder:
        program, recording = Path(folder) / "program.py", Path(folder) / "run.triage"
        source = change.apply((PROGRAMS / f"{change.program}.py").read_text())
        if is_forked:
            program.write_text(f"import sys\nsys.argv = ['program.py', '{seed}', '{num_updates}']\n{source}")
            faults.record_in_fork(program, recording)
        else:
            program.write_text(source)
            command = [sys.executable, "-m", "torchtriage", "run", "-q", "-o", str(recording), str(program), str(seed)]
            run([*command, str(num_updates)], env=clean_environment(), cwd=Path(folder), check=False)
        findings = diagnose(read_recording(recording))
    return Judged(
        change=change, seed=seed, is_held_out=is_held_out, codes=tuple(one.code for one in findings),
        severe=tuple(one.code for one in findings if one.severity in SEVERE),
        num_p3=sum(one.severity is Severity.P3 for one in findings), first_step=_first_step(findings),
    )


def _first_step(findings: Sequence[Finding]) -> int | None:
    steps = [step for one in findings if one.severity in SEVERE for step in one.steps]
    return min(steps) if steps else None


def _all(only: str, held_out: str) -> Iterator[tuple[Change, bool]]:
    for changes in (FAULTS, HEALTHY):
        for number, change in enumerate(changes):
            is_held_out = number % 3 == 2
            is_wanted = held_out in ("with", "only" if is_held_out else "without")
            if is_wanted and only in f"{change.program}: {change.name}":
                yield change, is_held_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--fork", action="store_true", help="record in a fork of this process: several times faster")
    parser.add_argument("--held-out", choices=("with", "without", "only"), default="with")
    words = parser.parse_args()
    before, results = machine(), []
    for change, is_held_out in _all(words.only, words.held_out):
        for seed in range(words.seeds):
            result = judged(change, seed, words.updates, is_held_out, words.fork)
            results.append(result)
            note(f"{change.program}: {change.name}: {' '.join(result.codes) or 'nothing'}")
    print(summary(results))
    if not words.only:
        save("faults_ppo", before, {"runs": [_row(one) for one in results]})


def summary(results: Sequence[Judged]) -> str:
    rows = []
    for name, chosen in (("all", results), ("held out", [one for one in results if one.is_held_out])):
        faults = [one for one in chosen if one.change.is_fault]
        healthy = [one for one in chosen if not one.change.is_fault]
        delays = sorted(one.first_step for one in faults if one.first_step is not None)
        rows.append((
            name, f"{sum(bool(one.severe) for one in faults)} of {len(faults)}",
            f"{sum(one.is_cause_first for one in faults)} of {len(faults)}",
            delays[len(delays) // 2] if delays else "-",
            _per_run(sum(len(one.severe) for one in healthy), len(healthy)),
            _per_run(sum(one.num_p3 for one in healthy), len(healthy)),
        ))
    header = ("runs", "found", "cause first", "median step", "P2 or worse per healthy run", "P3 per healthy run")
    missed = [one for one in results if one.change.is_fault and not one.severe]
    false = [one for one in results if not one.change.is_fault and (one.severe or one.num_p3)]
    lines = [f"{word}: {one.change.program}: {one.change.name} (seed {one.seed}) {' '.join(one.codes)}"
             for word, chosen in (("missed", missed), ("false", false)) for one in chosen]
    return "\n".join([table(header, rows), "", *lines])


def _per_run(count: int, runs: int) -> str:
    return f"{count / runs:.2f} ({count} in {runs})" if runs else "-"


def _row(one: Judged) -> dict[str, object]:
    return {
        "program": one.change.program, "change": one.change.name, "seed": one.seed, "is_fault": one.change.is_fault,
        "is_held_out": one.is_held_out, "codes": one.codes, "severe": one.severe, "first_step": one.first_step,
    }


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()

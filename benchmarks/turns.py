"""The spread of one program from run to run: one after the other, and in turns as `torchtriage shapes` runs it.

    python benchmarks/turns.py [--program tiny_batches] [--runs 5] [--rounds 2]

Each round makes --runs runs of the unmodified program, one after the other and then in turns. The spread shown is that
of the logarithm of the time of all calls, within the runs of a round.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from common import PROGRAMS, clean_environment, machine, note, save, table

from torchtriage.proof.runs.process import Program, RunOutcome, run_in_turns, run_once
from torchtriage.proof.runs.surroundings import checked_cache
from torchtriage.proof.runs.turns import TURN_SECONDS
from torchtriage.shapes.experiment import trial_of
from torchtriage.shapes.policies import baseline_policy
from torchtriage.shapes.runs.trial import common_span

PATIENCE_SECONDS = 1800.0


def totals(outcomes: Sequence[RunOutcome]) -> list[float]:
    trials = [trial_of(outcome, "as written", number) for number, outcome in enumerate(outcomes)]
    span = common_span(trials)
    return [span.total(trial, span.num_units) for trial in trials]


def spread(groups: Sequence[Sequence[float]]) -> float:
    """The standard deviation of the logarithms around the mean of their group."""
    logs = [[math.log(value) for value in values] for values in groups]
    squares = sum((log - statistics.fmean(values)) ** 2 for values in logs for log in values)
    return math.sqrt(squares / sum(len(values) - 1 for values in logs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="tiny_batches")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    os.environ.update(clean_environment())
    before, policy = machine(), baseline_policy()
    results: dict[str, list[list[float]]] = {"one after the other": [], f"in turns of {1e3 * TURN_SECONDS:.0f} ms": []}
    in_a_row, in_turns = results.values()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(PROGRAMS / f"shapes_{options.program}.py")]
        program = Program(command=command, folder=Path(folder), cache=checked_cache(Path(folder), sys.executable))
        run_once(program, policy, PATIENCE_SECONDS)  # reads torch from the disk
        for number in range(options.rounds):
            in_a_row.append(totals([run_once(program, policy, PATIENCE_SECONDS) for _ in range(options.runs)]))
            in_turns.append(totals(run_in_turns(program, [policy] * options.runs, PATIENCE_SECONDS)))
            note(f"  round {number + 1} of {options.rounds}: {in_a_row[-1]} {in_turns[-1]}")
    rows = [
        [
            how,
            f"{100 * spread(groups):.2f} %",
            f"{statistics.median(v for values in groups for v in values):.2f}",
            "; ".join(" ".join(f"{v:.2f}" for v in values) for values in groups),
        ]
        for how, groups in results.items()
    ]
    print(table(["runs of one program", "spread", "median, s", "seconds of all"], rows))
    save(
        "turns",
        before,
        {
            "program": options.program,
            "seconds": results,
            "spread": {how: spread(groups) for how, groups in results.items()},
        },
    )


if __name__ == "__main__":
    main()

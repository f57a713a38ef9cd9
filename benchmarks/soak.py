"""Memory and file size of a long observed run: optimizer steps with gradients, and recompiles.

The program runs observed and by itself at the same time, because torch's own memory grows as well. The exit status is 1
if the observed program grows more than the other one, or if the recording exceeds its bound.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import PROGRAMS, clean_environment, note, table

MAX_GROWTH_MB = 32.0        # of the second half of the run, beyond that of the program by itself
MAX_RECORDING_MB = 250.0    # 200,000 events are about 200 MB; series are bounded


def start(args: argparse.Namespace, folder: Path | None) -> "subprocess.Popen[str]":
    environment = clean_environment() if folder is None else clean_environment(TORCHTRIAGE=str(folder))
    numbers = (args.steps, args.recompiles, args.marks, args.minutes * 60)
    command = [sys.executable, str(PROGRAMS / "soak.py"), *map(str, numbers)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("*") if path.is_file()) / 1e6


def growth(rows: list[dict[str, Any]]) -> float:
    """The memory that the second half of the run added, in MB."""
    return float(rows[-1]["memory"] - rows[len(rows) // 2]["memory"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--recompiles", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=60.0, help="the longest that the program runs")
    parser.add_argument("--marks", type=int, default=20, help="rows of the table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as base:
        folder = Path(base) / "out.triage"
        observed, alone = start(args, folder), start(args, None)
        assert observed.stdout is not None
        rows = []
        for line in observed.stdout:
            rows.append(json.loads(line) | {"size": size_mb(folder)})
            note(f"{rows[-1]['steps']} steps, {rows[-1]['memory']:.0f} MB")
        statuses = observed.wait(), alone.wait()
        assert alone.stdout is not None
        alone_rows = [json.loads(line) for line in alone.stdout]
        final = size_mb(folder)
    if statuses != (0, 0) or not alone_rows:
        note(f"the programs ended with status {statuses}")
        return 1
    cells = []
    for row in rows:
        at_most = [other for other in alone_rows if other["steps"] <= row["steps"]]
        beside = f"{at_most[-1]['memory']:.0f}" if at_most else ""
        numbers = row["steps"], row["recompiles"], f"{row['seconds']:.0f}", f"{row['memory']:.0f}"
        cells.append((*numbers, beside, f"{row['size']:.1f}"))
    print(table(("steps", "recompiles", "seconds", "memory, MB", "by itself, MB", "recording, MB"), cells))
    beyond = growth(rows) - growth(alone_rows)
    print(f"the second half added {growth(rows):.1f} MB, {growth(alone_rows):.1f} MB by itself; "
          f"the recording has {final:.1f} MB")
    return int(beyond > MAX_GROWTH_MB or max(final, *(row["size"] for row in rows)) > MAX_RECORDING_MB)


if __name__ == "__main__":
    sys.exit(main())

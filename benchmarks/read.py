"""From a trace to HTML: torchtriage and tlparse on the same files, as complete processes; and `report` of a recording.

Each trace is that of one real program. In addition there is one large file, which consists of copies of them.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from common import (
    CACHE,
    PROGRAMS,
    Ended,
    Spread,
    clean_environment,
    interleaved,
    machine,
    note,
    ratios,
    run,
    save,
    table,
    tlparse,
)

MIN_TIMES_FASTER = 5.0
MAX_MB = 300.0
MAX_REPORT_SECONDS = 1.0
MIN_RECORDING_MB = 5.0
MAX_LARGE_ROUNDS = 3
# What a real trace is made of depends on the backend: inductor writes code and timings, eager little beside guards and
# metrics.
TRACED = (
    ("start_up.py", "inductor", "1"),
    ("start_up.py", "inductor", "3"),
    ("start_up.py", "aot_eager", "4"),
    ("start_up.py", "eager", "8"),
    ("many_runs.py", "1"),
)
OURS, TLPARSE = "torchtriage report", "tlparse 0.4.3"
DOES = {
    OURS: "one page: findings with cause and fix, timeline, compiled functions",
    TLPARSE: "pages: every graph, guard, generated code and log of every compile, an index, no diagnosis",
}


def real_traces(folder: Path) -> list[Path]:
    """One trace per program, made once by TORCH_TRACE and kept."""
    traces = []
    for program, *arguments in TRACED:
        target = folder / "-".join((Path(program).stem, *arguments))
        if not target.exists():
            note(f"tracing {program} {' '.join(arguments)}")
            with tempfile.TemporaryDirectory() as scratch:
                env = clean_environment(TORCH_TRACE=f"{scratch}/trace", TORCHINDUCTOR_CACHE_DIR=f"{scratch}/inductor")
                run([sys.executable, str(PROGRAMS / program), *arguments], env)
                shutil.copytree(f"{scratch}/trace", target)
        traces.append(max(target.iterdir(), key=lambda p: p.stat().st_size))
    return traces


def large_trace(folder: Path, megabytes: float) -> tuple[Path, int]:
    """(file, copies): the real traces one after the other, again and again, until the file is large enough."""
    target = folder / f"large-{megabytes:.0f}.log"
    traces = [path.read_bytes() for path in real_traces(folder)]
    copies = size = 0
    with target.open("wb") as file:
        for content in cycle(traces):
            size += file.write(content)
            copies += 1
            if size >= megabytes * 1e6:
                return target, copies
    raise AssertionError("a cycle does not end")


def recording(folder: Path) -> Path:
    """A recording of at least 5 MB, made once by the demo's training run many times in one process."""
    target = folder / "many.triage"
    for number in (30, 60):
        if _megabytes(target) >= MIN_RECORDING_MB:
            break
        note(f"recording many_runs.py {number}")
        shutil.rmtree(target, ignore_errors=True)
        run([sys.executable, str(PROGRAMS / "many_runs.py"), str(number)], clean_environment(TORCHTRIAGE=str(target)))
    return target


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("*.sqlite")) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A process that made HTML, and the files that it left."""

    ended: Ended
    num_files: int
    mb: float


def make_html(reader: str, source: Path) -> Made:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        if reader == OURS:
            out.mkdir()
            page = str(out / "report.html")
            command = [sys.executable, "-m", "torchtriage", "report", str(source), "-q", "-o", page]
        else:
            command = [tlparse(), str(source), "-o", str(out), "--no-browser"]
        ended = run(command, clean_environment())
        files = [path for path in out.rglob("*") if path.is_file()]
        return Made(ended=ended, num_files=len(files), mb=sum(path.stat().st_size for path in files) / 1e6)


def compared(title: str, trace: Path, rounds: int, results: dict[str, Any]) -> list[list[object]]:
    """Rows of both readers on one file, and how many times as fast torchtriage is, round by round."""
    note(title)
    measured = interleaved((OURS, TLPARSE), lambda reader: make_html(reader, trace), rounds)
    cpu = {name: [one.ended.cpu_seconds for one in made] for name, made in measured.items()}
    wall = {name: [one.ended.seconds for one in made] for name, made in measured.items()}
    times_cpu, times_wall = ratios(cpu, OURS)[TLPARSE], ratios(wall, OURS)[TLPARSE]
    results[title] = {
        "mb": trace.stat().st_size / 1e6,
        "times_faster_cpu": times_cpu,
        "times_faster_wall": times_wall,
        **{
            name: {
                "cpu_seconds": Spread.of(cpu[name]),
                "seconds": Spread.of(wall[name]),
                "peak_mb": Spread.of([one.ended.peak_mb for one in made]),
                "files": made[0].num_files,
                "mb": made[0].mb,
            }
            for name, made in measured.items()
        },
    }
    rows: list[list[object]] = []
    for name, made in measured.items():
        is_ours = name == OURS
        rows.append(
            [
                f"{title}, {trace.stat().st_size / 1e6:.1f} MB" if is_ours else "",
                name,
                Spread.of(cpu[name]).show(2),
                Spread.of(wall[name]).show(2),
                f"{Spread.of([one.ended.peak_mb for one in made]).median:.0f}",
                f"{made[0].num_files:,}",
                f"{made[0].mb:.1f}",
                f"{times_cpu.show(1)}, wall {times_wall.median:.1f}" if is_ours else "",
            ]
        )
    return rows


def report(path: Path) -> Ended:
    return run([sys.executable, "-m", "torchtriage", "report", str(path), "--format", "json"], clean_environment())


def report_rows(names: Sequence[tuple[str, Path]], rounds: int, results: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, path in names:
        size = _megabytes(path) if path.is_dir() else path.stat().st_size / 1e6
        ended = [report(path) for _ in range(rounds)]
        wall = Spread.of([e.seconds for e in ended])
        results[f"report, {name}"] = {
            "mb": size,
            "seconds": wall,
            "findings": len(json.loads(ended[0].stdout)["findings"]),
        }
        rows.append([name, f"{size:.1f}", wall.show(2), f"<= {MAX_REPORT_SECONDS:.0f} s"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=200, help="size of the file of copies; 0: none")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = CACHE / "bench-read"
    folder.mkdir(parents=True, exist_ok=True)
    before = machine()
    results: dict[str, Any] = {}
    rows = []
    for trace in real_traces(folder):
        rows += compared(trace.parent.name, trace, options.rounds, results)
    if options.megabytes:
        trace, copies = large_trace(folder, options.megabytes)
        rows += compared(f"{copies} copies in one file", trace, min(options.rounds, MAX_LARGE_ROUNDS), results)
        trace.unlink()
    print("from a trace to HTML, complete processes")
    for name, does in DOES.items():
        print(f"{name}: {does}")
    times = f"times as fast, target >= {MIN_TIMES_FASTER:.0f}"
    head = ["trace", "reader", "cpu s", "wall s", "peak MB", "files", "MB", times]
    print()
    print(table(head, rows))
    print(f"\ntarget of our peak memory: <= {MAX_MB:.0f} MB\n")
    names = [("recording", recording(folder)), ("one trace", real_traces(folder)[-1])]
    print("findings as JSON\n")
    print(table(["report of", "MB", "seconds", "target"], report_rows(names, options.rounds, results)))
    save("read", before, results)


if __name__ == "__main__":
    main()

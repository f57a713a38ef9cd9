"""Speed and memory of reading a large trace, beside tlparse on the same file, and of `report` of a recording."""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
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
    run,
    save,
    table,
    tlparse,
)

MIN_TIMES_FASTER = 5.0
MAX_MB = 300.0
MAX_REPORT_SECONDS = 1.0
MIN_RECORDING_MB = 5.0
# What a real trace is made of depends on the backend: inductor writes code and timings, eager little beside guards and
# metrics.
TRACED = (
    ("start_up.py", "inductor", "1"),
    ("start_up.py", "aot_eager", "4"),
    ("start_up.py", "eager", "8"),
    ("many_runs.py", "1"),
)
OURS, TLPARSE = "torchtriage report", "tlparse 0.4.3"


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


def report(path: Path) -> Ended:
    return run([sys.executable, "-m", "torchtriage", "report", str(path), "--format", "json"], clean_environment())


def read_once(reader: str, trace: Path) -> Ended:
    if reader == OURS:
        return report(trace)
    with tempfile.TemporaryDirectory() as out:
        return run([tlparse(), str(trace), "-o", f"{out}/tl", "--no-browser"], clean_environment())


def trace_rows(measured: dict[str, list[Ended]], size_mb: float, results: dict[str, Any]) -> Iterator[list[str]]:
    for name, ended in measured.items():
        wall, cpu = Spread.of([e.seconds for e in ended]), Spread.of([e.cpu_seconds for e in ended])
        speed, peak = Spread.of([size_mb / e.seconds for e in ended]), Spread.of([e.peak_mb for e in ended])
        results[name] = {"seconds": wall, "cpu_seconds": cpu, "mb_per_second": speed, "peak_mb": peak}
        yield [name, wall.show(2), f"{cpu.median:.2f}", speed.show(0), peak.show(0)]


def times_faster(measured: dict[str, list[Ended]]) -> tuple[Spread, Spread]:
    """(wall, processor time): how many times as fast torchtriage is, round by round."""
    pairs = list(zip(measured[TLPARSE], measured[OURS], strict=True))
    return Spread.of([a.seconds / b.seconds for a, b in pairs]), Spread.of(
        [a.cpu_seconds / b.cpu_seconds for a, b in pairs]
    )


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
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = CACHE / "bench-read"
    folder.mkdir(parents=True, exist_ok=True)
    before = machine()
    trace, copies = large_trace(folder, options.megabytes)
    size_mb = trace.stat().st_size / 1e6
    results: dict[str, Any] = {"trace_mb": size_mb, "copies": copies, "distinct_traces": [" ".join(t) for t in TRACED]}
    measured = interleaved((OURS, TLPARSE), lambda reader: read_once(reader, trace), options.rounds)
    print(
        f"one file of {size_mb:.0f} MB: {copies} real traces ({len(TRACED)} different ones, repeated); {options.rounds}"
        " rounds"
    )
    print("whole processes: ours ends with findings as JSON, tlparse with its HTML pages\n")
    print(table(["reader", "seconds", "cpu s", "MB/s", "peak MB"], list(trace_rows(measured, size_mb, results))))
    wall, cpu = times_faster(measured)
    peak = max(e.peak_mb for e in measured[OURS])
    results |= {"times_faster_wall": wall, "times_faster_cpu": cpu, "peak_mb": peak}
    print(f"\ntimes as fast: wall {wall.show(1)}, cpu {cpu.show(1)}, target >= {MIN_TIMES_FASTER:.0f}")
    print(f"our peak memory: {peak:.0f} MB, target <= {MAX_MB:.0f}\n")
    names = [("recording", recording(folder)), ("one trace", real_traces(folder)[-1])]
    print(table(["report of", "MB", "seconds", "target"], report_rows(names, options.rounds, results)))
    trace.unlink()
    save("read", before, results)


if __name__ == "__main__":
    main()

"""What observing costs: compiled calls, start-up that compiles, processes that do nothing; beside TORCH_TRACE and TORCH_LOGS."""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import PROGRAMS, Ended, Spread, clean_environment, interleaved, machine, note, ratios, run, save, table

PLAIN, OURS = "plain", "torchtriage"
VARIANTS = (PLAIN, OURS, "TORCH_TRACE", "TORCH_LOGS")
TARGETS = {"calls, inductor": 1.01, "start-up, inductor": 1.05}
LAUNCHED = "torchtriage run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One observed process: wall seconds as a user sees them, and processor seconds, which other work hardly moves."""

    wall: float
    cpu: float


def environment(variant: str, scratch: Path, cache: Path) -> dict[str, str]:
    """How each variant is switched on; the program's command line is the same."""
    switch = {
        OURS: {"TORCHTRIAGE": str(scratch / "out.triage")},
        "TORCH_TRACE": {"TORCH_TRACE": str(scratch / "trace")},
        "TORCH_LOGS": {"TORCH_LOGS": "graph_breaks,recompiles"},
    }
    return clean_environment(TORCHINDUCTOR_CACHE_DIR=str(cache), **switch.get(variant, {}))


def observed(variant: str, program: list[str], cache: Path | None = None) -> Ended:
    """The program once, in a process of its own; without a shared cache, with a fresh one."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        env = environment(variant, scratch, cache or scratch / "inductor")
        launcher = ["-m", "torchtriage", "run", "-q", "-o", str(scratch / "out.triage")] if variant == LAUNCHED else []
        ended = run([sys.executable, *launcher, *program], env, cwd=scratch)
        if variant == OURS and not list(scratch.glob("out.triage/*")):
            raise SystemExit("nothing was recorded: torchtriage.pth is not installed in this venv; make it with: make demo")
        return ended


def calls(backend: str, rounds: int) -> dict[str, list[Cost]]:
    """100,000 calls, timed inside the program; `cpu` stands for the fastest quarter of its blocks of 5,000."""
    with tempfile.TemporaryDirectory() as cache:
        program = [str(PROGRAMS / "small_function.py"), backend]

        def measure(variant: str) -> Cost:
            blocks = json.loads(observed(variant, program, Path(cache)).stdout)
            return Cost(wall=sum(blocks), cpu=statistics.quantiles(blocks, n=4)[0] * len(blocks))

        measure(PLAIN)      # fills the cache, so that every process loads the same kernel
        return interleaved(VARIANTS, measure, rounds)


def whole_process(program: list[str], variants: tuple[str, ...], rounds: int) -> dict[str, list[Cost]]:
    def measure(variant: str) -> Cost:
        ended = observed(variant, program)
        return Cost(wall=ended.seconds, cpu=ended.cpu_seconds)

    return interleaved(variants, measure, rounds)


def ratio_rows(title: str, measured: dict[str, list[Cost]], results: dict[str, Any]) -> list[list[str]]:
    wall = {name: [c.wall for c in costs] for name, costs in measured.items()}
    cpu = {name: [c.cpu for c in costs] for name, costs in measured.items()}
    by_wall, by_cpu = ratios(wall, PLAIN), ratios(cpu, PLAIN)
    results[title] = {"wall_seconds": wall, "cpu_seconds": cpu, "wall_ratio": by_wall, "cpu_ratio": by_cpu, "target": TARGETS.get(title)}
    target = f"<= {TARGETS[title]}" if title in TARGETS else ""
    rows = [[title, PLAIN, f"{Spread.of(wall[PLAIN]).median:.2f} s", "", "", ""]]
    for name in by_wall:
        seconds = f"{Spread.of(wall[name]).median:.2f} s"
        rows.append(["", name, seconds, by_wall[name].show(), by_cpu[name].show(), target if name == OURS else ""])
    return rows


def added_rows(title: str, measured: dict[str, list[Cost]], results: dict[str, Any]) -> list[list[str]]:
    """What is added to a process, in milliseconds."""
    wall = {name: [1000 * c.wall for c in costs] for name, costs in measured.items()}
    cpu = {name: [1000 * c.cpu for c in costs] for name, costs in measured.items()}

    def added(values: dict[str, list[float]], name: str) -> Spread:
        return Spread.of([a - b for a, b in zip(values[name], values[PLAIN], strict=True)])

    results[title] = {"wall_ms": wall, "cpu_ms": cpu, "added_wall_ms": {n: added(wall, n) for n in wall if n != PLAIN},
                      "added_cpu_ms": {n: added(cpu, n) for n in cpu if n != PLAIN}}
    rows = [[title, PLAIN, f"{Spread.of(wall[PLAIN]).median:.0f} ms", "", ""]]
    for name in wall:
        if name != PLAIN:
            rows.append(["", name, f"{Spread.of(wall[name]).median:.0f} ms", added(wall, name).show(0), added(cpu, name).show(0)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--call-rounds", type=int, default=9)
    parser.add_argument("--compile-rounds", type=int, default=5)
    parser.add_argument("--empty-rounds", type=int, default=15)
    options = parser.parse_args()
    before = machine()
    results: dict[str, Any] = {}
    rows: list[list[str]] = []
    for backend in ("inductor", "eager"):
        note(f"calls, {backend}")
        rows += ratio_rows(f"calls, {backend}", calls(backend, options.call_rounds), results)
    for backend, copies in (("inductor", "1"), ("eager", "8")):
        note(f"start-up, {backend}")
        program = [str(PROGRAMS / "start_up.py"), backend, copies]
        rows += ratio_rows(f"start-up, {backend}", whole_process(program, VARIANTS, options.compile_rounds), results)
    added: list[list[str]] = []
    for title in ("nothing", "import_torch"):
        note(title)
        variants = (PLAIN, OURS, LAUNCHED, "TORCH_TRACE")
        added += added_rows(title, whole_process([str(PROGRAMS / f"{title}.py")], variants, options.empty_rounds), results)
    print("\nobserved / plain, median of the rounds (least..most)")
    print("calls: 100,000 calls of a small compiled function; start-up: the whole process, cold inductor cache")
    print("cpu: processor seconds of the process and its children; for calls, the fastest quarter of 20 blocks\n")
    print(table(["program", "variant", "seconds", "ratio, wall", "ratio, cpu", "target"], rows))
    print("\nadded to a process, ms\n")
    print(table(["program", "variant", "wall", "added, wall", "added, cpu"], added))
    save("overhead", before, results)


if __name__ == "__main__":
    main()

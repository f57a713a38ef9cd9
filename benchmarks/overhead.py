"""The cost of observing compiled calls, start-up and idle processes, beside that of TORCH_TRACE and TORCH_LOGS."""

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common import (
    PROGRAMS,
    RESULTS,
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
)

PLAIN, OURS = "plain", "torchtriage"
VARIANTS = (PLAIN, OURS, "TORCH_TRACE", "TORCH_LOGS")
MEASURING = "torchtriage --measure"  # a clock read on both sides of every compiled piece; here one piece per call
TARGETS = {"calls, inductor": 1.01, "start-up, inductor": 1.05}
# A control: the recorder is a thread, and this thread does nothing. It also shows how much two programs differ that do
# the same.
WITH_THREAD = "plain, with a thread that sleeps"
LAUNCHED = "torchtriage run"
PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "calls": (("inductor",), ("eager",)),
    "start-up": (("inductor", "1"), ("eager", "8")),
    "empty": (("nothing",), ("import_torch",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One observed process: wall seconds as a user sees them, and processor seconds, which other work hardly moves."""

    wall: float
    cpu: float


def environment(variant: str, scratch: Path, cache: Path) -> dict[str, str]:
    """How each variant is switched on; the program's command line is the same."""
    switch = {
        OURS: {"TORCHTRIAGE": str(scratch / "out.triage")},
        MEASURING: {"TORCHTRIAGE": str(scratch / "out.triage"), "TORCHTRIAGE_MEASURE": "1"},
        "TORCH_TRACE": {"TORCH_TRACE": str(scratch / "trace")},
        "TORCH_LOGS": {"TORCH_LOGS": "graph_breaks,recompiles"},
    }
    return clean_environment(TORCHINDUCTOR_CACHE_DIR=str(cache), **switch.get(variant, {}))


def observed(variant: str, program: list[str], cache: Path | None = None) -> Ended:
    """Run the program once, in a separate process; without a shared cache it gets a new one."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        env = environment(variant, scratch, cache or scratch / "inductor")
        launcher = ["-m", "torchtriage", "run", "-q", "-o", str(scratch / "out.triage")] if variant == LAUNCHED else []
        ended = run([sys.executable, *launcher, *program], env, cwd=scratch)
        if variant in (OURS, MEASURING) and not list(scratch.glob("out.triage/*")):
            raise SystemExit(
                "nothing was recorded: torchtriage.pth is not installed in this venv; make it with: make demo"
            )
        return ended


def calls(backend: str, rounds: int) -> dict[str, list[Cost]]:
    """100,000 calls, timed inside the program without its start; `cpu` is the processor time of all its threads."""
    with tempfile.TemporaryDirectory() as cache:
        program = [str(PROGRAMS / "small_function.py"), backend]

        def measure(variant: str) -> Cost:
            words = [*program, "thread"] if variant == WITH_THREAD else program
            blocks = json.loads(observed(variant, words, Path(cache)).stdout)
            return Cost(wall=sum(wall for wall, _ in blocks), cpu=sum(cpu for _, cpu in blocks))

        measure(PLAIN)  # fills the cache, so that every process loads the same kernel
        return interleaved((PLAIN, WITH_THREAD, OURS, *VARIANTS[2:], MEASURING), measure, rounds)


def whole_process(program: list[str], variants: tuple[str, ...], rounds: int) -> dict[str, list[Cost]]:
    def measure(variant: str) -> Cost:
        ended = observed(variant, program)
        return Cost(wall=ended.seconds, cpu=ended.cpu_seconds)

    return interleaved(variants, measure, rounds)


def ratio_rows(title: str, measured: dict[str, list[Cost]]) -> list[list[str]]:
    wall = {name: [c.wall for c in costs] for name, costs in measured.items()}
    cpu = {name: [c.cpu for c in costs] for name, costs in measured.items()}
    by_wall, by_cpu = ratios(wall, PLAIN), ratios(cpu, PLAIN)
    target = f"<= {TARGETS[title]}" if title in TARGETS else ""
    rows = [[title, PLAIN, f"{Spread.of(wall[PLAIN]).median:.2f} s", "", "", ""]]
    for name in by_wall:
        seconds = f"{Spread.of(wall[name]).median:.2f} s"
        rows.append(["", name, seconds, by_wall[name].show(), by_cpu[name].show(), target if name == OURS else ""])
    return rows


def added_rows(title: str, measured: dict[str, list[Cost]]) -> list[list[str]]:
    """Milliseconds added to a process."""
    plain = measured[PLAIN]
    rows = [[title, PLAIN, f"{1000 * Spread.of([c.wall for c in plain]).median:.0f} ms", "", ""]]
    for name, costs in measured.items():
        if name != PLAIN:
            wall = Spread.of([1000 * (a.wall - b.wall) for a, b in zip(costs, plain, strict=True)])
            cpu = Spread.of([1000 * (a.cpu - b.cpu) for a, b in zip(costs, plain, strict=True)])
            rows.append(
                ["", name, f"{1000 * Spread.of([c.wall for c in costs]).median:.0f} ms", wall.show(0), cpu.show(0)]
            )
    return rows


def measure_part(part: str, options: argparse.Namespace) -> dict[str, dict[str, list[Cost]]]:
    """Every program of a part, by its title."""
    results = {}
    for name, *arguments in PARTS[part]:
        title = f"{part}, {name}"
        note(title)
        if part == "calls":
            results[title] = calls(name, options.call_rounds)
        elif part == "start-up":
            results[title] = whole_process(
                [str(PROGRAMS / "start_up.py"), name, *arguments], VARIANTS, options.compile_rounds
            )
        else:
            results[title] = whole_process(
                [str(PROGRAMS / f"{name}.py")], (PLAIN, OURS, LAUNCHED, "TORCH_TRACE"), options.empty_rounds
            )
    return results


def show(measured: dict[str, dict[str, list[Cost]]]) -> None:
    print("\nobserved / plain, median of the rounds (least..most)")
    print("torchtriage: events and telemetry; TORCH_TRACE: all records of torch; TORCH_LOGS: breaks and recompiles")
    print("calls: 100,000 calls of a small compiled function; start-up: the whole process, cold inductor cache")
    print("cpu: processor seconds of all threads of the process and its children; for calls, without their start\n")
    rows = [
        row for title, costs in measured.items() if not title.startswith("empty") for row in ratio_rows(title, costs)
    ]
    print(table(["program", "variant", "seconds", "ratio, wall", "ratio, cpu", "target"], rows))
    print("\nadded to a process, ms\n")
    rows = [row for title, costs in measured.items() if title.startswith("empty") for row in added_rows(title, costs)]
    print(table(["program", "variant", "wall", "added, wall", "added, cpu"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--part", choices=PARTS, help="measure only this part; the others are taken from the last results"
    )
    parser.add_argument("--call-rounds", type=int, default=15)
    parser.add_argument("--compile-rounds", type=int, default=5)
    parser.add_argument("--empty-rounds", type=int, default=15)
    options = parser.parse_args()
    before = machine()
    measured = earlier() if options.part else {}
    for part in [options.part] if options.part else PARTS:
        measured |= measure_part(part, options)
    show(measured)
    save("overhead", before, {"targets": TARGETS, "rounds": measured})


def earlier() -> dict[str, dict[str, list[Cost]]]:
    path = RESULTS / "overhead.json"
    rounds = json.loads(path.read_text()).get("rounds", {}) if path.exists() else {}
    return {
        title: {name: [Cost(**c) for c in costs] for name, costs in variants.items()}
        for title, variants in rounds.items()
    }


if __name__ == "__main__":
    main()

"""Shared by the benchmarks: interleaved processes, medians with their spread, tables, and result files."""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
RESULTS = HERE / "results"
CACHE = HERE.parent / ".cache"  # venvs and traces that are expensive to make
_OURS_AND_PEERS = ("TORCHTRIAGE", "TORCH_LOGS", "TORCH_TRACE", "TORCHINDUCTOR_CACHE_DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A figure measured several times."""

    median: float
    low: float
    high: float
    num: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(median=statistics.median(values), low=min(values), high=max(values), num=len(values))

    def show(self, digits: int = 3) -> str:
        return f"{self.median:.{digits}f}  ({self.low:.{digits}f}..{self.high:.{digits}f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A process that ended: its time, its peak memory and its output.

    `cpu_seconds` is the processor time of the process and of the children it waited for; other work on the machine
    hardly affects it.
    """

    seconds: float
    cpu_seconds: float
    peak_mb: float
    stdout: str
    stderr: str
    status: int


def run(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 1800,
    check: bool = True,
) -> Ended:
    """Run a command by itself; its peak memory is not that of an earlier child,
    but at least that of this process when it started it.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = time.perf_counter()
        child = subprocess.Popen(
            list(command), env=dict(env) if env is not None else None, cwd=cwd, stdout=out, stderr=err
        )
        status, usage = _wait(child, timeout)
        seconds = time.perf_counter() - began
        out.seek(0)
        err.seek(0)
        ended = Ended(
            seconds=seconds,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            peak_mb=usage.ru_maxrss / 1024,
            stdout=out.read(),
            stderr=err.read(),
            status=status,
        )
    if check and status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}:\n{ended.stderr[-2000:]}")
    return ended


def _wait(child: "subprocess.Popen[bytes]", timeout: float) -> tuple[int, resource.struct_rusage]:
    """(exit status, what it used); status -9 for a child that exceeded its time."""
    killer = threading.Timer(timeout, child.kill)
    killer.start()
    try:
        _, status, usage = os.wait4(child.pid, 0)
    finally:
        killer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage


def clean_environment(**extra: str) -> dict[str, str]:
    """This environment without what would observe the program, one thread a process;
    byte code is kept, as it is after an install.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith((*_OURS_AND_PEERS, "PYTHONDONTWRITEBYTECODE"))}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"} | extra


def turns(variants: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """(round, variant), rotated, so that each round begins with another variant."""
    for number in range(rounds):
        shift = number % len(variants)
        yield from ((number, name) for name in (*variants[shift:], *variants[:shift]))


def interleaved(variants: Sequence[str], measure: Callable[[str], T], rounds: int) -> dict[str, list[T]]:
    """Measure every variant once per round."""
    measured: dict[str, list[T]] = {name: [] for name in variants}
    for number, name in turns(variants, rounds):
        began = time.perf_counter()
        measured[name].append(measure(name))
        note(f"  round {number + 1} of {rounds}: {name}, {time.perf_counter() - began:.1f} s")
    return measured


def in_turn(variants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Processor seconds of this thread per call and round, after one call that is not measured."""
    for call in variants.values():
        call()
    measured: dict[str, list[float]] = {name: [] for name in variants}
    for _, name in turns(list(variants), rounds):
        began = time.thread_time()
        variants[name]()
        measured[name].append(time.thread_time() - began)
    return measured


def ratios(measured: Mapping[str, Sequence[float]], base: str) -> dict[str, Spread]:
    """Each variant relative to the base, round by round: runs that are close in time share the state of the machine."""
    return {
        name: Spread.of([a / b for a, b in zip(values, measured[base], strict=True)])
        for name, values in measured.items()
        if name != base
    }


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [[str(c) for c in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def machine() -> dict[str, Any]:
    """The machine, and how busy it was with other work."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _proc("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "torchtriage": _version("torchtriage"),
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }


def _proc(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def save(name: str, before: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Leave benchmarks/results/NAME.json with the machine as it was before and after;
    parts that were not measured now stay in it.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    earlier = json.loads(path.read_text()) if path.exists() else {}
    document = {**earlier, "machine": before, "load_average_after": list(os.getloadavg()), **results}
    plain = json.dumps(document, indent=1, default=asdict)
    path.write_text(plain + "\n")
    print(f"\nmachine: {before}\nload average after: {os.getloadavg()}\nwrote {path.relative_to(HERE.parent)}")


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tlparse() -> str:
    """tlparse 0.4.3 in a separate venv, made once."""
    folder = CACHE / "tlparse-0.4.3"
    if not (folder / "bin" / "tlparse").exists():
        note(f"making {folder}")
        run([sys.executable, "-m", "venv", str(folder)])
        run([str(folder / "bin" / "pip"), "install", "--quiet", "tlparse==0.4.3"])
    return str(folder / "bin" / "tlparse")


def peers_python(name: str, packages: Sequence[Sequence[str]]) -> str:
    """An interpreter with other tools, made once: a venv that borrows torch and us from this one.
    Each item is words for `pip install`.
    """
    folder = CACHE / name
    python, is_made = folder / "bin" / "python", folder / "installed"
    if not is_made.exists():
        note(f"making {folder}")
        run([sys.executable, "-m", "venv", str(folder)])
        site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        (site / "borrowed.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        for words in packages:  # one by one, so that a package that cannot be installed does not prevent the others
            run(
                [str(python), "-m", "pip", "install", "--quiet", "-c", str(HERE.parent / "constraints.txt"), *words],
                check=False,
            )
        is_made.touch()
    return str(python)

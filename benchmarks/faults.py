"""Are faults of trainings found, with the cause first and soon, and are healthy trainings left in peace?

Runs the programs of fault_cases, each edited into seeded faults and healthy variants, under `torchtriage run`. A third
of them is held out: leave it alone while you choose a threshold.

    python benchmarks/faults.py [--only mlp] [--seeds 0,1] [--jobs 2]    # the two thirds that thresholds are chosen by
    python benchmarks/faults.py --held-out                               # the last third
    python benchmarks/faults.py --fork       # each program in a fork that records itself: several times faster
    python benchmarks/faults.py --list

`found` has one of the right rules among its findings of P3 or worse, `first` has it as the first finding, `delay` is
the number of steps from the first effect of the fault to the first step of that finding. `trivial` is the rule that
needs no tool: a value that is not finite, a gradient norm above 100 times its running median, or a loss whose mean over
the last tenth is not below that over the first tenth.
"""

import argparse
import contextlib
import importlib
import io
import math
import os
import pickle
import runpy
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common import clean_environment, machine, note, run, save, table
from fault_cases import (
    classifier,
    generators,
    handwritten,
    images,
    inputs,
    language,
    models,
    regressions,
    sequences,
    silent,
    trainers,
)
from fault_cases.variant import Variant

PROGRAMS = (
    classifier.PROGRAM,
    images.PROGRAM,
    language.PROGRAM,
    sequences.PROGRAM,
    generators.VAE,
    generators.GAN,
    regressions.MIXED,
    regressions.VALUES,
    regressions.TUNING,
    handwritten.MANUAL,
    handwritten.LION,
    handwritten.CLOSURE,
    trainers.TRAINER,
    trainers.AMP,
    trainers.MULTITASK,
    trainers.RECOMMENDER,
    models.SEGMENT,
    models.DISTIL,
    models.FORECAST,
    models.CONTRASTIVE,
    models.HINGE,
    silent.TRANSFER,
    inputs.SIGNALS,
    inputs.DECODER,
)
LEARNING = ("TT4", "TT5", "TT6")
SEVERE = ("P0", "P1", "P2")
NOTABLE = (*SEVERE, "P3")
NORM_FACTOR = 100.0
HEADER = ["program", "faults", "found", "first", "contracts", "trivial", "delay", "healthy", "P2", "P3", "trivial "]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One finding on the learning."""

    code: str
    severity: str
    title: str
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was said about one run of a variant."""

    variant: Variant
    seed: int
    findings: tuple[Told, ...]
    is_trivial: bool  # the trivial rule fires

    @property
    def right(self) -> Told | None:
        return next((f for f in self.findings if f.severity in NOTABLE and f.code in self.variant.codes), None)

    @property
    def is_first(self) -> bool:
        return bool(self.findings) and self.findings[0] is self.right

    @property
    def delay(self) -> int | None:
        if self.right is None or self.right.step is None:
            return None
        return max(0, self.right.step - self.variant.step)

    def num(self, severities: Sequence[str]) -> int:
        return sum(f.severity in severities for f in self.findings)


def variants() -> list[Variant]:
    return [variant for program in PROGRAMS for variant in program.variants()]


def observe(variant: Variant, seed: int, is_forked: bool) -> Outcome:
    """A recording of the program, and the report on it."""
    from torchtriage.diagnosis.report import build_report
    from torchtriage.recording.reader import read_recording

    with tempfile.TemporaryDirectory() as folder:
        script, recording = Path(folder, f"{variant.program}.py"), Path(folder, "run.triage")
        script.write_text(variant.source.replace("SEED", str(seed)))
        error = (record_in_fork if is_forked else record)(script, recording)
        if error:
            note(f"  {variant.program}/{variant.name} failed: {error[-600:]}")
        report = build_report(read_recording(recording))
    findings = tuple(
        Told(code=f.code, severity=f.severity.name, title=f.title, step=f.steps[0] if f.steps else None)
        for f in report.findings
        if f.code.startswith(LEARNING)
    )
    return Outcome(variant=variant, seed=seed, findings=findings, is_trivial=is_trivial(variant, seed))


def record(script: Path, recording: Path) -> str:
    """`torchtriage run`, as a user would; returns the error of a program that failed."""
    command = [sys.executable, "-m", "torchtriage", "run", "-q", "-o", str(recording), str(script)]
    ended = run(command, clean_environment(), cwd=script.parent, check=False)
    return ended.stderr if ended.status else ""


def import_for_forks() -> None:
    """The forks share what is imported here. One thread: a fork has none of the others."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in (
        "torch._dynamo.convert_frame",
        "torch._dynamo.backends.debugging",
        "torch._functorch.aot_autograd",
        "torch._functorch.partitioners",
        "torch.utils.data",
        "torchtriage.capture.observer",
        "torchtriage.capture.process_facts",
        "torchtriage.telemetry.attach",
    ):
        importlib.import_module(name)


def record_in_fork(script: Path, recording: Path) -> str:
    """The same taps in a fork of this process, which has imported torch."""
    import_for_forks()
    output = script.with_suffix(".output")
    child = os.fork()
    if child == 0:
        _record_and_exit(script, recording, output)
    _, status = os.waitpid(child, 0)
    return output.read_text() if status else ""


def _record_and_exit(script: Path, recording: Path, output: Path) -> None:
    """Observe a program as a process of `torchtriage run` does, and end the process."""
    from torchtriage.capture.observer import Observer
    from torchtriage.capture.process_facts import process_facts
    from torchtriage.recording.recorder import Recorder

    status, began = 1, time.time()
    try:
        handle = os.open(output, os.O_CREAT | os.O_WRONLY)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        recording.mkdir()
        recorder = Recorder(recording, lambda: process_facts(began), always=True)
        observer = Observer(recorder.add, on_first_step=recorder.start, telemetry=True)
        observer.arm_for_run()
        recorder.follow(observer)
        runpy.run_path(str(script), run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        recorder.close()
        sys.stdout.flush()
        os._exit(status)


# The trivial rule, on every loss and every gradient norm


def is_trivial(variant: Variant, seed: int) -> bool:
    losses, norms = every_step(variant.source.replace("SEED", str(seed)))
    if not all(map(math.isfinite, [*losses, *norms])):
        return True
    if any(norm > NORM_FACTOR * statistics.median(norms[:i]) for i, norm in enumerate(norms) if i >= 10):
        return True
    tenth = max(1, len(losses) // 10)
    return bool(losses) and statistics.fmean(losses[-tenth:]) >= statistics.fmean(losses[:tenth])


def every_step(source: str) -> tuple[list[float], list[float]]:
    """The loss of every backward pass and the gradient norm of every step, in a fork of this process."""
    import_for_forks()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run_and_exit(source, writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    losses, norms = pickle.loads(content)
    return losses, norms


def _run_and_exit(source: str, writer: int) -> None:
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    torch.set_num_threads(1)
    losses: list[float] = []
    norms: list[float] = []
    backward = torch.Tensor.backward

    def watched(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        losses.append(float(tensor.detach()))
        backward(tensor, *args, **kwargs)

    def step_begins(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norms.append(float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0)

    try:
        torch.Tensor.backward = watched  # type: ignore[method-assign]
        register_optimizer_step_pre_hook(step_begins)
        eager = source.replace('torch.compile(model, backend="aot_eager")', "model")
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(eager, "program", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
    finally:
        with open(writer, "wb") as pipe:
            pipe.write(pickle.dumps((losses, norms)))
        os._exit(0)


# The figures


def share(part: int, total: int) -> str:
    return f"{part}/{total}" + (f" {part / total:.0%}" if total else "")


def per_run(outcomes: Sequence[Outcome], severities: Sequence[str]) -> str:
    return f"{sum(o.num(severities) for o in outcomes) / len(outcomes):.2f}" if outcomes else "-"


def row(name: str, outcomes: Sequence[Outcome]) -> list[object]:
    faults = [o for o in outcomes if not o.variant.is_healthy]
    healthy = [o for o in outcomes if o.variant.is_healthy]
    contracts = [o for o in faults if o.variant.is_contract]
    delays = [o.delay for o in faults if o.delay is not None]
    return [
        name,
        len(faults),
        share(sum(o.right is not None for o in faults), len(faults)),
        share(sum(o.is_first for o in faults), len(faults)),
        share(sum(o.right is not None for o in contracts), len(contracts)),
        share(sum(o.is_trivial for o in faults), len(faults)),
        f"{statistics.median(delays):.0f} (<= {max(delays)})" if delays else "-",
        len(healthy),
        per_run(healthy, SEVERE),
        per_run(healthy, ("P3",)),
        share(sum(o.is_trivial for o in healthy), len(healthy)),
    ]


def show(outcomes: Sequence[Outcome]) -> str:
    names = dict.fromkeys(o.variant.program for o in outcomes)
    rows = [row(name, [o for o in outcomes if o.variant.program == name]) for name in names]
    return table(HEADER, [*rows, row("all", outcomes)])


def problem(outcome: Outcome) -> str:
    """Why this run does not count as perfect; empty if it does."""
    said = "; ".join(f"{f.code} {f.severity} @{f.step} {f.title[:70]}" for f in outcome.findings[:4]) or "nothing"
    if outcome.variant.is_healthy:
        return f"FALSE {said}" if outcome.num(NOTABLE) else ""
    if outcome.right is None:
        return f"MISS  {' '.join(outcome.variant.codes)}: {said}"
    return "" if outcome.is_first else f"LATER {' '.join(outcome.variant.codes)}: {said}"


def measure(chosen: Iterable[tuple[Variant, int]], jobs: int, is_forked: bool) -> list[Outcome]:
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(lambda pair: observe(*pair, is_forked), chosen):
            outcomes.append(outcome)
            name = f"{outcome.variant.program}/{outcome.variant.name} ({outcome.seed})"
            note(f"  {problem(outcome) or 'ok   '}  <- {name}")
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="variants whose program/name contains one of these, with commas")
    parser.add_argument("--held-out", action="store_true", help="the third that is not for choosing thresholds")
    parser.add_argument("--fork", action="store_true", help="record in a fork of this process")
    parser.add_argument("--check", action="store_true", help="status 1 unless all is perfect")
    parser.add_argument("--list", action="store_true", help="print the variants")
    parser.add_argument("--seeds", default="0", help="seeds of each program, with commas")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    wanted = options.only.split(",")
    chosen = [v for v in variants() if any(part in f"{v.program}/{v.name}" for part in wanted)]
    if options.list:
        rows = [
            (v.program, v.name, " ".join(v.codes) or "healthy", v.step or "", "held out" if v.is_held_out else "")
            for v in chosen
        ]
        print(table(["program", "variant", "rules", "step", ""], rows))
        return
    chosen = [v for v in chosen if v.is_held_out == options.held_out]
    before = machine()
    outcomes = measure(
        [(v, int(seed)) for v in chosen for seed in options.seeds.split(",")], options.jobs, options.fork
    )
    print(show(outcomes))
    if options.check:
        raise SystemExit(int(any(map(problem, outcomes))))
    results = [
        {
            "program": o.variant.program,
            "name": o.variant.name,
            "seed": o.seed,
            "problem": problem(o),
            "findings": [f.code for f in o.findings],
            "is_trivial": o.is_trivial,
        }
        for o in outcomes
    ]
    save("faults", before, {"held out" if options.held_out else "chosen by": results})


if __name__ == "__main__":
    main()

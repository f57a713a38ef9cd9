"""The cost of Monitor in a complete training step, and in memory: three trainings, with and without it.

There is one process per training and setting. Blocks of steps with and without Monitor take turns in it, so that both
see the same memory, caches and neighbours; the share is that of a block relative to the adjacent plain block. The table
also has the time of Monitor's own calls, which has less noise but does not include their effect on the caches.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from common import clean_environment, note, run, table
from torch.nn import functional

if TYPE_CHECKING:
    from torchtriage.telemetry import Monitor

PLAIN, WITH, EVERY_STEP, DEFAULT = "plain", "with", "every step", "default interval"
# Without a budget, which would reduce the number of samples; the default has one.
CONFIGS: dict[str, dict[str, Any]] = {EVERY_STEP: {"normal_interval": 1, "overhead_budget": 1.0}, DEFAULT: {}}
TARGETS = {EVERY_STEP: 0.01, DEFAULT: 0.003}
BUDGET_ONLY = (  # so little arithmetic per parameter that only the budget of the default (1 %) is promised
    "MLP, 8M, batch 64"
)
BLOCK = 10  # steps: one sample at the default interval
WARM_UP = 4  # blocks: Monitor samples all of the first 20 steps


@dataclass(slots=True, kw_only=True)
class Training:
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[], torch.Tensor]
    max_norm: float
    own_seconds: float = 0.0  # in calls of Monitor

    def step(self, monitor: "Monitor | None") -> None:
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        if monitor is not None:
            self._call(monitor.after_backward, loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
        if monitor is not None:
            self._call(monitor.step)

    def _call(self, method: Callable[..., None], *args: object) -> None:
        began = time.perf_counter()  # not of this thread's processor: torch's other threads help
        method(*args)
        self.own_seconds += time.perf_counter() - began

    def block(self, monitor: "Monitor | None") -> tuple[float, float]:
        """Milliseconds per step: wall time, and processor time of this thread."""
        began, began_cpu = time.perf_counter(), time.thread_time()
        for _ in range(BLOCK):
            self.step(monitor)
        return 1e3 * (time.perf_counter() - began) / BLOCK, 1e3 * (time.thread_time() - began_cpu) / BLOCK


class RecurrentPolicy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(64, 128)
        self.lstm = torch.nn.LSTM(128, 224)
        self.actor, self.critic = torch.nn.Linear(224, 16), torch.nn.Linear(224, 1)

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, _ = self.lstm(torch.tanh(self.encoder(observation)))
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


def ppo_lstm() -> Training:
    """A minibatch of 64 sequences of 32 steps: clipped surrogate, value loss, entropy."""
    model = RecurrentPolicy()
    observation, action = torch.randn(32, 64, 64), torch.randint(16, (32, 64))
    advantage, target = torch.randn(32, 64), torch.randn(32, 64)
    with torch.no_grad():
        old_log_prob = torch.log_softmax(model(observation)[0], -1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def loss() -> torch.Tensor:
        logits, value = model(observation)
        log_probs = torch.log_softmax(logits, -1)
        ratio = (log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1) - old_log_prob).exp()
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        return -surrogate + 0.5 * (value - target).square().mean() - 0.01 * entropy

    return Training(model=model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-5), loss=loss, max_norm=0.5)


def transformer() -> Training:
    """Six layers of width 256; 8 sequences of 64 tokens."""
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, norm_first=True)
    model = torch.nn.Sequential(
        torch.nn.Embedding(1000, 256),
        torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False),
        torch.nn.Linear(256, 1000),
    )
    tokens = torch.randint(1000, (8, 65))

    def loss() -> torch.Tensor:
        logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return Training(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-5), loss=loss, max_norm=1.0)


def mlp() -> Training:
    sizes = (784, 2048, 2048, 1024, 10)
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (torch.nn.Linear(a, b), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers[:-1])
    x, y = torch.randn(64, 784), torch.randint(10, (64,))
    return Training(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-5),
        max_norm=1.0,
        loss=lambda: functional.cross_entropy(model(x), y),
    )


TRAININGS = {"PPO LSTM, 0.3M": ppo_lstm, "transformer, 5M": transformer, BUDGET_ONLY: mlp}


def new_monitor(training: Training, setting: str, folder: str) -> "Monitor | None":
    if setting == PLAIN:
        return None
    # Imported here, so that the memory of a plain training does not include torchtriage.
    from torchtriage.telemetry import Monitor, TelemetryConfig
    from torchtriage.telemetry.sinks.recording import RecordingSink

    config = TelemetryConfig(**CONFIGS[setting])
    return Monitor(training.model, training.optimizer, config=config, sinks=[RecordingSink(Path(folder, "out.triage"))])


def measure(training: Training, monitor: "Monitor", seconds: float) -> dict[str, Any]:
    """Milliseconds per step of blocks that take turns, and the work of Monitor in its blocks."""
    for _ in range(WARM_UP):
        training.block(monitor)
    training.block(None)
    monitor.writer.flush()
    before, own_before, until = monitor.facts()["telemetry"], training.own_seconds, time.perf_counter() + seconds
    clock: dict[str, list[float]] = {PLAIN: [], WITH: []}
    processor: dict[str, list[float]] = {PLAIN: [], WITH: []}
    while time.perf_counter() < until or len(clock[PLAIN]) < 4:
        for variant in (PLAIN, WITH) if len(clock[PLAIN]) % 2 else (WITH, PLAIN):
            of_clock, of_processor = training.block(monitor if variant == WITH else None)
            clock[variant].append(of_clock)
            processor[variant].append(of_processor)
    monitor.writer.flush()
    after, num_steps = monitor.facts()["telemetry"], BLOCK * len(clock[WITH])
    behind = after["background_seconds"] - before["background_seconds"]
    return {
        "clock": clock,
        "processor": processor,
        "calls_ms": 1e3 * (training.own_seconds - own_before) / num_steps,
        "background_ms": 1e3 * behind / num_steps,
        "num_steps": num_steps,
        "num_looks": after["num_observed"] - before["num_observed"],
        "num_escalations": after["num_escalations"],
        "num_tensors": after["num_tensors"],
        "num_dropped": after["num_dropped"],
    }


def shares(options: argparse.Namespace) -> dict[str, Any]:
    """The part of `make bench NAME=telemetry` that prints the share of a step."""
    rows, results = [], {}
    for name in TRAININGS:
        for setting, target in TARGETS.items():
            note(f"steps: {name}, {setting}")
            seen = _worker(options, name, setting, "--seconds", str(options.step_seconds))
            share = Share.of(seen)
            limit = f"{target:.1%}" if name != BUDGET_ONLY else "1.0%" if setting == DEFAULT else ""
            step = f"{statistics.median(seen['clock'][PLAIN]):.1f} ms"
            rows.append([name, setting, step, *share.cells(), limit, f"{seen['num_looks']} of {seen['num_steps']}"])
            results[f"{name}, {setting}"] = {"share": share, **seen}
    print(f"\nshare of a training step, {options.threads} threads, blocks of {BLOCK} steps\n")
    print(table(["training", "Monitor", "plain step", *Share.HEADER, "target", "looks"], rows))
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The share that Monitor adds to a plain step: adjacent blocks by two clocks, and its own calls alone."""

    HEADER: ClassVar = ("clock (quartiles)", "processor (quartiles)", "its calls", "and background")
    clock: list[float]  # lower quartile, median, upper quartile
    processor: list[float]
    calls: float
    background: float

    @classmethod
    def of(cls, seen: dict[str, Any]) -> "Share":
        def quartiles(blocks: dict[str, list[float]]) -> list[float]:
            return statistics.quantiles([b / a - 1 for a, b in zip(blocks[PLAIN], blocks[WITH], strict=True)], n=4)

        step = statistics.median(seen["clock"][PLAIN])
        return cls(
            clock=quartiles(seen["clock"]),
            processor=quartiles(seen["processor"]),
            calls=seen["calls_ms"] / step,
            background=seen["background_ms"] / step,
        )

    def cells(self) -> list[str]:
        spreads = [f"{median:.2%}  ({low:.2%}..{high:.2%})" for low, median, high in (self.clock, self.processor)]
        return [*spreads, f"{self.calls:.2%}", f"{self.calls + self.background:.2%}"]


def memory(options: argparse.Namespace) -> dict[str, Any]:
    """Peak memory of a process with Monitor and of one without."""
    rows, results = [], {}
    for name in TRAININGS:
        note(f"memory: {name}")
        peaks: dict[str, list[float]] = {PLAIN: [], DEFAULT: []}
        for _ in range(options.memory_rounds):
            for setting, values in peaks.items():
                seen = _worker(options, name, setting)
                values.append(seen["peak_mb"])
        extra = statistics.median(peaks[DEFAULT]) - statistics.median(peaks[PLAIN])
        rows.append(
            [
                name,
                f"{statistics.median(peaks[PLAIN]):.0f} MB",
                f"{extra:+.1f} MB",
                f"{seen['ring_bytes'] / 2**20:.2f} MB",
            ]
        )
        results[name] = {"peak_mb": peaks, "extra_mb": extra, "ring_bytes": seen["ring_bytes"]}
    print("\nmemory\n")
    print(table(["training", "peak without Monitor", "with it", "of that the ring"], rows))
    return results


def _worker(options: argparse.Namespace, *words: str) -> dict[str, Any]:
    ended = run([sys.executable, __file__, *words], clean_environment(OMP_NUM_THREADS=str(options.threads)))
    seen: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return seen


def own_peak_mb() -> float:
    """The peak of this process; the value that its parent sees is at least the parent's own peak."""
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """The program of a separate process; it prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("training", choices=TRAININGS)
    parser.add_argument("setting", choices=[PLAIN, *CONFIGS])
    parser.add_argument(
        "--seconds",
        type=float,
        help="measure for so long; without it only train a little, for the memory that it takes",
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    training = TRAININGS[options.training]()
    with tempfile.TemporaryDirectory() as folder:
        monitor = new_monitor(training, options.setting, folder)
        if options.seconds is not None:
            if monitor is None:
                parser.error("--seconds compares with a plain training; name a setting of Monitor")
            results = measure(training, monitor, options.seconds)
        else:
            training.block(monitor)
            results = {"ring_bytes": monitor._followed.track.ring.host_KW.nbytes if monitor is not None else 0}
        if monitor is not None:
            monitor.close()
    print(
        json.dumps(
            {**results, "peak_mb": own_peak_mb(), "num_parameters": sum(p.numel() for p in training.model.parameters())}
        )
    )


if __name__ == "__main__":
    main()

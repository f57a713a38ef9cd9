"""Cost and accuracy of statistics of gradients and weights, beside a memory read, torch's norm, other tools, a step.

Everything except complete training steps and the part `team` runs on one thread and is measured in processor seconds of
that thread, which other work on the machine hardly affects. Variants take turns within one process, and a ratio is
between measurements that are adjacent in time.
"""

import argparse
import importlib
import math
import os
import sys
from typing import Any

import numpy as np
import torch
from common import HERE, Spread, in_turn, machine, note, ratios, save, table
from telemetry_peers import against_peers, transformer_shapes
from telemetry_share import memory, shares
from telemetry_team import teams

from torchtriage.telemetry.statistics import aten as aten_statistics
from torchtriage.telemetry.statistics import native as kernel
from torchtriage.telemetry.statistics.columns import Stat
from torchtriage.telemetry.statistics.plan import ParameterPlan, statistics

sys.path.insert(0, str(HERE.parent))  # the reference that the tests compare with

READ = "read"
WITHOUT_COUNTS = {"small": 0.0, "large": math.inf}
# (dtype, kind) -> the most that it may cost, in reads of the same bytes: without, and with the small and large counts
TARGETS = {
    ("fp32", "normal"): (1.15, 1.3),
    ("bf16", "normal"): (2.0, 2.0),
    ("fp16", "normal"): (2.0, 2.0),
    ("fp64", "normal"): (None, None),
    **{("fp32", kind): (5.0, 5.0) for kind in ("NaN", "equal", "mean 1e4", "1e25", "1e-30", "subnormal")},
    **{("bf16", kind): (8.0, 8.0) for kind in ("NaN", "equal", "mean 1e4")},
    ("fp16", "NaN"): (8.0, 8.0),
    ("fp16", "subnormal"): (8.0, 8.0),
}
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}


def filled(kind: str, shape: tuple[int, ...], dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    x = torch.randn(shape, generator=random)
    if kind == "NaN":
        x.view(-1)[::1000] = math.nan
    elif kind == "equal":
        x.fill_(3.3)
    elif kind == "mean 1e4":
        x.add_(1e4)
    else:
        x.mul_({"normal": 1e-4, "1e25": 1e25, "1e-30": 1e-30, "subnormal": torch.finfo(dtype).tiny / 100}[kind])
    return x.to(dtype)


class Bytes:
    """The yardstick: the kernel's own loop that adds up the same bytes as integers."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors
        self._pointers = np.array([t.data_ptr() for t in tensors], dtype=np.int64)
        self._sizes = np.array([t.numel() * t.element_size() for t in tensors], dtype=np.int64)
        loaded = kernel.load()
        if loaded is None:
            raise SystemExit("the native part was not built; install a C compiler and run: make demo")
        self._kernel, self.num = loaded, int(self._sizes.sum())

    def read(self) -> None:
        self._kernel.read(
            len(self._kernel.isas) - 1, len(self._tensors), self._pointers.ctypes.data, self._sizes.ctypes.data
        )


def against_a_read(options: argparse.Namespace) -> dict[str, Any]:
    """Every dtype and kind of data, in reads of the same bytes."""
    rows, results = [], {}
    for (dtype, kind), targets in TARGETS.items():
        note(f"reads: {dtype} {kind}")
        random = torch.Generator().manual_seed(0)
        tensors = [filled(kind, shape, DTYPES[dtype], random) for shape in transformer_shapes(options.scale)]
        yardstick = Bytes(tensors)
        plain = ParameterPlan(tensors, gradients=False, weights=True, **WITHOUT_COUNTS)
        counting = ParameterPlan(tensors, gradients=False, weights=True)
        measured = in_turn({READ: yardstick.read, "without": plain.step, "with": counting.step}, options.rounds)
        by_read = ratios(measured, READ)
        speed = yardstick.num / Spread.of(measured[READ]).median / 1e9
        limit = " / ".join(str(t) for t in targets) if targets[0] else ""
        rows.append(
            [f"{dtype}, {kind}", f"{speed:.1f} GB/s", by_read["without"].show(2), by_read["with"].show(2), limit]
        )
        results[f"{dtype}, {kind}"] = {"ratios": by_read, "gigabytes_per_second": speed}
        del tensors, yardstick, plain, counting
    print(
        f"\n148 tensors, {options.scale:.3g} x 101M elements, statistics / read of the same bytes"
        f" ({kernel.described()['kernel']})\n"
    )
    print(table(["data", "read", "without small and large counts", "with them", "target"], rows))
    return results


def accuracy(options: argparse.Namespace) -> dict[str, Any]:
    """The largest error of each path over sizes from 1 to a million."""
    reference = importlib.import_module("tests.unit.telemetry.reference")
    loaded = kernel.load()
    paths = ["aten", *(loaded.isas if loaded else [])]
    rows, worst = [], {}
    for kind in reference.KINDS:
        tensors = [reference.sample(kind, size) for size in (*reference.SIZES, options.accuracy_size)]
        truths = [reference.true_row(tensor) for tensor in tensors]
        for path in paths:
            pairs = list(zip(statistics(tensors, path=path), truths, strict=True))
            errors = [reference.errors(row, truth) for row, truth in pairs]
            exact = all((row[Stat.MIN :] == truth[Stat.MIN :]).all() for row, truth in pairs)
            worst[f"{kind}, {path}"] = {name: max(e[name] for e in errors) for name in errors[0]} | {
                "extremes and counts": exact
            }
        rows.append(
            [kind]
            + [
                "  ".join(f"{worst[f'{kind}, {p}'][n]:.0e}" for n in ("NORM", "MEAN", "STD"))
                + ("" if worst[f"{kind}, {p}"]["extremes and counts"] else "  COUNTS WRONG")
                for p in paths
            ]
        )
    print(
        "\nlargest error against float64: norm, mean relative to max(|mean|, std), std; extremes and counts are equal"
        " unless said\n"
    )
    print(table(["data", *paths], rows))
    return worst


def operations(options: argparse.Namespace) -> dict[str, Any]:
    """What the ATen path runs, with buffers of the size that a GPU has:
    the same for any number of tensors of a dtype that fit them.
    """
    counting = importlib.import_module("tests.unit.telemetry.counting")
    aten_statistics.CPU_CHUNK = aten_statistics.CHUNK
    cases = {f"{num:,} of 64 elements": [(64,)] * num for num in (1, 148, 1000)}
    cases[f"148, {options.scale:.3g} x 101M elements"] = list(transformer_shapes(options.scale))
    rows, results = [], {}
    for title, shapes in cases.items():
        tensors = [torch.zeros(shape) for shape in shapes]
        plan = aten_statistics.AtenPlan(tensors)
        plan.run(tensors)
        with counting.operations() as seen:
            plan.run(tensors)
        reads = sum("_local_scalar_dense" in name for name in seen.names)
        fills = -(-sum(t.numel() for t in tensors) // aten_statistics.CHUNK)
        rows.append([title, fills, len(seen.names), reads, f"{seen.num_bytes} bytes"])
        results[title] = {
            "fills_of_the_buffer": fills,
            "operations": len(seen.names),
            "host_reads": reads,
            "new_bytes": seen.num_bytes,
        }
    print("\nthe ATen path, one dtype, after the first step\n")
    print(table(["tensors", "fills of the buffer", "operations", "host reads", "allocated"], rows))
    return results


PARTS = {
    "reads": against_a_read,
    "peers": against_peers,
    "steps": shares,
    "memory": memory,
    "accuracy": accuracy,
    "operations": operations,
    "team": teams,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be given again")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--scale", type=float, default=1.0, help="of the 101 million elements")
    parser.add_argument("--peer-rounds", type=int, default=15)
    parser.add_argument("--peer-scale", type=float, default=0.05)
    parser.add_argument(
        "--peers-python", help="an interpreter that has the other tools; by default one is made in .cache"
    )
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="of whole training steps; torch's own default is all"
    )
    parser.add_argument("--step-seconds", type=float, default=25.0, help="for each training and setting")
    parser.add_argument("--memory-rounds", type=int, default=2)
    parser.add_argument("--accuracy-size", type=int, default=1_000_003)
    options = parser.parse_args()
    torch.set_num_threads(1)
    before = machine()
    save("telemetry", before, {part: PARTS[part](options) for part in options.part or PARTS})


if __name__ == "__main__":
    main()

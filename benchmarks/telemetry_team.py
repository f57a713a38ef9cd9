"""The time that torch's threads save in a sample, by its size, while they are awake and while they sleep."""

import argparse
import statistics
import time
from typing import Any

import torch
from common import note, table

from torchtriage.telemetry.statistics import plan

SIZES_KB = (256, 1024, 2048, 4096, 8192, 21_000, 84_000)
NAP_SECONDS = 0.02  # after which the threads of the runtime sleep


def teams(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    limit, plan.TEAM_BYTES = plan.TEAM_BYTES, 0
    rows, results = [], {}
    for size_kb in SIZES_KB:
        note(f"team: {size_kb} KB")
        awake, woken = _measured(size_kb, 0.0, 200), _measured(size_kb, NAP_SECONDS, 60)
        rows.append([f"{size_kb:,} KB", *_cells(awake), *_cells(woken)])
        results[f"{size_kb} KB"] = {"awake": awake, "woken": woken}
    plan.TEAM_BYTES = limit
    torch.set_num_threads(1)
    print(
        f"\na look by one thread and by {options.threads}, caches cold, median microseconds; used from {limit >> 10:,}"
        " KB on\n"
    )
    print(table(["gradients", "awake: one", "team", "ratio", "woken: one", "team", "ratio"], rows))
    return results


def _measured(size_kb: int, nap: float, num: int) -> dict[str, list[float]]:
    num_tensors = max(4, min(75, size_kb // 16))
    tensors = [torch.randn(size_kb * 256 // num_tensors) for _ in range(num_tensors)]
    names = [str(i) for i in range(num_tensors)]
    plans = {"one": plan.TensorPlan(names), "team": plan.TensorPlan(names, in_team=True)}
    for each in plans.values():
        each.run(tensors)
    filled = torch.zeros(num_tensors, plan.NUM_STATS, dtype=torch.float64)
    others, square = torch.randn(8_000_000), torch.randn(400, 400)
    seconds: dict[str, list[float]] = {"one": [], "team": []}
    for turn in range(num):
        for name in sorted(plans, reverse=bool(turn % 2)):
            others.add_(1)
            torch.mm(square, square)
            time.sleep(nap)
            began = time.perf_counter()
            plans[name].fill(tensors, filled.data_ptr(), limits=False)
            seconds[name].append(time.perf_counter() - began)
    return seconds


def _cells(seconds: dict[str, list[float]]) -> list[str]:
    ratio = statistics.median(team / one for one, team in zip(seconds["one"], seconds["team"], strict=True))
    return [
        f"{1e6 * statistics.median(seconds['one']):.0f}",
        f"{1e6 * statistics.median(seconds['team']):.0f}",
        f"{ratio:.2f}",
    ]

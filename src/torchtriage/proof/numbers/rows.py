"""The numbers that a run of `torchtriage verify` left, one row per optimizer step."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SUFFIX = ".numbers"
MAX_BYTES = 512 << 20

TensorRow = Sequence[float]     # [norm, projections, size of one rounding]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One step of one optimizer."""

    optimizer: int
    step: int
    time: float
    losses: Sequence[Sequence[float]] = ()      # [value, size of one rounding]
    draws: Sequence[int] = ()                   # one digest per random generator
    drawn: Sequence[int] = ()                   # of the values drawn since the last row: digest, bits; eager runs only
    settings: Sequence[Mapping[str, float]] = ()    # of the optimizer, per parameter group: lr, weight_decay, ...
    gradients: Mapping[str, TensorRow] = field(default_factory=dict)
    weights: Mapping[str, TensorRow] = field(default_factory=dict)
    state: Mapping[str, TensorRow] = field(default_factory=dict)    # of modules, beside the weights of optimizers


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNumbers:
    """The rows of all ranks, one after the other, and the totals of the run."""

    rows: Sequence[StepRow] = ()
    saved: Sequence[Mapping[str, TensorRow]] = ()       # the tensors of each torch.save
    num_steps: int = 0
    graph_calls: int = 0
    graph_ops: int = 0
    optimizer_ops: int = 0      # of graph_ops
    eager_ops: int = 0
    clipping_ops: int = 0       # eager runs only: operations of torch.nn.utils.clip_grad
    repeated_draws: int = 0     # eager runs only: draws of values that the same process drew before
    draw_keys: int = 0          # runs with arranged draws: a digest of what was drawn in which step
    drawn_elements: Mapping[str, int] = field(default_factory=dict)     # and how many values of each kind
    repeats_shapes: bool = False    # eager runs only: a step draws the same kind and shape more than once
    draw_pairs: frozenset[int] = frozenset()    # digests of what a step draws twice
    num_ranks: int = 0
    ended_early: int = 0
    peak_memory_bytes: int | None = None
    torch: str = ""
    problem: str = ""
    is_there: bool = False      # the run left a file


def read_numbers(folder: Path) -> RunNumbers:
    """The numbers in a recording; empty without any. A line that cannot be read is left out."""
    processes = [_process(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    if not processes:
        return RunNumbers()
    trained = [process for process in processes if process[0]]
    trained.sort(key=lambda process: _rank(process[1]))
    ends = [end for _, end, _ in processes]
    main = trained[0][1] if trained else max(ends, key=lambda end: _number(end, "eager_ops"))
    memory = main.get("memory")
    return RunNumbers(
        rows=[row for rows, _, _ in trained for row in rows], saved=[one for *_, saved in processes for one in saved],
        num_steps=int(_number(main, "steps")),
        graph_calls=sum(int(_number(end, "graph_calls")) for end in ends),
        graph_ops=sum(int(_number(end, "graph_ops")) for end in ends),
        optimizer_ops=sum(int(_number(end, "optimizer_ops")) for end in ends),
        eager_ops=sum(int(_number(end, "eager_ops")) for end in ends),
        clipping_ops=sum(int(_number(end, "clipping_ops")) for end in ends),
        repeated_draws=sum(int(_number(end, "repeated_draws")) for end in ends),
        draw_keys=sum(int(_number(end, "draw_keys")) for end in ends), drawn_elements=_sums(ends, "drawn_elements"),
        repeats_shapes=any(end.get("repeats_shapes") is True for end in ends),
        draw_pairs=frozenset(number for end in ends for number in end.get("draw_pairs") or () if type(number) is int),
        num_ranks=len(trained), ended_early=int(_number(main, "ended_early")),
        peak_memory_bytes=_peak(memory) if isinstance(memory, dict) else None,
        torch=str(main.get("torch", "")), problem=str(main.get("problem", "")), is_there=True,
    )


def _process(path: Path) -> tuple[list[StepRow], dict[str, Any], list[dict[str, TensorRow]]]:
    """Its rows, its totals, and what it saved."""
    rows, end, saved = [], dict[str, Any](), list[dict[str, TensorRow]]()
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                data = json.loads(line)
                if data["kind"] == "step":
                    rows.append(_row(data))
                elif data["kind"] == "saved":
                    saved.append(_tensors(data["tensors"]))
                elif data["kind"] == "end":
                    end = data
            except (ValueError, KeyError, TypeError, RecursionError):
                continue    # cut off as the process was killed
    if rows and not end:
        end = {"steps": max(row.step for row in rows)}
    return rows, end, saved


def _row(data: Mapping[str, Any]) -> StepRow:
    return StepRow(
        optimizer=int(data["optimizer"]), step=int(data["step"]), time=float(data["time"]),
        losses=[[float(number) for number in loss] for loss in data["losses"]],
        draws=[int(number) for number in data["draws"]], drawn=[int(number) for number in data.get("drawn", ())],
        settings=[{str(name): float(value) for name, value in group.items()} for group in data.get("settings", ())],
        gradients=_tensors(data.get("gradients", {})), weights=_tensors(data.get("weights", {})),
        state=_tensors(data.get("state", {})),
    )


def _tensors(data: Mapping[str, Any]) -> dict[str, TensorRow]:
    return {str(name): [float(number) for number in row] for name, row in data.items()}


def _number(data: Mapping[str, Any], name: str) -> float:
    value = data.get(name)
    return value if isinstance(value, int | float) and math.isfinite(value) else 0


def _sums(ends: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    """The sums of dicts of numbers."""
    total = Counter[str]()
    for end in ends:
        value = end.get(name)
        if isinstance(value, dict):
            total.update({str(key): int(_number(value, key)) for key in value})
    return dict(total)


def _rank(end: Mapping[str, Any]) -> int:
    text = str(end.get("rank"))
    return int(text) if text.isdigit() else -1


def _peak(memory: Mapping[str, Any]) -> int | None:
    value = memory.get("peak_device_memory_bytes") or memory.get("peak_memory_bytes")
    return value if isinstance(value, int) else None

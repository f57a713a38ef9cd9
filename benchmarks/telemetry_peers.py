"""Statistics of torchtriage beside those of other tools, in calls of torch.nn.utils.get_total_norm.

The other tools are in a separate venv, whose interpreter runs this file; all variants take turns in one process.
"""

import argparse
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_file_location
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from common import Spread, clean_environment, in_turn, note, peers_python, ratios, run, table

from torchtriage.telemetry.statistics.histogram import exponent_histograms
from torchtriage.telemetry.statistics.plan import ParameterPlan

BASE = "torch.nn.utils.get_total_norm"
TINY = "1,000 tensors of 64"
TINY_TARGETS = {"gradients": 0.5, "gradients and weights": 0.6}
PEERS = (("wandb",), ("pytorch-lightning",), ("--no-deps", "mosaicml"))
WANDB, LIGHTNING, COMPOSER = (
    "wandb.watch's statistics of gradients",
    "Lightning's grad_norm",
    "Composer's OptimizerMonitor",
)
TEN = "norm, mean, std, extremes and counts per tensor"
# The variants do not do the same work, so the table says what each computes.
COMPUTES = {
    BASE: "one norm of all gradients",
    "gradients": TEN,
    "gradients and weights": f"{TEN}, of gradients and of weights",
    "gradients and weights, ATen path": f"{TEN}, of gradients and of weights",
    "gradients, with histograms": f"{TEN}, and a histogram of 64 bins by exponent",
    "ten scalars stacked, one tolist": "norm, mean, std, extremes per tensor, of gradients and of weights",
    WANDB: "a histogram of 64 bins per tensor; no norm",
    LIGHTNING: "one norm per tensor and the total",
    COMPOSER: "norms per tensor of gradients, weights, moments and updates of the optimizer",
}


def model_of(shapes: list[tuple[int, ...]]) -> torch.nn.Module:
    module = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(shape) * 0.02) for shape in shapes])
    for parameter in module:
        parameter.grad = torch.randn_like(parameter) * 1e-4
    return module


def transformer_shapes(scale: float) -> Iterator[tuple[int, ...]]:
    """148 tensors, 101 million elements: a 12-layer transformer of width 768, or a narrower one."""
    width = max(8, int(768 * math.sqrt(scale)))
    yield from ((20_000 * width // 768, width), (1024 * width // 768, width))
    for _ in range(12):
        yield from ((width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,))
        yield from ((width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,))
    yield from ((width,), (width,))


def stacked(parameters: list[torch.nn.Parameter]) -> list[list[float]]:
    """Five scalars of the gradient and five of the weight, stacked, one transfer in the end."""
    rows = []
    for p in parameters:
        g, w = p.grad, p.detach()
        rows.append(
            torch.stack([x for t in (g, w) for x in (t.norm(), t.mean(), t.std(correction=0), t.min(), t.max())])
        )
    return torch.stack(rows).tolist()


def wandb_statistics(model: torch.nn.Module) -> Callable[[], object]:
    wandb, history = (
        importlib.import_module("wandb"),
        importlib.import_module("wandb.integration.torch.wandb_torch").TorchHistory(),
    )
    wandb.init(mode="disabled")
    return lambda: [history.log_tensor_stats(p.grad, "g") for p in model.parameters()]


def lightning_norms(model: torch.nn.Module) -> Callable[[], object]:
    grad_norm = importlib.import_module("pytorch_lightning.utilities").grad_norm
    return lambda: grad_norm(model, norm_type=2)


def composer_monitor(model: torch.nn.Module) -> Callable[[], object]:
    """Its own file, by itself: the package asks for an older torch,
    but this file takes only a base class and names of types from it.
    """
    for name in ("composer", "composer.core", "composer.loggers", "composer.utils"):
        sys.modules[name] = MagicMock(Callback=object)
    path = distribution("mosaicml").locate_file("composer/callbacks/optimizer_monitor.py")
    spec = spec_from_file_location("optimizer_monitor", str(path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monitor = module.OptimizerMonitor(batch_log_interval=1)
    timestamp = SimpleNamespace(batch=SimpleNamespace(value=0))
    optimizer = torch.optim.AdamW(model.parameters())
    state = SimpleNamespace(model=model, optimizers=[optimizer], timestamp=timestamp, fsdp_enabled=False)
    return lambda: monitor.batch_end(state, SimpleNamespace(log_metrics=len))


# The other tools' own code; nothing is written anywhere.
TOOLS = {
    WANDB: wandb_statistics,
    LIGHTNING: lightning_norms,
    COMPOSER: composer_monitor,
}


def tools(model: torch.nn.Module) -> tuple[dict[str, Callable[[], object]], dict[str, str]]:
    """(available tools, reasons why others are not available)"""
    available, missing = {}, {}
    for name, make in TOOLS.items():
        try:
            available[name] = make(model)
        except Exception as error:  # a package that does not fit this torch fails in its own way
            missing[name] = f"{type(error).__name__}: {error}"
    return available, missing


def compared(shapes: list[tuple[int, ...]], rounds: int) -> dict[str, Any]:
    model = model_of(shapes)
    parameters = list(model.parameters())
    gradients = [p.grad for p in parameters]
    others, missing = tools(model)
    with_histograms = ParameterPlan(parameters)
    measured = in_turn(
        {
            BASE: lambda: torch.nn.utils.get_total_norm(gradients),
            "gradients": ParameterPlan(parameters).step,
            "gradients and weights": ParameterPlan(parameters, weights=True).step,
            "gradients and weights, ATen path": ParameterPlan(parameters, weights=True, path="aten").step,
            "gradients, with histograms": lambda: (with_histograms.step(), exponent_histograms(gradients)),
            "ten scalars stacked, one tolist": lambda: stacked(parameters),
            **others,
        },
        rounds,
    )
    return {"seconds": measured, "missing": missing, "num_elements": sum(p.numel() for p in parameters)}


def against_peers(options: argparse.Namespace) -> dict[str, Any]:
    """The part of `make bench NAME=telemetry` that prints the comparison."""
    note("peers")
    words = ["--rounds", str(options.peer_rounds), "--scale", str(options.peer_scale)]
    ended = run([options.peers_python or peers_python("peers", PEERS), __file__, *words], clean_environment())
    results = {}
    for title, seen in json.loads(ended.stdout.splitlines()[-1]).items():
        by_norm = ratios(seen["seconds"], BASE)
        targets = TINY_TARGETS if title == TINY else {}
        rows = [
            [
                name,
                f"{1e3 * Spread.of(seconds).median:.2f} ms",
                by_norm[name].show(2) if name in by_norm else "",
                targets.get(name, ""),
                COMPUTES[name],
            ]
            for name, seconds in seen["seconds"].items()
        ]
        print(f"\n{title}, {seen['num_elements']:,} elements, one thread, in calls of {BASE} on the gradients\n")
        print(table(["way", "time", "ratio", "target", "what it computes"], rows))
        for name, why in seen["missing"].items():
            print(f"left out: {name}: {why}")
        milliseconds = {name: 1e3 * Spread.of(seconds).median for name, seconds in seen["seconds"].items()}
        results[title] = {"ratios": by_norm, "milliseconds": milliseconds, "missing": seen["missing"]}
    return results


def main() -> None:
    """The program that the interpreter of the venv runs; it prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--scale", type=float, default=0.05)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = {TINY: [(64,)] * 1000, "148 tensors": list(transformer_shapes(options.scale))}
    print(json.dumps({title: compared(shapes, options.rounds) for title, shapes in cases.items()}))


if __name__ == "__main__":
    main()

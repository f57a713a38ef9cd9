"""Lint rules TT7xx: flaws of training or telemetry code; importing the package registers them."""

from torchtriage.lint.training import (
    collection,
    compiled,
    contracts,
    datasets,
    failures,
    host_reads,
    memory,
    modes,
    norms,
    optimizers,
    profiling,
    wiring,
)

__all__ = [
    "collection", "compiled", "contracts", "datasets", "failures", "host_reads", "memory", "modes", "norms",
    "optimizers", "profiling", "wiring",
]

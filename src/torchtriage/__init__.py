"""Triage for PyTorch training: what torch.compile does to your program, what it costs, and what to change.

PYTEST_DONT_REWRITE: an observed process loads this module before pytest, which would warn that it cannot rewrite it.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False   # importing typing would be half the cost of importing this module
if TYPE_CHECKING:
    from typing import Any

    from torchtriage.capture.taps.steps import step as step
    from torchtriage.integrations.compare import compare_policies as compare_policies
    from torchtriage.integrations.origin import StepOrigin as StepOrigin
    from torchtriage.integrations.origin import find_origin as find_origin
    from torchtriage.integrations.watch import Seen as Seen
    from torchtriage.integrations.watch import watch as watch
    from torchtriage.proof.verify import verify as verify
    from torchtriage.shapes.functions.benchmark import benchmark as benchmark
    from torchtriage.shapes.functions.buckets import bucketed as bucketed

__all__ = [
    "Seen", "StepOrigin", "__version__", "benchmark", "bucketed", "compare_policies", "find_origin", "step", "verify",
    "watch",
]

_HOMES = {
    "step": "torchtriage.capture.taps.steps",
    "watch": "torchtriage.integrations.watch",
    "Seen": "torchtriage.integrations.watch",
    "find_origin": "torchtriage.integrations.origin",
    "StepOrigin": "torchtriage.integrations.origin",
    "bucketed": "torchtriage.shapes.functions.buckets",
    "benchmark": "torchtriage.shapes.functions.benchmark",
    "compare_policies": "torchtriage.integrations.compare",
    "verify": "torchtriage.proof.verify",
}


def __getattr__(name: str) -> "Any":
    """Load a public name on first use, so that importing torchtriage costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'torchtriage' has no attribute {name!r}; it has: {', '.join(__all__)}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    """The public names, including those that are not loaded yet."""
    return list(__all__)

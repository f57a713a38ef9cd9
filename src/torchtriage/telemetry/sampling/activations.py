"""Statistics of module outputs, by forward hooks that exist only while needed, never on compiled modules."""

import sys
from typing import Any

import torch

from torchtriage.recording.series import ACTIVATION_MAX_ABS, ACTIVATION_NORM, ACTIVATION_ZERO_FRACTION, series_of
from torchtriage.telemetry.statistics.columns import Stat, true_norm, why_refused
from torchtriage.telemetry.statistics.plan import statistics


def why_not(model: torch.nn.Module) -> str:
    """Why hooks are not possible; "" if they are.

    A compiled function that meets a new hook is compiled again, and traces it.
    """
    for module in model.modules():
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            return "the model is compiled"
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters["frames"]["total"]:
        return "the program has compiled functions, which may call the model"
    return ""


class ActivationMeter:
    """Measures the newest output since `begin` of every module without children."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._modules = []
        for name, module in model.named_modules():
            if not any(module.children()):
                self._modules.append((name or type(model).__name__, module))
        self._handles: list[Any] = []
        self._rows: dict[str, Any] = {}

    @property
    def is_on(self) -> bool:
        return bool(self._handles)

    def begin(self) -> None:
        if not self._handles:
            self._handles = [module.register_forward_hook(self._hook(name)) for name, module in self._modules]

    def end(self) -> dict[str, float]:
        """Remove the hooks and return the statistics by series name."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        rows, self._rows = self._rows, {}
        values: dict[str, float] = {}
        for name, row_S in rows.items():
            zero_fraction = float(row_S[Stat.NUM_ZERO] / max(1, row_S[Stat.NUM_ELEMENTS]))
            values[series_of(ACTIVATION_NORM, name)] = true_norm(row_S)
            values[series_of(ACTIVATION_ZERO_FRACTION, name)] = zero_fraction
            values[series_of(ACTIVATION_MAX_ABS, name)] = float(row_S[Stat.MAX_ABS])
        return values

    def _hook(self, name: str) -> Any:
        def hook(module: torch.nn.Module, args: Any, output: Any) -> None:
            if torch.compiler.is_compiling():
                return
            first = output[0] if isinstance(output, tuple) and output else output
            if isinstance(first, torch.Tensor) and not why_refused(first):
                self._rows[name] = statistics([first.detach()])[0]

        return hook

"""Parts of a model that add nothing or learn nothing.

Latent variables that do not depend on the inputs, units that are all the same, layers whose output is cut off before
the loss, layers that are frozen at random.

Legend: N samples, D latent variables.
"""

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from torchtriage.recording.facts import BrokenContract
from torchtriage.telemetry.contract_checks.count import is_readable
from torchtriage.telemetry.contract_checks.loss_graph import node_kind

FIRST_UPDATE = 200
FEW_UPDATES = 512       # a look at every INTERVAL-th of them, later at every LATE_INTERVAL-th
INTERVAL, LATE_INTERVAL = 8, 64
LOOKS = 10
MIN_SAMPLES = 16
# Burda, Grosse and Salakhutdinov (2016): the mean of an active latent variable varies by more than this over the data.
MIN_VARIANCE = 0.01
NUM_CALLED = 4          # steps in which a layer is called
MAX_LAYERS = 16
MIN_WEIGHTS = 64        # of a layer, to recognize how it was initialised
FIRST_SPREAD = 0.1      # of the standard deviation: 64 values of a uniform distribution are within that
FIRST_BOUND = 1e-4      # of the bound of a uniform distribution, for rounding
MAX_WEIGHTS = 64        # tensors that are searched for equal rows
MAX_ELEMENTS = 1 << 18
NEARLY_EQUAL = 1e-6     # of the largest weight
_SPREADS = ("Exp", "Softplus", "Sqrt", "Sigmoid")


class Latents:
    """Looks at z = mean + std * noise in the graph of a loss, where z goes into a linear layer."""

    def __init__(self) -> None:
        self._has_any = False
        self._num_unused = 0
        self._broken: BrokenContract | None = None

    @property
    def broken(self) -> Sequence[BrokenContract]:
        return [self._broken] if self._broken is not None else []

    def is_due(self, num_updates: int) -> bool:
        interval = INTERVAL if num_updates < FEW_UPDATES else LATE_INTERVAL
        return self._has_any and num_updates >= FIRST_UPDATE and num_updates % interval == 0

    def look(self, operations: Sequence[Any], num_updates: int, step: int) -> None:
        variances = [variance_D for node in operations for variance_D in _variances(node)]
        self._has_any = bool(variances)
        if num_updates < FIRST_UPDATE or not variances:
            return
        most = max(float(variance_D.max()) for variance_D in variances)
        self._num_unused = self._num_unused + 1 if most < MIN_VARIANCE else 0
        if not self._num_unused:
            self._broken = None
        elif self._num_unused == LOOKS:
            self._broken = BrokenContract(
                code="TT451", step=step, count=LOOKS, total=sum(map(len, variances)), value=most,
            )


def _variances(layer: Any) -> Iterator[torch.Tensor]:
    """The variance over the samples of the mean of each latent variable that a linear layer receives."""
    if node_kind(layer) != "Addmm" or node_kind(layer.next_functions[1][0]) != "Add":
        return
    z = layer._saved_mat1
    if not isinstance(z, torch.Tensor) or not is_readable(z) or len(z) < MIN_SAMPLES:
        return
    for before, _ in layer.next_functions[1][0].next_functions:
        noise = _scaled_noise(before)
        if noise is not None and noise.shape == z.shape:
            yield (z.detach() - noise).var(0)


def _scaled_noise(product: Any) -> torch.Tensor | None:
    """std * noise, where only the std has a gradient."""
    if node_kind(product) != "Mul" or len(product.next_functions) != 2:
        return None
    kinds = [node_kind(before) for before, _ in product.next_functions if before is not None]
    if len(kinds) != 1 or kinds[0] not in _SPREADS:
        return None
    std, noise = product.next_functions[0][0], product._saved_other
    if std is None:
        noise = product._saved_self
    source = next(before for before, _ in product.next_functions if before is not None)
    spread = getattr(source, "_saved_result", None)
    if not all(isinstance(x, torch.Tensor) and is_readable(x) for x in (noise, spread)):
        return None
    return (noise * spread).detach()


class EqualUnits:
    """Weights that began as one number, and whose rows are still the same after some updates."""

    def __init__(self) -> None:
        self._constant: list[weakref.ref[torch.Tensor]] | None = None

    def begin(self, trained: Iterable[torch.Tensor]) -> None:
        """Before the first update."""
        if self._constant is None:
            matrices = [w for w in trained if w.ndim >= 2 and len(w) > 1 and w.numel() > len(w)][:MAX_WEIGHTS]
            self._constant = [
                weakref.ref(w) for w in matrices
                if is_readable(w) and w.numel() <= MAX_ELEMENTS and bool(w.any()) and bool((w == w.flatten()[0]).all())
            ]

    def equal(self) -> list[torch.Tensor]:
        """Those that have changed since, with all rows alike."""
        weights = [w.detach().flatten(1) for ref in self._constant or () if (w := ref()) is not None]
        alike = [w for w in weights if bool(((w - w[0]).abs() <= NEARLY_EQUAL * w.abs().max()).all())]
        return [w for w in alike if bool((w != w[0, 0]).any())]


class CutOffLayers:
    """Notes for some steps whether the output of layers without a gradient is what other layers receive.

    The hooks are only there for these steps: torch.compile must not find them.
    """

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self._outputs: dict[int, torch.Tensor] = {}     # since the last backward pass
        self._called: set[int] = set()
        self._num_called: dict[int, int] = {}
        self._num_steps = -1        # the hooks are set during a step, after its forward pass

    @property
    def is_open(self) -> bool:
        return bool(self._hooks)

    def begin(self, modules: Iterable[torch.nn.Module], unused: frozenset[int]) -> None:
        if self._num_steps >= 0:
            return
        for module in modules:
            is_plain = type(module).__module__.startswith("torch.nn.modules.")
            if is_plain and len(self._hooks) < MAX_LAYERS and any(id(p) in unused for p in _own(module)):
                self._hooks.append(module.register_forward_hook(self._note))

    def _note(self, module: torch.nn.Module, arguments: Any, output: Any) -> None:
        if torch.is_grad_enabled() and isinstance(output, torch.Tensor):
            self._outputs[id(module)] = output

    def backward(self, received: Iterable[torch.Tensor]) -> None:
        """`received`: what layers got without a gradient; detach() leaves a tensor in its place."""
        places = {x.data_ptr() for x in received}
        self._called |= {key for key, output in self._outputs.items() if output.data_ptr() in places}
        self._outputs.clear()

    def step_ended(self) -> int | None:
        """After the last step: the number of layers whose output was received in each of them."""
        for key in self._called:
            self._num_called[key] = self._num_called.get(key, 0) + 1
        self._called.clear()
        self._num_steps += 1
        if self._num_steps < NUM_CALLED:
            return None
        self.stop()
        return sum(num == NUM_CALLED for num in self._num_called.values())

    def stop(self) -> None:
        self._outputs.clear()
        while self._hooks:
            self._hooks.pop().remove()


def frozen_at_random(modules: Sequence[torch.nn.Module], held: Mapping[int, torch.Tensor]) -> set[int]:
    """Weights that an optimizer holds and does not train, with the values of the default initialisation.

    Those of a model whose trained layers all come later are left out: that is how a backbone is frozen.
    """
    inner = {id(child) for module in modules for child in module.modules() if child is not module}
    frozen: set[int] = set()
    for root in modules:
        if id(root) in inner:
            continue
        has_trained = False
        for module in root.modules():
            own = [p for p in _own(module) if id(p) in held]
            has_trained = has_trained or any(p.requires_grad for p in own)
            weight = getattr(module, "weight", None)
            is_frozen = isinstance(weight, torch.nn.Parameter) and id(weight) in held and not weight.requires_grad
            if is_frozen and has_trained and _has_first_values(module, weight):
                frozen.add(id(weight))
    return frozen


def _own(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [p for p in module._parameters.values() if p is not None]


def _has_first_values(module: torch.nn.Module, weight: torch.Tensor) -> bool:
    if not is_readable(weight) or weight.ndim < 2 or not MIN_WEIGHTS <= weight.numel() <= MAX_ELEMENTS:
        return False
    deviation = float(weight.detach().double().std())
    if isinstance(module, torch.nn.Embedding):
        return abs(deviation - 1.0) < FIRST_SPREAD
    if not isinstance(module, torch.nn.Linear | torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Conv3d):
        return False
    bound = weight[0].numel() ** -0.5       # kaiming_uniform_ with a = sqrt(5)
    if float(weight.detach().abs().max()) > bound * (1.0 + FIRST_BOUND):
        return False
    return bool(abs(deviation * math.sqrt(3.0) / bound - 1.0) < FIRST_SPREAD)

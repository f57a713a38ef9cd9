"""Whether two outcomes of a graph differ by more than rounding."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.capture.operations.graphs.outcome import GraphValue, outcome
from torchtriage.capture.operations.graphs.snapshot import SEED, Snapshot, in_float64, perturbed

# A compiled graph sums in another order and fuses, so that its distance from the float64 reference may be larger than
# that of eager code. Chosen, not measured.
MAX_ERROR_RATIO = 4.0
MIN_UNITS = 4.0             # units in the last place of the largest value that pass in any case
UNITS_WITHOUT_REFERENCE = 1000.0
NUM_PERTURBED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDifference:
    """A value that differs by more than rounding."""

    kind: str
    index: int
    max_difference: float | None    # None where a shape, a dtype or non-finite values differ
    scale: float                    # the largest absolute value of eager code
    eager_error: float | None       # distance of eager code from its float64 reference
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The differences beyond rounding, and whether the others are equal bit by bit."""

    differences: Sequence[ValueDifference]
    is_equal: bool


class Judge:
    """Compares compiled outcomes with that of eager code, its float64 reference and its own sensitivity to rounding."""

    def __init__(
        self, eager: Callable[..., Any], in_double: Callable[..., Any], snapshot: Snapshot, with_gradients: bool = True,
    ) -> None:
        self._snapshot, self._in_double, self._eager = snapshot, in_double, eager
        self._with_gradients = with_gradients
        self.expected = outcome(eager, snapshot, with_gradients=with_gradients)
        self._reference: list[GraphValue] | None = None
        self._has_tried = False
        self._perturbed: list[list[GraphValue]] | None = None

    def judge(self, compiled: Callable[..., Any]) -> Judgement:
        found = outcome(compiled, self._snapshot, with_gradients=self._with_gradients)
        if len(found) != len(self.expected):
            missing = ValueDifference(kind="output", index=0, max_difference=None, scale=0.0, eager_error=None,
                                      reason=f"{len(found)} values instead of {len(self.expected)}")
            return Judgement([missing], False)
        differences, is_equal = [], True
        for number, (ours, eager) in enumerate(zip(found, self.expected, strict=True)):
            if _is_same(ours.tensor, eager.tensor):
                continue
            is_equal = False
            difference = self._difference(number, ours.tensor, eager)
            if difference is not None:
                differences.append(difference)
        return Judgement(differences, is_equal)

    def _difference(self, number: int, ours: Any, eager: GraphValue) -> ValueDifference | None:
        """The difference of one value, or None if it is rounding."""
        def made(**fields: Any) -> ValueDifference:
            given = {"max_difference": None, "scale": 0.0, "eager_error": None, **fields}
            return ValueDifference(kind=eager.kind, index=eager.index, **given)

        theirs = eager.tensor
        if ours is None or theirs is None:
            present = theirs if ours is None else ours
            return made(reason="missing" if ours is None else "unexpected") if bool((present != 0).any()) else None
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return made(reason=f"{_form(ours)} instead of {_form(theirs)}")
        finite = theirs.isfinite()
        others = [values[number].tensor for values in self._perturbed_outcomes()]
        if bool((ours.isfinite() != finite).any()):
            is_fragile = any(bool((other.isfinite() != finite).any()) for other in others)
            return None if is_fragile else made(reason="non-finite values")
        distance, scale = largest_distance(ours, theirs, finite), _largest(theirs, finite)
        reference = self._reference_of(number, theirs)
        error = None if reference is None else largest_distance(theirs, reference, finite)
        ours_error = None if reference is None else largest_distance(ours, reference, finite)
        noise = max((largest_distance(other, theirs, finite) for other in others), default=0.0)
        allowed = _allowed(theirs, scale, error, noise)
        if (distance if ours_error is None else ours_error) <= allowed or distance <= allowed:
            return None
        return made(max_difference=distance, scale=scale, eager_error=error)

    def _reference_of(self, number: int, like: Any) -> Any:
        if not self._has_tried:
            self._has_tried = True
            try:
                self._reference = outcome(
                    self._in_double, self._snapshot, in_float64, with_gradients=self._with_gradients)
            except Exception:
                self._reference = None      # an operation that has no float64 form
        if self._reference is None or len(self._reference) != len(self.expected):
            return None
        reference = self._reference[number].tensor
        return reference if reference is not None and reference.shape == like.shape else None

    def _perturbed_outcomes(self) -> list[list[GraphValue]]:
        if self._perturbed is None:
            self._perturbed = [
                outcome(self._eager, self._snapshot, perturbed(SEED + number), with_gradients=self._with_gradients)
                for number in range(NUM_PERTURBED)]
        return self._perturbed


def _is_same(ours: Any, theirs: Any) -> bool:
    import torch

    if ours is None or theirs is None:
        return ours is theirs
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    return bool(torch.equal(ours.nan_to_num(0.0), theirs.nan_to_num(0.0)) and torch.equal(ours.isnan(), theirs.isnan()))


def _form(tensor: Any) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def largest_distance(ours: Any, theirs: Any, finite: Any) -> float:
    """The largest absolute difference where both are finite; infinite if the shapes differ."""
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return math.inf
    both = finite & ours.isfinite() & theirs.isfinite()
    distances = (ours.double() - theirs.double()).abs()[both]
    return float(distances.max()) if distances.numel() else 0.0


def _largest(tensor: Any, finite: Any) -> float:
    values = tensor.double().abs()[finite]
    return float(values.max()) if values.numel() else 0.0


def _allowed(tensor: Any, scale: float, error: float | None, noise: float) -> float:
    """The largest distance that rounding explains."""
    import torch

    if not tensor.is_floating_point():
        return noise        # a discrete value may change only where rounding of the inputs changes it too
    unit: float = torch.finfo(tensor.dtype).eps * scale
    if error is None:
        return max(UNITS_WITHOUT_REFERENCE * unit, MAX_ERROR_RATIO * noise)
    return MIN_UNITS * unit * _longest_sum(tensor) + MAX_ERROR_RATIO * max(error, noise)


def _longest_sum(tensor: Any) -> float:
    """Growth of rounding in a sum that is taken in another order: the root of its length, here of a tensor's side.

    Low precision is summed in float32, so that only the last rounding counts.
    """
    import torch

    is_low = tensor.dtype in (torch.float16, torch.bfloat16)
    return 1.0 if is_low else math.sqrt(max((*tensor.shape, 1)))


"""How strongly one part of a model learns next to another: adapter and backbone, actor and critic, seed and host."""

import math
from dataclasses import dataclass

EPSILON = 1e-8
HEALTHY_RATIO = (0.05, 0.2)     # the seeds' experience with a small part that is grown into a larger one
DORMANT_RATIO = 0.01


def normalized_ratio(norm: float, count: int, reference_norm: float, reference_count: int) -> float:
    """Root-mean-square gradient of a part over that of its reference, so that size does not matter.

    0 where either has no gradient to speak of, NaN where either norm is not finite.
    """
    if not (math.isfinite(norm) and math.isfinite(reference_norm)):
        return math.nan
    if norm < EPSILON or reference_norm < EPSILON or count <= 0 or reference_count <= 0:
        return 0.0
    return (norm / math.sqrt(count)) / (reference_norm / math.sqrt(reference_count) + EPSILON)


@dataclass(frozen=True, slots=True, kw_only=True)
class DualGradientStats:
    """Gradient norm and number of elements of a seed and of the host that it grows in."""

    host_norm: float
    host_count: int
    seed_norm: float
    seed_count: int

    @property
    def normalized_ratio(self) -> float:
        return normalized_ratio(self.seed_norm, self.seed_count, self.host_norm, self.host_count)

    @property
    def is_healthy(self) -> bool:
        low, high = HEALTHY_RATIO
        return low <= self.normalized_ratio <= high

    @property
    def is_dormant(self) -> bool:
        return self.normalized_ratio < DORMANT_RATIO

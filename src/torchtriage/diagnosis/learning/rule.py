"""A breach of a limit, as every learning rule reports it."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One quantity beyond its limit in one observation.

    `type` is the word that an AnomalyReport uses, `text` a clause with the numbers.
    """

    code: str
    type: str
    quantity: str           # the name of its series
    value: float
    limit: float
    text: str
    subject: str = ""       # the tensor, group, head or state; else the quantity
    step: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.code, self.subject or self.quantity


def short(value: float) -> str:
    """A number with three digits, as messages show it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return f"{value:.3g}"

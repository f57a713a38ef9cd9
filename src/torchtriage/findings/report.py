"""What a reporter is given: the findings of one run and the facts that frame them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchtriage.findings.model import Finding

TOTALS = (
    "compiles", "graph_breaks", "distinct_graph_breaks", "recompiles", "frames_at_limit", "eager_calls", "compile_seconds", "steps",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`findings` are ranked and selected; `num_known` more were accepted by a baseline, `num_hidden` by --select or --ignore."""

    findings: Sequence[Finding]
    run: Mapping[str, Any] = field(default_factory=dict)
    watched: Sequence[str] = ()
    not_seen: Sequence[str] = ()
    totals: Mapping[str, float | int | None] = field(default_factory=dict)
    events: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    num_known: int = 0
    num_hidden: int = 0

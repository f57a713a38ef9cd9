"""What a reporter is given: the findings of one run and the facts that frame them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchtriage.findings.history import History
from torchtriage.findings.model import Finding
from torchtriage.findings.shape_study import ShapeStudy
from torchtriage.findings.tap_state import TapState

TOTALS = (
    "compiles", "graph_breaks", "distinct_graph_breaks", "recompiles", "frames_at_limit", "eager_calls", "compile_seconds", "steps",
)
SHAPES = "shapes"       # among the related of a finding: the study of the same report


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`findings` are ranked and selected; more were accepted by a baseline (`num_known`), by
    --select or --ignore (`num_hidden`), or by a comment in the source (`num_suppressed`).
    `shapes` is what measuring the program under several shape policies showed, where that was done."""

    findings: Sequence[Finding]
    run: Mapping[str, Any] = field(default_factory=dict)
    watched: Sequence[TapState] = ()
    not_seen: Sequence[TapState] = ()
    totals: Mapping[str, float | int | None] = field(default_factory=dict)
    events: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    history: History = field(default_factory=History)
    shapes: ShapeStudy | None = None
    num_known: int = 0
    num_hidden: int = 0
    num_suppressed: int = 0
    unused_suppressions: Sequence[str] = ()

"""The report, the input of every reporter: the findings of one run, with the facts about that run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchtriage.findings.history import History
from torchtriage.findings.model import Finding
from torchtriage.findings.shape_study import ShapeStudy
from torchtriage.findings.tap_state import TapState

TOTALS = (
    "compiles", "graph_breaks", "distinct_graph_breaks", "recompiles", "frames_at_limit", "eager_calls",
    "compile_seconds", "steps", "run_seconds",
)
SHAPES = "shapes"       # in Finding.related: the shape study of the same report


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The ranked findings that remain, and how many the user removed.

    `num_known` findings were accepted by a baseline, `num_hidden` removed by --select or --ignore, and
    `num_suppressed` accepted by a comment in the source. `shapes` is None if no shape policies were measured.
    """

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

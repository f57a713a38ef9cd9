"""What measuring a program under several shape policies showed: the table, the advice, and the facts behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

STUDY_FILE = "shapes.json"      # in the recording of the run as written
SCHEMA = 1
AS_WRITTEN = "as written"       # the policy that changes nothing
# Findings whose remedy is a choice between shape policies; the limit, as raising it is one of them.
DECIDED_BY_SHAPES = frozenset({"TT201", "TT202", "TT203", "TT204", "TT221", "TT225", "TT301"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A middle and the 95 % interval around it, over the runs of one policy; both ends are None where the runs are too few."""

    middle: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VaryingSize:
    """A dimension (or, with `dim` None, a Python number) that took more than one value over the calls of a compiled frame."""

    path: str
    line: int | None
    function: str
    source: str                                 # torch's name: L['x']
    dim: int | None
    values: Mapping[str, int]                   # value -> number of calls, the most frequent ones
    num_values: int
    num_calls: int
    is_marked: bool = False                     # by the policy "marked"
    why_not: str = ""                           # why it could not be marked, or that it became constant again


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTotal:
    """Of one run. In a round each policy runs at most once, so what slows a round down can be told from what a policy costs."""

    round: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """One row of the table. Times are observed; `total` is estimated beyond the units that were run."""

    name: str                                   # "as written", "dynamic=True", "marked", "recompile_limit=64", "mixed"
    setting: Sequence[str] = ()                 # the exact lines or variable that bring it about
    num_runs: int = 0
    failed: str = ""                            # why it has no figures; the other policies went on
    num_compiles: int | None = None
    num_recompiles: int | None = None
    num_eager_calls: int = 0
    compile_seconds: Interval | None = None
    first_call_seconds: Interval | None = None
    steady_seconds: Interval | None = None      # one unit without a compile in it
    peak_memory_bytes: int | None = None
    total_seconds: Interval | None = None       # for `num_planned` units
    totals: Sequence[RoundTotal] = ()           # the same of every run
    still_compiling: bool = False               # compiled in the second half of its run too
    overridden: Sequence[str] = ()              # "train.py:31 model: dynamic=False -> True"
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """`before` is quicker in total up to so many units, `after` from there on."""

    units: int
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One question of the decision tree, how this program answers it, and the measured fact that says so."""

    question: str
    answer: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do. `policy` is empty when the measurement does not settle it; `needs` then says what would."""

    policy: str = ""
    text: str = ""                              # one sentence: what wins, by how much, up to where
    setting: Sequence[str] = ()                 # the exact lines or environment variable
    needs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeStudy:
    """One study of one program or function."""

    command: Sequence[str]
    unit: str                                   # "step" or "call"
    num_units: int                              # that every run of every policy went through
    num_planned: int
    policies: Sequence[PolicyResult]
    advice: Advice
    crossovers: Sequence[Crossover] = ()
    branches: Sequence[Branch] = ()
    sizes: Sequence[VaryingSize] = ()
    by_function: Mapping[str, str] = field(default_factory=dict)     # compiled function -> the policy that suits it best
    notes: Sequence[str] = ()
    seconds_spent: float = 0.0
    torch: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ShapeStudy":
        """The study that `to_dict` gave, after a trip through JSON; a newer schema is refused."""
        if data.get("schema") != SCHEMA:
            raise ValueError(
                f"a shape study of schema {data.get('schema')}, this torchtriage reads {SCHEMA}; read it with the version that wrote it"
            )
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**{
            **known,
            "policies": [_policy(p) for p in data["policies"]],
            "advice": Advice(**data["advice"]),
            "crossovers": [Crossover(**c) for c in data.get("crossovers", ())],
            "branches": [Branch(**b) for b in data.get("branches", ())],
            "sizes": [VaryingSize(**s) for s in data.get("sizes", ())],
        })


def _policy(data: Mapping[str, Any]) -> PolicyResult:
    spans = {name: Interval(**data[name]) for name in data if name.endswith("_seconds") and data[name] is not None}
    return PolicyResult(**{**data, **spans, "totals": [RoundTotal(**one) for one in data.get("totals", ())]})

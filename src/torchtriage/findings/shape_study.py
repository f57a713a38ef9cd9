"""A shape study: the results of measuring one program under several shape policies."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

STUDY_FILE = "shapes.json"      # in the recording of the baseline run
SCHEMA = 1
BASELINE = "as written"         # the policy that changes nothing, as JSON names it; see policy_label
LARGEST = 2**63                 # JSON numbers may have any number of digits; every count of a study is below this
T = TypeVar("T")
# Findings whose remedy is a choice between shape policies. TT301, the recompile limit, is one: a policy raises it.
DECIDED_BY_SHAPES = frozenset({"TT201", "TT202", "TT203", "TT204", "TT221", "TT225", "TT301"})


def policy_label(name: str) -> str:
    """A policy's name in a table or a list."""
    return "unmodified" if name == BASELINE else name


def policy_phrase(name: str) -> str:
    """A policy's name within a sentence."""
    return "the unmodified program" if name == BASELINE else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A median and the 95 % interval around it, over the runs of one policy; both ends are None with too few runs."""

    middle: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VaryingSize:
    """A dimension that took more than one value over the calls of a compiled frame; if `dim` is None, a number."""

    path: str
    line: int | None
    function: str
    source: str                                 # torch's name: L['x']
    dim: int | None
    values: Mapping[str, int]                   # value -> number of calls, the most frequent ones
    num_values: int
    num_calls: int
    is_marked: bool = False                     # by the policy "marked"
    why_not: str = ""                           # why it could not be marked, or why marking it had no effect


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTotal:
    """The total of one run. A policy runs at most once per round, so the noise of a round can be separated out."""

    round: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """One row of the table. Times are observed; `total_seconds` is estimated beyond the units that were run."""

    name: str                                   # "as written", "dynamic=True", "marked", "recompile_limit=64", "mixed"
    setting: Sequence[str] = ()                 # the exact lines or environment variable that select it
    num_runs: int = 0
    failed: str = ""                            # why it has no figures; the other policies continued
    num_compiles: int | None = None
    num_recompiles: int | None = None
    num_eager_calls: int = 0
    compile_seconds: Interval | None = None
    first_call_seconds: Interval | None = None
    steady_seconds: Interval | None = None      # one unit without a compile in it
    peak_memory_bytes: int | None = None
    total_seconds: Interval | None = None       # for `num_planned` units
    totals: Sequence[RoundTotal] = ()           # the same for every run
    still_compiling: bool = False               # also compiled in the second half of its run
    overridden: Sequence[str] = ()              # "train.py:31 model: dynamic=False -> True"
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """`before` is faster in total up to this many units, `after` from there on."""

    units: int
    before: str
    after: str


class Question(enum.StrEnum):
    """A question of the decision tree."""

    IS_FIXED = "is_fixed"
    IS_FREQUENT = "is_frequent"
    IS_BUCKETED = "is_bucketed"
    IS_MEASURED = "is_measured"     # the answer is the advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One question of the decision tree and the measured facts that answer it.

    `question`, `answer` and `evidence` are sentences for readers of the JSON. They are shown only if `kind` is empty.
    """

    question: str = ""
    answer: str = ""
    evidence: str = ""
    kind: str = ""                              # a Question; empty in files of an older version
    is_yes: bool | None = None                  # None: not measured
    names: Sequence[str] = ()                   # of the sizes that vary, the most varied first
    num_varying: int = 0
    num_sources: int = 0                        # sizes and numbers that the compiled frames took in
    num_values: int = 0                         # of the most varied size
    num_calls: int = 0
    edges: Sequence[int] = ()                   # of the buckets that would pad least
    waste_share: float | None = None            # padding over all that would be computed; estimated


class Basis(enum.StrEnum):
    """The evidence behind the advice."""

    MEASURED = "measured"
    STATIC = "static"                           # no size varies and nothing recompiles
    NOT_MEASURED = "not_measured"               # no other policy was measured
    FAILED = "failed"                           # every other policy failed
    SAME_CODE = "same_code"                     # every other policy failed or compiles the same code


class Need(enum.StrEnum):
    """What would make an inconclusive study conclusive."""

    ROUNDS = "rounds"
    LESS_NOISE = "less_noise"                   # more rounds would not help
    BUDGET = "budget"
    FULL_RUN = "full_run"                       # one that is not interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """The cost of a further measurement; 0 where it is unknown."""

    kind: str                                   # a Need
    num_rounds: int = 0
    seconds: float = 0.0
    budget_seconds: float = 0.0                 # of a new study from its start


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommendation. `policy` is empty if the study is inconclusive; `requirement` then says what would settle it.

    `text` and `needs` are sentences for readers of the JSON. They are shown only if `basis` is empty.
    """

    policy: str = ""
    text: str = ""
    setting: Sequence[str] = ()                 # the exact lines or environment variable
    needs: str = ""
    basis: str = ""                             # a Basis; empty in files of an older version
    total_seconds: float | None = None          # of the policy, for the planned units
    compared_with: str = ""                     # the baseline, or the runner-up where there is none
    gain: Interval | None = None                # the total of `compared_with` over that of the policy
    tolerance: float = 0.0                      # a policy that is faster by no more counts as equal
    # Policies that may be faster than `policy`; without one, those that are not separated from the baseline.
    rivals: Sequence[str] = ()
    num_rounds: int = 0
    horizon: Crossover | None = None            # where the policy starts or stops being the fastest
    requirement: Requirement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeStudy:
    """One study of one program or function."""

    command: Sequence[str]
    unit: str                                   # "step" or "call"
    num_units: int                              # that every run of every policy completed
    num_planned: int
    policies: Sequence[PolicyResult]
    advice: Advice
    crossovers: Sequence[Crossover] = ()
    branches: Sequence[Branch] = ()
    sizes: Sequence[VaryingSize] = ()
    by_function: Mapping[str, str] = field(default_factory=dict)     # compiled function -> its best policy
    notes: Sequence[str] = ()
    seconds_spent: float = 0.0
    torch: str = ""
    standing: Sequence[str] = ()                # codes of the P0 and P1 findings of the unmodified program

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Any) -> "ShapeStudy":
        """The inverse of `to_dict`, also after a round trip through JSON.

        ValueError if the data is damaged or of another schema.
        """
        if isinstance(data, Mapping) and data.get("schema") != SCHEMA:
            raise ValueError(
                f"a shape study of schema {data.get('schema')}, this torchtriage reads {SCHEMA}; "
                "read it with the version that wrote it"
            )
        study = _Fields(data, "study")
        return cls(
            command=study.texts("command"), unit=study.text("unit"), num_units=study.count("num_units"),
            num_planned=study.count("num_planned"), policies=study.items("policies", _policy, is_required=True),
            advice=_advice(study.fields("advice")), crossovers=study.items("crossovers", _crossover),
            branches=study.items("branches", _branch), sizes=study.items("sizes", _size),
            by_function=study.mapping("by_function", _text), notes=study.texts("notes", ()),
            seconds_spent=study.number("seconds_spent", 0.0), torch=study.text("torch", ""),
            standing=study.texts("standing", ()),
        )


class _Fields:
    """The fields of one JSON object, read with a type check; ValueError names the field that fails it."""

    def __init__(self, data: Any, place: str) -> None:
        if not isinstance(data, Mapping):
            raise _damaged(place, data, "an object")
        self._data, self._place = data, place

    def fields(self, name: str) -> "_Fields":
        return _Fields(self._data.get(name), f"{self._place}.{name}")

    def optional(self, name: str, read: "Callable[[_Fields], T]") -> T | None:
        return None if self._data.get(name) is None else read(self.fields(name))

    def value(self, name: str, read: Callable[[Any, str], T], *default: T) -> T:
        if default and name not in self._data:
            return default[0]
        return read(self._data.get(name), f"{self._place}.{name}")

    def text(self, name: str, *default: str) -> str:
        return self.value(name, _text, *default)

    def count(self, name: str, *default: int) -> int:
        return self.value(name, _count, *default)

    def number(self, name: str, *default: float) -> float:
        return self.value(name, _number, *default)

    def flag(self, name: str) -> bool:
        return self.value(name, _flag, False)

    def maybe(self, name: str, read: Callable[[Any, str], T]) -> T | None:
        """None where the field is missing or null."""
        return None if self._data.get(name) is None else self.value(name, read)

    def values(self, name: str, read: Callable[[Any, str], T], *default: Sequence[T]) -> Sequence[T]:
        if default and name not in self._data:
            return default[0]
        place, listed = f"{self._place}.{name}", self._data.get(name)
        if not isinstance(listed, (list, tuple)):
            raise _damaged(place, listed, "a list")
        return tuple(read(item, f"{place}[{index}]") for index, item in enumerate(listed))

    def texts(self, name: str, *default: Sequence[str]) -> Sequence[str]:
        return self.values(name, _text, *default)

    def items(self, name: str, read: "Callable[[_Fields], T]", *, is_required: bool = False) -> Sequence[T]:
        def one(item: Any, place: str) -> T:
            return read(_Fields(item, place))

        return self.values(name, one) if is_required else self.values(name, one, ())

    def mapping(self, name: str, read: Callable[[Any, str], T]) -> dict[str, T]:
        place, pairs = f"{self._place}.{name}", self._data.get(name, {})
        if not isinstance(pairs, Mapping):
            raise _damaged(place, pairs, "an object")
        return {_text(key, place): read(value, place) for key, value in pairs.items()}


def _damaged(place: str, value: Any, wanted: str) -> ValueError:
    return ValueError(f"its file is damaged: {place} is {_kind_of(value)}, not {wanted}; measure again")


def _kind_of(value: Any) -> str:
    """The JSON name of a value's type."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "another number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, (list, tuple)) else "an object"


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise _damaged(place, value, "a string")
    return value


def _flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise _damaged(place, value, "true or false")
    return value


def _count(value: Any, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= LARGEST:
        raise _damaged(place, value, "an integer of 64 bits")
    return value


def _number(value: Any, place: str) -> float:
    return value if isinstance(value, float) else _count(value, place)


def _interval(data: _Fields) -> Interval:
    return Interval(middle=data.number("middle"), low=data.maybe("low", _number), high=data.maybe("high", _number))


def _crossover(data: _Fields) -> Crossover:
    return Crossover(units=data.count("units"), before=data.text("before"), after=data.text("after"))


def _round_total(data: _Fields) -> RoundTotal:
    return RoundTotal(round=data.count("round"), seconds=data.number("seconds"))


def _policy(data: _Fields) -> PolicyResult:
    return PolicyResult(
        name=data.text("name"), setting=data.texts("setting", ()), num_runs=data.count("num_runs", 0),
        failed=data.text("failed", ""), num_compiles=data.maybe("num_compiles", _count),
        num_recompiles=data.maybe("num_recompiles", _count), num_eager_calls=data.count("num_eager_calls", 0),
        compile_seconds=data.optional("compile_seconds", _interval),
        first_call_seconds=data.optional("first_call_seconds", _interval),
        steady_seconds=data.optional("steady_seconds", _interval),
        peak_memory_bytes=data.maybe("peak_memory_bytes", _count),
        total_seconds=data.optional("total_seconds", _interval), totals=data.items("totals", _round_total),
        still_compiling=data.flag("still_compiling"), overridden=data.texts("overridden", ()),
        notes=data.texts("notes", ()),
    )


def _size(data: _Fields) -> VaryingSize:
    return VaryingSize(
        path=data.text("path"), line=data.maybe("line", _count), function=data.text("function"),
        source=data.text("source"), dim=data.maybe("dim", _count), values=data.mapping("values", _count),
        num_values=data.count("num_values"), num_calls=data.count("num_calls"), is_marked=data.flag("is_marked"),
        why_not=data.text("why_not", ""),
    )


def _branch(data: _Fields) -> Branch:
    return Branch(
        question=data.text("question", ""), answer=data.text("answer", ""), evidence=data.text("evidence", ""),
        kind=data.text("kind", ""), is_yes=data.maybe("is_yes", _flag), names=data.texts("names", ()),
        num_varying=data.count("num_varying", 0), num_sources=data.count("num_sources", 0),
        num_values=data.count("num_values", 0), num_calls=data.count("num_calls", 0),
        edges=data.values("edges", _count, ()), waste_share=data.maybe("waste_share", _number),
    )


def _advice(data: _Fields) -> Advice:
    return Advice(
        policy=data.text("policy", ""), text=data.text("text", ""), setting=data.texts("setting", ()),
        needs=data.text("needs", ""), basis=data.text("basis", ""),
        total_seconds=data.maybe("total_seconds", _number), compared_with=data.text("compared_with", ""),
        gain=data.optional("gain", _interval), tolerance=data.number("tolerance", 0.0),
        rivals=data.texts("rivals", ()), num_rounds=data.count("num_rounds", 0),
        horizon=data.optional("horizon", _crossover), requirement=data.optional("requirement", _requirement),
    )


def _requirement(data: _Fields) -> Requirement:
    return Requirement(
        kind=data.text("kind"), num_rounds=data.count("num_rounds", 0), seconds=data.number("seconds", 0.0),
        budget_seconds=data.number("budget_seconds", 0.0),
    )

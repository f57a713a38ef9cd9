"""The proof: the result of comparing a program before with the program after a change."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torchtriage.findings.model import Severity
from torchtriage.findings.proof.location import DifferencePlace
from torchtriage.findings.shape_study import Interval

PROOF_SCHEMA = 1


class ProofVerdict(enum.StrEnum):
    VERIFIED = "verified"
    REFUTED = "refuted"
    UNDECIDED = "undecided"

    @property
    def exit_code(self) -> int:
        return {ProofVerdict.VERIFIED: 0, ProofVerdict.REFUTED: 1, ProofVerdict.UNDECIDED: 2}[self]


class ReasonKind(enum.StrEnum):
    """What speaks against a change, or what keeps it from being judged."""

    AFTER_FAILS = "after-fails"                     # `value_after`: its exit status; `detail`: the end of its stderr
    NUMBERS_DIFFER = "numbers-differ"               # at `step`, in the tensor `subject`
    OUTPUT_DIFFERS = "output-differs"               # in the printed line `detail`
    DRAWS_REPEATED = "draws-repeated"               # `step` draws what an earlier step, or another rank, drew
    LESS_COMPILED = "less-compiled"                 # share of the work in graphs
    WEAKER_BACKEND = "weaker-backend"               # `subject` generates no code; `detail` did
    MORE_EAGER_CALLS = "more-eager-calls"           # calls of compiled functions that ran eager
    NEW_FINDING = "new-finding"
    MORE_EVENTS = "more-events"                     # of the finding `subject`, which stays
    FEWER_STEPS = "fewer-steps"
    MORE_STEPS = "more-steps"
    SLOWER = "slower"                               # the ratio is in ProofTime
    MORE_WORK = "more-work"                         # `difference` times the operations; `allowed`: the ratio's end
    NOT_FIXED = "not-fixed"                         # every finding of BEFORE is still there, or the one asked for
    UNOBSERVED = "unobserved"                       # the side `subject` never imported torch, or was not observed
    # Undecided:
    BOTH_FAIL = "both-fail"
    BEFORE_FAILS = "before-fails"                   # and cannot be run eager either, so there are no numbers
    TOO_NOISY = "too-noisy"                         # from `step` on rounding alone moves the weights by a quarter
    NOT_DETERMINISTIC = "not-deterministic"         # two runs of BEFORE differ by the share `value_before`
    DRAWS_MOVED = "draws-moved"                     # and the same draws could not be arranged
    NOTHING_COMPARED = "nothing-compared"           # no optimizer step and no printed number
    CLIPPING_LOST = "clipping-lost"                 # BEFORE clips gradients, AFTER does not; the numbers do not show it
    FILE_LOST = "file-lost"                         # BEFORE writes the files `subject`, AFTER does not
    NO_NUMBERS = "no-numbers"                       # a recording without them
    BUDGET_ENDED = "budget-ended"
    OTHER_PROGRAMS = "other-programs"               # two recordings of programs that have nothing in common


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictReason:
    """One reason of a verdict, in fields; a reporter makes the sentence."""

    kind: ReasonKind
    verdict: ProofVerdict
    subject: str = ""               # a tensor, `loss`, a function, a finding
    step: int | None = None
    value_before: float | None = None
    value_after: float | None = None
    difference: float | None = None     # relative
    allowed: float | None = None        # the measured noise, relative
    detail: str = ""                    # text of the program or of torch, quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingMark:
    """One finding of a side, by the fields that name it."""

    code: str
    severity: Severity
    title: str
    place: str
    fingerprint: str
    num_events: int = 0
    num_events_after: int | None = None     # of a finding that AFTER has too


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsChange:
    """The findings of both sides, matched by fingerprint."""

    fixed: Sequence[FindingMark] = ()
    unchanged: Sequence[FindingMark] = ()
    new: Sequence[FindingMark] = ()


class NumbersState(enum.StrEnum):
    EQUAL = "equal"                 # bit for bit, as far as recorded
    ROUNDING = "rounding"           # within the measured noise
    SAME_DRAWS = "same-draws"       # random draws moved; with the same draws arranged, within the measured noise
    DIFFER = "differ"
    UNDECIDED = "undecided"
    NOT_COMPARED = "not-compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve:
    """The losses of one side by optimizer step."""

    steps: Sequence[int] = ()
    values: Sequence[float] = ()
    times: Sequence[float] = ()     # seconds after the start of the process


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersChange:
    """How the numbers of both sides compare."""

    state: NumbersState = NumbersState.NOT_COMPARED
    compared: Sequence[str] = ()            # losses, gradients, weights, printed numbers
    num_steps: int = 0                      # that were compared
    num_tensors: int = 0
    num_printed: int = 0                    # printed numbers that were compared
    num_varying: int = 0                    # printed numbers left out, because two runs of BEFORE differ in them
    largest: float | None = None            # the largest difference, in multiples of the noise at its place
    largest_relative: float | None = None   # that difference relative to the tensor
    first_step: int | None = None           # the first difference beyond the noise
    first_tensor: str = ""
    own_difference: float | None = None     # of two runs of BEFORE, relative; 0: equal bit for bit
    eager_difference: float | None = None   # of BEFORE compiled against BEFORE eager, in multiples of the noise
    before: LossCurve = field(default_factory=LossCurve)
    after: LossCurve = field(default_factory=LossCurve)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofTime:
    """The step times of both sides; `why_not` says why they were not measured."""

    before_seconds: float | None = None     # per steady step
    after_seconds: float | None = None
    ratio: Interval | None = None           # after / before
    num_steps: int = 0
    num_rounds: int = 0
    why_not: str = ""
    in_turns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFacts:
    """What one side did, as it was observed."""

    label: str
    command: Sequence[str] = ()
    exit_status: int = 0
    seconds: float | None = None            # of the process
    num_steps: int | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None
    compiles: int | None = None
    compile_seconds: float | None = None
    eager_calls: int | None = None
    graph_ops: int | None = None            # executed in compiled graphs, over the run
    graph_calls: int | None = None          # calls of compiled pieces, over the run
    peak_memory_bytes: int | None = None
    torch: str = ""
    files: Sequence[str] = ()               # that it writes
    moments: Sequence[tuple[str, float, float]] = ()    # (kind, start, seconds) for the timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The verdict on a change, with everything it rests on."""

    verdict: ProofVerdict
    before: SideFacts
    after: SideFacts
    reasons: Sequence[VerdictReason] = ()          # the first decides
    findings: FindingsChange = field(default_factory=FindingsChange)
    numbers: NumbersChange = field(default_factory=NumbersChange)
    time: ProofTime = field(default_factory=ProofTime)
    location: DifferencePlace | None = None        # only of numbers that differ, where it was asked for
    notes: Sequence[str] = ()
    seconds: float = 0.0                    # that the proof took
    num_runs: int = 0
    steps_limit: int | None = None          # --steps

    @property
    def is_verified(self) -> bool:
        return self.verdict is ProofVerdict.VERIFIED

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON takes them; a reporter adds the sentences of the reasons."""
        data = asdict(self)
        for marks in data["findings"].values():
            for mark in marks:
                mark["severity"] = mark["severity"].name
        return {"schema": PROOF_SCHEMA, **_plain(data)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, enum.StrEnum):
        return str(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value

"""The finding, the data type in which every diagnosis of torchtriage ends, with its parts."""

import enum
from dataclasses import dataclass, field, replace


class Severity(enum.IntEnum):
    """P0 is the worst; severity.py says what each level means."""

    P0 = 0
    P1 = 1
    P2 = 2
    P3 = 3
    P4 = 4


class Category(enum.StrEnum):
    CORRECTNESS = "correctness bug"
    CONCURRENCY = "race condition / concurrency"
    RESOURCE = "memory leak / resource"
    PERFORMANCE = "performance bottleneck"
    NUMERICS = "numerical stability"
    COMPILE = "torch.compile compatibility"
    DEAD_CODE = "dead code / unwired"
    CONTRACT = "API design / contract"
    TEST_GAP = "test coverage gap"
    DOCUMENTATION = "documentation / naming"
    DEFENSIVE = "defensive programming"
    LEGACY = "legacy code"


class CostKind(enum.StrEnum):
    OBSERVED = "observed"
    ESTIMATED = "estimated"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of a problem. Every number is observed or estimated; one that is unknown is None, never zero."""

    seconds: float | None = None
    share: float | None = None
    ms_per_step: float | None = None
    kind: CostKind = CostKind.NOT_MEASURED
    note: str = ""


NOT_MEASURED = Cost()


class EditLabel(enum.StrEnum):
    """How much an edit has to be trusted before it is applied."""

    SAFE = "safe"           # cannot change a number of the program
    SETTING = "setting"     # a line of configuration: the code of the program stays as it is
    REVIEW = "review"       # can change numbers, gradients or errors in a program that it was not tried on


class ChangeKind(enum.StrEnum):
    """What is done to the statement at a line."""

    REPLACE = "replace"     # the expression `old` becomes `new`, wherever the statement (without its block) has it
    REWRITE = "rewrite"     # the statements `old`, one per line of text, become the statements `new`
    REMOVE = "remove"       # the statement `old` is removed
    INSERT = "insert"       # the statements `new` come before it
    APPEND = "append"       # the statements `new` come after it
    WRAP = "wrap"           # the statement `old` becomes the block of `new:`, an `if` or a `with`
    UNWRAP = "unwrap"       # the statement that begins with `old:` is replaced by its block
    DROP_ARGUMENT = "drop-argument"     # the keyword argument `old` of a call is dropped
    DROP_DECORATOR = "drop-decorator"   # the decorator `old` of the function is dropped
    ADD_ARGUMENT = "add-argument"       # the call `old` gets one more argument, `new`
    ADD_PARAMETER = "add-parameter"     # the function gets one more parameter, `new`
    SET = "set"             # the line `new` comes after the imports of the file, wherever `line` is


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a file. `old` is the code as ast.unparse writes it, so that spaces and quotes do not matter."""

    kind: ChangeKind
    path: str
    line: int
    old: str = ""
    new: str = ""
    within: str = ""    # the call of which `old` is an argument or the function; empty for any part of the statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One option of a fix as changes that a program can make; `text` names it as the text of the fix does."""

    label: EditLabel
    text: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """The change to make; `safe` only if it can neither alter the program's results nor make it raise."""

    text: str
    edit: str | None = None
    safe: bool = False
    edits: tuple[Edit, ...] = ()        # the options that `torchtriage fix` can make, the best first

    @property
    def is_optional(self) -> bool:
        """Whether the text says that nothing has to change."""
        return self.text.startswith("nothing ")


class AgreeingNumbers(enum.StrEnum):
    """How the numbers of a program before and after a verified edit agree."""

    EQUAL = "equal"                 # bit for bit
    ROUNDING = "rounding"           # within the measured rounding
    SAME_DRAWS = "same-draws"       # random draws moved; with the same draws arranged, within the rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyProof:
    """An edit of a finding that was verified to cure it; what a trial was worth."""

    label: EditLabel
    text: str                               # of the edit; empty if redacted
    numbers: AgreeingNumbers
    num_steps: int = 0                      # whose numbers were compared
    seconds_before: float | None = None     # of a steady step; None if it was not measured
    seconds_after: float | None = None
    ratio_low: float | None = None          # of the interval of after / before
    ratio_high: float | None = None
    torch: str = ""                         # the version that it was verified with


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    path: str
    line: int | None = None
    function: str | None = None
    column: int | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


UNKNOWN_PLACE = Location(path="unknown")


class OwnerKind(enum.StrEnum):
    YOU = "you"
    LIBRARY = "library"
    TORCH = "torch"
    PYTHON = "python"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The party that can fix a problem."""

    kind: OwnerKind
    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        if self.kind is OwnerKind.LIBRARY:
            return f"{self.name} {self.version}".strip()
        return str(self.kind)


YOU = Owner(kind=OwnerKind.YOU)
UNKNOWN_OWNER = Owner(kind=OwnerKind.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """One source line near a finding; `is_place` marks the line of the finding itself."""

    number: int
    text: str
    is_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledValue:
    """One value of the quantity behind a finding: a guarded size or number at a compile, a metric at a step."""

    text: str
    number: float | None = None     # None for a value that is not a number
    step: int | None = None
    part: str = ""                  # which part of the quantity, if several vary: `size(1)`

    def __str__(self) -> str:
        if self.part:
            return f"{self.part}={self.text}"
        return self.text if self.step is None else f"step {self.step}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The facts behind a finding: how often it occurred, the sampled values, the places that it affects."""

    num_events: int = 0
    values: tuple[SampledValue, ...] = ()
    reasons: tuple[str, ...] = ()
    compile_ids: tuple[str, ...] = ()
    source: tuple[SourceLine, ...] = ()
    folded: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class CheckKind(enum.StrEnum):
    """The condition that the next recording must meet."""

    NO_GRAPH_BREAK = "no-graph-break"               # at `place`
    NOT_EAGER = "not-eager"                         # no part of the function `subject` runs eager
    REST_NOT_EAGER = "rest-not-eager"               # nor does the rest of it after an earlier break
    NO_RESUME_FUNCTION = "no-resume-function"       # `subject` is the resume function that a break creates
    FEW_RECOMPILES = "few-recompiles"               # at most one of the function `subject`
    NO_FINDING = "no-finding"                       # of the rule `code` in the function `subject`
    NO_FINDING_IN_TRAINING = "no-finding-in-training"       # of the rule `code`, anywhere in the same training
    BELOW_RECOMPILE_LIMIT = "below-recompile-limit"
    IS_COMPILED = "is-compiled"
    NO_FAILED_COMPILE = "no-failed-compile"
    ERRORS_NOT_SUPPRESSED = "errors-not-suppressed"
    LESS_COMPILE_TIME = "less-compile-time"
    FEWER_CACHE_MISSES = "fewer-cache-misses"
    NOT_IN_COMPILED_CODE = "not-in-compiled-code"   # written into tickets by people, never by a rule
    BY_HAND = "by-hand"                             # `subject` is a sentence that only a person can judge


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `subject` is a function unless the kind says otherwise; `code` is the rule concerned."""

    kind: CheckKind
    subject: str = ""
    place: Location | None = None
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One located problem, with its cause, its cost, a fix and checks that verify the fix."""

    code: str
    slug: str
    title: str
    severity: Severity
    category: Category
    cause: str
    fix: Fix
    location: Location = UNKNOWN_PLACE
    raised_at: Location | None = None
    owner: Owner = UNKNOWN_OWNER
    upstream: str | None = None
    cost: Cost = NOT_MEASURED
    evidence: Evidence = field(default_factory=Evidence)
    verification: tuple[Check, ...] = ()
    related: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    status: str = "open"
    fingerprint: str = ""
    proof: RemedyProof | None = None        # only where a recording holds one

    def with_(self, **changes: object) -> "Finding":
        return replace(self, **changes)  # type: ignore[arg-type]  # dataclasses.replace cannot be typed by field

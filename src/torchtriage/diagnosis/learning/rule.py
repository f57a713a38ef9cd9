"""The parts of a learning rule: limits, breaches, the incident that they form, the text of its finding."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from torchtriage.diagnosis.learning.memory import median
from torchtriage.findings.model import Location, Severity
from torchtriage.recording.recording import Process, Series
from torchtriage.recording.series import LEARNING_RATE, LOSS
from torchtriage.text import row

if TYPE_CHECKING:
    from torchtriage.diagnosis.learning.limits import LearningLimits  # it is made of the limits of all rules

MIN_TO_COMPARE = 5      # losses at each end of a comparison
FALLEN_SHARE = 0.7      # of the loss just after a breach, at the end: noise moves a median of five less than this
MAX_VALUES_BEFORE = 200     # values of a series before the first breach that a median is computed from

T = TypeVar("T", int, float)


def limit(default: T, *, sagemaker: T | None = None, at_least: T | None = None) -> T:
    """A field of a limits class, with its value in the preset "sagemaker" and the smallest value that makes sense."""
    value: T = field(default=default, metadata={"sagemaker": sagemaker, "at_least": at_least})
    return value


@dataclass(frozen=True, kw_only=True)
class WindowLimits:
    """The limits of every rule that compares a value with the median of the values before it."""

    # With fewer than 20 values the median itself is noisy; a window of 50 forgets the past soon enough.
    warmup: int = limit(20, at_least=2)
    window: int = limit(50, at_least=2)


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
    subject: str = ""       # the tensor, parameter group, policy head or recurrent state; empty for the entire model
    step: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.code, self.subject or self.quantity


@dataclass(frozen=True, kw_only=True)
class Incident:
    """The breaches of one rule in one process, ordered by step; `others` has the incidents of all rules by code."""

    code: str
    breaches: Sequence[Breach]
    process: Process
    limits: "LearningLimits"        # those that the run was watched with
    others: Mapping[str, "Incident"]

    @property
    def first(self) -> Breach:
        return self.breaches[0]

    @cached_property
    def worst(self) -> Breach:
        """The breach furthest beyond its limit; if values are not finite, the first of those."""
        non_finite = [breach for breach in self.breaches if not math.isfinite(breach.value)]
        if non_finite:
            # A breach of one tensor is more specific than one of the total.
            return next((breach for breach in non_finite if breach.subject), non_finite[0])
        return max(self.breaches, key=lambda breach: abs(breach.value - breach.limit))

    @cached_property
    def subjects(self) -> list[str]:
        return list(dict.fromkeys(breach.subject for breach in self.breaches if breach.subject))

    @cached_property
    def num_observations(self) -> int:
        """The number of observations with a breach; several tensors may breach a limit in the same one."""
        return len({breach.step for breach in self.breaches} - {None}) or len(self.breaches)

    @cached_property
    def steps(self) -> list[int]:
        return sorted({breach.step for breach in self.breaches if breach.step is not None})

    @property
    def series(self) -> Series | None:
        return self.process.series.get(self.worst.quantity)

    @property
    def step_before(self) -> int | None:
        """The last step that was observed before the first breach."""
        series = self.process.series.get(self.first.quantity)
        if series is None or self.first.step is None:
            return None
        place = bisect_left(series.steps, self.first.step)
        if not place or not math.isfinite(series.steps[place - 1]):
            return None
        return int(series.steps[place - 1])

    def at(self, name: str, step: int | None) -> float | None:
        """The value of a series at exactly this step."""
        series = self.process.series.get(name)
        if series is None or step is None:
            return None
        place = bisect_left(series.steps, step)
        return series.values[place] if place < len(series.steps) and series.steps[place] == step else None

    def before(self, name: str) -> list[float]:
        """The last finite values of a series before the first breach."""
        series, step = self.process.series.get(name), self.first.step
        if series is None or step is None:
            return []
        end = bisect_left(series.steps, step)
        return [value for value in series.values[max(0, end - MAX_VALUES_BEFORE):end] if math.isfinite(value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRule:
    """How the breaches of one rule become a finding. The default severity is on the page of the rule."""

    code: str
    fix: str | Callable[[Incident], str]
    explanation: Callable[[Incident], str] | None = None            # follows the numbers in the cause of the finding
    severity: Callable[[Incident], Severity | None] | None = None   # None: the default
    # A noisy quantity passes its limit now and then. A live detector reports each time; the report only reports a rule
    # with this many observations in breach, and with this share of all observations of the quantity.
    min_observations: int = 1
    min_share: float = 0.0
    select: Callable[[Sequence[Breach], Process], Sequence[Breach]] | None = None   # the breaches that count
    is_problem: Callable[[Incident], bool] | None = None    # None: every incident is one
    milder: str = ""                # the rule with a lower limit of the same quantity; it is folded into this one
    place: Callable[[Incident], Location] | None = None     # of the line to change, where it is known
    names_tensors: bool = False     # another set of tensors is another problem, with its own fingerprint

    def fix_text(self, incident: Incident) -> str:
        return self.fix if isinstance(self.fix, str) else self.fix(incident)


def with_rate(breaches: Sequence[Breach], process: Process) -> list[Breach]:
    """The breaches of tensors and groups that have a learning rate."""
    return [breach for breach in breaches if breach.subject not in process.learning.without_rate]


def batch_to_check(incident: Incident) -> str:
    """The advice to inspect the batch of the first breach, or all batches since the observation before it."""
    step, last = incident.first.step, incident.step_before
    if step is None:
        return "inspect the batch"
    if last is None or step - last < 2:
        return f"inspect the batch of step {step}"
    return f"inspect the batches of steps {last + 1} to {step}"


def learning_rates(incident: Incident) -> str:
    """The learning rates of the run in parentheses, to follow the words "learning rate"; empty if unknown.

    Where a schedule has changed the only rate since the worst breach, it is that of the worst breach.
    """
    rates = dict.fromkeys(incident.process.learning.optimizer_lr)
    scheduled, step = incident.process.series.get(LEARNING_RATE), incident.worst.step
    if scheduled is not None and step is not None and len(rates) == 1:
        place = bisect_right(scheduled.steps, step) - 1
        if place >= 0 and short(scheduled.values[place]) != short(next(iter(rates))):
            return f" ({short(scheduled.values[place])} at step {step})"
    return f" (now {row(short(rate) for rate in rates)})" if rates else ""


def loss_at_first_breach(incident: Incident) -> str:
    """The loss at the first breach, compared with its previous median."""
    losses, now = incident.before(LOSS), incident.at(LOSS, incident.first.step)
    if now is None or not losses:
        return ""
    return f"The loss at step {incident.first.step} is {short(now)}; its previous median is {short(median(losses))}"


def loss_fell_again(incident: Incident) -> bool:
    """Whether the loss at the end is clearly below that just after the first breach: the training continues well."""
    series, step = incident.process.series.get(LOSS), incident.first.step
    if series is None or step is None:
        return False
    after = [value for value in series.values[bisect_left(series.steps, step):] if math.isfinite(value)]
    count = len(after) // 5
    if count < MIN_TO_COMPARE:
        return False
    start, end = median(after[:count]), median(after[-count:])
    return start > 0.0 and end < FALLEN_SHARE * start


def loss_fell_in(incident: Incident) -> bool:
    """Whether the median of the loss at the steps of the breaches is below the median before them."""
    before = incident.before(LOSS)
    during = [incident.at(LOSS, step) for step in incident.steps]
    values = [value for value in during if value is not None and math.isfinite(value)]
    return bool(before and values) and median(values) < median(before)


def short(value: float) -> str:
    """A number with three digits, as messages show it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return f"{value:.3g}"

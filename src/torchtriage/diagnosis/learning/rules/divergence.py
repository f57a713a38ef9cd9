"""A loss that grows from step to step until values overflow: its traces in other rules."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from torchtriage.diagnosis.learning.rule import Incident, learning_rates, short
from torchtriage.recording.series import LOSS

NON_FINITE = ("TT401", "TT402", "TT403")
# A batch with an outlier raises the loss once; an operation that makes NaN does not raise it at all.
MIN_RISES = 3
MIN_FACTOR = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The losses that rose from observation to observation, up to the last one before a value was not finite."""

    first_step: int
    first: float
    last_step: int
    last: float

    def __str__(self) -> str:
        return (
            f"the loss grew from {short(self.first)} (step {self.first_step}) to {short(self.last)} "
            f"(step {self.last_step})"
        )


def growth_before_overflow(incidents: Mapping[str, Incident]) -> Growth | None:
    """The growth of the loss up to the first value that is not finite; None if there is no such value or growth."""
    bad = [incidents[code] for code in NON_FINITE if code in incidents and incidents[code].steps]
    series = bad[0].process.series.get(LOSS) if bad else None
    if series is None:
        return None
    first_bad = min(incident.steps[0] for incident in bad)
    last = bisect_left(series.steps, first_bad) - 1
    first = last
    while first > 0 and series.values[first - 1] < series.values[first]:
        first -= 1
    if last - first < MIN_RISES or series.values[last] < MIN_FACTOR * abs(series.values[first]):
        return None
    if first_bad - series.steps[last] > series.steps[last] - series.steps[last - 1] + 1:
        return None     # the loss was not looked at just before
    return Growth(
        first_step=int(series.steps[first]), first=series.values[first],
        last_step=int(series.steps[last]), last=series.values[last],
    )


def parents(incidents: Mapping[str, Incident]) -> dict[str, str]:
    """Values that overflowed because the training diverged follow from updates or gradients that were too large."""
    growth, explosion, updates = growth_before_overflow(incidents), incidents.get("TT404"), incidents.get("TT408")
    if growth is None or explosion is None or not explosion.steps or explosion.steps[0] > growth.last_step:
        return {}
    overflows = [code for code in NON_FINITE if code in incidents and incidents[code].steps]
    origin = min(overflows, key=lambda code: incidents[code].steps[0])
    if updates is not None and updates.steps and updates.steps[0] <= explosion.steps[0]:
        return {origin: "TT408", "TT404": "TT408"}
    return {origin: "TT404"}


def explanation(growth: Growth) -> str:
    return f"Before, {growth}: the training diverged until values overflowed"


def fix(incident: Incident) -> str:
    return (
        f"lower the learning rate{learning_rates(incident)}, or clip with torch.nn.utils.clip_grad_norm_; if the loss "
        "grows at a tenth of the rate too, check its sign"
    )

"""The breaches of one rule told as one story: the worst moment, the course of the numbers, and what follows from them."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from torchtriage.diagnosis.learning.memory import median
from torchtriage.diagnosis.learning.rule import Breach, short
from torchtriage.recording.recording import Process, Series
from torchtriage.recording.series import LOSS

NUM_BEFORE = 3      # points shown before the first breach
MAX_MEDIAN = 200    # points before the first breach that its median is taken of


@dataclass(frozen=True, kw_only=True)
class Story:
    """The breaches of one rule in one process, in the order of steps; `others` has the stories of the other rules by code."""

    code: str
    breaches: Sequence[Breach]
    process: Process
    others: Mapping[str, "Story"]

    @property
    def first(self) -> Breach:
        return self.breaches[0]

    @cached_property
    def worst(self) -> Breach:
        """The one furthest beyond its limit; the first of those that are not finite."""
        bad = [b for b in self.breaches if not math.isfinite(b.value)]
        if bad:
            return next((b for b in bad if b.subject), bad[0])      # a tensor says more than the total
        return max(self.breaches, key=lambda b: abs(b.value - b.limit))

    @cached_property
    def subjects(self) -> list[str]:
        return list(dict.fromkeys(b.subject for b in self.breaches if b.subject))

    @cached_property
    def num_observations(self) -> int:
        """In how many observations a limit was breached; several tensors may do so in one."""
        return len({b.step for b in self.breaches} - {None}) or len(self.breaches)

    @cached_property
    def steps(self) -> list[int]:
        return sorted({b.step for b in self.breaches if b.step is not None})

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
        return int(series.steps[place - 1]) if place and math.isfinite(series.steps[place - 1]) else None

    def at(self, name: str, step: int | None) -> float | None:
        """The value of a series at exactly this step."""
        series = self.process.series.get(name)
        if series is None or step is None:
            return None
        place = bisect_left(series.steps, step)
        return series.values[place] if place < len(series.steps) and series.steps[place] == step else None

    def before(self, name: str) -> list[float]:
        """The last finite values of a series ahead of the first breach."""
        series, step = self.process.series.get(name), self.first.step
        if series is None or step is None:
            return []
        end = bisect_left(series.steps, step)
        return [value for value in series.values[max(0, end - MAX_MEDIAN):end] if math.isfinite(value)]


def lasting(breaches: Sequence[Breach], process: Process, least: int) -> list[Breach]:
    """Those that come `least` observations in a row or more, without a beginning that was got over: nothing is learned there yet."""
    points = (process.series[name].steps for name in {b.quantity for b in breaches} if name in process.series)
    breached = {b.step for b in breaches}
    observed = sorted({int(step) for steps in points for step in steps if math.isfinite(step)} | {s for s in breached if s is not None})
    runs = [list(run) for is_beyond, run in groupby(observed, breached.__contains__) if is_beyond]
    if runs and runs[0][0] == observed[0] and runs[0][-1] != observed[-1]:
        runs = runs[1:]
    kept = {step for run in runs if len(run) >= least for step in run}
    return [b for b in breaches if b.step in kept or (b.step is None and len(breaches) >= least)]


def title(story: Story) -> str:
    """The worst moment with its numbers, and how often else."""
    worst, steps = story.worst, story.steps
    others = len(story.subjects) - 1
    more = f", and {others} more" if others > 0 else ""
    if not steps:
        return f"{worst.text}{more}"
    if len(steps) == 1:
        return f"{worst.text}{more} (step {steps[0]})"
    return f"{worst.text}{more} (step {worst.step}; {story.num_observations} times, steps {steps[0]} to {steps[-1]})"


def course(story: Story) -> list[tuple[int, float]]:
    """(step, value): how the quantity began, what came just before the first breach, the breach, the worst, the last."""
    series = story.series
    if series is None or not len(series.steps):
        return [(b.step, b.value) for b in story.breaches[:8] if b.step is not None]
    first = bisect_left(series.steps, story.first.step or 0)
    worst = bisect_left(series.steps, story.worst.step or 0)
    places = {0, *range(first - NUM_BEFORE, first + 2), worst, len(series.steps) - 1}
    points = ((series.steps[place], series.values[place]) for place in sorted(places) if 0 <= place < len(series.steps))
    return [(int(step), value) for step, value in points if math.isfinite(step)]


def cause(story: Story) -> str:
    """The numbers over time, and what the rule makes of them."""
    points = course(story)
    told = ", ".join(f"{short(value)} (step {step})" for step, value in points)
    limit = f"; limit {short(story.worst.limit)}" if 0.0 < abs(story.worst.limit) < math.inf else ""
    over_time = f"{story.worst.quantity}: {told}{limit}" if points else story.worst.text
    return ". ".join(part for part in (over_time, _EXPLAIN.get(story.code, _nothing)(story)) if part)


def _nothing(story: Story) -> str:
    return ""


# Numbers that are not finite

_ORIGINS = {
    "TT403": ("weights", "the update before it wrote them: an optimizer state that overflowed, a learning rate that is not finite, or a "
                         "weight set by hand"),
    "TT401": (LOSS, "the forward pass or the data of that step made it"),
    "TT402": ("gradients", "the backward pass made it: sqrt, norm or std at 0, a log or a division that torch.where hides only in the "
                           "forward pass"),
}


def order_of_origin(stories: Mapping[str, Story]) -> list[str]:
    """Weights, loss, gradients by which was not finite first; in a step the weights come before the loss, the loss before gradients."""
    codes = [code for code in _ORIGINS if code in stories and stories[code].steps]
    return sorted(codes, key=lambda code: stories[code].steps[0])


def _origin(story: Story) -> str:
    """Where it began, if all that could have been first was watched."""
    order = order_of_origin(story.others)
    if story.code not in order:
        return ""
    seen = ", then the ".join(f"{_ORIGINS[code][0]} at step {story.others[code].steps[0]}" for code in order)
    unwatched = [what for what in ("weight", LOSS) if not any(name.startswith(what) for name in story.process.series)]
    if unwatched:
        return f"First seen in the {seen}; where it began is open, as {' and '.join(unwatched)} were not watched"
    return f"First the {seen}: {_ORIGINS[order[0]][1]}"


def _loss_there(story: Story) -> str:
    """What the loss did where the gradient exploded."""
    losses, now = story.before(LOSS), story.at(LOSS, story.first.step)
    if now is None or not losses:
        return ""
    return f"The loss there was {short(now)}, its median before {short(median(losses))}"


_EXPLAIN: dict[str, Callable[[Story], str]] = {
    "TT401": _origin, "TT402": _origin, "TT403": _origin, "TT404": _loss_there, "TT408": _loss_there,
}

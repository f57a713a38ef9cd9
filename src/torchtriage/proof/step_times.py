"""The step times of both sides, from runs in turns."""

import statistics
from collections.abc import Sequence

from torchtriage.findings.proof.verdict import ProofTime
from torchtriage.findings.shape_study import Interval
from torchtriage.proof.statistics import median_interval
from torchtriage.recording.recording import Recording
from torchtriage.recording.series import STEP_SECONDS

MIN_STEPS = 20          # in the second half of a run; below it the interval of a median is wide
SLOWER = 1.05           # the whole interval of the ratio must be above it: runs in turns differ by 1 %
SHOWN_FASTER = 1.0      # the whole interval of one round below it needs no second one to exclude a slowdown by 5 %
# With fewer steps than MIN_STEPS nothing is shown about a small ratio, but a large one is clear: of six steps per side,
# the interval of the ratio reaches from the fastest to the slowest.
FEW_STEPS = 3           # in the second half of each of two runs
CLEARLY_SLOWER = 1.5


def steady_steps(recording: Recording) -> list[float]:
    """The seconds of each step of the second half of a run, in its process with the most steps."""
    process = max(recording.processes, key=lambda p: p.num_steps or 0, default=None)
    series = process.series.get(STEP_SECONDS) if process is not None else None
    values = list(series.values) if series is not None else []
    return values[len(values) // 2:]


def has_enough(*runs: Recording, least: int = MIN_STEPS) -> bool:
    return all(len(steady_steps(run)) >= least for run in runs)


def is_round_needed(before: Recording, after: Recording) -> bool:
    """Whether both sides must run once more, after a round in turns.

    They must where steps that can be timed are not shown to be faster, or where a few steps seem clearly slower.
    """
    if has_enough(before, after):
        ratio = step_times([before], [after], in_turns=True).ratio
        return ratio is None or ratio.high is None or ratio.high > SHOWN_FASTER
    return has_enough(before, after, least=FEW_STEPS) and (
        statistics.median(steady_steps(after)) > CLEARLY_SLOWER * statistics.median(steady_steps(before)))


def step_times(
    before: Sequence[Recording], after: Sequence[Recording], *, in_turns: bool, least: int = MIN_STEPS,
) -> ProofTime:
    """The medians and the ratio; its interval is that of both medians, taken at their far ends."""
    own, other = ([seconds for run in runs for seconds in steady_steps(run)] for runs in (before, after))
    number = min(len(own), len(other))
    if number < least:
        return ProofTime(why_not=f"{number} steady steps, {MIN_STEPS} are needed", num_steps=number)
    a, b = median_interval(own), median_interval(other)
    if not a.middle or not a.low or not a.high or b.low is None or b.high is None:
        return ProofTime(why_not="the steps are too short to be measured", num_steps=number)
    ratio = Interval(middle=b.middle / a.middle, low=b.low / a.high, high=b.high / a.low)
    return ProofTime(
        before_seconds=a.middle, after_seconds=b.middle, ratio=ratio, num_steps=number,
        num_rounds=min(len(before), len(after)), in_turns=in_turns)


def is_shown_not_slower(time: ProofTime) -> bool:
    """Whether the interval of the ratio excludes a slowdown."""
    return time.ratio is not None and time.ratio.high is not None and time.ratio.high <= SLOWER


def is_slower(time: ProofTime, rounds: Sequence[tuple[Recording, Recording]], limit: float = SLOWER) -> bool:
    """Whether AFTER is slower beyond the interval, in all rounds together and in each of them."""
    if time.ratio is None or time.ratio.low is None or time.ratio.low <= limit:
        return False
    medians = [(statistics.median(steady_steps(a)), statistics.median(steady_steps(b))) for a, b in rounds]
    return all(b > a * limit for a, b in medians)

"""TT414, TT415: the course of the loss."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.learning.memory import Memory, median, spread
from torchtriage.diagnosis.learning.rule import (
    Breach,
    Incident,
    LearningRule,
    WindowLimits,
    batch_to_check,
    limit,
    short,
)
from torchtriage.diagnosis.learning.rules.non_finite import loss_value
from torchtriage.recording.series import LOSS

QUANTITIES = frozenset({LOSS})


@dataclass(frozen=True, kw_only=True)
class LossLimits(WindowLimits):
    # TT414. Lightning's SpikeDetection asks for twice a running mean; ten spreads keep noise out of it. A loss below a
    # hundredth of its first values jumps by large factors without harm.
    loss_spike_factor: float = 2.0
    loss_spike_sigmas: float = 10.0
    loss_spike_floor: float = 0.01
    # Times the largest distance from the median in the window: the losses of tiny batches have a heavy tail.
    loss_spike_excess: float = 3.0

    # TT415: four blocks without a median that is clearly below the start. A plateau after progress is not a finding.
    loss_start: int = limit(5, sagemaker=2, at_least=2)
    loss_block: int = limit(50, sagemaker=10, at_least=2)
    loss_blocks: int = limit(4, sagemaker=1)
    loss_min_gain: float = limit(0.01, sagemaker=0.0)


def breaches(row: Mapping[str, float], is_policy: bool, memory: Memory, limits: LossLimits) -> Iterator[Breach]:
    """The rules of the loss for one observation, and TT401."""
    loss = row.get(LOSS)
    if loss is None:
        return
    yield from loss_value(loss)
    # Successive losses of a policy are not comparable: each has other samples and other returns.
    if not math.isfinite(loss) or is_policy:
        return
    before, first = memory.window(LOSS, limits.window), memory.window("loss_start", limits.loss_start)
    if len(first) < limits.loss_start:
        first.append(loss)
    start = median(first)
    yield from _spike(loss, before, start, limits)
    before.append(loss)
    yield from _not_decreasing(loss, start, memory, limits)


# TT414

def _spike(loss: float, before: Sequence[float], start: float, limits: LossLimits) -> Iterator[Breach]:
    if len(before) < limits.warmup:
        return
    middle, sigma = spread(before)
    jump = max(
        limits.loss_spike_sigmas * sigma, (limits.loss_spike_factor - 1.0) * abs(middle),
        limits.loss_spike_excess * (max(before) - middle),
    )
    most = max(middle + jump, limits.loss_spike_floor * abs(start))
    if loss > most:
        yield Breach(
            code="TT414", type="loss_spike", quantity=LOSS, value=loss, limit=most,
            text=f"the loss jumped to {short(loss)}; the median of the {len(before)} values before is {short(middle)}",
        )


def _fix_spike(incident: Incident) -> str:
    return (
        f"{batch_to_check(incident)}; if the loss does not recover by itself, lower the learning rate or clip the "
        "gradients"
    )


# TT415

def _not_decreasing(loss: float, start: float, memory: Memory, limits: LossLimits) -> Iterator[Breach]:
    """Checked when a block is full. Once the median of a block was clearly below the start, nothing is reported."""
    block = memory.window("loss_block", limits.loss_block)
    block.append(loss)
    num_observed = memory.count("num_losses")
    if num_observed % limits.loss_block:
        return
    level, sigma = spread(block)
    best = memory.numbers["loss_best"] = min(level, memory.numbers.get("loss_best", math.inf))
    # The start is the median of a few values: half a spread is the error that it may have by chance.
    most = start - max(limits.loss_min_gain * abs(start), 0.5 * sigma)
    if num_observed >= limits.loss_block * limits.loss_blocks and best > most:
        yield Breach(
            code="TT415", type="loss_not_decreasing", quantity=LOSS, value=best, limit=most,
            text=f"the loss has not clearly decreased in {num_observed} observations: it started at {short(start)}, "
                 f"the lowest median of {limits.loss_block} values is {short(best)}",
        )


def _lasts_to_the_end(incident: Incident) -> bool:
    """A loss that decreased in the end is not a problem."""
    series = incident.process.series.get(LOSS)
    last_block = incident.limits.loss_block
    if series is None or len(series.steps) <= last_block or not incident.steps:
        return True
    return incident.steps[-1] >= series.steps[-last_block]


RULES = (
    LearningRule(code="TT414", fix=_fix_spike),
    LearningRule(
        code="TT415", is_problem=_lasts_to_the_end,
        fix="overfit one batch first: if that fails too, the labels, the loss or the connections of the model are "
            "wrong; otherwise try 10x and 0.1x the learning rate",
    ),
)

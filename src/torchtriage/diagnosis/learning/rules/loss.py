"""TT414, TT415, TT434: the course of the loss."""

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
    learning_rates,
    limit,
    loss_fell_again,
    short,
)
from torchtriage.diagnosis.learning.rules.non_finite import loss_value
from torchtriage.findings.model import Severity
from torchtriage.recording.series import LOSS

QUANTITIES = frozenset({LOSS})
MILD_RISE = 3.0     # times the start
BELOW_START = 0.8   # of the start: weights that were lost bring the loss back to it
NUM_AFTER = 10      # losses after a jump


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

    # TT434: two blocks whose median is above the start by half of it, and by four spreads of the first block, which
    # noise is not.
    loss_rise: float = 0.5
    loss_rise_sigmas: float = 4.0
    loss_rise_patience: int = 2


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


def _spike_severity(incident: Incident) -> Severity | None:
    """A new level below that of the start, from which the loss falls again, comes from other data or another term."""
    series, step, worst = incident.process.series.get(LOSS), incident.first.step, incident.first.value
    if series is None or step is None or not loss_fell_again(incident):
        return None
    losses = [(at, value) for at, value in zip(series.steps, series.values, strict=False) if math.isfinite(value)]
    after = [value for at, value in losses if at > step][:NUM_AFTER]
    start = median([value for _, value in losses[:incident.limits.loss_start]])
    is_level = len(after) == NUM_AFTER and median(after) > 0.5 * worst
    return Severity.P4 if is_level and worst < BELOW_START * start else None


# TT415

def _not_decreasing(loss: float, start: float, memory: Memory, limits: LossLimits) -> Iterator[Breach]:
    """Checked when a block is full. Once the median of a block was clearly below the start, nothing is reported."""
    block = memory.window("loss_block", limits.loss_block)
    block.append(loss)
    num_observed = memory.count("num_losses")
    if num_observed % limits.loss_block:
        return
    level, sigma = spread(block)
    noise = memory.numbers.setdefault("loss_noise", sigma)
    yield from _rising(level, noise, start, memory, limits)
    best = memory.numbers["loss_best"] = min(level, memory.numbers.get("loss_best", math.inf))
    # The start is the median of a few values: half a spread is the error that it may have by chance.
    most = start - max(limits.loss_min_gain * abs(start), 0.5 * sigma)
    if num_observed >= limits.loss_block * limits.loss_blocks and best > most:
        yield Breach(
            code="TT415", type="loss_not_decreasing", quantity=LOSS, value=best, limit=most,
            text=f"the loss has not clearly decreased in {num_observed} observations: it started at {short(start)}, "
                 f"the lowest median of {limits.loss_block} values is {short(best)}",
        )


# TT434

def _rising(level: float, noise: float, start: float, memory: Memory, limits: LossLimits) -> Iterator[Breach]:
    most = start + max(limits.loss_rise * abs(start), limits.loss_rise_sigmas * noise)
    if memory.streak("loss_rise", level > most, limits.loss_rise_patience).is_active:
        yield Breach(
            code="TT434", type="loss_rising", quantity=LOSS, value=level, limit=most,
            text=f"the loss rose from {short(start)} to {short(level)}, a median of {limits.loss_block} values",
        )


def _rise_severity(incident: Incident) -> Severity | None:
    """A rise to a small multiple of the start may come from a term that is switched on during the run."""
    series = incident.process.series.get(LOSS)
    first = series.values[:incident.limits.loss_start] if series is not None else ()
    return Severity.P3 if len(first) and incident.worst.value < MILD_RISE * abs(median(first)) else None


def _fix_rise(incident: Incident) -> str:
    return (
        f"lower the learning rate{learning_rates(incident)} by 10x; if the loss still rises, look for a wrong sign "
        "(maximize=True, -loss), or for a target that depends on the model and runs away"
    )


def _lasts_to_the_end(incident: Incident) -> bool:
    """A loss that decreased in the end is not a problem."""
    series = incident.process.series.get(LOSS)
    last_block = incident.limits.loss_block
    if series is None or len(series.steps) <= last_block or not incident.steps:
        return True
    return incident.steps[-1] >= series.steps[-last_block]


RULES = (
    LearningRule(code="TT414", fix=_fix_spike, severity=_spike_severity),
    LearningRule(code="TT434", fix=_fix_rise, severity=_rise_severity, is_problem=_lasts_to_the_end),
    LearningRule(
        code="TT415", is_problem=_lasts_to_the_end,
        fix="overfit one batch first: if that fails too, the labels, the loss or the connections of the model are "
            "wrong; otherwise try 10x and 0.1x the learning rate",
    ),
)

"""TT408, TT409, TT412: the steps of the optimizer, whether too small, too large or skipped."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.learning.memory import Memory, median
from torchtriage.diagnosis.learning.rule import (
    Breach,
    Incident,
    LearningRule,
    WindowLimits,
    learning_rates,
    limit,
    loss_at_first_breach,
    short,
    with_rate,
)
from torchtriage.findings.model import Severity
from torchtriage.findings.severity import P1_SHARE
from torchtriage.recording.recording import Process
from torchtriage.recording.series import LOSS, SCALER_SCALE, SCALER_SKIPPED_TOTAL, UPDATE_RATIO

UPDATE_RATIO_OF = f"{UPDATE_RATIO}/"    # of a group of parameters: `update_ratio/actor`
QUANTITIES = frozenset({SCALER_SKIPPED_TOTAL, SCALER_SCALE})
PREFIXES = (UPDATE_RATIO_OF,)

NUM_AFTER = 10      # losses after a first update, the largest of which is compared with the loss before it
HARM = 3.0
LARGE_AT_START = "update_large_at_start"
REPLACES = 1.0      # an update above the weights themselves replaces them: a single loss shows the harm
ONLY_GROUP = "all"                      # the name of the parameters of an optimizer with one group
USUAL_RATIO = 1e-3                      # of an update to its weights; the ratio that the fix of TT408 aims at


@dataclass(frozen=True, kw_only=True)
class OptimizerLimits(WindowLimits):
    # TT408, TT409. About 1e-3 is usual. Updates of a tenth of the weight replace it within ten steps. That is reported
    # after the warm-up only: weights that start at zero (LoRA, biases) cannot avoid it. An update of 1e-7 is lost in
    # rounding (float32 has 1.2e-7); updates stay that small for long while the learning rate warms up, hence the longer
    # patience.
    update_ratio_max: float = limit(0.1, sagemaker=10.0)
    # The first updates may be large by nature. They count if the loss is the worse for it.
    update_ratio_start: float = 0.3
    update_start_count: int = 3
    update_ratio_min: float = limit(1e-7, sagemaker=1e-8)
    update_large_patience: int = limit(3, sagemaker=1)
    update_small_patience: int = limit(20, sagemaker=1)

    # TT412. GradScaler starts at 65536: sixteen halvings are calibration. Later it tries a larger scale every 2,000
    # steps, which may cost one step.
    skip_warmup: int = 100
    skip_window: int = 100
    skip_share: float = 0.05                # the share of lost steps from which a finding is P2
    skip_count: int = 5
    scale_min: float = 1.0                  # below this the gradient itself overflows, not the scaled one


def breaches(
    row: Mapping[str, float], step: int | None, memory: Memory, limits: OptimizerLimits,
) -> Iterator[Breach]:
    """The rules of the optimizer's steps for one observation."""
    for name, ratio in row.items():
        if name.startswith(UPDATE_RATIO_OF) and math.isfinite(ratio):
            yield from _update_size(name, ratio, memory, limits)
    yield from _scale(row.get(SCALER_SCALE), limits)
    yield from _skipped_steps(row.get(SCALER_SKIPPED_TOTAL), step, memory, limits)


# TT408, TT409

def _update_size(name: str, ratio: float, memory: Memory, limits: OptimizerLimits) -> Iterator[Breach]:
    group = name.removeprefix(UPDATE_RATIO_OF)
    num_observed = memory.count(f"num:{name}")
    is_warm = num_observed > limits.warmup
    if num_observed <= limits.update_start_count and ratio > limits.update_ratio_start:
        which = "the first update" if num_observed == 1 else "one of the first updates"
        yield Breach(
            code="TT408", type=LARGE_AT_START, quantity=name, subject=group, value=ratio,
            limit=limits.update_ratio_start, text=f"{which} changes {_by(group, ratio)}",
        )
    is_large, is_small = ratio > limits.update_ratio_max and is_warm, ratio < limits.update_ratio_min
    for code, type, beyond, patience, bound in (
        ("TT408", "update_large", is_large, limits.update_large_patience, limits.update_ratio_max),
        ("TT409", "update_small", is_small, limits.update_small_patience, limits.update_ratio_min),
    ):
        if memory.streak(f"{type}:{group}", beyond, patience).is_active:
            yield Breach(
                code=code, type=type, quantity=name, subject=group, value=ratio, limit=bound,
                text=f"one update changes {_by(group, ratio)}",
            )


def _by(group: str, ratio: float) -> str:
    if group == ONLY_GROUP:
        return f"all weights by {short(ratio)} times their norm"
    return f"{group} by {short(ratio)} times its norm"


def _fix_large_update(incident: Incident) -> str:
    factor = median([breach.value for breach in incident.breaches]) / USUAL_RATIO
    of_group = "" if incident.worst.subject == ONLY_GROUP else f" of {incident.worst.subject}"
    times = f"{factor:,.0f}" if factor >= 100 else short(factor)
    return (
        f"lower the learning rate{learning_rates(incident)}{of_group} by about {times}x, for a ratio of "
        f"{USUAL_RATIO:g}, or warm it up"
    )


def _without_harmless_start(breaches: Sequence[Breach], process: Process) -> list[Breach]:
    """Weights that begin near zero, such as biases, cannot avoid large first updates: the loss shows the harm."""
    return [breach for breach in breaches if breach.type != LARGE_AT_START or _is_harmful(breach, process)]


def _is_harmful(breach: Breach, process: Process) -> bool:
    series, step = process.series.get(LOSS), breach.step
    if series is None or step is None:
        return False
    points = [(at, value) for at, value in zip(series.steps, series.values, strict=False) if math.isfinite(value)]
    before = [value for at, value in points if at <= step]
    after = [value for at, value in points if at > step][:NUM_AFTER]
    if not before or not after:
        return False
    harm = max(after) if breach.value > REPLACES else median(after)
    return harm > HARM * abs(before[0])


# TT412

def _scale(scale: float | None, limits: OptimizerLimits) -> Iterator[Breach]:
    if scale is not None and scale < limits.scale_min:
        yield Breach(
            code="TT412", type="scale_collapse", quantity=SCALER_SCALE, value=scale, limit=limits.scale_min,
            text=f"the loss scale fell to {short(scale)}",
        )


def _skipped_steps(
    total: float | None, step: int | None, memory: Memory, limits: OptimizerLimits,
) -> Iterator[Breach]:
    if total is None:
        return
    now = memory.count("num_scaler") if step is None else step
    first = memory.numbers.setdefault("scaler_first", now)
    # Holds step, total, step, total, ...; the last step before the window stays as its edge.
    marks = memory.window("scaler", None)
    if now - first <= limits.skip_warmup:
        marks.clear()
    marks.extend((now, total))
    while len(marks) > 4 and now - marks[2] >= limits.skip_window:
        marks.popleft()
        marks.popleft()
    num_skipped, num_steps = total - marks[1], now - marks[0]
    if num_steps <= 0 or num_skipped < limits.skip_count:
        return
    share = num_skipped / num_steps
    if share >= limits.skip_share:
        yield Breach(
            code="TT412", type="skipped_steps", quantity=SCALER_SKIPPED_TOTAL, value=share, limit=limits.skip_share,
            text=f"GradScaler skipped {num_skipped:.0f} of {num_steps:.0f} steps",
        )


def _skipping_severity(incident: Incident) -> Severity | None:
    worst = incident.worst
    return Severity.P1 if worst.quantity == SCALER_SCALE or worst.value >= P1_SHARE else None


RULES = (
    LearningRule(
        code="TT408", fix=_fix_large_update, explanation=loss_at_first_breach,
        select=_without_harmless_start,
    ),
    LearningRule(
        code="TT409", select=with_rate,
        fix="raise the learning rate, or check whether its schedule has already ended; weights in bfloat16 lose such "
            "updates: keep float32 copies",
    ),
    LearningRule(
        code="TT412", severity=_skipping_severity,
        fix="find the operation that overflows float16 (softmax of large logits, sums of squares) and run it in "
            "float32, or use bfloat16, which needs no scaler",
    ),
)

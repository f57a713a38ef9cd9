"""Takes the observations of a training one by one and says which limits they breach; a live run and a recording go the same way."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from torchtriage.diagnosis.learning import checks
from torchtriage.diagnosis.learning.limits import DEFAULT, LearningLimits
from torchtriage.diagnosis.learning.memory import NO_MEMORY, Memory, median, spread
from torchtriage.diagnosis.learning.policy_watch import ENTROPY, POLICY_QUANTITIES, policy_breaches
from torchtriage.diagnosis.learning.rule import Breach, short
from torchtriage.diagnosis.learning.tensors import is_well, remembered, tensor_breaches
from torchtriage.recording.series import (
    GRAD_HEALTH,
    GRAD_HEALTH_DRIFT,
    GRAD_NORM,
    GRAD_NORM_AFTER_CLIP,
    GRAD_NORM_DRIFT,
    LOSS,
    PPO_PREFIX,
    SCALER_SCALE,
    SCALER_SKIPPED_TOTAL,
    UPDATE_RATIO,
    WEIGHT_NORM,
    series_of,
)

UPDATE = UPDATE_RATIO     # of a group of parameters: `update_ratio/actor`
# Quantities of a whole observation; those of a tensor are in tensor_checks.
QUANTITIES = frozenset({
    LOSS, GRAD_NORM, GRAD_NORM_AFTER_CLIP, GRAD_HEALTH, GRAD_NORM_DRIFT, GRAD_HEALTH_DRIFT, SCALER_SKIPPED_TOTAL,
    SCALER_SCALE, *POLICY_QUANTITIES,
})


def is_quantity(name: str) -> bool:
    """Whether a rule reads the series of this name as a whole, not as that of a tensor."""
    return name in QUANTITIES or name.startswith((f"{ENTROPY}/", f"{UPDATE}/"))


class LearningWatch:
    """The rules with their memory. An observation is a mapping of quantities by the names of their series; any may be missing."""

    def __init__(
        self, limits: LearningLimits = DEFAULT, *, is_half: bool = False, has_float16: bool = False, is_policy: bool = False,
    ) -> None:
        self.limits = limits
        self.is_half = is_half          # the model computes in 16 bits
        self.has_float16 = has_float16  # gradients themselves are float16, whose range is small
        self.is_policy = is_policy      # its data and its targets change with it, and so may loss and gradients
        self.memory = Memory()

    def observe(self, row: Mapping[str, float], step: int | None = None) -> list[Breach]:
        """The breaches of one observation of the whole."""
        memory, limits = self.memory, self.limits
        self.is_policy = self.is_policy or any(name.startswith(PPO_PREFIX) for name in row)
        found = [
            *_loss(row, memory, limits, self.is_policy), *_gradient(row, memory, limits), *_drift(row, memory, limits, self.is_policy),
            *_clipping(row, memory, limits), *_updates(row, memory, limits), *_scaler(row, step, memory, limits),
            *policy_breaches(row, self.is_half, memory, limits),
        ]
        return [replace(breach, step=step) for breach in found]

    def observe_tensors(self, rows: Mapping[str, Mapping[str, float]], step: int | None = None) -> list[Breach]:
        """The breaches of all tensors of one observation: each for itself, and one beside the other."""
        found = self.observe_norms({name: row[GRAD_NORM] for name, row in rows.items() if GRAD_NORM in row}, step)
        for name, row in rows.items():
            found += self.observe_tensor(name, row, step)
        return found

    def observe_tensor(self, name: str, row: Mapping[str, float], step: int | None = None) -> list[Breach]:
        tensors, weights = self.memory.tensors, self.memory.weights
        before, last_weight = tensors.get(name), weights.get(name)
        if WEIGHT_NORM in row:
            weights[name] = row[WEIGHT_NORM]
        if before is None and is_well(row, last_weight, self.limits):
            return []
        now = remembered(row, before or NO_MEMORY, last_weight, self.has_float16, self.limits)
        if now == NO_MEMORY:
            tensors.pop(name, None)
        else:
            tensors[name] = now
        return [replace(breach, step=step) for breach in tensor_breaches(name, row, now, self.limits)]

    def observe_norms(self, norms: Mapping[str, float], step: int | None = None) -> list[Breach]:
        """The gradient norms of the tensors of one observation beside each other."""
        found = [*_vanishing(norms, self.memory, self.limits), *_balance(norms, self.memory, self.limits)]
        return [replace(breach, step=step) for breach in found]


def _loss(row: Mapping[str, float], memory: Memory, limits: LearningLimits, is_policy: bool) -> Iterator[Breach]:
    loss = row.get(LOSS)
    if loss is None:
        return
    yield from checks.loss_value(loss)
    if not math.isfinite(loss) or is_policy:    # each loss of a policy is over other samples and other returns than the one before
        return
    before, start = memory.window(LOSS, limits.window), memory.window("loss_start", limits.loss_start)
    if len(start) < limits.loss_start:
        start.append(loss)
    yield from checks.loss_spike(loss, before, median(start), limits)
    before.append(loss)
    yield from _loss_blocks(loss, median(start), memory, limits)


def _loss_blocks(loss: float, start: float, memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    """Judged where a block is full; one level clearly below the start settles it for good."""
    block = memory.window("loss_block", limits.loss_block)
    block.append(loss)
    num_observed = memory.count("num_losses")
    if num_observed % limits.loss_block:
        return
    level, sigma = spread(block)
    best = memory.numbers["loss_best"] = min(level, memory.numbers.get("loss_best", math.inf))
    if num_observed >= limits.loss_block * limits.loss_blocks:
        yield from checks.loss_stuck(best, start, sigma, num_observed, limits)


def _gradient(row: Mapping[str, float], memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    norm = row.get(GRAD_NORM)
    if norm is None:
        return
    yield from checks.gradient_norm_value(norm)
    if not math.isfinite(norm):
        return
    before = memory.window("log_grad_norm", limits.window)
    limit, middle = checks.gradient_norm_limit(before, limits)
    if memory.streak("explosion", norm > limit, 1, cleared=norm < limits.grad_norm_clear * limit).is_active:
        yield checks.gradient_explosion(norm, limit, middle)
    before.append(math.log(max(norm, checks.TINY)))


def _drift(row: Mapping[str, float], memory: Memory, limits: LearningLimits, is_policy: bool) -> Iterator[Breach]:
    """As given, or else that of a short moving average from a long one: a single value is too noisy to call it a drift.

    The gradient norm of a policy is expected to move, as its data do, and is judged only if somebody gave its drift.
    """
    def of(name: str, is_judged: bool) -> float | None:
        given = row.get(f"{name}_drift")
        return _own_drift(name, row.get(name), memory, limits) if given is None and is_judged else given

    yield from checks.gradient_drift(of(GRAD_NORM, not is_policy), of(GRAD_HEALTH, True), limits)


def _own_drift(name: str, value: float | None, memory: Memory, limits: LearningLimits) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    long = memory.numbers.get(f"long:{name}", value)
    value = min(value, limits.drift_most * max(long, limits.drift_floor))
    count = memory.count(f"num:{name}")
    brief = _averaged(memory, f"short:{name}", value, count, limits.drift_short_momentum)
    _averaged(memory, f"long:{name}", value, count, limits.drift_momentum)
    return checks.drift(brief, long, limits.drift_floor) if count > limits.warmup else None


def _averaged(memory: Memory, key: str, value: float, count: int, momentum: float) -> float:
    """At first the mean of all: an average that hangs on its first value would drift from it by itself."""
    momentum = min(momentum, (count - 1) / count)
    now = memory.numbers[key] = momentum * memory.numbers.get(key, value) + (1.0 - momentum) * value
    return now


def _clipping(row: Mapping[str, float], memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    before, after = row.get(GRAD_NORM), row.get(GRAD_NORM_AFTER_CLIP)
    if before is None or after is None or not (math.isfinite(before) and math.isfinite(after)):
        return
    share, count = memory.share("clipped", after < 0.999 * before, limits.clipped_window)   # less than 0.1 % is rounding
    if count >= limits.clipped_count and share >= limits.clipped_share:
        yield Breach(
            code="TT413", type="gradient_always_clipped", quantity=GRAD_NORM, value=share, limit=limits.clipped_share,
            text=f"gradients were clipped in {share:.0%} of the last {count} observations, now from {short(before)} to {short(after)}",
        )


def _updates(row: Mapping[str, float], memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    for name, ratio in row.items():
        if not name.startswith(f"{UPDATE}/") or not math.isfinite(ratio):
            continue
        group = name.removeprefix(f"{UPDATE}/")
        is_warm = memory.count(f"num:{name}") > limits.warmup
        large, small = ratio > limits.update_ratio_max and is_warm, ratio < limits.update_ratio_min
        for code, type, beyond, patience, limit in (
            ("TT408", "update_large", large, limits.update_large_patience, limits.update_ratio_max),
            ("TT409", "update_small", small, limits.update_small_patience, limits.update_ratio_min),
        ):
            if memory.streak(f"{type}:{group}", beyond, patience).is_active:
                yield Breach(
                    code=code, type=type, quantity=name, subject=group, value=ratio, limit=limit,
                    text=f"one update changes {group} by {short(ratio)} of its norm",
                )


def _scaler(row: Mapping[str, float], step: int | None, memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    scale, total = row.get(SCALER_SCALE), row.get(SCALER_SKIPPED_TOTAL)
    if scale is not None and scale < limits.scale_min:
        yield Breach(
            code="TT412", type="scale_collapse", quantity=SCALER_SCALE, value=scale, limit=limits.scale_min,
            text=f"the loss scale fell to {short(scale)}",
        )
    if total is None:
        return
    now = memory.count("num_scaler") if step is None else step
    first = memory.numbers.setdefault("scaler_first", now)
    marks = memory.window("scaler", None)       # step, total, step, total ...; the step behind the window stays as its edge
    if now - first <= limits.skip_warmup:
        marks.clear()
    marks.extend((now, total))
    while len(marks) > 4 and now - marks[2] >= limits.skip_window:
        marks.popleft()
        marks.popleft()
    skipped, steps = total - marks[1], now - marks[0]
    if steps > 0 and skipped >= limits.skip_count and skipped / steps >= limits.skip_share:
        yield Breach(
            code="TT412", type="skipped_steps", quantity=SCALER_SKIPPED_TOTAL, value=skipped / steps, limit=limits.skip_share,
            text=f"GradScaler skipped {skipped:.0f} of {steps:.0f} steps",
        )


def _vanishing(norms: Mapping[str, float], memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    share = checks.vanishing_share(norms.values(), limits)
    beyond = share > 0.0 and share >= limits.vanishing_share
    if memory.streak("vanishing", beyond, limits.vanishing_patience).is_active:
        least = min((name for name, norm in norms.items() if norm > 0.0), key=norms.__getitem__)
        yield Breach(
            code="TT405", type="gradient_vanishing", quantity=series_of(GRAD_NORM, least), subject="tensors", value=norms[least],
            limit=limits.vanishing_norm,
            text=f"{share:.0%} of {len(norms)} gradients have all but vanished, {least} to {short(norms[least])}",
        )


def _balance(norms: Mapping[str, float], memory: Memory, limits: LearningLimits) -> Iterator[Breach]:
    alive = alive_norms(norms, limits)
    ratio = max(alive.values()) / min(alive.values()) if alive else 1.0
    if memory.streak("norm_ratio", ratio > limits.norm_ratio_max, limits.norm_ratio_patience).is_active:
        most, least = max(alive, key=alive.__getitem__), min(alive, key=alive.__getitem__)
        yield Breach(
            code="TT407", type="gradient_ratio", quantity=series_of(GRAD_NORM, most), subject="tensors", value=ratio,
            limit=limits.norm_ratio_max,
            text=f"the gradient of {most} ({short(norms[most])}) is {short(ratio)}x that of {least} ({short(norms[least])})",
        )


def alive_norms(norms: Mapping[str, float], limits: LearningLimits) -> dict[str, float]:
    """Without those that vanish, are zero or not finite: they are other rules' business."""
    return {name: norm for name, norm in norms.items() if limits.vanishing_norm <= norm < math.inf}

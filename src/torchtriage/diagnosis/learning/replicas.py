"""TT445: ranks that train replicas of the same model have the same weights, by what each rank recorded for itself."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.rules import finding, fingerprint_of, run_rule
from torchtriage.findings.model import YOU, Check, CheckKind, Evidence, Finding, Fix
from torchtriage.recording.recording import Process, Recording
from torchtriage.recording.series import GRAD_NORM, WEIGHT_NORM
from torchtriage.text import and_more, counted, row

CODE = "TT445"
# Replicas compute the same update from the same gradient, bit by bit. Norms of the same values differ by rounding where
# ranks have other processors.
TOLERANCE = 1e-5
MIN_EQUAL = 2       # looks in which the gradients of a tensor were the same on all ranks: they were exchanged
MAX_NAMED = 3

Looks = Mapping[int, Sequence[float]]       # step -> the value of each rank


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    """The norms of one tensor at the steps that all ranks have recorded."""

    name: str
    weights: Looks
    gradients: Looks

    @property
    def differs_since(self) -> int | None:
        return next((step for step, values in self.weights.items() if not _is_same(values)), None)

    @property
    def begins_equal(self) -> bool:
        return _is_same(next(iter(self.weights.values())))

    @property
    def begins_with_equal_gradient(self) -> bool:
        """Whether the first gradients are the same on all ranks, and not zero."""
        first = list(self.gradients.values())[:MIN_EQUAL]
        return len(first) == MIN_EQUAL and all(_is_same(values) and min(values) > 0.0 for values in first)

    @property
    def begins_with_other_gradient(self) -> bool:
        first = list(self.gradients.values())[:MIN_EQUAL]
        return len(first) == MIN_EQUAL and not any(map(_is_same, first))


@run_rule
def replicas_differ(recording: Recording) -> Iterator[Finding]:
    """Ranks that exchange their gradients, or began with the same weights, have different weights."""
    by_rank = {process.rank: process for process in recording.processes if _is_replica(process)}
    if len(by_rank) < 2 or len(by_rank) < sum(map(_is_replica, recording.processes)):
        return      # a rank that was started again has several recordings
    processes = [by_rank[rank] for rank in sorted(by_rank, key=lambda rank: rank or 0)]
    tensors = list(_tensors(processes))
    drifting = [one for one in tensors if one.begins_equal and one.differs_since is not None]
    exchanged = [one for one in drifting if one.begins_with_equal_gradient]
    if exchanged:
        yield _finding(
            processes, exchanged, "replicas-drift",
            title="are the same on all ranks at first, and differ",
            cause="Their gradients were the same as well, so that they are replicas: since then the ranks do not make "
                  "the same updates.",
            fix="look for a rank that skips or adds a step, or that has another learning rate, clipping threshold or "
                "loss scale, at that step or just before; then broadcast the weights and the optimizer's state of "
                "one rank",
        )
    elif len(drifting) == len(tensors) > 0 and all(one.begins_with_other_gradient for one in tensors):
        yield _finding(
            processes, drifting, "gradients-not-exchanged",
            title="are the same on all ranks at first, and differ",
            cause="Their gradients differ from rank to rank when the optimizer uses them: each rank trains a model of "
                  "its own.",
            fix="call the DistributedDataParallel wrapper, not its .module, in the training loop; without a wrapper, "
                "average the gradients of all ranks before the step. Nothing to do if separate models are meant",
        )
    else:
        other = [one for one in tensors if not one.begins_equal and one.begins_with_equal_gradient]
        if other and len(other) >= len(tensors) / 2:
            yield _finding(
                processes, other, "replicas-began-apart",
                title="differ from rank to rank",
                cause="Their gradients are the same on all ranks: the gradients are exchanged, but the weights were "
                      "never made equal, and each rank applies the updates to other weights.",
                fix="broadcast the weights of one rank before the first step, or wrap the model in "
                    "DistributedDataParallel, which does so; the same seed on all ranks is fragile",
            )


def _is_replica(process: Process) -> bool:
    is_recorded = any(name.startswith(f"{WEIGHT_NORM}/") for name in process.series)
    return process.rank is not None and is_recorded and process.telemetry.shards is None


def _tensors(processes: Sequence[Process]) -> Iterator[_Tensor]:
    for series in processes[0].series:
        quantity, _, name = series.partition("/")
        if quantity != WEIGHT_NORM or not name:
            continue
        weights = _common(processes, series)
        if len(weights) > 1:
            yield _Tensor(name=name, weights=weights, gradients=_common(processes, f"{GRAD_NORM}/{name}"))


def _common(processes: Sequence[Process], name: str) -> Looks:
    """The finite values of a series, at the steps that all ranks have."""
    by_rank = []
    for process in processes:
        series = process.series.get(name)
        if series is None:
            return {}
        points = zip(series.steps, series.values, strict=False)
        by_rank.append({int(step): value for step, value in points if math.isfinite(step) and math.isfinite(value)})
    steps = sorted(set.intersection(*(set(points) for points in by_rank)))
    return {step: [points[step] for points in by_rank] for step in steps}


def _is_same(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= TOLERANCE * max(map(abs, values))


def _finding(
    processes: Sequence[Process], tensors: Sequence[_Tensor], reason: str, *, title: str, cause: str, fix: str,
) -> Finding:
    since = min(one.differs_since or 0 for one in tensors)
    named = [one.name for one in tensors[:MAX_NAMED]]
    first = next(one for one in tensors if one.differs_since == since)
    values = row(
        f"{value:.7g} (rank {process.rank})"
        for process, value in zip(processes, first.weights[since], strict=True)
    )
    num_steps = [process.num_steps for process in processes]
    if len(set(num_steps)) > 1:
        made = row(f"{num} (rank {process.rank})" for process, num in zip(processes, num_steps, strict=True))
        cause = f"{cause} The ranks made different numbers of steps: {made}."
    when = f" since step {since}" if reason == "replicas-drift" or "-not-" in reason else ""
    return finding(
        CODE,
        title=f"the weights of {row(named)}{and_more(len(tensors) - len(named))} {title}{when}",
        cause=f"The norm of {first.name} is {values} at the beginning of step {since}. {cause}",
        fix=Fix(text=fix), owner=YOU,
        evidence=Evidence(
            num_events=len(tensors),
            notes=(f"in {counted(len(tensors), 'tensor')}, from the norms that each rank recorded for itself",),
        ),
        verification=(Check(CheckKind.NO_FINDING_IN_TRAINING, code=CODE),),
        steps=(since,), ranks=tuple(process.rank for process in processes if process.rank is not None),
        fingerprint=fingerprint_of(CODE, None, reason, processes[0]),
    )

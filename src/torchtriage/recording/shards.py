"""Combines the series that ranks recorded of their shards into series of the complete parameters."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from torchtriage.recording.facts import ShardFacts
from torchtriage.recording.recording import Process, Series
from torchtriage.recording.series import (
    GRAD_LARGE_FRACTION,
    GRAD_MAX_ABS,
    GRAD_NORM,
    GRAD_NORM_AFTER_CLIP,
    GRAD_SMALL_FRACTION,
    GRAD_ZERO_FRACTION,
    SHARD,
    WEIGHT_NORM,
    total_norm,
)

Parts = Sequence[tuple[float, int]]     # (value, number of elements) of each shard


def _norm(parts: Parts) -> float:
    return total_norm([value for value, _ in parts])


def _fraction(parts: Parts) -> float:
    return sum(value * size for value, size in parts) / sum(size for _, size in parts)


# How shards combine, by quantity; a mean or a standard deviation needs more than a recording keeps.
COMBINED: Mapping[str, Callable[[Parts], float]] = {
    GRAD_NORM: _norm, GRAD_NORM_AFTER_CLIP: _norm, WEIGHT_NORM: _norm,
    GRAD_ZERO_FRACTION: _fraction, GRAD_SMALL_FRACTION: _fraction, GRAD_LARGE_FRACTION: _fraction,
    GRAD_MAX_ABS: lambda parts: max(value for value, _ in parts),
}


def with_complete_series(processes: Sequence[Process]) -> list[Process]:
    """The processes, of which the first of each group of ranks that share parameters has their complete series.

    A complete series has those steps that all ranks of the group have kept.
    """
    groups: dict[tuple[int, ...], list[Process]] = {}
    for process in processes:
        if process.telemetry.shards is not None:
            groups.setdefault(process.telemetry.shards.ranks, []).append(process)
    result = {id(process): process for process in processes}
    for ranks, group in groups.items():
        group.sort(key=lambda process: _shards(process).place)
        places = [_shards(process).place for process in group]
        if places == list(range(len(ranks))):     # no rank is missing or there twice
            complete = {series.name: series for series in _complete_series(group)}
            result[id(group[0])] = replace(group[0], series={**group[0].series, **complete})
    return list(result.values())


def _shards(process: Process) -> ShardFacts:
    assert process.telemetry.shards is not None     # else the process is in no group
    return process.telemetry.shards


def _complete_series(group: Sequence[Process]) -> Iterator[Series]:
    for name in _shard_names(group):
        quantity, _, tensor = name.partition("/")
        if quantity not in COMBINED:
            continue
        sizes = [_shards(process).elements.get(tensor, 0) for process in group]
        parts, part_sizes = [], []
        for process, size in zip(group, sizes, strict=True):
            # `elements` lists single tensors. Every rank records a series of several tensors, which has no entry.
            if size or not any(sizes):
                parts.append(process.series.get(SHARD + name))
                part_sizes.append(size)
        complete_parts = [part for part in parts if part is not None]
        if len(complete_parts) == len(parts):
            yield _merged(name, complete_parts, part_sizes, group[0].series.get(name))


def _shard_names(group: Sequence[Process]) -> list[str]:
    """The series of which any rank has a shard, by the name of the complete series."""
    names: dict[str, None] = {}
    for process in group:
        names.update((name.removeprefix(SHARD), None) for name in process.series if name.startswith(SHARD))
    return list(names)


def _merged(name: str, parts: Sequence[Series], sizes: Sequence[int], before: Series | None) -> Series:
    """The combined series; where the ranks combined a step themselves while they ran (`before`), that value is used."""
    combine = COMBINED[name.partition("/")[0]]
    values_by_step = [dict(zip(part.steps, part.values, strict=True)) for part in parts]
    common = set.intersection(*map(set, values_by_step))
    combined = {}
    for step in common:
        combined[step] = combine([(values[step], size) for values, size in zip(values_by_step, sizes, strict=True)])
    if before is not None:
        combined |= dict(zip(before.steps, before.values, strict=True))
    steps = sorted(combined)
    return Series(name=name, steps=steps, values=[combined[step] for step in steps])

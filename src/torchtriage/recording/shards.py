"""Puts together what ranks recorded of their parts of the same parameters: series of the whole from those of the shards."""

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

Parts = Sequence[tuple[float, int]]     # the value of each part, and its number of elements


def _norm(parts: Parts) -> float:
    return total_norm([value for value, _ in parts])


def _share(parts: Parts) -> float:
    return sum(value * size for value, size in parts) / sum(size for _, size in parts)


# What parts add up to, by quantity; a mean or a spread needs more than a recording keeps.
COMBINED: Mapping[str, Callable[[Parts], float]] = {
    GRAD_NORM: _norm, GRAD_NORM_AFTER_CLIP: _norm, WEIGHT_NORM: _norm,
    GRAD_ZERO_FRACTION: _share, GRAD_SMALL_FRACTION: _share, GRAD_LARGE_FRACTION: _share,
    GRAD_MAX_ABS: lambda parts: max(value for value, _ in parts),
}


def with_whole(processes: Sequence[Process]) -> list[Process]:
    """The first of the ranks that share parameters tells of them as a whole, at the steps that all of them have kept."""
    groups: dict[tuple[int, ...], list[Process]] = {}
    for process in processes:
        if process.telemetry.shards is not None:
            groups.setdefault(process.telemetry.shards.ranks, []).append(process)
    found = {id(process): process for process in processes}
    for ranks, group in groups.items():
        group.sort(key=lambda process: _shards(process).place)
        if [_shards(process).place for process in group] == list(range(len(ranks))):     # nobody is missing, or there twice
            whole = {series.name: series for series in _whole(group)}
            found[id(group[0])] = replace(group[0], series={**group[0].series, **whole})
    return list(found.values())


def _shards(process: Process) -> ShardFacts:
    assert process.telemetry.shards is not None     # else the process is in no group
    return process.telemetry.shards


def _whole(group: Sequence[Process]) -> Iterator[Series]:
    names = {name.removeprefix(SHARD): None for process in group for name in process.series if name.startswith(SHARD)}
    for name in names:
        quantity, _, tensor = name.partition("/")
        sizes = [_shards(process).elements.get(tensor, 0) for process in group]
        # A group of tensors, or all of them, has no size of its own: every rank tells of it.
        holders = [(process, size) for process, size in zip(group, sizes, strict=True) if size or not any(sizes)]
        parts = [process.series.get(SHARD + name) for process, _ in holders]
        known = [part for part in parts if part is not None]
        if quantity in COMBINED and len(known) == len(parts):
            yield _merged(name, known, [size for _, size in holders], group[0].series.get(name))


def _merged(name: str, parts: Sequence[Series], sizes: Sequence[int], before: Series | None) -> Series:
    """`before`: what the ranks put together themselves, as they ran."""
    combine = COMBINED[name.partition("/")[0]]
    values_by_step = [dict(zip(part.steps, part.values, strict=True)) for part in parts]
    common = set.intersection(*map(set, values_by_step))
    found = {step: combine([(values[step], size) for values, size in zip(values_by_step, sizes, strict=True)]) for step in common}
    if before is not None:
        found |= dict(zip(before.steps, before.values, strict=True))
    steps = sorted(found)
    return Series(name=name, steps=steps, values=[found[step] for step in steps])

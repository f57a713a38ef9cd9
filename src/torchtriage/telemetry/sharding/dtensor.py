"""The part of a DTensor that this process holds, with the ranks that hold the rest."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchtriage.telemetry.statistics.columns import is_dtensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """How one tensor is spread over ranks.

    `ranks` are those that hold it together, empty if this rank holds all of it.
    """

    ranks: tuple[int, ...] = ()
    # Only one of several equal parts counts: the first along every replicated mesh dimension.
    counts: bool = True
    why_not: str = ""           # why the tensor has no statistics here


def shard_info(tensor: torch.Tensor) -> ShardInfo:
    if not is_dtensor(tensor):
        return ShardInfo()
    mesh, placements, place = tensor.device_mesh, tensor.placements, tensor.device_mesh.get_coordinate()
    if place is None:
        return ShardInfo(why_not=f"is on ranks {mesh.mesh.flatten().tolist()}, which do not include this one")
    spread = [dim for dim in range(mesh.ndim) if mesh.size(dim) > 1]
    split = [dim for dim in spread if _is_split(placements[dim])]
    copied = [dim for dim in spread if placements[dim].is_replicate()]
    if len(split) + len(copied) < len(spread):
        return ShardInfo(why_not=f"is placed as {placements}, so its elements are sums that are still to be reduced; "
                         "give tensor.redistribute(placements=[Replicate()])")
    if not split:
        return ShardInfo()
    return ShardInfo(ranks=tuple(sorted(mesh.mesh.flatten().tolist())), counts=all(place[dim] == 0 for dim in copied))


def _is_split(placement: Any) -> bool:
    # is_shard() is False for a strided shard.
    return bool(placement.is_shard()) or hasattr(placement, "split_factor")


def shard_infos(named: Sequence[tuple[str, torch.Tensor]]) -> dict[str, ShardInfo]:
    """By name, for tensors that are reduced together. A tensor on other ranks than most of them is refused."""
    infos = {name: shard_info(tensor) for name, tensor in named}
    rank_sets = Counter(info.ranks for info in infos.values() if info.ranks)
    if len(rank_sets) > 1:
        most = rank_sets.most_common(1)[0][0]
        for name, info in infos.items():
            if info.ranks and info.ranks != most:
                infos[name] = ShardInfo(why_not=f"is on ranks {list(info.ranks)}, most parameters on {list(most)}; "
                                        "watch it with a separate Monitor")
    return infos


def is_here(tensor: torch.Tensor) -> bool:
    """Whether the full tensor can be read here.

    Otherwise reading it is a collective, which other ranks may not join.
    """
    info = shard_info(tensor)
    return not info.ranks and not info.why_not


def local(tensor: Any) -> Any:
    """The local part of a DTensor, or the tensor itself if it is not one. Gradients do not flow through it."""
    if not is_dtensor(tensor):
        return tensor
    # Private; to_local() returns the same, several times more slowly.
    part = getattr(tensor, "_local_tensor", None)
    if type(part) is torch.Tensor:
        return part
    with torch.no_grad():
        part = tensor.to_local()
    return part.wait() if hasattr(part, "wait") else part       # a collective of the program may still be filling it


def local_gradient(parameter: torch.Tensor) -> tuple[Any, str]:
    """The local part of the gradient; None and the reason if it is not placed as its parameter is."""
    gradient: Any = parameter.grad
    if gradient is None or not is_dtensor(parameter):
        return gradient, ""
    if not is_dtensor(gradient) or gradient.placements != parameter.placements:
        actual = getattr(gradient, "placements", "a plain tensor")
        expected = parameter.placements
        return None, f"has a gradient placed as {actual}, and is itself placed as {expected}; redistribute the gradient"
    return local(gradient), ""

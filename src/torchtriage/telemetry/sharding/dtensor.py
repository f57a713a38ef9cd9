"""What this process holds of a DTensor: which ranks hold the rest, and which of several equal parts is the one that counts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchtriage.telemetry.statistics.columns import is_dtensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Of one tensor. `ranks`: those that hold it together, this one among them; none if all of it is here."""

    ranks: tuple[int, ...] = ()
    counts: bool = True         # of several equal parts one does: that with the first place along every replicated mesh dimension
    why_not: str = ""           # nothing can be said of the tensor


def piece_of(tensor: torch.Tensor) -> Piece:
    if not is_dtensor(tensor):
        return Piece()
    mesh, placements, place = tensor.device_mesh, tensor.placements, tensor.device_mesh.get_coordinate()
    if place is None:
        return Piece(why_not=f"is on the ranks {mesh.mesh.flatten().tolist()}, and this one is not among them")
    spread = [dim for dim in range(mesh.ndim) if mesh.size(dim) > 1]
    split = [dim for dim in spread if _is_split(placements[dim])]
    copied = [dim for dim in spread if placements[dim].is_replicate()]
    if len(split) + len(copied) < len(spread):
        do = "give tensor.redistribute(placements=[Replicate()])"
        return Piece(why_not=f"is placed as {placements}, and parts that are yet to be added up are no part of the whole; {do}")
    if not split:
        return Piece()
    return Piece(ranks=tuple(sorted(mesh.mesh.flatten().tolist())), counts=all(place[dim] == 0 for dim in copied))


def _is_split(placement: Any) -> bool:
    return bool(placement.is_shard()) or hasattr(placement, "split_factor")     # of a strided shard is_shard() is False


def pieces(named: Sequence[tuple[str, torch.Tensor]]) -> dict[str, Piece]:
    """By name the pieces of tensors that are reduced together: those that other ranks hold than most are refused."""
    found = {name: piece_of(tensor) for name, tensor in named}
    sets = Counter(piece.ranks for piece in found.values() if piece.ranks)
    if len(sets) > 1:
        most = sets.most_common(1)[0][0]
        for name, piece in found.items():
            if piece.ranks and piece.ranks != most:
                found[name] = Piece(why_not=f"is on the ranks {list(piece.ranks)}, most parameters on {list(most)}; watch it by a Monitor "
                                    "of its own")
    return found


def is_here(tensor: torch.Tensor) -> bool:
    """Whether all of it can be read here; else reading it would be a collective that other ranks may not take part in."""
    piece = piece_of(tensor)
    return not piece.ranks and not piece.why_not


def local(tensor: Any) -> Any:
    """What is here of a tensor, or the tensor itself if it is no DTensor. No gradient goes through it."""
    if not is_dtensor(tensor):
        return tensor
    part = getattr(tensor, "_local_tensor", None)       # private; to_local() gives the same, and takes several times as long
    if type(part) is torch.Tensor:
        return part
    with torch.no_grad():
        part = tensor.to_local()
    return part.wait() if hasattr(part, "wait") else part       # a collective of the program's own may still be filling it


def local_gradient(parameter: torch.Tensor) -> tuple[Any, str]:
    """What is here of the gradient; None, and why, if it does not lie as its parameter does."""
    gradient: Any = parameter.grad
    if gradient is None or not is_dtensor(parameter):
        return gradient, ""
    if not is_dtensor(gradient) or gradient.placements != parameter.placements:
        found = getattr(gradient, "placements", "no DTensor")
        expected = parameter.placements
        return None, f"has a gradient placed as {found}, and is itself placed as {expected}; redistribute the gradient"
    return local(gradient), ""

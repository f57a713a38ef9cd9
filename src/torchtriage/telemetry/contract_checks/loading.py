"""A state dict that is loaded with strict=False has names of the model, or nothing of it is loaded."""

import weakref
from collections.abc import Sequence

import torch

from torchtriage.recording.facts import BrokenContract

MIN_SHARE = 0.5         # of the tensors of the model, and of those missing, that another prefix would have found


class LoadedNames:
    """The names that load_state_dict() did not match; a later load into the same module replaces its verdict."""

    def __init__(self) -> None:
        self._broken: dict[int, tuple[weakref.ref[torch.nn.Module], BrokenContract]] = {}

    @property
    def broken(self) -> list[BrokenContract]:
        """At most one, the first: a program that loads wrongly does so for all of its modules."""
        return [contract for _, contract in self._broken.values()][:1]

    def loaded(self, module: torch.nn.Module, missing: Sequence[str], unexpected: Sequence[str], step: int) -> None:
        self._broken.pop(id(module), None)
        if not missing or not unexpected:
            return
        total = len(module.state_dict())
        pairs = _pairs(missing, unexpected)
        is_other_prefix = len(pairs) >= MIN_SHARE * len(missing) and len(missing) >= MIN_SHARE * total
        if is_other_prefix or len(missing) == total:
            name, other = pairs[0] if pairs else (missing[0], unexpected[0])
            contract = BrokenContract(
                code="TT441", step=step, count=len(missing), total=total, names=(type(module).__name__, name, other),
                share=float(bool(pairs)),
            )
            self._broken[id(module)] = weakref.ref(module), contract


def _pairs(missing: Sequence[str], unexpected: Sequence[str]) -> list[tuple[str, str]]:
    """Names of the model, each with the one of the state dict that has a prefix more or less."""
    in_dict = set(unexpected)
    by_tail: dict[str, str] = {}
    for name in unexpected:
        for tail in _tails(name):
            by_tail.setdefault(tail, name)
    pairs = []
    for name in missing:
        other = by_tail.get(name) or next((tail for tail in _tails(name) if tail in in_dict), None)
        if other is not None:
            pairs.append((name, other))
    return pairs


def _tails(name: str) -> list[str]:
    """`b.c.weight` and `c.weight` for `a.b.c.weight`: a name without its first parts, but not the last one alone."""
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(1, len(parts) - 1)]

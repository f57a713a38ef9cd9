"""Copies of the trained model, named target, teacher or average, that never change."""

import gc
import re
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchtriage.telemetry.contract_checks.count import is_readable
from torchtriage.telemetry.sampling.parameters import clean

FIRST_LOOK = 16         # updates until the copies are searched for, about 50 ms
LOOK_INTERVAL = 20      # updates
PATIENCE = 200          # updates in which a target network moves; it is found later if it moves later
MAX_COPIES = 4
NAMES = re.compile(r"(?:^|_)(?:target|targ|teacher|ema|averaged?|shadow|polyak|momentum|slow)(?:_|$|\d)", re.I)
PREFIXES = ("module.", "ema_model.", "shadow.")


@dataclass(slots=True)
class _Copy:
    name: str
    module: "weakref.ref[torch.nn.Module]"
    values: tuple[torch.Tensor, ...]
    is_moving: bool = False


class TargetNetworks:
    """`still` has the names of the copies that have not changed since they were found."""

    def __init__(self) -> None:
        self._copies: list[_Copy] = []

    def find(self, modules: Sequence[torch.nn.Module], trained: set[int]) -> None:
        """Among these modules those of the same form as a trained one, without a trained parameter, and so named."""
        forms = {_form(module) for module in modules if _has_any(module, trained)} - {()}
        for module in modules:
            if len(self._copies) == MAX_COPIES or _form(module) not in forms or _has_any(module, trained):
                continue
            name = next((name for name in _names(module) if NAMES.search(name)), "")
            if name:
                self._copies.append(_Copy(name, weakref.ref(module), _values(module)))

    def look(self) -> None:
        for copy in self._copies:
            module = copy.module()
            if module is None:
                copy.is_moving = True       # it is not in use any more
            elif not copy.is_moving:
                now = _values(module)
                copy.is_moving = len(now) != len(copy.values) or not all(map(torch.equal, now, copy.values))

    @property
    def has_any(self) -> bool:
        return bool(self._copies)

    @property
    def still(self) -> list[str]:
        return [copy.name for copy in self._copies if not copy.is_moving]


def _form(module: torch.nn.Module) -> tuple[tuple[str, tuple[int, ...]], ...]:
    form = []
    for name, p in module.named_parameters():
        name = clean(name)
        for prefix in PREFIXES:
            name = name.removeprefix(prefix)
        form.append((name, tuple(p.shape)))
    return tuple(form)


def _has_any(module: torch.nn.Module, trained: set[int]) -> bool:
    return any(id(p) in trained for p in module.parameters())


def _values(module: torch.nn.Module) -> tuple[torch.Tensor, ...]:
    """Copies of the smallest and of the last tensor: an update of the copy changes all of them."""
    parameters = [p.detach() for p in module.parameters() if is_readable(p) and p.is_floating_point()]
    if not parameters:
        return ()
    return min(parameters, key=torch.Tensor.numel).clone(), parameters[-1].clone()


def _names(module: torch.nn.Module) -> Iterator[str]:
    """The names of the variables and attributes that hold a module."""
    for referrer in gc.get_referrers(module):
        held: Any = referrer if isinstance(referrer, dict) else getattr(referrer, "__dict__", None)
        if isinstance(held, dict):
            yield from [key for key, value in list(held.items()) if value is module and isinstance(key, str)]

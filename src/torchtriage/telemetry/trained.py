"""The parameters of a model that are trained, by name and in groups, and whether they are still the same ones."""

from collections.abc import Iterable, Mapping
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

import torch

from torchtriage.telemetry.names import clean, unique

Group: TypeAlias = "torch.nn.Module | Iterable[torch.Tensor] | str"
_requires_grad = attrgetter("requires_grad")


class Trained:
    """A frozen parameter is left out, a shared one is there once."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        self._optimizer = optimizer
        if isinstance(model, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            model = model.module
        named = [(clean(name), p) for name, p in model.named_parameters() if p.requires_grad]
        self.by_name = dict(zip(unique(name for name, _ in named), (p for _, p in named), strict=True))
        # The tables that modules keep their own in: to walk over the modules at every look would take as long as the look.
        modules = list(model.modules())
        self._children, self._own = ([vars(module)[table] for module in modules] for table in ("_modules", "_parameters"))
        self._parameters = [p for p in chain.from_iterable(map(dict.values, self._own)) if p is not None]
        self._form = self._now()

    def is_still(self) -> bool:
        """Whether the model has the modules and parameters it had, and trains the same ones in the same groups."""
        return self._now() == self._form

    def _now(self) -> tuple[list[int], list[int], list[bool], list[int]]:
        children, own = (list(map(id, chain.from_iterable(map(dict.values, tables)))) for tables in (self._children, self._own))
        groups = self._optimizer.param_groups if self._optimizer is not None else ()
        return children, own, list(map(_requires_grad, self._parameters)), [len(group["params"]) for group in groups]

    def groups(self, given: Mapping[str, Group] | None) -> dict[str, list[torch.Tensor]]:
        """The groups as given, else those of the optimizer, else all as one."""
        if given is not None:
            return {name: self._members(name, group) for name, group in given.items()}
        if self._optimizer is not None and len(self._optimizer.param_groups) > 1:
            return {str(group.get("name") or number): group["params"] for number, group in enumerate(self._optimizer.param_groups)}
        return {"all": list(self.by_name.values())}

    def _members(self, name: str, group: Group) -> list[torch.Tensor]:
        if isinstance(group, str):
            found = [p for key, p in self.by_name.items() if key == group or key.startswith(f"{group}.")]
        else:
            given: Iterable[Any] = group.parameters() if isinstance(group, torch.nn.Module) else group
            wanted = {id(p) for p in given}
            found = [p for p in self.by_name.values() if id(p) in wanted]
        if not found:
            do = "give a module, parameters, or the beginning of a name"
            raise ValueError(f"group {name!r} has no parameter of the model that is trained; {do}")
        return found

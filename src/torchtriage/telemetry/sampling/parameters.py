"""The parameters of a training: their names, their groups, which of them are trained, which a Monitor watches."""

import gc
import types
import weakref
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from types import FrameType
from typing import Any, Protocol, TypeAlias

import torch

Group: TypeAlias = "torch.nn.Module | Iterable[torch.Tensor] | str"

WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
MAX_SCANS = 4       # searches through all objects of the process, about 50 ms each
_requires_grad = attrgetter("requires_grad")


# Of a model

class TrainedParameters:
    """The parameters of a model that require gradients, by name; a shared parameter is listed once."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        self._optimizer = optimizer
        if isinstance(model, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            model = model.module
        named = [(clean(name), p) for name, p in model.named_parameters() if p.requires_grad]
        self.by_name = dict(zip(unique(name for name, _ in named), (p for _, p in named), strict=True))
        # The modules' own tables are compared: walking over the modules for every sample would take as long as the
        # sample.
        modules = list(model.modules())
        self._children = [vars(module)["_modules"] for module in modules]
        self._own = [vars(module)["_parameters"] for module in modules]
        self._parameters = [p for p in chain.from_iterable(map(dict.values, self._own)) if p is not None]
        self._form = self._now()

    def is_still(self) -> bool:
        """Whether the model still has the same modules and parameters, and trains the same ones in the same groups."""
        return self._now() == self._form

    def _now(self) -> tuple[list[int], list[int], list[bool], list[int]]:
        children = list(map(id, chain.from_iterable(map(dict.values, self._children))))
        own = list(map(id, chain.from_iterable(map(dict.values, self._own))))
        groups = self._optimizer.param_groups if self._optimizer is not None else ()
        return children, own, list(map(_requires_grad, self._parameters)), [len(group["params"]) for group in groups]

    def groups(self, requested: Mapping[str, Group] | None) -> dict[str, list[torch.Tensor]]:
        """The requested groups, else those of the optimizer, else all parameters as one group."""
        if requested is not None:
            return {name: self._members(name, group) for name, group in requested.items()}
        if self._optimizer is not None and len(self._optimizer.param_groups) > 1:
            return parameter_groups(self._optimizer)
        return {"all": list(self.by_name.values())}

    def _members(self, name: str, group: Group) -> list[torch.Tensor]:
        if isinstance(group, str):
            members = [p for key, p in self.by_name.items() if key == group or key.startswith(f"{group}.")]
        else:
            members_of: Iterable[Any] = group.parameters() if isinstance(group, torch.nn.Module) else group
            wanted = {id(p) for p in members_of}
            members = [p for p in self.by_name.values() if id(p) in wanted]
        if not members:
            raise ValueError(f"group {name!r} has no trained parameter of the model; "
                             "give a module, parameters, or the beginning of a name")
        return members


# Of an optimizer

def parameter_groups(optimizer: torch.optim.Optimizer, label: str = "") -> dict[str, list[torch.Tensor]]:
    """The optimizer's parameter groups by name or number; a single group is called `all`."""
    groups = optimizer.param_groups
    if len(groups) == 1:
        return {label or "all": groups[0]["params"]}
    prefix = f"{label} " if label else ""
    return {f"{prefix}{group.get('name') or number}": group["params"] for number, group in enumerate(groups)}


def learning_rates(optimizer: torch.optim.Optimizer) -> list[float]:
    """One per parameter group, without rates that are on a device."""
    rates = []
    for group in optimizer.param_groups:
        rate = group.get("lr")
        if isinstance(rate, int | float) or (isinstance(rate, torch.Tensor) and rate.is_cpu):
            rates.append(float(rate))
    return rates


def without_rate(optimizer: torch.optim.Optimizer, label: str, names: Mapping[int, str]) -> list[str]:
    """Groups with a learning rate of 0 beside others with one, and their tensors, by `names`: frozen on purpose."""
    groups = list(zip(optimizer.param_groups, parameter_groups(optimizer, label), strict=True))
    frozen = []
    if any(group.get("lr") != 0.0 for group, _ in groups):
        for group, name in groups:
            if group.get("lr") == 0.0:
                frozen += [name, *(names[id(p)] for p in group["params"] if id(p) in names)]
    return frozen


def listed_parameters(parameters: Any) -> list[torch.Tensor] | None:
    """The parameters requested to a clipping function; None for a generator, which only that function may consume.

    A generator of `module.parameters()` is made again.
    """
    if isinstance(parameters, torch.Tensor):
        return [parameters]
    if isinstance(parameters, types.GeneratorType):
        frame = parameters.gi_frame
        if frame is None or parameters.gi_code is not torch.nn.Module.parameters.__code__:
            return None
        return list(frame.f_locals["self"].parameters(frame.f_locals["recurse"]))
    return list(parameters) if isinstance(parameters, Sequence | set | frozenset | Mapping) else None


# Names

def clean(name: str) -> str:
    """The name without the prefixes of torch.compile, FSDP and checkpointing."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def unique(names: Iterable[str]) -> list[str]:
    """The second of the same name becomes `name (2)`."""
    counts: dict[str, int] = {}
    distinct = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        distinct.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return distinct


class Namer:
    """Finds names for an optimizer's parameters.

    It asks the optimizer first, then modules among the globals of the callers, then all modules of the process.
    """

    def __init__(self) -> None:
        self._num_scans = 0

    def names(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], frame: FrameType | None,
    ) -> list[str]:
        """A unique name for each parameter."""
        names = _own_names(optimizer)
        missing = {id(p) for p in parameters} - names.keys()
        if missing:
            names.update(from_modules(_global_modules(frame), missing))
            missing -= names.keys()
        if missing and self._num_scans < MAX_SCANS:
            self._num_scans += 1
            names.update(from_modules(modules_of_process(), missing))
        places = {}
        for number, group in enumerate(optimizer.param_groups):
            for index, p in enumerate(group["params"]):
                places[id(p)] = f"group{number}.{index}"
        return unique([names.get(id(p)) or places.get(id(p), "parameter") for p in parameters])


def from_modules(modules: Sequence[torch.nn.Module], wanted: set[int]) -> dict[int, str]:
    """Names by id of a parameter. Where several modules have some of them, names begin with the class of the module."""
    inner = {id(child) for module in modules for child in module.modules() if child is not module}
    roots = [module for module in modules if id(module) not in inner] or list(modules)
    held = [(module, {id(p): name for name, p in module.named_parameters() if id(p) in wanted}) for module in roots]
    names: dict[int, str] = {}
    used: list[tuple[torch.nn.Module, dict[int, str]]] = []
    for module, own in sorted(held, key=lambda pair: -len(pair[1])):    # the module with most of them first
        new = {key: name for key, name in own.items() if key not in names}
        if new:
            used.append((module, new))
            names.update(new)
    for module, new in used:
        prefix = f"{type(module).__name__}." if len(used) > 1 else ""
        is_parallel = isinstance(module, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel)
        for key, name in new.items():
            names[key] = prefix + clean(name.removeprefix("module.") if is_parallel else name)
    return names


def _own_names(optimizer: torch.optim.Optimizer) -> dict[int, str]:
    """The names that param_groups keep if the optimizer was requested named parameters."""
    names = {}
    for group in optimizer.param_groups:
        for p, name in zip(group["params"], group.get("param_names", ()), strict=False):
            names[id(p)] = clean(name)
    return names


def _global_modules(frame: FrameType | None) -> list[torch.nn.Module]:
    """Modules among the globals of the callers. Locals are not read: Python would keep the values alive."""
    modules: dict[int, torch.nn.Module] = {}
    visited: set[int] = set()
    while frame is not None:
        if id(frame.f_globals) not in visited:
            visited.add(id(frame.f_globals))
            modules.update((id(value), value) for value in list(frame.f_globals.values()) if _is_module(value))
        frame = frame.f_back
    return list(modules.values())


def modules_of_process() -> list[torch.nn.Module]:
    """Every module that exists; searching takes about 50 ms."""
    return [value for value in gc.get_objects() if _is_module(value)]


def _is_module(value: Any) -> bool:
    """By its type: asking an object for its class may run code of the program."""
    return issubclass(type(value), torch.nn.Module) and "_modules" in value.__dict__


# Claims: parameters that a Monitor in the program watches, so that `torchtriage run` does not record them twice

class Claim(Protocol):
    def holds(self, parameters: Iterable[torch.Tensor]) -> bool: ...


claims: "weakref.WeakSet[Claim]" = weakref.WeakSet()


def is_claimed(parameters: Iterable[torch.Tensor]) -> bool:
    listed = list(parameters)
    return any(claim.holds(listed) for claim in list(claims))

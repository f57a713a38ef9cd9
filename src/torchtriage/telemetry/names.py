"""Names for the parameters of an optimizer that was made without them: those that a module of the program gives them."""

import gc
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
MAX_SCANS = 4       # looks at every object of the process, some 50 ms each


def clean(name: str) -> str:
    """Without what torch.compile, FSDP and checkpointing put into names."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


class Namer:
    """Finds names, cheaply first: the optimizer's own, then modules among the globals of the callers, then any module there is."""

    def __init__(self) -> None:
        self._num_scans = 0

    def names(self, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], frame: FrameType | None) -> list[str]:
        """One for each parameter, each another."""
        known = _own_names(optimizer)
        missing = {id(p) for p in parameters} - known.keys()
        if missing:
            known.update(from_modules(_global_modules(frame), missing))
            missing -= known.keys()
        if missing and self._num_scans < MAX_SCANS:
            self._num_scans += 1
            known.update(from_modules(_all_modules(), missing))
        groups = enumerate(optimizer.param_groups)
        places = {id(p): f"group{number}.{index}" for number, group in groups for index, p in enumerate(group["params"])}
        return unique([known.get(id(p)) or places.get(id(p), "parameter") for p in parameters])


def unique(names: Iterable[str]) -> list[str]:
    """The second of the same name becomes `name (2)`."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def from_modules(modules: Sequence[torch.nn.Module], wanted: set[int]) -> dict[int, str]:
    """By id of a parameter its name in the module that holds most of those wanted; then in the next, after its class."""
    inner = {id(child) for module in modules for child in module.modules() if child is not module}
    roots = [module for module in modules if id(module) not in inner] or list(modules)
    held = [(module, {id(p): name for name, p in module.named_parameters() if id(p) in wanted}) for module in roots]
    found: dict[int, str] = {}
    used: list[tuple[torch.nn.Module, Mapping[int, str]]] = []
    for module, names in sorted(held, key=lambda pair: -len(pair[1])):
        new = {key: name for key, name in names.items() if key not in found}
        if new:
            used.append((module, new))
            found.update(new)
    for module, own in used:
        prefix = f"{type(module).__name__}." if len(used) > 1 else ""
        is_parallel = isinstance(module, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel)
        for key, name in own.items():
            found[key] = prefix + clean(name.removeprefix("module.") if is_parallel else name)
    return found


def _own_names(optimizer: torch.optim.Optimizer) -> dict[int, str]:
    """Those of named parameters, which param_groups keep."""
    pairs = (zip(group["params"], group.get("param_names", ()), strict=False) for group in optimizer.param_groups)
    return {id(p): clean(name) for group in pairs for p, name in group}


def _global_modules(frame: FrameType | None) -> list[torch.nn.Module]:
    """Modules that the callers have as globals. Their local names are not looked at: Python would keep what it shows us alive."""
    found: dict[int, torch.nn.Module] = {}
    seen: set[int] = set()
    while frame is not None:
        if id(frame.f_globals) not in seen:
            seen.add(id(frame.f_globals))
            found.update((id(value), value) for value in list(frame.f_globals.values()) if _is_module(value))
        frame = frame.f_back
    return list(found.values())


def _all_modules() -> list[torch.nn.Module]:
    return [value for value in gc.get_objects() if _is_module(value)]


def _is_module(value: Any) -> bool:
    """By its type: asking an object for its class may run code of the program."""
    return issubclass(type(value), torch.nn.Module) and "_modules" in value.__dict__

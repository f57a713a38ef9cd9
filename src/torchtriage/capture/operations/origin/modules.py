"""The modules whose forward pass is in progress, by the frames of the stack."""

import itertools
import sys
import weakref
from dataclasses import dataclass, field
from types import FrameType
from typing import Any


@dataclass(slots=True)
class RunningModules:
    """Finds the modules of the stack, and what they call each other."""

    _names: dict[tuple[int, int], tuple[Any, Any, str]] = field(default_factory=dict)

    def chain(self) -> list[Any]:
        """From the outermost to the innermost."""
        import torch

        found: list[Any] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            owner = frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
            if isinstance(owner, torch.nn.Module) and not (found and found[-1] is owner):
                found.append(owner)
            frame = frame.f_back
        return found[::-1]

    def place(self) -> dict[str, str]:
        """The class of the innermost module, and its name within the outermost one."""
        chain = self.chain()
        if not chain:
            return {"module": "", "module_path": ""}
        names = [self._name(outer, inner) for outer, inner in itertools.pairwise(chain)]
        return {"module": type(chain[-1]).__qualname__, "module_path": ".".join(name for name in names if name)}

    def name_of(self, tensor: Any) -> str:
        """The name of a parameter or buffer in the outermost module that has it."""
        for module in self.chain():
            for name, own in [*module.named_parameters(), *module.named_buffers()]:
                if own is tensor:
                    return str(name).removeprefix("_orig_mod.")
        return ""

    def _name(self, outer: Any, inner: Any) -> str:
        """Empty for a wrapper such as that of torch.compile, or for a module that is no part of the outer one."""
        key = id(outer), id(inner)
        known = self._names.get(key)
        if known is None or known[0]() is not outer or known[1]() is not inner:
            name = next((name for name, module in outer.named_modules() if module is inner), "")
            name = name.removeprefix("_orig_mod").removeprefix(".")
            if not name:        # a module that is being made does not have its parts yet
                return ""
            known = self._names[key] = weakref.ref(outer), weakref.ref(inner), name
        return known[2]

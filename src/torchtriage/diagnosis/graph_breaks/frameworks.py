"""Breaks inside a wrapper of torch that is compiled as a whole: the remedy is to compile the module within it."""

import re
from dataclasses import dataclass

from torchtriage.recording.events import GraphBreak


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A wrapper around the user's module, by the file that its forward is in."""

    name: str
    path: re.Pattern[str]
    remedy: str


# Each remedy was applied with the real package.
_FRAMEWORKS = (
    Framework(
        name="DistributedDataParallel", path=re.compile(r"/torch/nn/parallel/distributed\.py$"),
        remedy="compile the module inside: DDP(torch.compile(module)) instead of torch.compile(DDP(module))",
    ),
)


def framework_of(event: GraphBreak) -> Framework | None:
    """The wrapper whose own code breaks.

    The innermost of its lines has only torch and the standard library below it.
    """
    for entry in reversed(event.stack):
        path = entry.path.replace("\\", "/")
        for framework in _FRAMEWORKS:
            if framework.path.search(path):
                return framework
        if not re.search(r"/torch/|/lib/python3\.\d+/[^/]+\.py$", path):
            return None
    return None

"""What the remedy for a group of recompiles may mention: names, places, the code of the function."""

import ast
from collections import Counter
from dataclasses import dataclass

from torchtriage.diagnosis.compiles.source_uses import function_in
from torchtriage.diagnosis.recompiles.groups import MIN_TO_KEEP_ON, RecompileGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A group with the names and places that its texts mention; an unknown place is an empty text."""

    group: RecompileGroup
    name: str           # of the function
    subject: str        # what changed: x.size(0), len(xs), self.n
    before_call: str    # "before the call at train.py:140"
    compiled_at: str    # "train.py:31"
    body: str = ""      # the source of the function, where the recording has it
    value: str = ""     # the value as the line of the call writes it; empty if that line does not show it
    batches: str = ""   # how the user of a library that makes the batches keeps their size
    dynamic: str = ""   # how to end dynamic=False, where a library calls torch.compile
    star: str = ""      # "*" or "**" where the source is a function's *args or **kwargs
    inside: str = ""    # the library of the function, if torch.compile was not called on this function
    broken_at: str = ""     # the graph break that keeps such a function out of its caller's graph
    has_specs: bool = False     # torch.compile has dynamic_shapes=
    calls: tuple[str, ...] = ()     # if the backend changed: "train.py:31 with backend='eager'"

    @property
    def function(self) -> ast.AST | None:
        """The source of the function, parsed; None if the recording does not have it."""
        return function_in(self.body, self.group.frame.key[1]) if self.body else None

    @property
    def is_static(self) -> bool:
        return self.group.call is not None and self.group.call.dynamic is False

    @property
    def at_compile(self) -> str:
        return f" at {self.compiled_at}" if self.compiled_at else ""

    @property
    def described(self) -> str:
        """The value in words, for a line that has no name for it."""
        return f"the value that {self.name} calls {self.group.source}"

    @property
    def not_static(self) -> str:
        return self.dynamic or f"drop dynamic=False{self.at_compile}"


NOTHING = "nothing to do: each state is compiled once and kept; to save the second compile, "

UNSEEN = "if the torch.compile call has dynamic=False, drop it; if not, "


def is_needed(group: RecompileGroup) -> bool:
    """Whether one dimension kept recompiling although automatic dynamic shapes, which take one recompile, were on."""
    if group.call is None or group.call.dynamic is not None:
        return False
    recompiles = Counter(reason.dim for reason in group.reasons)
    return max(recompiles.values()) >= MIN_TO_KEEP_ON


def if_settled(scene: Scene) -> str:
    return "nothing to do: the size is dynamic from now on; to save this compile: " if scene.group.is_settled else ""


NOT_AGAIN = "nothing needs to change if it does not recur; to save this compile: "


def if_needed(scene: Scene) -> str:
    return "" if scene.group.keeps_on else NOT_AGAIN


def if_recurs(scene: Scene) -> str:
    return NOT_AGAIN if scene.group.is_settled else ""

"""Which pattern a story of recompiles is: the code of its rule."""

import itertools
import re

from torchtriage.diagnosis.frames import Frame
from torchtriage.diagnosis.own_frames import is_target
from torchtriage.diagnosis.places import owner_of
from torchtriage.diagnosis.reasons import Kind, Reason, type_name
from torchtriage.diagnosis.stories import Story, is_grad_mode
from torchtriage.findings.model import OwnerKind
from torchtriage.recording.recording import Process

_BY_KIND = {
    Kind.STRIDE: "TT213", Kind.RANK: "TT214", Kind.DTYPE: "TT211", Kind.DEVICE: "TT212", Kind.REQUIRES_GRAD: "TT215",
    Kind.KEYS: "TT216", Kind.LENGTH: "TT217", Kind.NONE: "TT218", Kind.ATTRIBUTE: "TT218", Kind.IDENTITY: "TT219",
    Kind.TYPE: "TT223", Kind.SYMBOLIC: "TT225", Kind.EMPTY: "TT298",
}
_OF_VALUES = frozenset({Kind.EQUALS, Kind.NONE, Kind.TYPE, Kind.IDENTITY})
_ENUM_MEMBER = re.compile(r"<\w[\w.]*\.\w+: .+>")
_INDEX_NAME = re.compile(r"(?:^|_)(?:idx|index|layer|depth|level|block|stage)(?:_|$|\d)|layer_?(?:id|num|no)$")
MODULE_HINT = "integer attributes of the nn.Module"     # part of torch's own hint


def code_of(story: Story, process: Process) -> str:
    """The code of the rule that explains a story."""
    reason = story.reasons[0]
    if story.key[0] == Kind.SIZE:
        return _size_code(story, process)
    if story.key[0] == "training":
        return "TT208"
    if reason.kind is Kind.GLOBAL_STATE:
        return "TT209" if is_grad_mode(reason) else "TT210"
    if is_broken_off(reason) and reason.kind in (Kind.EQUALS, Kind.SYMBOLIC):
        return "TT222"
    if reason.is_global and reason.kind in _OF_VALUES:
        return "TT220"
    if reason.is_parameter and reason.kind in (Kind.STRIDE, Kind.RANK):
        return "TT207"
    if reason.kind is Kind.EQUALS:
        return _value_code(story, process)
    if reason.kind is Kind.IDENTITY and any(_ENUM_MEMBER.fullmatch(value) for _, value in story.values):
        return "TT224"
    return _BY_KIND.get(reason.kind, "TT299")


def is_broken_off(reason: Reason) -> bool:
    """Whether the source is a value that a graph break left on the stack."""
    return reason.path.startswith(("___stack", "math.trunc(___stack")) or "___as_tensor(___stack" in reason.path


def _size_code(story: Story, process: Process) -> str:
    if all(reason.is_zero_one for reason in story.reasons):
        return "TT221"
    if all(reason.is_parameter for reason in story.reasons):
        return "TT207"      # a parameter does not change its size: the same code runs for another module
    if story.keeps_on:
        return "TT202"
    if _is_ragged(story) and is_target(process, story.recompiles[0]) and not _is_inside_a_library(story, process):
        return "TT203"
    return "TT202" if story.call and story.call.dynamic is False else "TT201"


def _is_ragged(story: Story) -> bool:
    """One smaller size of dimension 0 beside the usual one; not if both came in the same step."""
    sizes = [value for _, value in story.values]
    if story.dims != (0,) or len(sizes) != 2 or story.in_one_step:
        return False
    usual, other = sizes
    return usual.isdigit() and other.isdigit() and int(other) < int(usual)


def _is_inside_a_library(story: Story, process: Process) -> bool:
    """Dimension 0 of what a library hands to its own functions need not be the batch."""
    return owner_of(story.frame.key[0], process.facts).kind is OwnerKind.LIBRARY


def _value_code(story: Story, process: Process) -> str:
    reason = story.reasons[0]
    types = {type_name(value) for _, value in story.values} or {"other"}
    if "." in reason.source and types <= {"int"} and _is_counted(story, process):
        return "TT206"
    if _is_per_instance(story):
        return "TT207"
    if types <= {"int"}:
        return "TT206" if "." in reason.source and _grows_evenly(story) else "TT204"
    return "TT205" if types <= {"int", "float"} else "TT224"


def _is_counted(story: Story, process: Process) -> bool:
    """The recorded source adds to the attribute."""
    attribute = re.escape(story.source.rpartition(".")[2])
    adds = re.compile(rf"\.{attribute}\s*(?:[+-]=|=\s*[\w.]*\.{attribute}\s*[+-])")
    lines = [reason.code for reason in story.reasons] + function_lines(story.frame, process)
    return any(adds.search(line) for line in lines)


def function_lines(frame: Frame, process: Process) -> list[str]:
    """The lines around the head of a function, as far as the recording kept them."""
    path, _, line = frame.key
    source = process.sources.get((path, line or 0))
    return list(source.lines) if source else []


def _is_per_instance(story: Story) -> bool:
    """An attribute of self that differs between modules of one class: layer 0, 1, 2 run the same code."""
    reason = story.reasons[0]
    of_self = reason.source.startswith("self.") or MODULE_HINT in reason.hint
    if not of_self or "._modules[" in reason.path:
        return False
    if story.in_one_step:
        return True
    name = reason.source.rpartition(".")[2]
    if story.in_one_step is None and _INDEX_NAME.search(name):
        return True
    return story.in_one_step is None and MODULE_HINT in reason.hint and len(story.values) > 2 and not _grows_evenly(story)


def _grows_evenly(story: Story) -> bool:
    numbers = [int(value) for _, value in story.values if type_name(value) == "int"]
    gaps = {b - a for a, b in itertools.pairwise(numbers)}
    return len(numbers) >= 3 and len(gaps) == 1 and gaps != {0}

"""The pattern of a group of recompiles: the code of its rule."""

import itertools
import re

from torchtriage.diagnosis.compiles.frames import Frame
from torchtriage.diagnosis.compiles.targets import is_target
from torchtriage.diagnosis.places import owner_of
from torchtriage.diagnosis.recompiles.groups import RecompileGroup, is_grad_mode
from torchtriage.diagnosis.recompiles.guard_text import Kind, Reason, parse_reason, type_name
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


def code_of(group: RecompileGroup, process: Process) -> str:
    """The code of the rule that explains a group."""
    reason = group.reasons[0]
    if group.key[0] == Kind.SIZE:
        return _size_code(group, process)
    if group.key[0] == "training":
        return "TT208"
    if reason.kind is Kind.GLOBAL_STATE:
        return "TT209" if is_grad_mode(reason) else "TT210"
    if is_broken_off(reason) and reason.kind in (Kind.EQUALS, Kind.SYMBOLIC):
        return "TT222"
    if reason.kind is Kind.EQUALS and reason.source.endswith(".item()"):
        return "TT222"      # a tensor with one number, read as an index
    if reason.is_global and reason.kind in _OF_VALUES:
        return "TT220"
    if reason.is_parameter and reason.kind in (Kind.STRIDE, Kind.RANK):
        return "TT207"
    if reason.kind is Kind.EQUALS:
        return _value_code(group, process)
    if reason.kind is Kind.IDENTITY and (
        any(_ENUM_MEMBER.fullmatch(value) for _, value in group.values) or _is_compared_to_members(group, process)
    ):
        return "TT224"
    return _BY_KIND.get(group.kind, "TT299")


_CLASS = re.compile(r"type=<class '(?:[\w<>]+\.)*(\w+)'>")


def _is_compared_to_members(group: RecompileGroup, process: Process) -> bool:
    """Whether the function compares the object to a constant of its class, as it does with a member of an enum."""
    class_name = _CLASS.search(group.reasons[0].guard)
    if class_name is None:
        return False
    source = re.escape(group.source)
    test = re.compile(rf"(?<![\w.]){source} (?:is|==|!=|is not|in) .*\b{class_name[1]}\.[A-Z]\w*\b")
    return any(test.search(line) for line in (group.reasons[0].code, *function_lines(group.frame, process)))


def is_broken_off(reason: Reason) -> bool:
    """Whether the source is a value that a graph break left on the stack."""
    return reason.path.startswith(("___stack", "math.trunc(___stack")) or "___as_tensor(___stack" in reason.path


def _size_code(group: RecompileGroup, process: Process) -> str:
    if all(reason.is_zero_one for reason in group.reasons):
        return "TT221"
    if all(reason.is_parameter for reason in group.reasons):
        return "TT207"      # a parameter does not change its size: the same code runs for another module
    if group.keeps_on:
        return "TT202"
    if is_ragged(group) and is_target(process, group.recompiles[0]) and not _is_inside_a_library(group, process):
        return "TT203"
    return "TT202" if group.call and group.call.dynamic is False else "TT201"


def is_ragged(group: RecompileGroup) -> bool:
    """One smaller size of dimension 0 beside the usual one; not if both came in the same step."""
    sizes = [value for _, value in group.values]
    if group.dims != (0,) or len(sizes) != 2 or group.in_one_step or _is_also_zero_or_one(group):
        return False
    usual, other = sizes
    return usual.isdigit() and other.isdigit() and int(other) < int(usual)


def _is_also_zero_or_one(group: RecompileGroup) -> bool:
    """Whether the same size was 0 or 1 in another recompile: then it has more than a usual and a last value."""
    reasons = (parse_reason(raw) for compile_ in group.frame.compiles for raw in compile_.reasons)
    return any(reason.kind is Kind.ZERO_ONE and reason.source == group.source for reason in reasons)


def _is_inside_a_library(group: RecompileGroup, process: Process) -> bool:
    """Whether a library calls the function: dimension 0 of its arguments is not necessarily the batch."""
    return owner_of(group.frame.key[0], process.program).kind is OwnerKind.LIBRARY


def _value_code(group: RecompileGroup, process: Process) -> str:
    reason = group.reasons[0]
    if "___normalize_count_iter(" in reason.guard:
        return "TT206"      # an itertools.count is a counter
    if not all(reason.is_plain for reason in group.reasons):
        return "TT205"      # a number that Python computes from an argument
    types = {type_name(value) for _, value in group.values} or {"other"}
    if len(group.values) == 1 and types <= {"int", "float"} and _has_other_values(group):
        return "TT223"      # the guards of the new compile hold no number: it is something else now
    if "." in reason.source and types <= {"int"} and _is_counted(group, process):
        return "TT206"
    if _is_per_instance(group):
        return "TT207"
    if types <= {"int"}:
        return "TT206" if _is_of_module(reason) and _grows_evenly(group) else "TT204"
    return "TT205" if types <= {"int", "float"} else "TT224"


def _has_other_values(group: RecompileGroup) -> bool:
    """Whether the guards of the recompile were recorded, and are silent about the source."""
    return len(group.compiles) == 1 and bool(group.frame.compiles[-1].values or group.compiles[0].values)


def _is_counted(group: RecompileGroup, process: Process) -> bool:
    """Whether the recorded source adds to the attribute."""
    attribute = re.escape(group.source.rpartition(".")[2])
    adds = re.compile(rf"\.{attribute}\s*(?:[+-]=|=\s*[\w.]*\.{attribute}\s*[+-])")
    lines = [reason.code for reason in group.reasons] + function_lines(group.frame, process)
    return any(adds.search(line) for line in lines)


def function_lines(frame: Frame, process: Process) -> list[str]:
    """The recorded lines around the signature of a function; empty if the recording has none."""
    path, _, line = frame.key
    source = process.sources.get((path, line or 0))
    return list(source.lines) if source else []


def _is_per_instance(group: RecompileGroup) -> bool:
    """An attribute of self that differs between modules of one class: layer 0, 1, 2 run the same code."""
    reason = group.reasons[0]
    if not _is_of_module(reason) or "._modules[" in reason.path:
        return False
    if group.in_one_step:
        return True
    name = reason.source.rpartition(".")[2]
    if group.in_one_step is None and _INDEX_NAME.search(name):
        return True
    has_hint = group.in_one_step is None and MODULE_HINT in reason.hint
    return has_hint and len(group.values) > 2 and not _grows_evenly(group)


def _is_of_module(reason: Reason) -> bool:
    return reason.source.startswith("self.") or MODULE_HINT in reason.hint


def _grows_evenly(group: RecompileGroup) -> bool:
    numbers = [int(value) for _, value in group.values if type_name(value) == "int"]
    gaps = {b - a for a, b in itertools.pairwise(numbers)}
    return len(numbers) >= 3 and len(gaps) == 1 and gaps != {0}

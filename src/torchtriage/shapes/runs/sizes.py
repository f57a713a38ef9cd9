"""The sizes that compiled frames received in a run, with marks for those that vary."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchtriage.diagnosis.recompiles.guard_text import Kind, Reason, parse_reason, readable
from torchtriage.findings.shape_study import VaryingSize
from torchtriage.recording.events import Recompile
from torchtriage.recording.recording import Recording
from torchtriage.shapes.runs.trial import main_process

MAX_VALUES = 64     # listed per size, the most frequent ones
_FIELDS = ("path", "line", "function", "source", "dim", "values", "num_values", "num_calls")


def recorded_sizes(recording: Recording) -> list[VaryingSize]:
    """Every size and number that a compiled frame received, also constant ones; the graphs of a frame are merged."""
    sizes: dict[tuple[Any, ...], VaryingSize] = {}
    for fact in main_process(recording).policy.sizes or ():
        size = VaryingSize(**{name: getattr(fact, name) for name in _FIELDS})
        key = (size.path, size.line, size.function, size.source, size.dim)
        sizes[key] = _merged(sizes[key], size) if key in sizes else size
    return list(sizes.values())


def _merged(a: VaryingSize, b: VaryingSize) -> VaryingSize:
    values = dict(a.values)
    for value, number in b.values.items():
        values[value] = values.get(value, 0) + number
    listed = sorted(values.items(), key=lambda item: -item[1])[:MAX_VALUES]
    unlisted = max(a.num_values - len(a.values), b.num_values - len(b.values))
    return VaryingSize(
        path=a.path, line=a.line, function=a.function, source=a.source, dim=a.dim, values=dict(listed),
        num_values=len(values) + unlisted, num_calls=a.num_calls + b.num_calls,
    )


def varying(sizes: Iterable[VaryingSize]) -> list[VaryingSize]:
    """The sizes with more than one value, the most varied first."""
    return sorted((size for size in sizes if size.num_values > 1), key=lambda size: -size.num_values)


def num_calls(sizes: Sequence[VaryingSize]) -> int:
    """The calls of the frame that was called most."""
    return max((size.num_calls for size in sizes), default=0)


MAX_RUNS = 4
# torch's name of an input, and its dimension; None: a Python number, or every dimension
Mark = tuple[str, int | None]
ZERO_ONE = "0 and 1 always get their own graph"
_LOCAL = re.compile(r"^L\[(['\"])(\w+)\1\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """The dimensions to mark, with the problems that marking them revealed."""

    marks: frozenset[Mark]
    specialized: Mapping[Mark, str] = field(default_factory=dict)   # marked, and yet compiled for one value: the guard
    new_reasons: Sequence[str] = ()                                 # recompile reasons that the sizes had hidden
    num_runs: int = 0
    is_complete: bool = True                                        # no size recompiled in the last run


def find_marks(
    sizes: Sequence[VaryingSize], before: Recording, run: Callable[[Collection[Mark]], Recording | None],
) -> Marking:
    """Mark the varying sizes, run, add the sizes that still recompile, and repeat.

    `run` returns None if the program fails under these marks.
    """
    marks = {(size.source, size.dim) for size in varying(sizes)}
    old_reasons = {*_other_reasons(_reasons(before))}
    for number in range(1, MAX_RUNS + 1):
        recording = run(marks)
        if recording is None:
            return Marking(marks=frozenset(marks), num_runs=number, is_complete=False)
        recorded = recorded_sizes(recording)
        reasons = _reasons(recording)
        recompiling = _recompiling(reasons, [*sizes, *recorded])
        missing = ({(size.source, size.dim) for size in varying(recorded)} | recompiling.keys()) - marks
        if not missing:
            break
        marks |= missing
    return Marking(
        marks=frozenset(marks),
        specialized={mark: guard for mark, guard in recompiling.items() if mark in marks - missing},
        new_reasons=[text for text in _other_reasons(reasons) if text not in old_reasons],
        num_runs=number, is_complete=not recompiling,
    )


def _reasons(recording: Recording) -> list[tuple[str, Reason]]:
    """(function, reason) of every recompile."""
    return [(event.function, parse_reason(raw)) for event in recording.of(Recompile) for raw in event.reasons]


def _is_about_size(reason: Reason) -> bool:
    has_equation = "==" in reason.guard and ".size()[" in reason.guard
    is_equation = has_equation and reason.kind in (Kind.SYMBOLIC, Kind.EQUALS)
    return (reason.kind is Kind.SIZE or is_equation) and not reason.is_zero_one


def _recompiling(reasons: Iterable[tuple[str, Reason]], sizes: Iterable[VaryingSize]) -> dict[Mark, str]:
    """Dimension that recompiled -> the guard. A reason may write `x` for torch's own name `L['x']`."""
    sources: dict[str, str] = {}
    for size in sizes:
        for name in (_LOCAL.sub(r"\2", size.source), readable(size.source), size.source):
            sources[name] = size.source
    guards: dict[Mark, str] = {}
    for _, reason in reasons:
        if _is_about_size(reason) and reason.dim is not None and reason.path in sources:
            guards[sources[reason.path], reason.dim] = reason.guard
    return guards


def _other_reasons(reasons: Iterable[tuple[str, Reason]]) -> list[str]:
    """The reasons that are not about sizes, each once."""
    texts = []
    for function, reason in reasons:
        if not _is_about_size(reason) and not reason.is_zero_one:
            texts.append(f"{function}: {reason.guard}")
    return list(dict.fromkeys(texts))


def sources_value(marks: Collection[Mark], with_dims: bool) -> str:
    """The value of TORCH_COMPILE_DYNAMIC_SOURCES for these marks; an entry without `:N` means every dimension."""
    ordered = sorted(marks, key=lambda mark: (mark[0], -1 if mark[1] is None else mark[1]))
    entries = [_pattern(source) + (f":{dim}" if with_dims and dim is not None else "") for source, dim in ordered]
    return ",".join(dict.fromkeys(entries))


def _pattern(source: str) -> str:
    """An entry is a regular expression. torch removes spaces and splits at commas, so both are written as escapes."""
    return re.escape(source).replace("\\ ", r"\x20").replace(",", r"\x2c") + "$"


def with_marks(sizes: Sequence[VaryingSize], marking: Marking) -> list[VaryingSize]:
    """The varying sizes with whether each is marked, and why that may have no effect."""
    marked = []
    for size in sizes:
        mark = (size.source, size.dim)
        guard = marking.specialized.get(mark)
        why_not = ""
        if guard:
            why_not = f"specialized to a constant ({guard})"
        elif {"0", "1"} & size.values.keys():
            why_not = ZERO_ONE
        marked.append(replace(size, is_marked=mark in marking.marks, why_not=why_not))
    return marked

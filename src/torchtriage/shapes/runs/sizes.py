"""Which sizes the compiled frames of a run saw, and which of them vary."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchtriage.diagnosis.recompiles.guard_text import Kind, Reason, parse_reason, readable
from torchtriage.findings.shape_study import VaryingSize
from torchtriage.recording.events import Recompile
from torchtriage.recording.recording import Recording
from torchtriage.shapes.runs.trial import main_process

MAX_VALUES = 64     # listed of one size, the most frequent ones
_FIELDS = ("path", "line", "function", "source", "dim", "values", "num_values", "num_calls")


def seen_sizes(recording: Recording) -> list[VaryingSize]:
    """Every size and number that a compiled frame took in, also those that never varied; a frame's graphs are taken together."""
    found: dict[tuple[Any, ...], VaryingSize] = {}
    for fact in main_process(recording).policy.sizes or ():
        size = VaryingSize(**{name: getattr(fact, name) for name in _FIELDS})
        key = (size.path, size.line, size.function, size.source, size.dim)
        found[key] = _together(found[key], size) if key in found else size
    return list(found.values())


def _together(a: VaryingSize, b: VaryingSize) -> VaryingSize:
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
    """Those with more than one value, the most varied first."""
    return sorted((size for size in sizes if size.num_values > 1), key=lambda size: -size.num_values)


def num_calls(sizes: Sequence[VaryingSize]) -> int:
    """Calls of the frame that was called most."""
    return max((size.num_calls for size in sizes), default=0)


MAX_RUNS = 4
Mark = tuple[str, int | None]       # torch's name of an input, and its dimension; None: a Python number, or every dimension
ZERO_ONE = "0 and 1 always get a graph of their own"
_LOCAL = re.compile(r"^L\[(['\"])(\w+)\1\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """The dimensions to mark, and what came to light while they were found."""

    marks: frozenset[Mark]
    constant_again: Mapping[Mark, str] = field(default_factory=dict)    # marked, and yet compiled for one value: the guard
    new_reasons: Sequence[str] = ()                                     # recompile reasons that were hidden behind the sizes
    num_runs: int = 0
    is_complete: bool = True                                            # no size recompiled in the last run


def find_marks(sizes: Sequence[VaryingSize], before: Recording, run: Callable[[Collection[Mark]], Recording | None]) -> Marking:
    """Mark what varies, run, add what still recompiles; `run` gives None if the program failed under these marks."""
    marks = {(size.source, size.dim) for size in varying(sizes)}
    known = {*_told(_reasons(before))}
    for number in range(1, MAX_RUNS + 1):
        recording = run(marks)
        if recording is None:
            return Marking(marks=frozenset(marks), num_runs=number, is_complete=False)
        seen = seen_sizes(recording)
        reasons = _reasons(recording)
        named = _named(reasons, [*sizes, *seen])
        missing = ({(size.source, size.dim) for size in varying(seen)} | named.keys()) - marks
        if not missing:
            break
        marks |= missing
    return Marking(
        marks=frozenset(marks), constant_again={mark: guard for mark, guard in named.items() if mark in marks - missing},
        new_reasons=[text for text in _told(reasons) if text not in known], num_runs=number, is_complete=not named,
    )


def _reasons(recording: Recording) -> list[tuple[str, Reason]]:
    """(function, reason) of every recompile."""
    return [(event.function, parse_reason(raw)) for event in recording.of(Recompile) for raw in event.reasons]


def _is_about_size(reason: Reason) -> bool:
    is_equation = reason.kind in (Kind.SYMBOLIC, Kind.EQUALS) and "==" in reason.guard and ".size()[" in reason.guard
    return (reason.kind is Kind.SIZE or is_equation) and not reason.is_zero_one


def _named(reasons: Iterable[tuple[str, Reason]], sizes: Iterable[VaryingSize]) -> dict[Mark, str]:
    """The dimensions that size recompiles name; reasons write `x` for torch's own name `L['x']`."""
    names = {short: size.source for size in sizes for short in (_LOCAL.sub(r"\2", size.source), readable(size.source), size.source)}
    return {
        (names[reason.path], reason.dim): reason.guard
        for _, reason in reasons if _is_about_size(reason) and reason.dim is not None and reason.path in names
    }


def _told(reasons: Iterable[tuple[str, Reason]]) -> list[str]:
    """Reasons other than sizes, each once."""
    return list(dict.fromkeys(
        f"{function}: {reason.guard}" for function, reason in reasons if not _is_about_size(reason) and not reason.is_zero_one
    ))


def sources_value(marks: Collection[Mark], with_dims: bool) -> str:
    """What TORCH_COMPILE_DYNAMIC_SOURCES has to be for these marks; without `:N` an entry means every dimension."""
    ordered = sorted(marks, key=lambda mark: (mark[0], -1 if mark[1] is None else mark[1]))
    entries = [_pattern(source) + (f":{dim}" if with_dims and dim is not None else "") for source, dim in ordered]
    return ",".join(dict.fromkeys(entries))


def _pattern(source: str) -> str:
    """Entries are regular expressions, split at commas after spaces are taken out: both are written by their number."""
    return re.escape(source).replace("\\ ", r"\x20").replace(",", r"\x2c") + "$"


def with_marks(sizes: Sequence[VaryingSize], marking: Marking) -> list[VaryingSize]:
    """The sizes that vary, with whether each is marked and what stands against it."""
    found = []
    for size in sizes:
        mark = (size.source, size.dim)
        guard = marking.constant_again.get(mark)
        why = f"became constant again ({guard})" if guard else ZERO_ONE if {"0", "1"} & size.values.keys() else ""
        found.append(replace(size, is_marked=mark in marking.marks, why_not=why))
    return found

"""Aligns the operations of two runs to find the first that differs by itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from torchtriage.findings.proof.location import OperationChange
from torchtriage.proof.locate.streams import Digest, StreamOperation

WINDOW = 2_000      # operations behind the first disagreement that are aligned; alignment takes quadratic time

Operations = Sequence[StreamOperation]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDifference:
    """The first operation that differs; `first` and `second` are what each side runs."""

    kind: OperationChange
    first: StreamOperation | None
    second: StreamOperation | None
    inputs_equal: bool = False      # bit by bit
    relative: float | None = None   # distance of the outputs that differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How far two streams agree; without a difference and without a reason they agree to the end."""

    num_agreeing: int
    difference: StreamDifference | None = None
    reason: str = ""                # why a difference could not be assigned to an operation


def align(first: Operations, second: Operations) -> Alignment:
    """Walk both streams; operations that only moved, or that change nothing which is compared, are passed over."""
    num_equal = 0
    for mine, yours in zip(first, second, strict=False):
        if not _is_same(mine, yours):
            break
        num_equal += 1
    rest_first, rest_second = first[num_equal:][:WINDOW], second[num_equal:][:WINDOW]
    alone_first: list[StreamOperation] = []
    alone_second: list[StreamOperation] = []
    known = _Values(first[:num_equal], second[:num_equal])
    num_agreeing = num_equal
    for left, right in _pairs(rest_first, rest_second):
        if left is None or right is None:
            alone_first += [left] if left is not None else []
            alone_second += [right] if right is not None else []
            continue
        mine, yours = left, right
        if _is_same(mine, yours):
            num_agreeing += 1
            known.add(mine, yours)
            continue
        if _agree(mine.inputs, yours.inputs):
            return Alignment(num_agreeing=num_agreeing, difference=_changed(mine, yours))
        found = _source(alone_first, alone_second, known)
        reason = "" if found else f"the inputs of {mine.name} differ, and no recorded operation made them"
        return Alignment(num_agreeing=num_agreeing, difference=found, reason=reason)
    found = _lost_write(alone_first, alone_second)
    return Alignment(num_agreeing=num_agreeing, difference=found)


class _Values:
    """The values that both sides have in common so far."""

    def __init__(self, first: Operations, second: Operations) -> None:
        self._codes: set[str] = set()
        for mine, yours in zip(first, second, strict=True):
            self.add(mine, yours)

    def add(self, mine: StreamOperation, yours: StreamOperation) -> None:
        for operation in (mine, yours):
            self._codes |= {value.code for value in (*operation.inputs, *operation.outputs)}

    def has(self, operation: StreamOperation) -> bool:
        """Whether every input occurs on both sides; an operation without inputs has nothing that could differ."""
        return all(value.code in self._codes for value in operation.inputs)


def _pairs(first: Operations, second: Operations) -> Iterator[tuple[StreamOperation | None, StreamOperation | None]]:
    """Operations of the same name and shapes in the same order; None beside one that only one side has."""
    matcher = SequenceMatcher(None, [o.key() for o in first], [o.key() for o in second], autojunk=False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag == "equal":
            yield from zip(first[i:i_end], second[j:j_end], strict=True)
            continue
        for operation in first[i:i_end]:
            yield operation, None
        for operation in second[j:j_end]:
            yield None, operation


def _source(first: Operations, second: Operations, known: _Values) -> StreamDifference | None:
    """The first operation of one side only whose inputs both sides have; with its counterpart, if there is one."""
    lonely_first, lonely_second = _without_moved(first, second)
    mine = next((operation for operation in lonely_first if known.has(operation)), None)
    yours = next((operation for operation in lonely_second if known.has(operation)), None)
    if mine is None and yours is None:
        return None
    if mine is not None and yours is not None:
        kind = OperationChange.VALUE if mine.name == yours.name else OperationChange.REPLACED
        return StreamDifference(kind=kind, first=mine, second=yours)
    kind = OperationChange.MISSING if yours is None else OperationChange.INSERTED
    return StreamDifference(kind=kind, first=mine, second=yours, inputs_equal=True)


def _lost_write(first: Operations, second: Operations) -> StreamDifference | None:
    """An operation of one side only that nothing reads later: it matters if it changes a tensor in place."""
    lonely_first, lonely_second = _without_moved(first, second)
    mine = next((operation for operation in lonely_first if operation.is_write), None)
    yours = next((operation for operation in lonely_second if operation.is_write), None)
    if mine is not None and yours is None:
        return StreamDifference(kind=OperationChange.MISSING, first=mine, second=None, inputs_equal=True)
    if yours is not None and mine is None:
        return StreamDifference(kind=OperationChange.INSERTED, first=None, second=yours, inputs_equal=True)
    return None


def _without_moved(first: Operations, second: Operations) -> tuple[list[StreamOperation], list[StreamOperation]]:
    """Without the operations that the other side runs too, on the same values but at another place."""
    rest = list(second)
    lonely = []
    for mine in first:
        twin = next((yours for yours in rest if yours.name == mine.name and _is_same(mine, yours)), None)
        if twin is None:
            lonely.append(mine)
        else:
            rest.remove(twin)
    return lonely, rest


def _changed(mine: StreamOperation, yours: StreamOperation) -> StreamDifference:
    pairs = list(zip(mine.outputs, yours.outputs, strict=False))
    distances = [a.distance(b) for a, b in pairs if not a.agrees(b)]
    equal = [a.code for a in mine.inputs] == [b.code for b in yours.inputs]
    finite = [distance for distance in distances if distance < float("inf")]
    return StreamDifference(
        kind=OperationChange.VALUE, first=mine, second=yours, inputs_equal=equal, relative=max(finite, default=None))


def _is_same(mine: StreamOperation, yours: StreamOperation) -> bool:
    return mine.key() == yours.key() and _agree(mine.inputs, yours.inputs) and _agree(mine.outputs, yours.outputs)


def _agree(mine: Sequence[Digest], yours: Sequence[Digest]) -> bool:
    return len(mine) == len(yours) and all(a.agrees(b) for a, b in zip(mine, yours, strict=True))

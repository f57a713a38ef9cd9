"""From a tensor that is not finite back to the operation or input that it comes from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.capture.operations.origin import operands as of_values
from torchtriage.capture.operations.origin.value_flow import BadInput, FlowRow, ValueFlow
from torchtriage.recording.origins.origin import Operand, OriginOperation, OriginState, SeenIn

# Operations that read a mask of scores; other operations read data, in which -Inf is no mask.
_TAKE_A_MASK = ("add", "where", "masked_fill", "clone", "_to_copy", "_softmax", "_log_softmax", "_scaled_dot_product")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Tensors of one kind that are not finite, each with its name."""

    seen_in: SeenIn
    tensors: Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class _End:
    """An end of the way back: a row, or an input of a row that no row wrote."""

    row: int
    given: BadInput | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedOrigin:
    """What the way back of a target leads to."""

    state: OriginState
    operation: OriginOperation | None = None
    nan_operation: OriginOperation | None = None
    input: Operand | None = None
    num_passed_on: int = 0


def trace_back(flow: ValueFlow, target: Target) -> TracedOrigin:
    """The earliest operation or input from which values flow to the target through results that are not finite."""
    starts = [row for _, tensor in target.tensors for row in flow.writers(tensor)]
    if not starts:
        value = of_values.operand(target.tensors[0][1], target.tensors[0][0])
        return TracedOrigin(state=OriginState.INPUT if target.seen_in is SeenIn.WEIGHT else OriginState.UNKNOWN,
                            input=value)
    passed = sorted(_ancestors(flow.rows, starts))
    ends = list(_ends(flow.rows, passed))
    meant = [end for end in ends if _is_meant(flow.rows, end)]
    real = [end for end in ends if end not in meant]
    nan_row = _first_nan(flow.rows, passed)
    if not real and nan_row is not None:
        return TracedOrigin(state=OriginState.OPERATION, operation=flow.rows[nan_row].operation,
                            num_passed_on=sum(row > nan_row for row in passed))
    first = min(real or meant, key=lambda end: end.row)
    return _traced(flow.rows, first, passed, nan_row)


def _traced(rows: Sequence[FlowRow], end: _End, passed: Sequence[int], nan_row: int | None) -> TracedOrigin:
    operation = rows[end.row].operation
    num_passed_on = sum(row > end.row for row in passed)
    if end.given is not None:
        return TracedOrigin(
            state=OriginState.INPUT, operation=operation, input=end.given.operand, num_passed_on=num_passed_on)
    has_nan = any(result.num_nan for result in operation.results)
    makes_nan = None if has_nan or nan_row is None else rows[nan_row].operation
    return TracedOrigin(
        state=OriginState.OPERATION, operation=operation, nan_operation=makes_nan, num_passed_on=num_passed_on)


def _ancestors(rows: Sequence[FlowRow], starts: Sequence[int]) -> set[int]:
    found, waiting = set(starts), list(starts)
    while waiting:
        for given in rows[waiting.pop()].inputs:
            for writer in given.writers:
                if writer not in found:
                    found.add(writer)
                    waiting.append(writer)
    return found


def _ends(rows: Sequence[FlowRow], passed: Sequence[int]) -> Iterator[_End]:
    for number in passed:
        row = rows[number]
        if not row.inputs:
            yield _End(number)
        for given in row.inputs:
            if not given.writers:
                yield _End(number, given)


def _is_meant(rows: Sequence[FlowRow], end: _End) -> bool:
    """Whether the Inf is one that the program itself wrote, such as masked_fill with -Inf, or a mask of 0 and -Inf."""
    row = rows[end.row]
    if end.given is None:
        return row.is_constant
    value = end.given.operand
    is_mask = not value.num_nan and value.num_inf == value.num_negative_inf and not end.given.is_parameter
    return is_mask and row.operation.base_name.startswith(_TAKE_A_MASK)


def _first_nan(rows: Sequence[FlowRow], passed: Sequence[int]) -> int | None:
    """The first of these rows that makes NaN of inputs that have Inf, and no NaN."""
    for number in passed:
        row = rows[number]
        makes_nan = any(result.num_nan for result in row.operation.results)
        if makes_nan and row.inputs and not any(given.operand.num_nan for given in row.inputs):
            return number
    return None

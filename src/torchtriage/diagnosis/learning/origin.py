"""The sentences about the operation that a replay found as the origin of NaN or Inf."""

from collections.abc import Sequence

from torchtriage.diagnosis.learning.operation_fixes import fix_of_input, fix_of_operation
from torchtriage.diagnosis.learning.rule import short
from torchtriage.findings.model import UNKNOWN_PLACE, Location
from torchtriage.recording.origins.origin import Operand, Origin, OriginOperation, OriginState, SeenIn
from torchtriage.text import counted, listed, row, short_place

MAX_OPERANDS = 3
FOUND = (OriginState.OPERATION, OriginState.INPUT, OriginState.COMPILED)


def location(origin: Origin) -> Location:
    """The line of the producer, or the one that first read the input."""
    operation = origin.operation
    if operation is None or not operation.path:
        return UNKNOWN_PLACE
    return Location(path=operation.path, line=operation.line, function=operation.function or None)


def explanation(origin: Origin) -> str:
    """What the replay found."""
    if origin.state == OriginState.OPERATION and origin.operation is not None:
        return " ".join(filter(None, (_producer(origin.operation), _nan(origin), _passed_on(origin), _moved(origin))))
    if origin.state == OriginState.INPUT:
        return " ".join(filter(None, (_input(origin), _passed_on(origin), _moved(origin))))
    if origin.state == OriginState.COMPILED:
        return (
            f"A replay of the step with eager operations is finite ({counted(origin.num_operations, 'operation')}); "
            f"compiled as the program asks, the {origin.seen_in} is not: the compiled code makes it"
        )
    if origin.state == OriginState.CLEAN:
        kinds = ", neither eager nor compiled" if origin.was_compiled else ""
        return (
            f"A replay up to step {origin.step} had no NaN or Inf{kinds}: the program does not repeat itself, "
            "so its origin is not known"
        )
    reason = f" ({origin.problem})" if origin.problem else ""
    return f"A replay repeated it, and could not follow it to its origin{reason}"


def fix(origin: Origin) -> str:
    """What to change, as far as the replay has shown it; empty if it has not."""
    if origin.state == OriginState.OPERATION and origin.operation is not None:
        return fix_of_operation(origin.operation)
    if origin.state == OriginState.INPUT and origin.input is not None:
        return fix_of_input(origin)
    if origin.state == OriginState.COMPILED:
        return "torchtriage verify --eager SCRIPT.py names the operation in the compiled graph that differs"
    return ""


def _producer(operation: OriginOperation) -> str:
    read = "" if not operation.operands else f" read {_operands(operation.operands)}, and"
    return f"A replay names the operation: {_named(operation)}{read} gave {_bad_values(operation.results)}."


def _named(operation: OriginOperation) -> str:
    """aten.log at model.py:12 (module head, `torch.log(p)`)."""
    name = operation.name
    if operation.is_backward:
        name += (f" of {operation.node}" if operation.node else "") + ", in the backward pass of the line"
    place = f" at {short_place(operation.path, operation.line)}" if operation.path else ""
    where = [f"module {operation.module_path}"] if operation.module_path else []
    if operation.code:
        where.append(f"`{operation.code}`")
    return f"{name}{place}" + (f" ({row(where)})" if where else "")


def _operands(operands: Sequence[Operand]) -> str:
    texts = [_operand(one) for one in operands[:MAX_OPERANDS]]
    return "; ".join(texts)


def _operand(one: Operand) -> str:
    if one.is_number:
        return f"the number {short(_only_value(one))}"
    name = f" of {one.name}" if one.name else ""
    kind = f"{one.dtype} value"
    if one.num_values == 1 and one.minimum is not None:
        return f"the {kind} {short(one.minimum)}{name}"
    if one.minimum is None or one.maximum is None:
        values = f"{counted(one.num_values, kind)}{name}"
    elif one.minimum == one.maximum and one.is_finite:
        return f"{one.num_values:,} {kind}s{name}, all {short(one.minimum)}"
    else:
        values = f"{one.num_values:,} {kind}s{name} from {short(one.minimum)} to {short(one.maximum)}"
    special = _special(one)
    return f"{values}, {special}" if special else values


def _only_value(one: Operand) -> float:
    if one.minimum is not None:
        return one.minimum
    infinity = float("-inf") if one.num_negative_inf else float("inf")
    return float("nan") if one.num_nan else infinity


def _special(one: Operand) -> str:
    """3 of them 0, 1 NaN."""
    num_positive_inf = one.num_inf - one.num_negative_inf
    counts = (
        (one.num_zero, "0"), (one.num_nan, "NaN"), (num_positive_inf, "Inf"), (one.num_negative_inf, "-Inf"),
    )
    texts = [f"{count:,} of them {word}" for count, word in counts if count]
    return listed(texts)


def _bad_values(results: Sequence[Operand]) -> str:
    num_nan = sum(result.num_nan for result in results)
    num_inf = sum(result.num_inf for result in results)
    return " and ".join(f"{count:,} {word}" for count, word in ((num_nan, "NaN"), (num_inf, "Inf")) if count)


def _nan(origin: Origin) -> str:
    operation = origin.nan_operation
    return "" if operation is None else f"{_named(operation)} made NaN of its Inf."


def _input(origin: Origin) -> str:
    value, reader = origin.input, origin.operation
    if value is None:
        return "A replay shows that a tensor was not finite before the steps that were followed."
    what = f"a {value.dtype} tensor of shape {list(value.shape)}"
    if value.name:
        what = f"the parameter or buffer {value.name}"
    where = f", which {_named(reader)} reads," if reader is not None else ""
    return (
        f"A replay shows that no operation of the step made it: {what}{where} already has {_bad_values([value])} among "
        f"{counted(value.num_values, 'value')}."
    )


def _passed_on(origin: Origin) -> str:
    if not origin.seen_in:
        return ""
    place = f"the {origin.seen_in}"
    if origin.seen_in != SeenIn.LOSS and origin.subject:
        place += f" of {origin.subject}"
    between = "" if not origin.num_passed_on else f"; {counted(origin.num_passed_on, 'operation')} passed it on"
    step = "" if origin.step is None else f" of step {origin.step}"
    return f"It was first seen in {place}{step}{between}."


def _moved(origin: Origin) -> str:
    if origin.recorded_step is None or origin.step is None or origin.step == origin.recorded_step:
        return ""
    return f"The recorded run had it in step {origin.recorded_step}."

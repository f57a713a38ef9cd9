"""The fix for the operation that made a non-finite value, chosen by its operands."""

from collections.abc import Callable, Mapping

from torchtriage.recording.origins.origin import Operand, Origin, OriginOperation

LARGEST_HALF = 65504.0
GROWN = 1e12        # weights, activations and losses of a training that converges are far below
# By the first letters of the node of autograd; the loss is finite where a gradient is the first that is not.
_BACKWARD: Mapping[str, str] = {
    "Sqrt": "the derivative of sqrt at 0 is infinite: add a small constant inside, sqrt(x + 1e-12)",
    "Log": "the log of 0 is discarded in the forward pass, and its gradient is 0 / 0: replace the value before the "
           "log, log(torch.where(mask, x, 1.0)), not after it",
    "Div": "the gradient of the division is divided by 0 too, also where torch.where or a mask discards the quotient: "
           "replace the denominator before the division, x / torch.where(mask, y, 1.0), or add a small constant to it",
    "Pow": "the derivative of a power below 1 is infinite at 0: add a small constant to the base, (x + 1e-12) ** p",
    "Acos": "the derivative of acos is infinite at -1 and 1: clamp the argument, x.clamp(-1 + 1e-6, 1 - 1e-6)",
    "Asin": "the derivative of asin is infinite at -1 and 1: clamp the argument, x.clamp(-1 + 1e-6, 1 - 1e-6)",
}
_TINY_LOG = (
    "the gradient of the log is divided by a number near 0 and overflows: clamp the argument, log(x.clamp_min(1e-8))")
_LOGARITHMS = ("log", "log2", "log10")
_EXPONENTIALS = ("exp", "expm1", "exp2", "sinh", "cosh")
_INVERSES = ("acos", "asin")


def fix_of_operation(operation: OriginOperation) -> str:
    """Empty if the values do not show what is wrong."""
    text = _fix(operation)
    is_low = any(value.dtype in ("float16", "bfloat16") for value in operation.operands)
    if is_low and "1e-" in text:
        text += "; such a constant is lost in 16 bits, so compute this in float32, x.float()"
    return text


def _fix(operation: OriginOperation) -> str:
    if operation.is_backward:
        of_node = next((text for start, text in _BACKWARD.items() if operation.node.startswith(f"{start}Backward")), "")
        if operation.node.startswith("LogBackward") and not any(value.num_zero for value in operation.operands):
            return _TINY_LOG
        return of_node or _overflow(operation)
    for names, fix in _FORWARD:
        if operation.base_name in names and (text := fix(operation)):
            return text
    return _overflow(operation)


def fix_of_input(origin: Origin) -> str:
    """The tensor was bad before the step: a parameter, or data."""
    value = origin.input
    if value is not None and value.name:
        return (
            f"{value.name} was not finite before the steps that were followed: repeat with torchtriage replay "
            "RECORDING --from 1, which follows all steps; if the first step has it, look at its initialization or at "
            "the checkpoint"
        )
    return (
        "check the data where they are read: torch.isfinite(x).all() per sample names the bad ones; drop or repair them"
    )


def _log(operation: OriginOperation) -> str:
    value = _first(operation)
    if value is None or not (value.num_zero or value.num_negative):
        return ""
    if value.num_negative:
        return "the argument of the log is negative: check how it is computed, or clamp it, log(x.clamp_min(1e-8))"
    return (
        "clamp the argument of the log, log(x.clamp_min(1e-8)); of a softmax or sigmoid use log_softmax or logsigmoid"
    )


def _sqrt(operation: OriginOperation) -> str:
    value = _first(operation)
    if value is not None and value.num_negative:
        return "the argument of sqrt is negative: clamp it, sqrt(x.clamp_min(1e-12))"
    return ""


def _inverse_root(operation: OriginOperation) -> str:
    value = _first(operation)
    if value is not None and (value.num_zero or value.num_negative):
        return "add a small constant to the argument, rsqrt(x.clamp_min(0) + 1e-8)"
    return ""


def _division(operation: OriginOperation) -> str:
    denominator = operation.operands[-1] if operation.operands else None
    if denominator is None or not denominator.num_zero:
        return ""
    return (
        "the denominator is 0: add a small constant, x / (y + 1e-8), or clamp it, x / y.clamp_min(1e-8), if it is "
        "never negative"
    )


def _exponential(operation: OriginOperation) -> str:
    value = _first(operation)
    if value is None or value.maximum is None or value.maximum < 11.0:      # exp(11.1) exceeds float16
        return ""
    return (
        "exp overflows, above 88.7 in float32 and bfloat16, above 11.0 in float16: clamp its argument, "
        "exp(x.clamp_max(20)), or use logsumexp, softmax or softplus, which subtract the maximum first"
    )


def _power(operation: OriginOperation) -> str:
    base = _first(operation)
    if base is None:
        return ""
    if base.num_negative and any(result.num_nan for result in operation.results):
        return "a negative number has no fractional power: x.abs() ** p * x.sign(), or x.clamp_min(1e-12) ** p"
    if base.num_zero:
        return "0 has no negative power: add a small constant, (x + 1e-8) ** p"
    return ""


def _inverse(operation: OriginOperation) -> str:
    value = _first(operation)
    if value is None or not ((value.maximum or 0.0) > 1.0 or (value.minimum or 0.0) < -1.0):
        return ""
    return "the argument is outside -1 to 1: clamp it, x.clamp(-1 + 1e-6, 1 - 1e-6)"


def _inverse_hyperbolic(operation: OriginOperation) -> str:
    value = _first(operation)
    if value is None or not ((value.maximum or 0.0) >= 1.0 or (value.minimum or 0.0) <= -1.0):
        return ""
    return "atanh is infinite at -1 and 1, and has no value beyond: clamp its argument, x.clamp(-1 + 1e-6, 1 - 1e-6)"


def _logit(operation: OriginOperation) -> str:
    value = _first(operation)
    if value is None or not (value.num_zero or value.num_negative or (value.maximum or 0.0) >= 1.0):
        return ""
    return "logit is infinite at 0 and 1, and has no value beyond: torch.logit(x, eps=1e-6) clamps its argument"


def _log_of_one_more(operation: OriginOperation) -> str:
    value = _first(operation)
    if value is None or (value.minimum or 0.0) > -1.0:
        return ""
    return "the argument of log1p is -1 or below: clamp it, log1p(x.clamp_min(-1 + 1e-6))"


def _softmax(operation: OriginOperation) -> str:
    value = _first(operation)
    if value is None or not value.num_negative_inf or value.num_nan:
        return ""
    return (
        "a row of the scores has only -Inf: leave one entry of each row unmasked, or mask with a large finite number, "
        "torch.finfo(scores.dtype).min, and set the result of such rows to 0"
    )


def _nll(operation: OriginOperation) -> str:
    target = operation.operands[1] if len(operation.operands) > 1 else None
    if target is None or target.minimum is None or target.minimum != target.maximum or target.minimum >= 0:
        return ""
    return (
        "every target has the ignored index, so the mean is over no element: skip such a batch, or use "
        'reduction="sum" and divide by (target != ignore_index).sum().clamp_min(1)'
    )


def _empty_mean(operation: OriginOperation) -> str:
    value = _first(operation)
    if value is not None and not value.num_values:
        return "the mean is over no element: skip it where the tensor is empty, or use x.sum() / max(x.numel(), 1)"
    return ""


def _deviation(operation: OriginOperation) -> str:
    return (
        "the deviation of a single value is 0 / 0 with correction=1: use correction=0 (unbiased=False), or skip a "
        "batch of one"
    )


def _overflow(operation: OriginOperation) -> str:
    """The result left the range of its type, which nothing else explains: the inputs are finite."""
    results = operation.results
    if not results or any(result.num_nan for result in results):
        return ""
    largest = max((value.maximum or 0.0 for value in operation.operands), default=0.0)      # masks are negative
    if largest >= GROWN:
        return (
            f"it reads values of up to {largest:.2g} already, so the cause is before it: if the norms of the weights "
            "rise in the steps before, lower the learning rate or clip the gradients; else scale down what makes these "
            "values"
        )
    if any(result.dtype != "float16" for result in results):
        return ""
    return (
        f"the result exceeds {LARGEST_HALF:.0f}, the largest float16: compute this in float32 (x.float()) or bfloat16, "
        "or scale the values down first"
    )


def _first(operation: OriginOperation) -> Operand | None:
    return operation.operands[0] if operation.operands else None


_FORWARD: tuple[tuple[tuple[str, ...], Callable[[OriginOperation], str]], ...] = (
    (_LOGARITHMS, _log), (("sqrt",), _sqrt), (("rsqrt",), _inverse_root), (("div", "reciprocal"), _division),
    (_EXPONENTIALS, _exponential), (("pow",), _power), (_INVERSES, _inverse),
    (("atanh",), _inverse_hyperbolic), (("logit",), _logit), (("log1p",), _log_of_one_more),
    (("_softmax", "_log_softmax"), _softmax), (("nll_loss_forward", "nll_loss2d_forward"), _nll),
    (("mean",), _empty_mean), (("std", "var"), _deviation),
)

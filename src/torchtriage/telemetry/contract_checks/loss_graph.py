"""The graph behind a loss: what it trains, mistakes in the operations next to it."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from torchtriage.telemetry.contract_checks.count import is_readable

MAX_NODES = 50_000
MAX_LOSS_NODES = 64     # operations next to the loss; those of the model behind them are not judged
MAX_VIEWS = 6
MAX_ROWS = 256          # of log-probabilities that are summed
LOG_TOLERANCE = 0.05    # of the logarithm of a sum that should be 1: bfloat16 is exact to 0.4 %
# Operations that keep the values.
_VIEWS = (
    "View", "UnsafeView", "Reshape", "ToCopy", "Squeeze", "Unsqueeze", "Transpose", "T", "Permute", "Clone", "Alias",
    "Slice", "Select", "Index",
)
# Operations that take logits, and those whose results are probabilities. A log-softmax may be repeated without harm.
_OF_LOGITS = {"LogSoftmax": "Softmax", "Logsumexp": "Softmax", "BinaryCrossEntropyWithLogits": "Sigmoid"}
# Losses that compare predictions with targets.
TARGET_LOSSES = ("NllLoss", "NllLoss2D", "MseLoss", "BinaryCrossEntropyWithLogits", "BinaryCrossEntropy")
_SIGNED = ("Neg", "Rsub", "Sub", "Add", "Mul", "Div", "Mean", "Sum")     # operations between a loss and its parts
_DIFFERENCES = ("Sub", "SmoothL1Loss", "MseLoss", "HuberLoss", "L1Loss")


def leaves(operations: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, torch.Tensor]]:
    """The tensors whose gradients a backward pass computes, each with its distance to the loss."""
    for distance, node in operations:
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            yield distance, leaf


def operations_behind(last: Any) -> Iterator[tuple[int, Any]]:
    """All operations that lead to this one, itself included, each with its distance; the near ones first."""
    level: list[Any] = [last]
    seen: set[Any] = set()
    distance = 0
    while level and len(seen) <= MAX_NODES:
        following: list[Any] = []
        for node in level:
            if node is None or node in seen:
                continue
            seen.add(node)
            yield distance, node
            following += [before for before, _ in node.next_functions]
        level = following
        distance += 1


def probabilities_as_logits(loss: torch.Tensor) -> str:
    """The operation that takes probabilities for logits, next to the loss; empty if there is none."""
    for node in near(loss):
        activation = _OF_LOGITS.get(node_kind(node))
        before = _behind_views(node) if activation is not None else None
        if activation is not None and before is not None and node_kind(before) == activation:
            return activation.lower()
    return ""


def sign_of_error(loss: torch.Tensor) -> int:
    """1 if the loss grows with the error of its predictions, -1 if it falls; 0 if parts differ or none is known."""
    signs: set[int] = set()
    waiting: list[tuple[Any, int]] = [(loss.grad_fn, 1)]
    for node, sign in waiting:
        kind = node_kind(node)
        if kind in TARGET_LOSSES:
            signs.add(sign)
        elif kind in _SIGNED and len(waiting) <= MAX_LOSS_NODES:
            for place, (before, _) in enumerate(node.next_functions):
                if before is not None:
                    waiting.append((before, sign * _sign(node, place)))
    return signs.pop() if len(signs) == 1 else 0


def _factor_sign(node: Any, place: int) -> int:
    """The sign of the number that a result is multiplied by or divided by; 0 if it is not one number."""
    if any(before is not None for before, _ in (*node.next_functions[:place], *node.next_functions[place + 1:])):
        return 0
    factor = getattr(node, "_saved_self" if place else "_saved_other", None)
    if not isinstance(factor, torch.Tensor) or not is_readable(factor) or factor.ndim:
        return 0
    return int(factor.sign())


def _sign(node: Any, place: int) -> int:
    """The sign that an operation between a loss and its parts gives to its input at this place; 0 if it is unknown."""
    kind = node_kind(node)
    if kind in ("Mul", "Div"):
        return _factor_sign(node, place)
    if kind == "Sub":
        return -1 if place else 1
    return {"Neg": -1, "Rsub": -1, "Add": 1, "Mean": 1, "Sum": 1}.get(kind, 0)


def is_of_layer(loss_node: Any) -> bool:
    """Whether the predictions come from a linear layer or from a product of matrices, at most scaled."""
    node = _behind_views(loss_node)
    if node is not None and node_kind(node) == "LogSoftmax":
        node = _behind_views(node)
    if node is not None and node_kind(node) in ("Mul", "Div"):
        node = _behind_views(node)
    return node is not None and node_kind(node) in ("Addmm", "Mm", "Bmm")


def broadcast_size(loss: torch.Tensor) -> int:
    """N, if a prediction and a target of N elements each are broadcast to N x N elements next to the loss; else 0.

    The target has no gradient: two predictions may be compared in pairs on purpose.
    """
    for node in near(loss):
        inputs = [edge for edge in node.next_functions if edge[0] is not None]
        if node_kind(node) in _DIFFERENCES and len(inputs) == 1:
            size = _size_of_pairs(node, *inputs[0])
            if size:
                return size
    return 0


def _size_of_pairs(difference: Any, prediction: Any, output: int) -> int:
    """N, if this output of a prediction has N elements and is broadcast to N x N in the difference."""
    whole = _shape(difference, 0)
    if node_kind(prediction) == "Expand":       # mse_loss expands both to a common shape
        whole = _shape(prediction, 0)
        prediction, output = prediction.next_functions[0]
    if prediction is None or len(whole) != 2 or whole[0] != whole[1] or whole[0] < 2:
        return 0
    return whole[0] if _shape(prediction, output) in ((whole[0], 1), (whole[0],)) else 0


def not_log_probabilities(loss: torch.Tensor) -> str:
    """What nll_loss receives instead of log-probabilities: `probabilities` or `scores`; empty if all is well."""
    for node in near(loss):
        if node_kind(node) not in ("NllLoss", "NllLoss2D"):
            continue
        given = getattr(node, "_saved_self", None)
        if not isinstance(given, torch.Tensor) or given.ndim < 2 or not is_readable(given):
            continue
        some_NC = given.detach()[:MAX_ROWS].float().movedim(1, -1).flatten(0, -2)[:MAX_ROWS]
        if bool(some_NC.logsumexp(-1).abs().median() < LOG_TOLERANCE):
            continue
        sums_to_one = bool((some_NC >= 0).all()) and bool((some_NC.sum(-1) - 1.0).abs().median() < LOG_TOLERANCE)
        return "probabilities" if sums_to_one else "scores"
    return ""


def near(loss: torch.Tensor) -> Iterator[Any]:
    """The operations next to a loss; none of a large model behind it."""
    nodes: list[Any] = [loss.grad_fn]
    for node in nodes:
        if node is None or len(nodes) > MAX_LOSS_NODES:
            continue
        yield node
        nodes += [before for before, _ in node.next_functions]


def _behind_views(node: Any) -> Any:
    before = node.next_functions[0][0] if node.next_functions else None
    for _ in range(MAX_VIEWS):
        if before is None or node_kind(before) not in _VIEWS or not before.next_functions:
            break
        before = before.next_functions[0][0]
    return before


def node_kind(node: Any) -> str:
    """`LogSoftmax` for LogSoftmaxBackward0."""
    return type(node).__name__.partition("Backward")[0]


def _shape(node: Any, output: int) -> tuple[int, ...]:
    """The shape of an output of an operation; empty if torch does not show it."""
    metadata = getattr(node, "_input_metadata", ())
    if output >= len(metadata):
        return ()
    return tuple(int(size) for size in metadata[output].shape)

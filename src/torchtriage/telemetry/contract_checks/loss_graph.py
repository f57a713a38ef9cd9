"""The graph behind a loss: what it trains, mistakes in the operations next to it."""

from collections.abc import Iterator
from typing import Any

import torch

MAX_NODES = 50_000
MAX_LOSS_NODES = 64     # operations next to the loss; those of the model behind them are not judged
MAX_VIEWS = 6
# Operations that keep the values.
_VIEWS = (
    "View", "UnsafeView", "Reshape", "ToCopy", "Squeeze", "Unsqueeze", "Transpose", "T", "Permute", "Clone", "Alias",
    "Slice", "Select", "Index",
)
# Operations that take logits, and those whose results are probabilities. A log-softmax may be repeated without harm.
_OF_LOGITS = {"LogSoftmax": "Softmax", "Logsumexp": "Softmax", "BinaryCrossEntropyWithLogits": "Sigmoid"}
_DIFFERENCES = ("Sub", "SmoothL1Loss", "MseLoss", "HuberLoss", "L1Loss")


def leaves(loss: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """The tensors whose gradients the backward pass of this loss computes, each with its distance to the loss."""
    level: list[Any] = [loss.grad_fn]
    seen: set[Any] = set()
    distance = 0
    while level and len(seen) <= MAX_NODES:
        following: list[Any] = []
        for node in level:
            if node is None or node in seen:
                continue
            seen.add(node)
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, torch.Tensor):
                yield distance, leaf
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

"""What a model receives, compared with what it is to predict.

Legend: N samples, F features, C classes, B sequences, T positions.
"""

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from torchtriage.recording.facts import BrokenContract
from torchtriage.telemetry.contract_checks.count import is_readable
from torchtriage.telemetry.contract_checks.loss_graph import node_kind, operations_behind
from torchtriage.telemetry.contract_checks.prediction_gain import loss_values, losses_near

PATIENCE = 3            # looks in a row
MAX_NODES = 5_000       # of a graph whose tensors are compared
MAX_ELEMENTS = 1 << 18
MIN_SAMPLES = 16        # fewer agree with their targets by chance
MIN_TOKENS = 3          # different ones among the targets
MIN_PADDING = 0.05      # of the targets
MIN_ATTENTION = 1e-6
ALLOWED = -1e4          # a mask that is added to scores hides what is below
NEARLY_LINEAR = 1e-6    # 1 - r^2 of a column that is the target but for its scale
LOOKS_AT_BATCH = 10
LATE_INTERVAL = 32      # updates from one look at the batch to the next, as long as it is always the same
MAX_BATCH = 256         # samples: a larger one is taken for all data
MAX_LOSSES = 4          # of one backward pass
# What is counted, with its rule.
KINDS = {"columns": "TT448", "same": "TT448", "previous": "TT448", "later": "TT448", "padding": "TT453"}
# The tensor that an operation receives, and the place of the edge that it would come by if it had a gradient.
_RECEIVED = {"Addmm": ("_saved_mat1", 1), "Mm": ("_saved_self", 0), "Convolution": ("_saved_input", 0)}


@dataclass(frozen=True, slots=True)
class _Tokens:
    indices: torch.Tensor
    num_rows: int
    padding: int        # negative: none


class ModelInputs:
    """Looks at the operations of a backward pass for inputs that they keep."""

    def __init__(self) -> None:
        self._streaks: dict[str, int] = {}
        self._broken: dict[str, BrokenContract] = {}
        self._batch: list[torch.Tensor] | None = None       # of the first look
        self._num_same = 0
        self._is_made_again = True
        self._is_read = True        # until a tensor is found that is recomputed when it is read
        self._has_looked = False

    @property
    def broken(self) -> Iterable[BrokenContract]:
        return self._broken.values()

    def is_due(self, num_updates: int) -> bool:
        """Whether the batch is looked at although the graph is not."""
        return self._num_same > 0 and num_updates % LATE_INTERVAL == 0

    def look(self, loss: torch.Tensor, operations: Sequence[Any], step: int) -> None:
        if len(operations) > MAX_NODES or not self.may_read():
            return
        self._look_at_batch(operations, step)
        losses = list(losses_near(loss))
        found: dict[str, dict[str, Any]] = {}
        for node in losses[::max(1, len(losses) // MAX_LOSSES)][:MAX_LOSSES]:      # of a decoder: some of its places
            values = loss_values(node)
            if values is None or values[2].numel() > MAX_ELEMENTS:
                continue
            kind, predictions, target = values
            behind = [operation for _, operation in operations_behind(node)]
            found |= _telling_columns(behind, kind, target)
            if kind == "NllLoss":
                found |= _seen_tokens(behind, predictions, target, int(node._saved_ignore_index))
        for kind in KINDS:
            self._count(kind, found.get(kind), step)

    def may_read(self) -> bool:
        """Activation checkpointing computes a tensor again when it is read."""
        if not self._has_looked:
            self._has_looked = True
            self._is_read = not any(type(one).__name__ == "_CheckpointFrame" for one in gc.get_objects())
        return self._is_read

    def _count(self, kind: str, facts: dict[str, Any] | None, step: int) -> None:
        self._streaks[kind] = self._streaks.get(kind, 0) + 1 if facts is not None else 0
        if facts is not None and self._streaks[kind] >= PATIENCE:
            code = KINDS[kind]
            self._broken.setdefault(code, BrokenContract(
                code=code, step=step, count=self._streaks[kind], names=(kind,), **facts,
            ))

    # TT449: the batches differ

    def _look_at_batch(self, operations: Sequence[Any], step: int) -> None:
        if self._num_same < 0:
            return
        tokens = [one.indices for one in _tokens(operations) if one.indices.ndim == 2]
        batch = [x for x in (*received(operations), *tokens) if 1 < len(x) <= MAX_BATCH]
        batch = [x for x in batch if not bool((x == x[:1]).all())]      # positions, the same for each sample
        if self._batch is None:
            self._batch, self._num_same = batch, 1 if batch else -1
            return
        is_same = len(batch) == len(self._batch) and all(map(torch.equal, batch, self._batch))
        # The first batch is held, so nothing else has its place: an equal one elsewhere was made again.
        self._is_made_again = self._is_made_again and all(
            x.data_ptr() != first.data_ptr() for x, first in zip(batch, self._batch, strict=False)
        )
        self._num_same = self._num_same + 1 if is_same else -1
        if not is_same:
            self._batch = []
        elif self._num_same >= LOOKS_AT_BATCH:
            sizes = _sizes_of_loaders()
            if len(batch[0]) not in sizes and (sizes or self._is_made_again):
                self._broken["TT449"] = BrokenContract(
                    code="TT449", step=step, count=self._num_same, total=len(batch[0]),
                )
            self._batch, self._num_same = [], -1


def _sizes_of_loaders() -> list[int]:
    """The number of samples of each DataLoader."""
    sizes = []
    for one in gc.get_objects():
        if issubclass(type(one), DataLoader):
            with contextlib.suppress(TypeError):        # of an iterable dataset
                sizes.append(len(one.dataset))
    return sizes


# TT448: the answer is among the inputs

def _telling_columns(operations: Sequence[Any], kind: str, target: torch.Tensor) -> dict[str, dict[str, Any]]:
    target_N = target.reshape(len(target), -1)
    if target_N.shape[1] != 1 or len(target) < MIN_SAMPLES:
        return {}
    find = _linear_columns if kind == "MseLoss" else _class_columns
    for x_NF in received(operations):
        if x_NF.ndim == 2 and len(x_NF) == len(target) and x_NF.is_floating_point():
            num = find(x_NF.double(), target_N[:, 0])
            return {"columns": {"value": float(num), "total": x_NF.shape[1]}} if num else {}
    return {}


def _seen_tokens(
    operations: Sequence[Any], predictions: torch.Tensor, target: torch.Tensor, ignored: int,
) -> dict[str, dict[str, Any]]:
    """Targets that the model has received, and padding among them."""
    target_N = target.reshape(-1)
    is_valid_N = target_N != ignored
    valid_N = target_N[is_valid_N]
    if not len(valid_N):
        return {}
    tokens = list(_tokens(operations))
    found: dict[str, dict[str, Any]] = {}
    for one in tokens:
        if 0 <= one.padding != ignored and one.num_rows == predictions.shape[1]:
            share = float((valid_N == one.padding).double().mean())
            if share >= MIN_PADDING:
                found["padding"] = {"value": float(one.padding), "share": share}
    if len(valid_N.unique()) < MIN_TOKENS:
        return found
    sources = [one for one in tokens if one.indices.numel() == len(target_N)]
    relation = next(filter(None, (_relation(one.indices, target_N, is_valid_N) for one in sources)), "")
    is_alone = len([one for one in tokens if one.indices.ndim == 2 and len(one.indices) > 1]) == 1
    if relation in ("same", "previous"):
        found[relation] = {"is_deliberate": True}
    elif relation == "next" and is_alone:
        later = _later_attention(operations, sources[0].indices.shape[1])
        if later > MIN_ATTENTION:
            found["later"] = {"value": later}
    return found


def received(operations: Sequence[Any]) -> Iterator[torch.Tensor]:
    """What the first layers of the model receive: no gradient goes further back."""
    for node in operations:
        name, place = _RECEIVED.get(node_kind(node), ("", 0))
        if name and len(node.next_functions) > place and node.next_functions[place][0] is None:
            x = getattr(node, name, None)
            if isinstance(x, torch.Tensor) and is_readable(x) and 0 < x.numel() <= MAX_ELEMENTS:
                yield x.detach()


def _tokens(operations: Sequence[Any]) -> Iterator[_Tokens]:
    for node in operations:
        if node_kind(node) == "Embedding":
            indices = getattr(node, "_saved_indices", None)
            if isinstance(indices, torch.Tensor) and is_readable(indices) and 0 < indices.numel() <= MAX_ELEMENTS:
                num_rows = int(getattr(node, "_saved_weight_sym_argsize_0", 0))
                padding = int(getattr(node, "_saved_padding_idx", -1))
                yield _Tokens(indices.detach(), num_rows, padding if padding < num_rows else -1)


def _class_columns(x_NF: torch.Tensor, target_N: torch.Tensor) -> int:
    """Columns that have one value per class, if the values of these columns tell all classes apart."""
    classes, index_N = target_N.unique(return_inverse=True)
    num_classes, num_features = len(classes), x_NF.shape[1]
    if num_classes < 2 or len(target_N) < 2 * num_classes:
        return 0
    places_NF = index_N[:, None].expand_as(x_NF)
    empty_CF = x_NF.new_zeros(num_classes, num_features)
    low_CF = empty_CF.scatter_reduce(0, places_NF, x_NF, "amin", include_self=False)
    high_CF = empty_CF.scatter_reduce(0, places_NF, x_NF, "amax", include_self=False)
    tells_F = (low_CF == high_CF).all(0) & (low_CF.amax(0) > low_CF.amin(0))
    num = int(tells_F.sum())
    # Data without noise have one value per class in every column.
    if not num or 2 * num > num_features or len(low_CF[:, tells_F].unique(dim=0)) < num_classes:
        return 0
    return num


def _linear_columns(x_NF: torch.Tensor, target_N: torch.Tensor) -> int:
    """Columns that are the target, but for scale and offset."""
    y_N = target_N.double() - target_N.double().mean()
    x_NF = x_NF - x_NF.mean(0)
    product_F = x_NF.square().sum(0) * y_N.square().sum()
    tells_F = (product_F > 0) & ((x_NF * y_N[:, None]).sum(0).square() >= (1 - NEARLY_LINEAR) * product_F)
    num = int(tells_F.sum())
    return num if 2 * num <= x_NF.shape[1] else 0


def _relation(indices: torch.Tensor, target_N: torch.Tensor, is_valid_N: torch.Tensor) -> str:
    """Whether the targets are the tokens at the same place, the next one or the previous one."""
    if bool((indices.reshape(-1) == target_N)[is_valid_N].all()):
        return "same"
    if indices.ndim != 2:
        return ""
    target, is_valid = target_N.reshape(indices.shape), is_valid_N.reshape(indices.shape)
    for dim in (1, 0):
        rest = indices.shape[dim] - 1
        if rest < MIN_TOKENS:
            continue
        for name, of_target, of_input in (("next", 0, 1), ("previous", 1, 0)):
            is_equal = target.narrow(dim, of_target, rest) == indices.narrow(dim, of_input, rest)
            if bool(is_equal[is_valid.narrow(dim, of_target, rest)].all()):
                return name if dim == 1 or name == "previous" else ""
    return ""


def _later_attention(operations: Sequence[Any], length: int) -> float:
    """The largest weight that an attention over positions gives to a later one."""
    most = 0.0
    for node in operations:
        find = _ATTENTION.get(node_kind(node)[:len("ScaledDotProduct")], None)
        if find is not None:
            most = max(most, find(node, length))
    return most


def _of_softmax(node: Any, length: int) -> float:
    weights = getattr(node, "_saved_result", None)
    if not isinstance(weights, torch.Tensor) or weights.ndim < 3 or tuple(weights.shape[-2:]) != (length, length):
        return 0.0
    dim = int(getattr(node, "_saved_dim", -1))
    if not is_readable(weights) or dim not in (weights.ndim - 1, -1, (1 << 64) - 1):
        return 0.0
    return float(weights.detach()[:1].float().triu(1).amax())


def _of_fused(node: Any, length: int) -> float:
    query, key = getattr(node, "_saved_query", None), getattr(node, "_saved_key", None)
    if query is None or key is None or query.shape[-2] != length or key.shape[-2] != length:
        return 0.0
    if getattr(node, "_saved_is_causal", True):
        return 0.0
    mask = getattr(node, "_saved_attn_mask", None)
    if mask is None:
        return 1.0
    if not is_readable(mask) or tuple(mask.shape[-2:]) != (length, length):
        return 0.0
    is_allowed = mask if mask.dtype is torch.bool else mask > ALLOWED
    return float(is_allowed.detach().triu(1).any())


_ATTENTION: Mapping[str, Callable[[Any, int], float]] = {
    "Softmax": _of_softmax, "SafeSoftmax": _of_softmax, "ScaledDotProduct": _of_fused,
}

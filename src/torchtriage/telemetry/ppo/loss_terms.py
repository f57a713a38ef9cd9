"""The terms of a PPO loss, read from the graph behind it before the backward pass.

The graph holds what the loss was computed from: the probability ratios, the factors that multiply them, the errors of
the critic, the probabilities of the entropy. Nothing of the program is wrapped, and nothing is computed twice.
N samples, C choices.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

MAX_NODES = 128         # of the arithmetic between the loss and the networks
MAX_SAMPLES = 1 << 20   # larger minibatches are not copied
MAX_PARAMETER = 4096    # elements of the parameter that shows whether the policy has changed
# One input and one output, and the derivative is 1 but for the shape or a positive factor.
_PASSING = frozenset({
    "MeanBackward0", "MeanBackward1", "SumBackward0", "SumBackward1", "ViewBackward0", "SqueezeBackward0",
    "SqueezeBackward1", "SqueezeBackward2", "UnsqueezeBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0",
    "ExpandBackward0", "SelectBackward0", "IndexBackward0", "SliceBackward0", "ToCopyBackward0", "CloneBackward0",
    "AliasBackward0", "TransposeBackward0", "PermuteBackward0", "MaskedFillBackward0",
})
_PAIRS = {"MinimumBackward0": "minimum", "MaximumBackward0": "maximum"}
_SQUARED = frozenset({"PowBackward0", "MseLossBackward0", "SmoothL1LossBackward0", "HuberLossBackward0"})


@dataclass(slots=True, kw_only=True, eq=False)
class Surrogate:
    """The policy loss: the ratios and the factor that the loss multiplies them by."""

    ratio_N: Any
    push_N: Any                     # the factor; positive where the step lowers the probability of the action
    num_products: int = 0           # of a ratio with a factor; more than there are ratios if they were broadcast
    coefficient: float = 1.0        # of the mean over samples, in the loss
    is_inverted: bool = False       # the ratio is old over new
    lacks_exp: bool = False         # the difference of the log-probabilities was used as the ratio
    low: float | None = None        # the clipping range, where the ratio is clamped
    high: float | None = None
    is_optimistic: bool = False     # the larger of the two objectives is taken
    # What should be a constant and has a gradient: "old log-probabilities", "advantages".
    trained_constants: tuple[str, ...] = ()
    parameter: "torch.Tensor | None" = None     # a small one that the new log-probabilities depend on

    @property
    def clip_radius(self) -> float | None:
        """Epsilon of a range from 1 - epsilon to 1 + epsilon; None for any other range."""
        if self.low is None or self.high is None or not math.isclose(1.0 - self.low, self.high - 1.0, rel_tol=1e-6):
            return None
        return self.high - 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class CriticError:
    """The critic's loss: its errors, and its values if they could be read."""

    error_N: Any                    # value minus target; its shape shows a broadcast
    value_N: Any = None
    sign: float = 1.0               # of its coefficient in the loss
    is_target_trained: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Entropy:
    """The entropy bonus. Its coefficient is negative in a loss that rewards entropy."""

    sign: float
    coefficient: float = 0.0        # of the mean over samples, in the loss
    nats: Any = None                # the mean over samples, of a categorical policy
    num_choices: int = 0

    @property
    def share(self) -> float | None:
        """Of the entropy of a uniform policy; None if it has no such bound or could not be read."""
        return float(self.nats) / math.log(self.num_choices) if self.num_choices > 1 and self.nats is not None else None


@dataclass(slots=True, kw_only=True, eq=False)
class LossTerms:
    surrogate: Surrogate | None = None
    errors: list[CriticError] = field(default_factory=list)
    entropies: list[Entropy] = field(default_factory=list)
    num_others: int = 0             # terms of another form


def read_terms(loss: torch.Tensor) -> LossTerms:
    """The terms of PPO that a loss is the sum of; terms of another form are left out."""
    terms = LossTerms()
    for node, factor, mask in _summands(loss.grad_fn):
        name = node.name()
        if name in _PAIRS:
            _read_pair(node, factor, mask, terms)
        elif name in _SQUARED:
            _add_error(node, factor, mask, terms)
        elif name == "LogBackward0":
            terms.entropies.append(Entropy(sign=math.copysign(1.0, factor), coefficient=abs(factor)))
        elif name != "MulBackward0" or not (
                _add_product(node, factor, mask, terms) or _add_entropy(node, factor, terms)):
            terms.num_others += 1
    return terms


def _summands(root: Any, mask: Any = None) -> Iterator[tuple[Any, float, Any]]:
    """The nodes that the loss is a weighted sum of, with the sign and size of their coefficients, and a weight per
    element where there is one: 0 for padding.
    """
    nodes: list[tuple[Any, float, Any]] = [(root, 1.0, mask)]
    seen: set[Any] = set()
    for node, factor, mask in nodes:
        if node is None or len(nodes) > MAX_NODES or node in seen:
            continue
        seen.add(node)
        name = node.name()
        edges = [before for before, _ in node.next_functions]
        if name == "IndexBackward0":
            nodes.append((edges[0], factor, _selection(node)))
        elif name in _PASSING:
            nodes.append((edges[0], factor * (_num_added(node) if name == "SumBackward0" else 1), mask))
        elif name == "NegBackward0":
            nodes.append((edges[0], -factor, mask))
        elif name in ("AddBackward0", "StackBackward0"):
            nodes += [(edge, factor, mask) for edge in edges]
        elif name == "SubBackward0":
            nodes += [(edges[0], factor, mask), (edges[1], -factor, mask)]
        elif name == "RsubBackward1":
            nodes.append((edges[0], -factor, mask))
        elif name in ("MulBackward0", "DivBackward0"):
            constant = _constant_factor(node, edges)
            weights = _weights(node, edges) if constant is None else None
            if constant is not None:
                by = constant if name == "MulBackward0" else 1.0 / constant if constant else math.nan
                nodes.append((next(edge for edge in edges if edge is not None), factor * by, mask))
            elif weights is not None:
                inner = weights if name == "MulBackward0" else mask
                nodes.append((next(edge for edge in edges if edge is not None), factor, inner))
            else:
                yield node, factor, mask
        else:
            yield node, factor, mask


def _num_added(node: Any) -> int:
    """How many elements a sum over all of them has: it is that many times their mean."""
    return math.prod(getattr(node, "_saved_self_sym_sizes", ()))


def _weights(node: Any, edges: list[Any]) -> Any:
    """The tensor of non-negative numbers that a term is multiplied with or divided by, such as a mask of padding."""
    if len(edges) != 2 or edges.count(None) != 1 or (node.name() == "DivBackward0" and edges[0] is None):
        return None
    edge = edges[0] or edges[1]
    other = _saved(node, "self" if edges[0] is None else "other")
    if other is None or other.numel() > MAX_SAMPLES or _ratio_below(edge)[0] is not None:
        return None
    return other if bool((other >= 0).all()) else None


def _selection(node: Any) -> Any:
    """1 for the elements that indexing selects."""
    sizes, indices = getattr(node, "_saved_self_sym_sizes", None), getattr(node, "_saved_indices", None)
    if sizes is None or indices is None or math.prod(sizes) > MAX_SAMPLES or any(one is None for one in indices):
        return None
    mask = torch.zeros(tuple(sizes), device=indices[0].device)
    mask[tuple(indices)] = 1.0
    return mask


def _chosen(tensor: Any, mask: Any) -> Any:
    """The elements of a tensor whose weight is not 0; all of them where the weights are of another shape."""
    if mask is None or tensor is None:
        return tensor
    try:
        return tensor[mask.expand(tensor.shape) > 0] if mask.numel() != tensor.numel() else (
            tensor.reshape(-1)[mask.reshape(-1) > 0])
    except RuntimeError:
        return tensor


def _constant_factor(node: Any, edges: list[Any]) -> float | None:
    """The number that a product or quotient has as its other operand; None if it is a tensor."""
    if len(edges) != 2 or edges.count(None) != 1:
        return None
    if node.name() == "DivBackward0" and edges[0] is None:
        return None
    other = _saved(node, "self" if edges[0] is None else "other")
    if other is None or other.dim() or not other.is_cpu:
        return None
    return float(other)


# The policy

def _read_pair(node: Any, factor: float, mask: Any, terms: LossTerms) -> None:
    """The minimum or maximum of two terms: of the clipped surrogate, or of clipped value errors."""
    branches = [before for before, _ in node.next_functions]
    objectives = [one for branch in branches for one, _, _ in _summands(branch)]
    squared = [one for one in objectives if one.name() in _SQUARED]
    if squared:
        free = [one for one in squared if not _is_clipped_value(one)]
        _add_error((free or squared)[0], factor, mask, terms)
        return
    found = _surrogates(branches, factor, mask) or _surrogates(branches, factor, mask, lacks_exp=True)
    plain = [one for one in found if one.low is None and one.high is None]
    clipped = [one for one in found if one.low is not None or one.high is not None]
    if not found or terms.surrogate is not None:
        return
    surrogate = (plain or clipped)[0]
    if clipped:
        surrogate.low, surrogate.high = clipped[0].low, clipped[0].high
    # A loss is minus the smaller objective, or the larger of the negated ones.
    surrogate.is_optimistic = bool(plain and clipped) and (factor > 0) == (node.name() == "MinimumBackward0")
    terms.surrogate = surrogate


def _surrogates(branches: list[Any], factor: float, mask: Any, lacks_exp: bool = False) -> list[Surrogate]:
    found = []
    for branch in branches:
        for one, inner, inner_mask in _summands(branch, mask):
            surrogate = _product(one, factor * inner, inner_mask, lacks_exp)
            if surrogate is not None:
                found.append(surrogate)
    if lacks_exp and not any(_is_around_one(one) for one in found):
        return []
    return found


def _is_around_one(surrogate: Surrogate) -> bool:
    """Whether it is clamped like a ratio; a difference of log-probabilities is around 0."""
    return surrogate.low is not None and surrogate.high is not None and 0.0 < surrogate.low < 1.0 < surrogate.high


def _add_product(node: Any, factor: float, mask: Any, terms: LossTerms) -> bool:
    surrogate = _product(node, factor, mask)
    if surrogate is not None and terms.surrogate is None:
        terms.surrogate = surrogate
    return surrogate is not None


def _product(node: Any, factor: float, mask: Any = None, lacks_exp: bool = False) -> Surrogate | None:
    """A product of ratios with a factor per sample; with `lacks_exp`, of differences that were not exponentiated."""
    if node.name() != "MulBackward0":
        return None
    edges = [before for before, _ in node.next_functions]
    for place, edge in enumerate(edges):
        ratio, clamp, sign = _ratio_below(edge, lacks_exp)
        if ratio is None:
            continue
        log_ratio = ratio if lacks_exp else ratio.next_functions[0][0]
        difference_N = _saved(clamp, "self") if lacks_exp and clamp is not None else None
        ratio_N = _copy(_saved(ratio, "result")) if not lacks_exp else (
            None if difference_N is None else difference_N.exp())
        factor_N = _copy(_saved(node, "other" if place == 0 else "self"))
        if ratio_N is None or factor_N is None:
            return None
        num_products = max((math.prod(one.shape) for one in getattr(node, "_input_metadata", ())), default=0)
        if factor_N.numel() != ratio_N.numel() and factor_N.dim() == ratio_N.dim():
            factor_N = factor_N.expand(torch.broadcast_shapes(factor_N.shape, ratio_N.shape))
        ratio_N, factor_N = _chosen(ratio_N, mask), _chosen(factor_N, mask)
        new, is_inverted, is_old_trained = _sides(log_ratio)
        constants = [name for name, is_trained in (
            ("old log-probabilities", is_old_trained), ("advantages", edges[1 - place] is not None)) if is_trained]
        sign *= math.copysign(1.0, factor) * (-1.0 if is_inverted else 1.0)
        return Surrogate(
            ratio_N=ratio_N, push_N=factor_N * sign, num_products=num_products, coefficient=abs(factor),
            is_inverted=is_inverted, lacks_exp=lacks_exp,
            trained_constants=tuple(constants), low=_bound(clamp, "min"), high=_bound(clamp, "max"),
            parameter=_parameter_below(new),
        )
    return None


def _ratio_below(node: Any, lacks_exp: bool = False) -> tuple[Any, Any, float]:
    """(the exponential of a difference, the clamp around it, its sign), if only shapes and signs change in between."""
    clamp, sign = None, 1.0
    while node is not None:
        name = node.name()
        if name == "ClampBackward1":
            clamp = node
        elif lacks_exp and name == "SubBackward0":
            return node, clamp, sign
        elif name == "ExpBackward0":
            before = _log_ratio(node.next_functions[0][0])
            is_difference = before is not None and before.name() == "SubBackward0"
            return (node, clamp, sign) if is_difference else (None, None, sign)
        elif name == "NegBackward0":
            sign = -sign
        elif name not in _PASSING:
            break
        node = node.next_functions[0][0]
    return None, None, sign


def _sides(log_ratio: Any) -> tuple[Any, bool, bool]:
    """(the new log-probabilities, whether they are subtracted, whether both sides have a gradient)."""
    difference = _log_ratio(log_ratio)
    first, second = (before for before, _ in difference.next_functions)
    if first is None:
        return second, True, False
    return first, False, second is not None


def _log_ratio(node: Any) -> Any:
    """The difference of log-probabilities below shapes, a clamp and a mask, which makes ratios of 1 of padding."""
    node = _through_shapes(node)
    while node is not None and node.name() == "MulBackward0":
        edges = [before for before, _ in node.next_functions]
        other = _saved(node, "self" if edges[0] is None else "other") if edges.count(None) == 1 else None
        if other is None or not other.dim() or other.numel() > MAX_SAMPLES or not bool((other >= 0).all()):
            return node
        node = _through_shapes(edges[0] or edges[1])
    return node


def _through_shapes(node: Any) -> Any:
    while node is not None and (node.name() in _PASSING or node.name() == "ClampBackward1"):
        node = node.next_functions[0][0]
    return node


def _bound(clamp: Any, which: str) -> float | None:
    value = getattr(clamp, f"_saved_{which}", None)
    return float(value) if isinstance(value, int | float) else None


def _parameter_below(node: Any) -> torch.Tensor | None:
    """The nearest small parameter, such as the bias of the last layer."""
    nodes: list[Any] = [node]
    seen: set[Any] = set()
    for one in nodes:
        if one is None or one in seen or len(seen) > MAX_NODES:
            continue
        seen.add(one)
        leaf = getattr(one, "variable", None)
        if isinstance(leaf, torch.Tensor) and leaf.numel() <= MAX_PARAMETER:
            return leaf
        nodes += [before for before, _ in one.next_functions]
    return None


# The critic

def _add_error(node: Any, factor: float, mask: Any, terms: LossTerms) -> None:
    edges = [before for before, _ in node.next_functions]
    sign = math.copysign(1.0, factor)
    if node.name() != "PowBackward0":
        first_N, second_N = _copy(_saved(node, "self")), _copy(_saved(node, "target"))
        if first_N is None or second_N is None:
            return
        value_N, target_N = (second_N, first_N) if edges[0] is None else (first_N, second_N)
        is_trained = len(edges) > 1 and None not in edges[:2]
        terms.errors.append(CriticError(
            error_N=_chosen(value_N - target_N, mask), value_N=_chosen(value_N, mask), sign=sign,
            is_target_trained=is_trained))
        return
    difference = _through_shapes(edges[0])
    if getattr(node, "_saved_exponent", None) != 2 or difference is None or difference.name() != "SubBackward0":
        return
    error_N = _copy(_saved(node, "self"))
    first, second = (before for before, _ in difference.next_functions)
    if error_N is None:
        return
    value = second if first is None else first
    terms.errors.append(CriticError(
        error_N=_chosen(-error_N if first is None else error_N, mask), value_N=_chosen(_linear_output(value), mask),
        sign=sign,
        is_target_trained=first is not None and second is not None,
    ))


def _is_clipped_value(node: Any) -> bool:
    """Whether a squared error is that of the old value plus a clamped change."""
    nodes = [node]
    for one in nodes[:]:
        for _ in range(4):
            if one is None:
                break
            if one.name() in ("ClampBackward0", "ClampBackward1"):      # between tensors, and between numbers
                return True
            following = [before for before, _ in one.next_functions if before is not None]
            one = following[0] if following else None
    return False


def _linear_output(node: Any) -> Any:
    """The output of a linear layer with one unit, computed again from what it saved; None for any other node."""
    node = _through_shapes(node)
    if node is None or node.name() != "AddmmBackward0":
        return None
    bias, _, weight = (before for before, _ in node.next_functions)
    if weight is None or bias is None or weight.name() != "TBackward0":
        return None
    leaf, offset = getattr(weight.next_functions[0][0], "variable", None), getattr(bias, "variable", None)
    inputs = _saved(node, "mat1")
    if inputs is None or leaf is None or offset is None or leaf.shape[0] != 1 or inputs.numel() > MAX_SAMPLES:
        return None
    with torch.no_grad():
        return torch.addmm(offset, inputs, leaf.t()).reshape(-1)


# The entropy

def _add_entropy(node: Any, factor: float, terms: LossTerms) -> bool:
    """Sum of p times log p; its coefficient in the loss is the opposite of that of the entropy."""
    edges = [before for before, _ in node.next_functions]
    if None in edges or [_is_softmax(edge) for edge in edges].count(True) != 1:
        return False
    first_NC, second_NC = _saved(node, "self"), _saved(node, "other")
    if first_NC is None or second_NC is None or first_NC.dim() < 2 or first_NC.numel() > MAX_SAMPLES:
        return False
    with torch.no_grad():
        nats = -(first_NC * second_NC).sum(-1).mean()
    terms.entropies.append(Entropy(
        sign=-math.copysign(1.0, factor), coefficient=abs(factor), nats=nats, num_choices=int(first_NC.shape[-1])))
    return True


def _is_softmax(node: Any) -> bool:
    """Whether a node is a softmax, or the exponential of a log-softmax."""
    node = _through_shapes(node)
    if node is None:
        return False
    if node.name() == "ExpBackward0":
        before = _through_shapes(node.next_functions[0][0])
        return before is not None and before.name() in ("LogSoftmaxBackward0", "SubBackward0")
    if node.name() == "DivBackward0":       # Categorical(probs=...) divides by their sum
        node = _through_shapes(node.next_functions[0][0])
    return node is not None and bool(node.name() == "SoftmaxBackward0")


def _saved(node: Any, name: str) -> Any:
    """A tensor that a node keeps for its backward pass; None if a hook of the program would see that it is read."""
    raw = getattr(node, f"_raw_saved_{name}", None)
    if raw is None or getattr(raw, "unpack_hook", None) is not None:
        return None
    try:
        tensor = getattr(node, f"_saved_{name}")
    except RuntimeError:        # the graph has been freed
        return None
    return tensor.detach() if isinstance(tensor, torch.Tensor) else None


def _copy(tensor: Any) -> Any:
    """A copy, as the program may write to the memory before it is judged."""
    if tensor is None or tensor.numel() > MAX_SAMPLES:
        return None
    return tensor.clone()

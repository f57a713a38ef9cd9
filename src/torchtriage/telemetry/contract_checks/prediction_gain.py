"""Whether predictions are better than a guess by the targets alone, from what the loss keeps for its backward pass.

Legend: N targets, C classes, D values of one target.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchtriage.telemetry.contract_checks.count import is_readable
from torchtriage.telemetry.contract_checks.loss_graph import TARGET_LOSSES, is_of_layer, near, node_kind

FEW_UPDATES = 512       # a look at every INTERVAL-th of them, later at every LATE_INTERVAL-th
INTERVAL, LATE_INTERVAL = 4, 32
FIRST_UPDATE = 200      # updates from which a verdict is given; it is taken back if the predictions become better
WINDOW = 25             # looks that a verdict is made of, the last ones
MIN_GAIN = 0.01         # of the loss of the guess
NUM_ERRORS = 2.0        # standard errors of the mean gain
MIN_PER_CLASS = 10      # targets, for the frequency of a class to be known
MAX_ELEMENTS = 1 << 18  # of the predictions of one look
MIN_LOSS = 1e-12        # of the guess: below it all targets are the same
# Times the loss of equal probabilities: predictions are sure and wrong at the first look. Embeddings that are also the
# last layer reach 10 with the default initialisation.
START_FACTOR = 20.0
LARGE_PREDICTION = 100.0    # of squared error, root mean square: targets may be small, so their size is not enough
NONE = 0                # reduction="none"
MIN_TARGETS = 8         # of a batch that should have more than one class
MIN_SINGLE = 0.9        # of the looks
MAX_LOSSES = 4          # of one backward pass


@dataclass(frozen=True, slots=True)
class _Look:
    guess: float        # the loss of a guess by all targets so far
    model: float        # the loss of the predictions


@dataclass(frozen=True, slots=True)
class NoGain:
    """Mean losses per target of the last looks."""

    model: float
    guess: float
    was_better: bool    # the predictions have been better before
    num_looks: int
    is_distance: bool   # by squared error: a target that another network computes moves with the training


@dataclass(frozen=True, slots=True)
class OneClass:
    """Each look had targets of a single class."""

    num_looks: int
    num_seen: int       # classes in all looks
    num_targets: int    # of one look, on average
    first: int          # the class that was seen first


class PredictionGain:
    """Compares the losses of a backward pass with those of the best constant predictions."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._is_different = False      # the losses of a look are not those of the first one

    @property
    def first(self) -> tuple[float, float] | None:
        """The loss of the first look, and that of equal probabilities, where the first is further above the second."""
        first = [part.first for part in self._parts if part.first is not None]
        return max(first, key=lambda pair: pair[0] / pair[1], default=None)

    @property
    def is_distance(self) -> bool:
        return all(part.is_distance for part in self._parts)

    def is_due(self, num_updates: int) -> bool:
        return num_updates % (INTERVAL if num_updates < FEW_UPDATES else LATE_INTERVAL) == 0

    def look(self, loss: torch.Tensor) -> None:
        found = list(losses_near(loss))
        if not self._parts and not self._is_different:
            self._parts = [_Part() for _ in found[:MAX_LOSSES]]
        self._is_different = self._is_different or not found or len(found) != len(self._parts)
        if not self._is_different:
            looks = [part.look(node) for part, node in zip(self._parts, found, strict=True)]
            self._is_different = not all(looks)

    @property
    def one_class(self) -> "OneClass | None":
        """The classes of the targets, if no batch has targets of two of them."""
        return next((found for part in self._parts if (found := part.one_class) is not None), None)

    def verdict(self, num_updates: int) -> NoGain | None:
        """The losses of the last looks, if none of the predictions were better than the guess in them."""
        verdicts = [part.verdict(num_updates) for part in self._parts]      # each call also notes what was best
        return verdicts[0] if verdicts and all(verdicts) and not self._is_different else None


class _Part:
    """One cross-entropy, binary cross-entropy or squared error."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque(maxlen=WINDOW)
        self._targets: _Classes | _Means | None = None
        self._best = -math.inf
        self.first: tuple[float, float] | None = None

    @property
    def is_distance(self) -> bool:
        return isinstance(self._targets, _Means) and self._targets.kind == "MseLoss"

    @property
    def one_class(self) -> "OneClass | None":
        return self._targets.one_class if isinstance(self._targets, _Classes) else None

    def look(self, node: Any) -> bool:
        """False for a loss that cannot be judged."""
        values = loss_values(node)
        if values is None:
            return False
        kind, prediction, target = values
        if self._targets is None:
            is_class = kind == "NllLoss"
            self._targets = (
                _Classes(prediction.shape[1], is_of_layer(node)) if is_class else _Means(kind, target.shape[1:])
            )
        if self._targets.kind != kind or not self._targets.fits(prediction, target):
            return False
        pair = self._targets.losses(prediction, target)
        if pair is not None and all(map(math.isfinite, pair)):
            model, guess = pair
            if self.first is None:
                self.first = model, self._targets.equal(prediction, target)
            if guess > MIN_LOSS:
                self._looks.append(_Look(guess, model))
        return True

    def verdict(self, num_updates: int) -> NoGain | None:
        looks = list(self._looks)
        if len(looks) < WINDOW or self._targets is None or not self._targets.is_known:
            return None
        gains = [look.guess - look.model for look in looks]
        guess = sum(look.guess for look in looks) / len(looks)
        mean = sum(gains) / len(gains)
        error = math.sqrt(sum((gain - mean) ** 2 for gain in gains) / (len(gains) * (len(gains) - 1)))
        self._best = max(self._best, (mean - NUM_ERRORS * error) / guess)
        if num_updates < FIRST_UPDATE or mean + NUM_ERRORS * error > MIN_GAIN * guess:
            return None
        is_distance = self._targets.kind == "MseLoss"
        return NoGain(guess - mean, guess, self._best > MIN_GAIN, len(looks), is_distance)


class _Classes:
    """Class indices; the guess is their frequencies."""

    kind = "NllLoss"

    def __init__(self, num_classes: int, is_of_layer: bool) -> None:
        self._is_of_layer = is_of_layer
        self._num_looks = self._num_single = 0
        self._counts_C = torch.zeros(num_classes, dtype=torch.float64)

    def fits(self, prediction: torch.Tensor, target: torch.Tensor) -> bool:
        return bool(prediction.shape[1] == len(self._counts_C))

    def equal(self, prediction: torch.Tensor, target: torch.Tensor) -> float:
        """The loss of equal probabilities."""
        return math.log(max(len(self._counts_C), 2))

    @property
    def is_known(self) -> bool:
        num_seen = int((self._counts_C > 0).sum())
        return num_seen > 1 and float(self._counts_C.sum()) >= MIN_PER_CLASS * num_seen

    @property
    def one_class(self) -> OneClass | None:
        """Only for the outputs of a layer: a contrastive loss may have the right logit in the first place."""
        if not self._is_of_layer or self._num_looks < WINDOW or self._num_single < MIN_SINGLE * self._num_looks:
            return None
        num_targets = int(self._counts_C.sum()) // self._num_looks
        return OneClass(
            self._num_looks, int((self._counts_C > 0).sum()), num_targets, int(self._counts_C.argmax()),
        )

    def losses(self, log_probs: torch.Tensor, target_N: torch.Tensor) -> tuple[float, float] | None:
        chosen = log_probs.movedim(1, -1).reshape(-1, log_probs.shape[1])
        target_N = target_N.reshape(-1)
        is_valid = (target_N >= 0) & (target_N < len(self._counts_C))     # without ignore_index
        chosen, target_N = chosen[is_valid], target_N[is_valid]
        if not len(target_N):
            return None
        counts_C = torch.bincount(target_N, minlength=len(self._counts_C))
        self._counts_C += counts_C
        self._num_looks += 1
        self._num_single += int(len(target_N) >= MIN_TARGETS and int((counts_C > 0).sum()) == 1)
        model = -float(chosen.gather(1, target_N[:, None]).double().mean())
        frequency_N = (self._counts_C / self._counts_C.sum())[target_N]
        return model, -float(frequency_N.log().mean())


class _Means:
    """Numbers; the guess is their mean, one for each place of a target."""

    is_known = True

    def __init__(self, kind: str, shape: torch.Size) -> None:
        self.kind, self._shape = kind, shape
        self._sum_D = torch.zeros(shape, dtype=torch.float64)
        self._num = 0

    def equal(self, prediction: torch.Tensor, target: torch.Tensor) -> float:
        """The loss of equal probabilities, or of predicting 0 where the predictions are large."""
        if self.kind != "MseLoss":
            return math.log(2.0)
        is_large = float(prediction.double().square().mean()) >= LARGE_PREDICTION ** 2
        square = float(target.double().square().mean())
        return square if is_large and square > 0.0 else math.inf

    def fits(self, prediction: torch.Tensor, target: torch.Tensor) -> bool:
        return bool(target.shape[1:] == self._shape and prediction.shape == target.shape)

    def losses(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[float, float] | None:
        prediction, target = prediction.double(), target.double()
        self._sum_D += target.sum(0)
        self._num += len(target)
        mean = (self._sum_D / self._num).expand_as(target)
        if self.kind == "MseLoss":
            return float((prediction - target).square().mean()), float((mean - target).square().mean())
        if self.kind == "BinaryCrossEntropyWithLogits":
            model = torch.nn.functional.binary_cross_entropy_with_logits(prediction, target)
        else:
            model = torch.nn.functional.binary_cross_entropy(prediction, target)
        return float(model), float(torch.nn.functional.binary_cross_entropy(mean.clamp(0.0, 1.0), target))


def losses_near(loss: torch.Tensor) -> Iterator[Any]:
    for node in near(loss):
        if node_kind(node) in TARGET_LOSSES:
            yield node


def loss_values(node: Any) -> tuple[str, torch.Tensor, torch.Tensor] | None:
    """The kind of a loss, its predictions and targets; None if its targets have weights or cannot be read."""
    kind = node_kind(node).removesuffix("2D")
    is_weighted = any(getattr(node, name, None) is not None for name in ("_saved_weight", "_saved_pos_weight"))
    if is_weighted or getattr(node, "_saved_reduction", NONE) == NONE:
        return None
    prediction, target = node._saved_self, node._saved_target
    is_small = isinstance(prediction, torch.Tensor) and 0 < prediction.numel() <= MAX_ELEMENTS
    if not is_small or not is_readable(prediction) or not is_readable(target) or target.requires_grad:
        return None
    if kind == "NllLoss":
        is_plain = prediction.ndim >= 2 and target.dtype is torch.int64
    else:
        is_plain = target.ndim >= 1 and prediction.shape == target.shape and target.is_floating_point()
    return (kind, prediction.detach(), target.detach()) if is_plain else None

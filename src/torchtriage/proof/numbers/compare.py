"""Whether the numbers of two runs differ by more than rounding does.

Rounding is measured: the program runs eager twice more with the result of each of its operations moved by one rounding
at random. How far that moves a tensor at a step is the noise of this tensor at this step.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torchtriage.proof.numbers.rows import RunNumbers, StepRow, TensorRow

# Multiples of the noise. Two estimates from four projections each differ by more than this in one of 10^4 cases.
NOISE_FACTOR = 10.0
OWN_ROUNDINGS = 2.0     # of the largest number of a tensor, beside the measured noise, which may be 0 by chance
LATER_LOSSES = 4        # the noise of a loss is one number, so that of the next steps counts too
MAX_NOISE_SHARE = 0.25  # of the way that a weight went: beyond it nothing can be said about it
MAX_NOISY_WAY = 0.5     # of the squared way of all weights, by those to which that happens
KINDS = ("optimizer", "loss", "gradient", "weight", "state", "saved tensor")
SETTING_ROUNDING = 1e-6     # relative: a learning rate that became a float32 tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDifference:
    """One quantity of one step that differs; `ratio` is in multiples of what is allowed."""

    row: int
    step: int
    kind: str
    name: str
    distance: float
    allowed: float
    size: float
    before: float | None = None
    after: float | None = None

    @property
    def ratio(self) -> float:
        if self.distance == 0:
            return 0.0
        return self.distance / self.allowed if self.allowed > 0 else math.inf

    @property
    def relative(self) -> float:
        return self.distance / self.size if self.size > 0 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberComparison:
    """The result for two runs."""

    num_rows: int = 0
    num_tensors: int = 0
    largest: TensorDifference | None = None       # in multiples of what is allowed
    first: TensorDifference | None = None         # the first one beyond what is allowed
    is_equal: bool = True                   # bit for bit, as far as recorded
    too_noisy_from: int | None = None       # step
    unlike: str = ""                        # why the rows cannot be compared

    @property
    def agrees(self) -> bool:
        return self.first is None and not self.unlike


@dataclass(slots=True)
class RoundingNoise:
    """The largest distances that rounding made so far, by kind and name."""

    runs: Sequence[tuple[RunNumbers, RunNumbers]]       # pairs that differ by rounding alone
    _largest: dict[tuple[int, str, str], float] = field(default_factory=dict)
    _losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        num_rows = max((min(len(a.rows), len(b.rows)) for a, b in self.runs), default=0)
        self._losses = [self._of_losses(number) for number in range(num_rows)]

    def _of_losses(self, number: int) -> float:
        distances = [0.0]
        for a, b in self.runs:
            if number < min(len(a.rows), len(b.rows)):
                pairs = zip(a.rows[number].losses, b.rows[number].losses, strict=False)
                distances += [_gap(one[0], other[0]) for one, other in pairs]
        return max(value for value in distances if math.isfinite(value))

    def of_loss(self, number: int) -> float:
        return max(self._losses[:number + LATER_LOSSES + 1], default=0.0)

    def of_saved(self, number: int, name: str) -> float:
        """For the save of this number."""
        distances = [0.0]
        for a, b in self.runs:
            if number < min(len(a.saved), len(b.saved)) and name in a.saved[number] and name in b.saved[number]:
                distances.append(distance(a.saved[number][name], b.saved[number][name]))
        return max(value for value in distances if math.isfinite(value))

    def of_tensor(self, number: int, kind: str, name: str) -> float:
        """Call it in the order of the rows."""
        distances = [0.0]
        optimizer = 0
        for a, b in self.runs:
            if number < min(len(a.rows), len(b.rows)):
                optimizer = a.rows[number].optimizer
                one, other = _tensors(a.rows[number], kind).get(name), _tensors(b.rows[number], kind).get(name)
                if one is not None and other is not None:
                    distances.append(distance(one, other))
        key = (optimizer, kind, name)
        largest = max(self._largest.get(key, 0.0), *(value for value in distances if math.isfinite(value)))
        self._largest[key] = largest
        return largest


def distance(a: TensorRow, b: TensorRow) -> float:
    """The estimated distance of two tensors: at least the difference of their norms."""
    squares = [_gap(x, y) ** 2 for x, y in zip(a[1:-1], b[1:-1], strict=False)]
    return max(math.sqrt(sum(squares) / max(1, len(squares))), _gap(a[0], b[0]))


def _gap(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return 0.0 if math.isnan(a) and math.isnan(b) else math.inf
    return 0.0 if a == b else abs(a - b)


def _tensors(row: StepRow, kind: str) -> Mapping[str, TensorRow]:
    return {"gradient": row.gradients, "weight": row.weights, "state": row.state}[kind]


def compare(before: RunNumbers, after: RunNumbers, noise: RoundingNoise) -> NumberComparison:
    """All rows that both have; a different number of rows is for the caller to judge."""
    num_rows = min(len(before.rows), len(after.rows))
    own, other = _with_joint_losses(before.rows[:num_rows], after.rows[:num_rows])
    differences: list[TensorDifference] = []
    noisy_from = None
    names: set[str] = set()
    start: dict[int, Mapping[str, TensorRow]] = {}
    moving = _moving_state(before.rows)
    for number in range(num_rows):
        a, b = own[number], other[number]
        unlike = _unlike(a, b)
        if unlike:
            return NumberComparison(num_rows=number, unlike=unlike, is_equal=False)
        found = list(_differences(number, a, b, noise, moving))
        names |= {difference.name for difference in found if difference.kind not in ("loss", "optimizer")}
        if noisy_from is None and a.weights:
            first = start.setdefault(a.optimizer, a.weights)
            if first is not a.weights and _is_too_noisy(first, a.weights, found):
                noisy_from = a.step
        if noisy_from is None:
            differences += found
    if noisy_from is None:
        step = before.rows[num_rows - 1].step if num_rows else 0
        differences += _saved_differences(before, after, noise, row=num_rows, step=step)
    beyond = [difference for difference in differences if difference.ratio > 1]
    first_one = None
    if beyond:
        place = min((difference.row, KINDS.index(difference.kind)) for difference in beyond)
        there = [d for d in beyond if (d.row, KINDS.index(d.kind)) == place]
        first_one = max(there, key=lambda difference: difference.ratio)
    return NumberComparison(
        num_rows=num_rows, num_tensors=len(names), first=first_one, too_noisy_from=noisy_from,
        largest=max(differences, key=lambda difference: difference.ratio, default=None),
        is_equal=all(difference.distance == 0 for difference in differences) and noisy_from is None,
    )


def _with_joint_losses(before: Sequence[StepRow], after: Sequence[StepRow]) -> tuple[list[StepRow], list[StepRow]]:
    """In steps in which one side calls backward() more often, the sum of the losses takes their place."""
    joint = {a.step for a, b in zip(before, after, strict=True) if len(a.losses) != len(b.losses)}
    return _joined(before, joint), _joined(after, joint)


def _joined(rows: Sequence[StepRow], joint: Collection[int]) -> list[StepRow]:
    sums: dict[int, list[float]] = {}
    for row in rows:
        total = sums.setdefault(row.step, [0.0, 0.0])
        for value, epsilon in row.losses:
            total[:] = total[0] + value, max(total[1], epsilon)
    joined = list[StepRow]()
    for row in rows:
        is_first = not joined or joined[-1].step != row.step
        joined.append(replace(row, losses=[sums[row.step]] if is_first else []) if row.step in joint else row)
    return joined


def _unlike(a: StepRow, b: StepRow) -> str:
    if a.optimizer != b.optimizer:
        return f"in step {a.step} another optimizer steps"
    for kind in ("gradient", "weight"):
        own, other = _tensors(a, kind), _tensors(b, kind)
        if own and other and kind == "weight" and len(own) != len(other):
            return f"the optimizer has {len(own)} tensors before and {len(other)} after"
    return ""


def _moving_state(rows: Sequence[StepRow]) -> frozenset[str]:
    """The names of the state that training moves, such as running statistics; a mask or a table does not move."""
    first: dict[str, TensorRow] = {}
    moving = set()
    for row in rows:
        moving |= {name for name, tensor in row.state.items() if first.setdefault(name, tensor) != tensor}
    return frozenset(moving)


def _differences(
    number: int, a: StepRow, b: StepRow, noise: RoundingNoise, moving: Collection[str],
) -> Iterator[TensorDifference]:
    where = {"row": number, "step": a.step}
    yield from _setting_differences(a, b, **where)
    for index, (one, other) in enumerate(zip(a.losses, b.losses, strict=False)):
        allowed = NOISE_FACTOR * noise.of_loss(number) + OWN_ROUNDINGS * one[1] * abs(one[0])
        yield TensorDifference(
            **where, kind="loss", name="loss" if len(a.losses) == 1 else f"loss {index + 1}", size=abs(one[0]),
            distance=_gap(one[0], other[0]), allowed=_finite(allowed), before=one[0], after=other[0])
    state = [{name: row.state[name] for name in moving if name in a.state and name in b.state} for row in (a, b)]
    for kind in ("gradient", "weight", "state"):
        pairs = (_tensors(a, kind), _tensors(b, kind)) if kind != "state" else (state[0], state[1])
        for name, row, counterpart in _pairs(*pairs):
            known = row or counterpart or ()
            allowed = NOISE_FACTOR * noise.of_tensor(number, kind, name) + OWN_ROUNDINGS * known[-1] * known[0]
            apart = distance(row, counterpart) if row is not None and counterpart is not None else known[0]
            yield TensorDifference(
                **where, kind=kind, name=name, distance=apart, allowed=_finite(allowed), size=known[0],
                before=row[0] if row is not None else None, after=counterpart[0] if counterpart is not None else None)


def _setting_differences(a: StepRow, b: StepRow, **where: int) -> Iterator[TensorDifference]:
    """Of the optimizers, whose weight decay may change less in a few steps than rounding does."""
    if len(a.settings) != len(b.settings):
        return      # the same weights may be in other groups; the weights decide
    for own, other in zip(a.settings, b.settings, strict=True):
        for name in own.keys() & other.keys():
            apart, allowed = _gap(own[name], other[name]), SETTING_ROUNDING * abs(own[name])
            yield TensorDifference(
                **where, kind="optimizer", name=name, distance=apart if apart > allowed else 0.0, allowed=0.0,
                size=abs(own[name]), before=own[name], after=other[name])


def _saved_differences(
    before: RunNumbers, after: RunNumbers, noise: RoundingNoise, **where: int,
) -> Iterator[TensorDifference]:
    """Of the tensors that both save under the same name, save by save."""
    for number, (one, other) in enumerate(zip(before.saved, after.saved, strict=False)):
        for name in one.keys() & other.keys():
            a, b = one[name], other[name]
            allowed = NOISE_FACTOR * noise.of_saved(number, name) + OWN_ROUNDINGS * a[-1] * a[0]
            yield TensorDifference(
                **where, kind="saved tensor", name=name, distance=distance(a, b), allowed=_finite(allowed), size=a[0],
                before=a[0], after=b[0])


def _finite(allowed: float) -> float:
    return allowed if math.isfinite(allowed) else 0.0


def _pairs(
    a: Mapping[str, TensorRow], b: Mapping[str, TensorRow],
) -> Iterator[tuple[str, TensorRow | None, TensorRow | None]]:
    """By name; by position where the names of two lists of the same length differ."""
    if a.keys() != b.keys() and len(a) == len(b):
        for (name, one), other in zip(a.items(), b.values(), strict=True):
            yield name, one, other
        return
    for name in dict.fromkeys([*a, *b]):
        yield name, a.get(name), b.get(name)


def _is_too_noisy(
    start: Mapping[str, TensorRow], now: Mapping[str, TensorRow], found: Sequence[TensorDifference],
) -> bool:
    """Whether weights of which rounding alone makes a large part of the way went as far as the others together.

    Single ones may: the gradient of a bias before a normalization is nothing but rounding, and Adam scales it up.
    """
    allowed = {difference.name: difference.allowed for difference in found if difference.kind == "weight"}
    ways = {name: distance(row, now[name]) for name, row in start.items() if name in now}
    noisy = {
        name for name, way in ways.items()
        if way > 0 and allowed.get(name, 0.0) - OWN_ROUNDINGS * now[name][0] * now[name][-1] > MAX_NOISE_SHARE * way
    }
    total = sum(way ** 2 for way in ways.values())
    return sum(ways[name] ** 2 for name in noisy) > MAX_NOISY_WAY * total


def draws_differ(before: RunNumbers, after: RunNumbers) -> int | None:
    """The first step at which the random generators of two runs are in different states; None if there is none."""
    for a, b in zip(before.rows, after.rows, strict=False):
        if a.draws != b.draws:
            return a.step
    return None


def relative_difference(a: RunNumbers, b: RunNumbers) -> float | None:
    """The largest relative difference of two runs; None without anything to compare."""
    worst = None
    for one, other in zip(a.rows, b.rows, strict=False):
        for kind in ("gradient", "weight"):
            for _, row, counterpart in _pairs(_tensors(one, kind), _tensors(other, kind)):
                if row is not None and counterpart is not None and row[0] > 0:
                    worst = max(worst or 0.0, distance(row, counterpart) / row[0])
        for x, y in zip(one.losses, other.losses, strict=False):
            if x[0]:
                worst = max(worst or 0.0, _gap(x[0], y[0]) / abs(x[0]))
    return worst

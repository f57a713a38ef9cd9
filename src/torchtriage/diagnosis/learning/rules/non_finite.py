"""TT401, TT402, TT403: NaN or Inf in the loss, the gradients or the weights."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence

from torchtriage.diagnosis.learning import origin as replays
from torchtriage.diagnosis.learning.rule import Breach, Incident, LearningRule, batch_to_check, short
from torchtriage.diagnosis.learning.rules import divergence
from torchtriage.findings.model import UNKNOWN_PLACE, Location, Severity
from torchtriage.recording.facts import NonFiniteLoss
from torchtriage.recording.recording import Process
from torchtriage.recording.series import (
    GRAD_INF,
    GRAD_NAN,
    GRAD_NORM,
    LOSS,
    SCALER_SKIPPED_TOTAL,
    WEIGHT_INF,
    WEIGHT_NAN,
    WEIGHT_NORM,
    series_of,
)
from torchtriage.text import and_more, counted, row

# Per kind of tensor: the rule, the word for it, and the quantities that are read.
_KINDS = (
    ("TT402", "gradient", GRAD_NORM, GRAD_NAN, GRAD_INF),
    ("TT403", "weight", WEIGHT_NORM, WEIGHT_NAN, WEIGHT_INF),
)
# The places that `stability` accepts, each with its rule and its quantity.
STABILITY = {LOSS: ("TT401", LOSS), "gradients": ("TT402", GRAD_NORM), "weights": ("TT403", WEIGHT_NORM)}


def loss_value(loss: float, quantity: str = LOSS) -> Iterator[Breach]:
    """TT401, for the loss or for another quantity that is one, such as the value loss of PPO."""
    if not math.isfinite(loss):
        name = "the loss" if quantity == LOSS else quantity
        yield _breach("TT401", quantity, loss, f"{name} is {short(loss)}")


def gradient_norm_value(norm: float) -> Iterator[Breach]:
    """TT402, for the norm of all gradients."""
    if not math.isfinite(norm):
        yield _breach("TT402", GRAD_NORM, norm, f"the gradient norm is {short(norm)}")


def tensor_values(name: str, row: Mapping[str, float]) -> Iterator[Breach]:
    """TT402 and TT403 for one tensor: by the counts of NaN and Inf, or by the norm if they were not counted."""
    for code, kind, norm_quantity, nan_quantity, inf_quantity in _KINDS:
        norm = row.get(norm_quantity, 0.0)
        num_nan, num_inf = row.get(nan_quantity, 0.0), row.get(inf_quantity, 0.0)
        counts = [f"{count:.0f} {word}" for word, count in (("NaN", num_nan), ("Inf", num_inf)) if count > 0]
        if not counts and math.isfinite(norm):
            continue
        quantity = norm_quantity
        if num_nan:
            quantity = nan_quantity
        elif num_inf:
            quantity = inf_quantity
        value = math.nan if num_nan > 0 or math.isnan(norm) else math.inf
        text = f"{' and '.join(counts) or short(norm)} in the {kind} of {name}"
        yield _breach(code, series_of(quantity, name), value, text, subject=name)


def stability(has_nan: bool, has_inf: bool, where: str, step: int | None = None) -> Iterator[Breach]:
    """The rule of one place, a key of STABILITY, by flags that the caller computed."""
    if where not in STABILITY:
        raise ValueError(f"where must be one of {', '.join(STABILITY)}, got {where!r}")
    code, quantity = STABILITY[where]
    if has_nan or has_inf:
        value = math.nan if has_nan else math.inf
        yield _breach(code, quantity, value, f"{short(value)} in the {where}", step=step)


def _breach(
    code: str, quantity: str, value: float, text: str, *, subject: str = "", step: int | None = None,
) -> Breach:
    return Breach(
        code=code, type="numerical_instability", quantity=quantity, subject=subject, value=value, limit=math.inf,
        text=text, step=step,
    )


def skipped_by_scaler(process: Process) -> Callable[[int | None], bool]:
    """A test of whether GradScaler skipped a step, or one close to it if the series is downsampled.

    The scaler has found the Inf itself at such a step, and the weights were not updated with it: TT402 ignores it.
    """
    totals = process.series.get(SCALER_SKIPPED_TOTAL)

    def is_skipped(step: int | None) -> bool:
        if totals is None or step is None:
            return False
        place = bisect_left(totals.steps, step)
        before = totals.values[place - 1] if place else 0.0
        return place < len(totals.values) and totals.values[place] > before

    return is_skipped


# The finding

MAX_NAMED = 3
_ORIGINS = {
    "TT403": ("weights", "It comes from the preceding update: an optimizer state that overflowed, a learning rate that "
                         "is not finite, or a weight set by hand"),
    "TT401": (LOSS, "It comes from the forward pass or the data of that step"),
    "TT402": ("gradients", "It comes from the backward pass: sqrt, norm or std at 0, or a log or division that "
                           "torch.where masks only in the forward pass"),
}
# The series that a look at each place leaves.
_LOOKS = {"TT401": (LOSS,), "TT402": (GRAD_NORM, GRAD_NAN, GRAD_INF), "TT403": (WEIGHT_NORM, WEIGHT_NAN, WEIGHT_INF)}


def parents(incidents: Mapping[str, Incident]) -> dict[str, str]:
    """Incidents that follow from an earlier one of these rules, by code, each with the code of the origin."""
    order = _order_of_origin(incidents)
    if not order:
        return {}
    origin = order[0]
    last_step = incidents[origin].steps[-1]
    # NaN that appears long after the origin has ended has another origin.
    return {code: origin for code in order[1:] if incidents[code].steps[0] <= last_step + 1}


def _order_of_origin(incidents: Mapping[str, Incident]) -> list[str]:
    """The rules by the step of their first breach, except for one that is known to be the origin.

    Within a step the order is that of _ORIGINS: the forward pass reads the weights and computes the loss, from which
    the backward pass computes the gradients.
    """
    codes = [code for code in _ORIGINS if code in incidents and incidents[code].steps]
    known = _known_origin(next(iter(incidents.values())).process) if codes else ""
    return sorted(codes, key=lambda code: (code != known, incidents[code].steps[0]))


def _known_origin(process: Process) -> str:
    """The rule of the place that was not finite first, if every loss was tested; empty if that was not observed."""
    first = process.learning.non_finite_loss
    if first is None or not first.num_weights:
        return ""
    if not first.num_bad_weights:
        return "TT401"
    return {False: "TT402", True: "TT403", None: ""}[first.was_gradient_finite]


def _origin(incident: Incident) -> str:
    """Where the first NaN or Inf appeared, if that was observed; else what was looked at, and when."""
    order = _order_of_origin(incident.others)
    if incident.code not in order:
        return ""
    replayed = incident.process.learning.non_finite_origin
    if replayed is None:
        return _recorded_origin(incident, order)
    if replayed.state in replays.FOUND:
        return replays.explanation(replayed)
    return f"{_recorded_origin(incident, order)}. {replays.explanation(replayed)}"


def _recorded_origin(incident: Incident, order: Sequence[str]) -> str:
    """What the looks of the run itself say."""
    growth = divergence.growth_before_overflow(incident.others)
    if first := incident.process.learning.non_finite_loss:
        return _origin_of_tested_loss(first, growth)
    places = [f"in the {_ORIGINS[code][0]} at step {incident.others[code].steps[0]}" for code in order]
    first_seen = f"First seen {', then '.join(places)}"
    looks = {code: _looks(incident.process, code) for code in _ORIGINS}
    missing = [_ORIGINS[code][0] for code in ("TT403", "TT401") if not looks[code]]
    if missing:
        verb = "was" if missing == [LOSS] else "were"
        what = f"the {missing[0]} {verb} not" if len(missing) == 1 else "neither the weights nor the loss were"
        return f"{first_seen}; its origin is unknown: {what} recorded"
    if not _is_order_observed(incident):
        return f"Seen {_row_of_looks(incident, order, looks)}. Which was first between these looks was not observed"
    return f"{first_seen}. {_ORIGINS[order[0]][1] if growth is None else divergence.explanation(growth)}"


def _is_order_observed(incident: Incident) -> bool:
    """Whether the place that was first is known: by the test of every loss, or because each place was looked at in the
    step before the first breach."""
    process = incident.process
    if process.learning.non_finite_loss is not None:
        return bool(_known_origin(process))
    order = _order_of_origin(incident.others)
    if not order:
        return False
    first = incident.others[order[0]].steps[0]
    if first <= 1:
        return True
    for code in _ORIGINS:
        bad = incident.others[code].steps[0] if code in order else math.inf
        if _last_look(_looks(process, code), min(first, bad - 1)) < first - 1:
            return False
    return True


def _row_of_looks(incident: Incident, order: Sequence[str], looks: Mapping[str, Sequence[int]]) -> str:
    """Per place: the step at which it was not finite, and the one of the look before."""
    texts = []
    for code in order:
        step = incident.others[code].steps[0]
        before = _last_look(looks[code], step - 1)
        finite = f" (finite at step {before})" if before else " (its first look)"
        texts.append(f"in the {_ORIGINS[code][0]} at step {step}{finite}")
    return row(texts)


def _origin_of_tested_loss(first: NonFiniteLoss, growth: divergence.Growth | None) -> str:
    """The result of the look at the weights upon the first bad loss; every loss before it was finite."""
    begins = f"Every loss was tested: that of step {first.step} is the first bad one"
    weights = counted(first.num_weights, "weight tensor")
    if not first.num_weights:
        why = ", as no optimizer had stepped yet" if first.step <= 1 else ""
        return f"{begins}; the weights were not looked at{why}"
    if not first.num_bad_weights:
        origin = "it comes from its forward pass or its data" if growth is None else divergence.explanation(growth)
        return f"{begins}. All {weights} were finite in that step{':' if growth is None else '.'} {origin}"
    named = first.bad_weights[:MAX_NAMED]
    bad = row(named) + and_more(first.num_bad_weights - len(named))
    if growth is not None:
        begins += f". {divergence.explanation(growth)}"
    begins += f". When it was computed, values in {first.num_bad_weights} of {weights} were not finite ({bad})"
    if first.was_gradient_finite is None:
        return f"{begins}; whether a gradient or an update was first was not observed"
    if first.was_gradient_finite:
        return f"{begins}; the averages of their gradients are, so an update was first. {_ORIGINS['TT403'][1]}"
    return f"{begins}, nor are the averages of their gradients: a gradient was first. {_ORIGINS['TT402'][1]}"


def _looks(process: Process, code: str) -> list[int]:
    """The steps at which a place was looked at, as far as the recording keeps them."""
    steps: set[float] = set()
    for name, series in process.series.items():
        if name.partition("/")[0] in _LOOKS[code]:
            steps.update(series.steps)
    return sorted(int(step) for step in steps if math.isfinite(step))


def _last_look(steps: Sequence[int], until: float) -> int:
    """The last of these steps that is not after `until`; 0 if there is none."""
    place = bisect_right(steps, until)
    return steps[place - 1] if place else 0


def _gradient_severity(incident: Incident) -> Severity | None:
    return Severity.P2 if _weights_stayed_finite(incident) else None


def _weights_stayed_finite(incident: Incident) -> bool:
    """Whether finite weights were recorded after the first such gradient, so that the program skipped that step."""
    step = incident.first.step
    if step is None or incident.others.get("TT403") is not None:
        return False
    weights = [series for name, series in incident.process.series.items() if name.startswith(f"{WEIGHT_NORM}/")]
    return any(len(series.steps) and series.steps[-1] > step for series in weights)


def _fix_of_origin(fix: Callable[[Incident], str]) -> Callable[[Incident], str]:
    """The fix for a training that diverged; that of the operation, where a replay found one; else that of the rule."""
    def text(incident: Incident) -> str:
        if divergence.growth_before_overflow(incident.others) is not None:
            return divergence.fix(incident)
        replayed = incident.process.learning.non_finite_origin
        return (replays.fix(replayed) if replayed is not None else "") or fix(incident)

    return text


def _place_of_replay(incident: Incident) -> Location:
    replayed = incident.process.learning.non_finite_origin
    return UNKNOWN_PLACE if replayed is None else replays.location(replayed)


def _find_operation(incident: Incident) -> str:
    first = incident.process.learning.non_finite_loss
    batch = batch_to_check(incident)
    if first is not None and _known_origin(incident.process) == "TT401":
        batch = f"inspect the batch of step {first.step}"
    # Only a program that was recorded can be run again; the log of another logger has no command.
    first_record = "" if incident.process.program.argv else "torchtriage run records it, and then "
    return (
        f"return to an earlier checkpoint and {batch}; {first_record}torchtriage replay RECORDING names the operation"
    )


def _fix_loss(incident: Incident) -> str:
    if not _is_order_observed(incident):
        return _find_operation(incident)
    return (
        f"{_find_operation(incident)}. Use log_softmax or cross_entropy, and clamp the argument of every log and the "
        "denominator of every division"
    )


def _fix_gradient(incident: Incident) -> str:
    if not _is_order_observed(incident):
        return _find_operation(incident)
    return (
        f"{_find_operation(incident)}. Add a small constant inside sqrt, norm, log and divisions, also where "
        "torch.where discards the result"
    )


def _fix_weight(incident: Incident) -> str:
    if not _is_order_observed(incident):
        return _find_operation(incident)
    return (
        "return to an earlier checkpoint, including the optimizer state; keep the weights and that state in float32, "
        "with an eps that their type can represent (1e-8 is 0 in float16), and check that the learning rate is finite"
    )


RULES = (
    LearningRule(code="TT401", fix=_fix_of_origin(_fix_loss), explanation=_origin, place=_place_of_replay),
    LearningRule(
        code="TT402", fix=_fix_of_origin(_fix_gradient), explanation=_origin, severity=_gradient_severity,
        place=_place_of_replay,
    ),
    LearningRule(code="TT403", fix=_fix_of_origin(_fix_weight), explanation=_origin, place=_place_of_replay),
)

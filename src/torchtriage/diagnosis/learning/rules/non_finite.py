"""TT401, TT402, TT403: NaN or Inf in the loss, the gradients or the weights."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping

from torchtriage.diagnosis.learning.rule import Breach, Incident, LearningRule, batch_to_check, short
from torchtriage.findings.model import Severity
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

_ORIGINS = {
    "TT403": ("weights", "It comes from the preceding update: an optimizer state that overflowed, a learning rate that "
                         "is not finite, or a weight set by hand"),
    "TT401": (LOSS, "It comes from the forward pass or the data of that step"),
    "TT402": ("gradients", "It comes from the backward pass: sqrt, norm or std at 0, or a log or division that "
                           "torch.where masks only in the forward pass"),
}


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
    """The rules by the step of their first breach. Within a step the order is that of _ORIGINS: the forward pass reads
    the weights and computes the loss, from which the backward pass computes the gradients."""
    codes = [code for code in _ORIGINS if code in incidents and incidents[code].steps]
    return sorted(codes, key=lambda code: incidents[code].steps[0])


def _origin(incident: Incident) -> str:
    """Where the first NaN or Inf appeared, if everything that could have been first was recorded."""
    order = _order_of_origin(incident.others)
    if incident.code not in order:
        return ""
    places = [f"in the {_ORIGINS[code][0]} at step {incident.others[code].steps[0]}" for code in order]
    first_seen = f"First seen {', then '.join(places)}"
    names = incident.process.series
    has_weights, has_loss = (any(name.startswith(prefix) for name in names) for prefix in ("weight", LOSS))
    if has_weights and has_loss:
        return f"{first_seen}. {_ORIGINS[order[0]][1]}"
    if has_weights:
        return f"{first_seen}; its origin is unknown: the loss was not recorded"
    if has_loss:
        return f"{first_seen}; its origin is unknown: the weights were not recorded"
    return f"{first_seen}; its origin is unknown: neither the weights nor the loss were recorded"


def _gradient_severity(incident: Incident) -> Severity | None:
    return Severity.P2 if _weights_stayed_finite(incident) else None


def _weights_stayed_finite(incident: Incident) -> bool:
    """Whether finite weights were recorded after the first such gradient, so that the program skipped that step."""
    step = incident.first.step
    if step is None or incident.others.get("TT403") is not None:
        return False
    weights = [series for name, series in incident.process.series.items() if name.startswith(f"{WEIGHT_NORM}/")]
    return any(len(series.steps) and series.steps[-1] > step for series in weights)


def _find_operation(incident: Incident) -> str:
    return (
        f"return to an earlier checkpoint and {batch_to_check(incident)}; torch.autograd.set_detect_anomaly(True) "
        "names the operation"
    )


def _fix_loss(incident: Incident) -> str:
    return (
        f"{_find_operation(incident)}. Use log_softmax or cross_entropy, and clamp the argument of every log and the "
        "denominator of every division"
    )


def _fix_gradient(incident: Incident) -> str:
    return (
        f"{_find_operation(incident)}. Add a small constant inside sqrt, norm, log and divisions, also where "
        "torch.where discards the result"
    )


RULES = (
    LearningRule(code="TT401", fix=_fix_loss, explanation=_origin),
    LearningRule(code="TT402", fix=_fix_gradient, explanation=_origin, severity=_gradient_severity),
    LearningRule(
        code="TT403",
        fix="return to an earlier checkpoint, including the optimizer state; keep the weights and that state in "
            "float32, with an eps that their type can represent (1e-8 is 0 in float16), and check that the learning "
            "rate is finite",
        explanation=_origin,
    ),
)

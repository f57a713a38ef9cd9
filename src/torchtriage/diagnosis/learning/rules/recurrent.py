"""TT501 to TT504: the state of a recurrent network."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchtriage.diagnosis.learning.rule import Breach, Incident, LearningRule, short
from torchtriage.findings.model import Severity
from torchtriage.recording.recording import Process
from torchtriage.recording.series import (
    LSTM_C_RMS,
    LSTM_C_RMS_MAX,
    LSTM_H_RMS,
    LSTM_H_RMS_MAX,
    LSTM_HAS_INF,
    LSTM_HAS_NAN,
)

QUANTITIES = frozenset({LSTM_H_RMS, LSTM_C_RMS, LSTM_H_RMS_MAX, LSTM_C_RMS_MAX, LSTM_HAS_NAN, LSTM_HAS_INF})

# The cell state of an LSTM may count the steps of an episode, which takes some units of a healthy one above the limit
# for a while. It is less than severe below ten times the limit.
FAR = 10.0
MIN_OBSERVATIONS = 3
TANH_BOUND = 1.000001   # of a hidden state that tanh bounds, with rounding
_STATES = {
    "h": ("hidden state", LSTM_H_RMS, LSTM_H_RMS_MAX),
    "c": ("cell state", LSTM_C_RMS, LSTM_C_RMS_MAX),
}


@dataclass(frozen=True, kw_only=True)
class RecurrentLimits:
    # TT502, TT503: rules of thumb.
    rms_max: float = 10.0
    rms_min: float = 1e-6
    # TT504: with |h| <= 1, an RMS of 0.95 means that at least four of five units are above 0.7, where the slope of tanh
    # has halved.
    rms_saturated: float = 0.95


def breaches(row: Mapping[str, float], limits: RecurrentLimits) -> Iterator[Breach]:
    """The rules of the recurrent state for one observation."""
    has_nan, has_inf = row.get(LSTM_HAS_NAN, 0.0) > 0, row.get(LSTM_HAS_INF, 0.0) > 0
    yield from recurrent_finite(has_nan, has_inf)
    if has_nan or has_inf:      # the RMS is then that of the finite elements, or NaN itself
        return
    for state, (_, rms, rms_max) in _STATES.items():
        yield from recurrent_range(state, row.get(rms), row.get(rms_max), limits)


def recurrent_finite(has_nan: bool, has_inf: bool) -> Iterator[Breach]:
    """TT501, by flags."""
    if has_nan:
        yield _non_finite(math.nan, LSTM_HAS_NAN, "", "the recurrent state contains")
    if has_inf:
        yield _non_finite(math.inf, LSTM_HAS_INF, "", "the recurrent state contains")


def recurrent_range(
    state: str, rms: float | None, rms_max: float | None, limits: RecurrentLimits,
) -> Iterator[Breach]:
    """TT501 to TT504 for one state, "h" or "c", by its RMS over all environments and that of the worst one.

    If one of the two is missing, the other takes its place.
    """
    name, rms_quantity, max_quantity = _STATES[state]
    pairs = ((rms_quantity, rms), (max_quantity, rms_max))
    values = [(quantity, value) for quantity, value in pairs if value is not None]
    if not values:
        return
    for quantity, value in values:
        if not math.isfinite(value):
            yield _non_finite(value, quantity, state, f"the RMS of the {name} is")
            return
    (overall_quantity, overall), (worst_quantity, worst) = values[0], values[-1]
    if worst > limits.rms_max:
        yield Breach(
            code="TT502", type=f"lstm_{state}_explosion", quantity=worst_quantity, subject=state, value=worst,
            limit=limits.rms_max, text=f"RMS {short(worst)} of the {name} in the worst environment",
        )
    elif overall < limits.rms_min:
        yield Breach(
            code="TT503", type=f"lstm_{state}_vanishing", quantity=overall_quantity, subject=state, value=overall,
            limit=limits.rms_min, text=f"RMS {short(overall)} of the {name}",
        )
    elif state == "h" and rms is not None and limits.rms_saturated <= rms <= TANH_BOUND:
        yield Breach(
            code="TT504", type="lstm_h_saturation", quantity=rms_quantity, subject=state, value=rms,
            limit=limits.rms_saturated, text=f"RMS {short(rms)} of the hidden state, which tanh bounds by 1",
        )


def _non_finite(value: float, quantity: str, state: str, begin: str) -> Breach:
    return Breach(
        code="TT501", type="lstm_nan" if math.isnan(value) else "lstm_inf", quantity=quantity, subject=state,
        value=value, limit=math.inf, text=f"{begin} {short(value)}",
    )


def _lasting(breaches: Sequence[Breach], process: Process) -> Sequence[Breach]:
    """All of them, unless a few looks at a cell state are all that there is."""
    is_brief = len(breaches) < MIN_OBSERVATIONS and all(map(_may_count, breaches))
    return () if is_brief else breaches


def _explosion_severity(incident: Incident) -> Severity | None:
    return Severity.P3 if all(map(_may_count, incident.breaches)) else None


def _may_count(breach: Breach) -> bool:
    return breach.subject == "c" and breach.value < FAR * breach.limit


RULES = (
    LearningRule(
        code="TT501",
        fix="check the step before for an observation or a weight (TT403) that is not finite; the value stays in the "
            "state until the state is reset, so reset it once the cause is fixed",
    ),
    LearningRule(
        code="TT502", select=_lasting, severity=_explosion_severity,
        fix="reset the state at the end of each episode, normalise observations, and clip gradients through time; if "
            "the forget gate stays at 1, the cell only accumulates",
    ),
    LearningRule(
        code="TT503", min_observations=3,
        fix="check that the state is passed from step to step and not reset at every step, and that its inputs are "
            "not all zero",
    ),
    LearningRule(
        code="TT504", min_observations=3,
        fix="normalise observations and advantages, and lower the learning rate: a saturated tanh passes on no "
            "gradient",
    ),
)

"""The severity policy: a rule's default, which an observed cost can only raise."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.findings.model import Severity
from torchtriage.findings.severity import MIN_STEADY_STEPS, P1_SHARE, P2_SHARE, one_time_severity, severity_for

P0, P1, P2, P3, P4 = Severity
severities = st.sampled_from(Severity)
shares = st.none() | st.floats(0.0, 1.0)


def test_the_thresholds_are_those_of_the_design() -> None:
    assert (P1_SHARE, P2_SHARE, MIN_STEADY_STEPS) == (0.20, 0.05, 20)


@pytest.mark.parametrize(("default", "share", "grows", "expected"), [
    (P3, None, False, P3),
    (P3, 0.0, False, P3),
    (P3, math.nextafter(0.05, 0), False, P3),
    (P3, 0.05, False, P2),
    (P3, math.nextafter(0.20, 0), False, P2),
    (P3, 0.20, False, P1),
    (P3, 1.0, False, P1),
    (P4, 0.05, False, P2),
    (P4, None, True, P2),
    (P3, None, True, P2),
    (P3, 0.20, True, P1),
    (P2, 0.01, True, P2),
    (P1, None, False, P1),
    (P1, 0.05, True, P1),
    (P0, 0.99, True, P0),
    (P0, 0.0, False, P0),
])
def test_severity_is_the_worse_of_default_and_observation(
    default: Severity, share: float | None, grows: bool, expected: Severity
) -> None:
    assert severity_for(default, share=share, grows=grows) is expected


@given(severities, shares, st.booleans())
def test_nothing_observed_makes_a_finding_milder(default: Severity, share: float | None, grows: bool) -> None:
    assert severity_for(default, share=share, grows=grows) <= default


@given(severities, shares, st.booleans())
def test_severity_is_never_worse_than_default_and_observation(
    default: Severity, share: float | None, grows: bool
) -> None:
    says = P1 if (share or 0.0) >= 0.20 else P2 if (share or 0.0) >= 0.05 or grows else P4
    assert severity_for(default, share=share, grows=grows) == min(default, says)


@given(severities, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_larger_share_is_never_milder(default: Severity, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert severity_for(default, share=high) <= severity_for(default, share=low)


@given(severities)
def test_a_share_that_is_not_a_number_changes_nothing(default: Severity) -> None:
    assert severity_for(default, share=math.nan) is default


@pytest.mark.parametrize(("seconds", "run", "expected"), [
    (451.0, 817.0, Severity.P2), (61.0, 3000.0, Severity.P4), (12.0, 60.0, Severity.P3), (9.0, 10.0, Severity.P4),
    (None, 60.0, Severity.P4), (90.0, None, Severity.P4),
])
def test_a_one_time_cost_needs_both_seconds_and_a_share(
    seconds: float | None, run: float | None, expected: Severity,
) -> None:
    assert one_time_severity(seconds, run) is expected

"""The severity policy: a rule's default, raised by the observed cost.

A recurring cost is weighed by its share of steady state, which does not depend on the run's length. A one-time cost is
weighed by both its seconds and its share of the run.
"""

from torchtriage.findings.model import Severity

P1_SHARE = 0.20             # of steady state lost
P2_SHARE = 0.05
MIN_STEADY_STEPS = 20       # below this a share is noise, and the default applies
# (at least this many seconds, at least this share of the run, severity): a minute that is a fifth of a run is worth a
# change although it does not recur; ten seconds are worth reading about.
ONE_TIME = ((60.0, 0.20, Severity.P2), (10.0, 0.10, Severity.P3))


def severity_for(default: Severity, *, share: float | None = None, grows: bool = False) -> Severity:
    """The worse of the default and the severity of the observed cost; no observation makes a finding milder.

    `grows`: the cost recurs as the run continues, as in a recompile storm.
    """
    observed = Severity.P2 if grows else Severity.P4
    if share is not None and share >= P1_SHARE:
        observed = Severity.P1
    elif share is not None and share >= P2_SHARE:
        observed = min(observed, Severity.P2)
    return min(default, observed)


def one_time_severity(seconds: float | None, run_seconds: float | None) -> Severity:
    """The severity of compile time that is paid once; P4 if it, or the length of the run, is not known."""
    if seconds is None or not run_seconds:
        return Severity.P4
    for least_seconds, least_share, severity in ONE_TIME:
        if seconds >= least_seconds and seconds / run_seconds >= least_share:
            return severity
    return Severity.P4

"""The severity policy: a rule's default, raised by the observed cost; it does not depend on the run's length."""

from torchtriage.findings.model import Severity

P1_SHARE = 0.20             # of steady state lost
P2_SHARE = 0.05
MIN_STEADY_STEPS = 20       # below this a share is noise, and the default applies


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

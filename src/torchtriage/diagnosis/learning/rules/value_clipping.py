"""Value clipping of PPO, which can leave a critic without a gradient: its traces in other rules."""

from collections.abc import Callable, Mapping

from torchtriage.diagnosis.learning.memory import median
from torchtriage.diagnosis.learning.rule import Incident
from torchtriage.recording.series import GRAD_NORM, PPO_VALUE_CLIP_FRACTION, series_of

QUANTITIES = frozenset({PPO_VALUE_CLIP_FRACTION})

CRITIC = ("critic", "value")    # in the names of its tensors, here and in Stable-Baselines3, CleanRL and TRL
HELD_BACK = 0.5                 # the share of samples from which value clipping keeps a critic from learning


def harmless(incidents: Mapping[str, Incident]) -> list[str]:
    """The codes of incidents that value clipping of some samples explains, in a critic that learns from the others.

    Telemetry samples the last minibatch of an update: its gradient is zero, while earlier minibatches had one.
    """
    zeros = incidents.get("TT406")
    if zeros is None or not 0.0 < _clipped_share(zeros) < HELD_BACK:
        return []
    return [code for code, incident in incidents.items() if incident is zeros or _is_echo(incident, zeros)]


def parents(incidents: Mapping[str, Incident]) -> dict[str, str]:
    """Incidents that follow from a critic without a gradient, by code, each with the code that reports it."""
    zeros, collapse = incidents.get("TT406"), incidents.get("TT605")
    if zeros is None or not _is_held_back(zeros):
        return {}
    parent = "TT605" if collapse is not None and _is_held_back(collapse) else "TT406"
    explosion = incidents.get("TT404")
    by_code = {}
    if explosion is not None and _is_echo(explosion, zeros):
        by_code["TT404"] = parent
    if parent != "TT406":
        by_code["TT406"] = parent
    return by_code


def fix_unless_clipped(fix: str | Callable[[Incident], str]) -> Callable[[Incident], str]:
    """The fix of a rule, replaced by another one if value clipping is the cause."""
    def fix_text(incident: Incident) -> str:
        if not _is_held_back(incident):
            return fix if isinstance(fix, str) else fix(incident)
        return (
            f"value clipping leaves the critic no gradient in {_clipped_share(incident):.0%} of the samples: turn it "
            "off (--clip-value 0), adapt its range to the scale of the returns, or normalise the returns"
        )

    return fix_text


def _clipped_share(incident: Incident) -> float:
    """The share of samples in which value clipping left no gradient, if the incident is about a critic; else 0."""
    shares = [incident.at(PPO_VALUE_CLIP_FRACTION, step) for step in incident.steps]
    known_shares = [share for share in shares if share is not None]
    is_critic = all(any(word in name for word in CRITIC) for name in incident.subjects)
    return median(known_shares) if known_shares and is_critic else 0.0


def _is_held_back(incident: Incident) -> bool:
    return _clipped_share(incident) >= HELD_BACK


def _is_echo(incident: Incident, zeros: Incident) -> bool:
    """Whether an explosion is relative to norms most of which lack the gradient of the tensors that were zero."""
    series = incident.process.series.get(series_of(GRAD_NORM, zeros.worst.subject))
    if incident.code != "TT404" or series is None or incident.first.step is None:
        return False
    points = zip(series.steps, series.values, strict=False)
    before = [value for step, value in points if step < incident.first.step]
    return bool(before) and median(before[-incident.limits.window:]) == 0.0

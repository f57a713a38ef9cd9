"""Findings of the learning rules (TT4xx, TT5xx, TT6xx) from the breaches of a recorded training."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from torchtriage.diagnosis.learning.limits import limits_from
from torchtriage.diagnosis.learning.replay import breaches
from torchtriage.diagnosis.learning.rule import Breach, Incident, LearningRule, short
from torchtriage.diagnosis.learning.rules import (
    divergence,
    gradients,
    loss,
    non_finite,
    optimizer,
    ppo,
    recurrent,
    tensors,
    value_clipping,
)
from torchtriage.diagnosis.rules import finding, fingerprint_of, rule
from torchtriage.findings.catalogue import rule as catalogue_rule
from torchtriage.findings.model import (
    UNKNOWN_PLACE,
    YOU,
    Check,
    CheckKind,
    Evidence,
    Finding,
    Fix,
    SampledValue,
    Severity,
)
from torchtriage.recording.recording import Process
from torchtriage.text import and_more, row, times

RULES: Mapping[str, LearningRule] = {
    learning_rule.code: learning_rule
    for subject in (non_finite, loss, gradients, optimizer, tensors, recurrent, ppo)
    for learning_rule in subject.RULES
}
NUM_BEFORE = 3      # values shown before the first breach
MAX_VALUES = 8      # values shown if there is no series
MAX_REASONS = 5
MAX_NAMED = 50


@rule
def gradients_and_weights(process: Process) -> Iterator[Finding]:
    """The loss, the gradients, the weights or the steps of the optimizer are not healthy."""
    return _family("TT4", process)


@rule
def recurrent_state(process: Process) -> Iterator[Finding]:
    """The state of a recurrent network is not finite, explodes, vanishes or is saturated."""
    return _family("TT5", process)


@rule
def ppo_updates(process: Process) -> Iterator[Finding]:
    """An update of PPO changes the policy too much, or teaches it nothing."""
    return _family("TT6", process)


def _family(prefix: str, process: Process) -> Iterator[Finding]:
    for code, one in learning_findings(process).items():
        if code == one.code and code.startswith(prefix):
            yield one


def learning_findings(process: Process) -> dict[str, Finding]:
    """The finding that reports each rule with an incident, by the code of the rule; computed once.

    An incident that follows from another one has the finding of that one.
    """
    return process.once(_findings)


def _findings(process: Process) -> dict[str, Finding]:
    incidents = _incidents(process)
    for code in value_clipping.harmless(incidents):
        del incidents[code]
    parents = {
        **_milder(incidents), **tensors.parents(incidents), **value_clipping.parents(incidents),
        **non_finite.parents(incidents), **divergence.parents(incidents),
    }
    causes = {code: _cause_of(code, parents) for code in incidents}
    findings = {}
    for code in dict.fromkeys(causes.values()):
        folded = [incidents[other] for other, cause in causes.items() if cause == code != other]
        findings[code] = _finding(incidents[code], folded)
    return {code: findings[cause] for code, cause in causes.items()}


def _cause_of(code: str, parents: Mapping[str, str]) -> str:
    """The incident at the end of the chain, such as an update that was too large behind NaN."""
    seen = {code}
    while code in parents and parents[code] not in seen:
        code = parents[code]
        seen.add(code)
    return code


def _incidents(process: Process) -> dict[str, Incident]:
    """The incident of each rule that has one worth a finding, by code."""
    by_code: dict[str, list[Breach]] = defaultdict(list)
    for breach in breaches(process):
        by_code[breach.code].append(breach)
    limits = limits_from(process.learning.learning_limits)
    incidents: dict[str, Incident] = {}
    # A recording of a later version may have breaches of rules that do not exist here.
    for code in sorted(by_code.keys() & RULES.keys()):
        select = RULES[code].select
        of_code = by_code[code] if select is None else select(by_code[code], process)
        if not of_code:
            continue
        incident = Incident(code=code, breaches=of_code, process=process, limits=limits, others=incidents)
        if _is_worth_reporting(incident):
            incidents[code] = incident
    return incidents


def _is_worth_reporting(incident: Incident) -> bool:
    learning_rule = RULES[incident.code]
    if learning_rule.is_problem is not None and not learning_rule.is_problem(incident):
        return False
    num_observed = len(incident.series.values) if incident.series is not None else 0
    return incident.num_observations >= max(learning_rule.min_observations, learning_rule.min_share * num_observed)


def _milder(incidents: Mapping[str, Incident]) -> dict[str, str]:
    """Incidents of the milder of two rules, by code, each with the code of the stricter one."""
    pairs = ((RULES[code].milder, code) for code in incidents)
    return {milder: code for milder, code in pairs if milder in incidents}


def _finding(incident: Incident, folded: Sequence[Incident]) -> Finding:
    process, learning_rule = incident.process, RULES[incident.code]
    reason = " ".join(sorted(incident.subjects)[:MAX_NAMED]) if learning_rule.names_tensors else ""
    return finding(
        incident.code,
        title=_title(incident),
        cause=_cause(incident),
        fix=Fix(text=learning_rule.fix_text(incident)),
        location=UNKNOWN_PLACE if learning_rule.place is None else learning_rule.place(incident),
        owner=YOU,
        severity=min(_severity(one) for one in (incident, *folded)),
        evidence=Evidence(
            num_events=incident.num_observations,
            values=tuple(SampledValue(text=short(value), number=value, step=step) for step, value in _course(incident)),
            reasons=tuple(dict.fromkeys(breach.text for breach in incident.breaches[:20]))[:MAX_REASONS],
            notes=_notes(incident),
            folded=tuple(f"{other.code} {_title(other)}" for other in folded),
        ),
        verification=(Check(CheckKind.NO_FINDING_IN_TRAINING, code=incident.code),),
        steps=tuple(incident.steps[:MAX_NAMED]),
        ranks=() if process.rank is None else (process.rank,),
        fingerprint=fingerprint_of(incident.code, None, reason, process),
    )


def _severity(incident: Incident) -> Severity:
    """The severity that the rule derives from the incident, else that of its page."""
    severity = RULES[incident.code].severity
    derived = None if severity is None else severity(incident)
    return catalogue_rule(incident.code).severity if derived is None else derived


def _title(incident: Incident) -> str:
    """The worst breach with its numbers, and the number of others."""
    worst, steps = incident.worst, incident.steps
    text = worst.text + and_more(len(incident.subjects) - 1)
    if not steps:
        return text
    if len(steps) == 1:
        return f"{text} (step {steps[0]})"
    how_often = times(incident.num_observations)
    return f"{text} (step {worst.step}; {how_often} in steps {steps[0]} to {steps[-1]})"


def _course(incident: Incident) -> list[tuple[int, float]]:
    """(step, value) at the start, just before the first breach, at the first breach, the worst one and the end."""
    series = incident.series
    if series is None or not len(series.steps):
        return [(breach.step, breach.value) for breach in incident.breaches[:MAX_VALUES] if breach.step is not None]
    first = bisect_left(series.steps, incident.first.step or 0)
    worst = bisect_left(series.steps, incident.worst.step or 0)
    places = {0, *range(first - NUM_BEFORE, first + 2), worst, len(series.steps) - 1}
    points = []
    for place in sorted(places):
        if 0 <= place < len(series.steps) and math.isfinite(series.steps[place]):
            points.append((int(series.steps[place]), series.values[place]))
    return points


def _cause(incident: Incident) -> str:
    """The numbers over time, and the explanation of the rule."""
    worst, points = incident.worst, _course(incident)
    numbers = worst.text
    if points:
        values = row(f"{short(value)} (step {step})" for step, value in points)
        limit = f"; limit {short(worst.limit)}" if 0.0 < abs(worst.limit) < math.inf else ""
        numbers = f"{worst.quantity}: {values}{limit}"
    explanation = RULES[incident.code].explanation
    parts = (numbers, "" if explanation is None else explanation(incident))
    return ". ".join(part for part in parts if part)


def _notes(incident: Incident) -> tuple[str, ...]:
    if len(incident.subjects) < 2:
        return ()
    return (f"in {row(incident.subjects, MAX_NAMED)}",)

"""What a rule is: a code from the catalogue and a function from one process's events to findings."""

from collections.abc import Callable, Iterator
from typing import Any

from torchtriage.diagnosis.places import Place
from torchtriage.findings.catalogue import rule as catalogue_rule
from torchtriage.findings.fingerprint import fingerprint, portable_path
from torchtriage.findings.model import Finding, Fix
from torchtriage.recording.recording import Process, Recording

RuleFunction = Callable[[Process], Iterator[Finding]]
RunRuleFunction = Callable[[Recording], Iterator[Finding]]

PROCESS_RULES: list[RuleFunction] = []
RUN_RULES: list[RunRuleFunction] = []


def rule(function: RuleFunction) -> RuleFunction:
    """Register a rule over one process; the findings it yields name their own codes."""
    PROCESS_RULES.append(function)
    return function


def run_rule(function: RunRuleFunction) -> RunRuleFunction:
    """Register a rule over the whole recording."""
    RUN_RULES.append(function)
    return function


def finding(code: str, *, title: str, cause: str, fix: Fix, **fields: Any) -> Finding:
    """A finding with the slug, category and default severity that the catalogue gives its code."""
    row = catalogue_rule(code)
    fields.setdefault("severity", row.severity)
    return Finding(code=code, slug=row.slug, category=row.category, title=title, cause=cause, fix=fix, **fields)


def fingerprint_of(code: str, place: Place | None, reason: str, process: Process) -> str:
    """The fingerprint of a finding of this code at this place."""
    if place is None:
        return fingerprint(code, "", "", "", reason)
    path = portable_path(place.location.path, tuple(process.facts.get("your_roots") or ()))
    return fingerprint(code, path, place.location.function or "", place.code, reason)

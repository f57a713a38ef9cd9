"""The registry of rules, which turn the events of a process or a recording into findings."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from torchtriage.diagnosis.places import Place
from torchtriage.findings.catalogue import rule as catalogue_rule
from torchtriage.findings.fingerprint import fingerprint, portable_path
from torchtriage.findings.model import Finding, Fix
from torchtriage.recording.events import Placed
from torchtriage.recording.recording import Process, Recording

RuleFunction = Callable[[Process], Iterator[Finding]]
RunRuleFunction = Callable[[Recording], Iterator[Finding]]

PROCESS_RULES: list[RuleFunction] = []
RUN_RULES: list[RunRuleFunction] = []


def rule(function: RuleFunction) -> RuleFunction:
    """Register a rule over one process; each finding that it yields names its code."""
    PROCESS_RULES.append(function)
    return function


def run_rule(function: RunRuleFunction) -> RunRuleFunction:
    """Register a rule over the full recording."""
    RUN_RULES.append(function)
    return function


def finding(code: str, *, title: str, cause: str, fix: Fix, **fields: Any) -> Finding:
    """A finding with the slug, category and default severity that the catalogue gives its code."""
    rule = catalogue_rule(code)
    fields.setdefault("severity", rule.severity)
    return Finding(code=code, slug=rule.slug, category=rule.category, title=title, cause=cause, fix=fix, **fields)


def fingerprint_of(code: str, place: Place | None, reason: str, process: Process) -> str:
    """The fingerprint of a finding of this code at this place."""
    if place is None:
        return fingerprint(code, "", "", "", reason)
    path = portable_path(place.location.path, process.program.your_roots)
    return fingerprint(code, path, place.location.function or "", place.code, reason)


def placed_fields(place: Place, code: str, reason: str, process: Process, event: Placed) -> dict[str, object]:
    """The fields that every finding at a place shares."""
    return {
        "location": place.location, "raised_at": place.raised_at, "owner": place.owner,
        "steps": () if event.step is None else (event.step,), "ranks": () if process.rank is None else (process.rank,),
        "fingerprint": fingerprint_of(code, place, reason, process),
    }


def first_line(text: str) -> str:
    """The first line of a message, without addresses and trailing comments."""
    return re.sub(r" at 0x[0-9a-f]+", "", text.split("\n", 1)[0].split("  # ")[0].strip())

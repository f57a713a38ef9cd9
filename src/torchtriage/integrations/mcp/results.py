"""The structured results of the tools, with a limit on their size."""

import json
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

_BEGIN = '{\n "schema": 1,'
MAX_RESULT_BYTES = 200_000      # of the findings of one answer, which a model reads as a whole


class FindingList(TypedDict):
    """Findings in the form of `--format json`, the worst first; `num_left_out` are counted and not returned."""

    num_findings: int
    num_left_out: int
    findings: list[dict[str, Any]]
    totals: dict[str, Any]
    watched: list[str]
    not_seen: list[str]


class ProgramRun(FindingList):
    """The findings of a run, and how the program ended; `exit_status` is null if it was ended at the time limit."""

    recording: str
    exit_status: int | None
    is_timed_out: bool
    last_output: str
    last_errors: str


class RuleText(TypedDict):
    """The page of a rule by its headings, or what PyTorch says about a graph break."""

    code: str
    title: str
    summary: str
    severity: NotRequired[str | None]
    sections: dict[str, str]
    hints: list[str]


class ProofAnswer(TypedDict):
    """What `verify` found; `facts` is its full JSON."""

    verdict: str
    reasons: list[str]
    text: str
    facts: dict[str, Any]


def found(facts: Mapping[str, Any], most: int) -> FindingList:
    """The findings of a report, as many as fit."""
    findings = list(facts["findings"])
    kept: list[dict[str, Any]] = []
    size = 0
    for finding in findings[:most]:
        size += len(json.dumps(finding))
        if size > MAX_RESULT_BYTES and kept:
            break
        kept.append(finding)
    return FindingList(
        num_findings=len(findings), num_left_out=len(findings) - len(kept), findings=kept,
        totals=dict(facts.get("totals") or {}), watched=[str(name) for name in facts.get("watched", ())],
        not_seen=[str(name) for name in facts.get("not_seen", ())],
    )


def split_report(printed: str) -> tuple[str, dict[str, Any] | None]:
    """(what a program printed, the report that `run --format json` printed after it); None without a report."""
    program, begin, rest = printed.rpartition(_BEGIN)
    try:
        facts = json.loads(begin + rest) if begin else None
    except ValueError:
        facts = None
    return (program, facts) if isinstance(facts, dict) and "findings" in facts else (printed, None)

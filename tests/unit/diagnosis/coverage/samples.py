"""Functions, facts and helpers that the tests of the coverage rules share."""

from collections.abc import Callable, Iterator
from typing import Any

from tests.unit.samples import a_process
from torchtriage.findings.model import Finding
from torchtriage.recording.events import CompileCall, Event
from torchtriage.recording.recording import Process

APP = "/app/train.py"
F: dict[str, Any] = {"path": APP, "line": 3, "function": "f"}
G: dict[str, Any] = {"path": APP, "line": 30, "function": "g"}
FACTS: dict[str, Any] = {"your_roots": ["/app"], "end": 100.0}
CALL = CompileCall(path=APP, line=31, function="main", target="f", target_path=APP, target_line=3)
Rule = Callable[[Process], Iterator[Finding]]


def findings_of(rule: Rule, *events: Event, **facts: Any) -> list[Finding]:
    return list(rule(a_process(*events, **{**FACTS, **facts})))


def the_one(rule: Rule, *events: Event, **facts: Any) -> Finding:
    [finding] = findings_of(rule, *events, **facts)
    return finding

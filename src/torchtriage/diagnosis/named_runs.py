"""A finding of only some of several runs with names, such as the seeds of a training, says of which."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from torchtriage.findings.model import Finding
from torchtriage.recording.recording import Process

MAX_NAMED = 5       # runs; the rest are counted


def same_problem(finding: Finding) -> tuple[str, str]:
    """Equal for the same problem, in whichever process it was found."""
    return finding.code, finding.fingerprint


def with_their_runs(by_process: Sequence[tuple[Process, Sequence[Finding]]]) -> list[Finding]:
    """The findings of all processes; nothing is added where every run has it, or none has a name."""
    named = [(str(name), findings) for process, findings in by_process if (name := process.facts.get("name"))]
    runs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, findings in named:
        for problem in {same_problem(f) for f in findings}:
            runs[problem].append(name)
    notes = {problem: (_only_in(own, len(named)),) for problem, own in runs.items() if len(own) < len(named)}
    return [_with_notes(f, notes.get(same_problem(f), ())) for _, findings in by_process for f in findings]


def _with_notes(finding: Finding, notes: tuple[str, ...]) -> Finding:
    return finding.with_(evidence=replace(finding.evidence, notes=(*finding.evidence.notes, *notes))) if notes else finding


def _only_in(names: Sequence[str], num_runs: int) -> str:
    left = len(names) - MAX_NAMED
    return f"only in {', '.join(names[:MAX_NAMED])}{f' and {left} more' if left > 0 else ''} of {num_runs} runs"

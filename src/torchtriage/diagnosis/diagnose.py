"""From a recording to ranked findings: run every rule, weigh the cost, merge the ranks, link what belongs together."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from torchtriage.diagnosis import recording_health  # noqa: F401 - importing registers its rules
from torchtriage.diagnosis.places import source_lines
from torchtriage.diagnosis.recompiles.fold import fold_library_frames
from torchtriage.diagnosis.rules import PROCESS_RULES, RUN_RULES
from torchtriage.diagnosis.totals import is_idle, recompile_share, step_milliseconds
from torchtriage.findings.model import Finding
from torchtriage.findings.severity import severity_for
from torchtriage.recording.recording import Process, Recording

MAX_NAMED = 5       # runs; the rest are counted


def diagnose(recording: Recording) -> list[Finding]:
    """Every finding of a run, the worst and dearest first."""
    found = with_their_runs([(process, _of_process(process)) for process in recording.processes if not is_idle(process)])
    found.extend(f for rule in RUN_RULES for f in rule(recording))
    return sorted(merged(found), key=_rank)


def _of_process(process: Process) -> list[Finding]:
    # Importing registers their rules; only here, as a run in which nothing happened need not wait for them.
    from torchtriage.diagnosis.coverage import compile_calls, failures, limits, start_up  # noqa: F401
    from torchtriage.diagnosis.effects import fold_effects
    from torchtriage.diagnosis.graph_breaks import finding as breaks  # noqa: F401
    from torchtriage.diagnosis.learning import finding as learning  # noqa: F401
    from torchtriage.diagnosis.recompiles import finding as recompiles  # noqa: F401

    found = [f for rule in PROCESS_RULES for f in rule(process)]
    weighted = [weighed(f, process) for f in fold_library_frames(found)]
    return linked([with_source(f, process) for f in fold_effects(weighted, process)])


def weighed(finding: Finding, process: Process) -> Finding:
    """The finding with its share of steady state, where that is known, and the severity that follows."""
    share = finding.cost.share
    if finding.code.startswith("TT2"):
        share = recompile_share(process, finding.evidence.compile_ids)
    elif finding.cost.ms_per_step is not None:
        step = step_milliseconds(process)
        share = finding.cost.ms_per_step / step if step and finding.cost.ms_per_step <= step else None
    cost = replace(finding.cost, share=share)
    return finding.with_(cost=cost, severity=severity_for(finding.severity, share=share))


def with_source(finding: Finding, process: Process) -> Finding:
    """The finding with the lines around its place, where its rule has not chosen others."""
    if finding.evidence.source:
        return finding
    return finding.with_(evidence=replace(finding.evidence, source=source_lines(process, finding.location)))


def linked(findings: list[Finding]) -> list[Finding]:
    """A limit and the recompiles that led to it name each other."""
    frames: dict[str, list[Finding]] = defaultdict(list)
    for f in findings:
        for frame in {cid.rpartition("/")[0] for cid in f.evidence.compile_ids if cid}:
            if f.code == "TT301" or f.code.startswith("TT2"):
                frames[frame].append(f)
    related: dict[str, set[str]] = defaultdict(set)
    for group in frames.values():
        if any(f.code == "TT301" for f in group):
            for f in group:
                related[f.fingerprint] |= {other.fingerprint for other in group if other is not f and _places(f) & _places(other)}
    return [_explained(f.with_(related=(*f.related, *sorted(related[f.fingerprint]))), findings) for f in findings]


def _places(finding: Finding) -> set[str]:
    """Where a finding is; after torch._dynamo.reset() frames are numbered anew, so the number alone does not tell them apart."""
    return {str(place) for place in (finding.location, finding.raised_at) if place is not None}


def _explained(finding: Finding, findings: list[Finding]) -> Finding:
    """A limit takes over the cause and fix of the recompiles behind it: that is what there is to change."""
    if finding.code != "TT301":
        return finding
    causes = [f for f in findings if f.fingerprint in finding.related and f.code.startswith("TT2")]
    if not causes:
        return finding
    # A finding that folds the frames below a call is told by its first frame, which need not be this one.
    own = [f for f in causes if f.raised_at == finding.raised_at] or causes
    main = max(own, key=lambda f: f.evidence.num_events)
    return finding.with_(
        cause=f"{main.cause} ({main.code})", fix=main.fix, owner=main.owner,
        evidence=replace(finding.evidence, values=main.evidence.values),
    )


def merged(findings: list[Finding]) -> list[Finding]:
    """One finding for the same problem in several processes; costs run side by side, so the largest counts."""
    by_fingerprint: dict[tuple[str, str], Finding] = {}
    for f in findings:
        key = same_problem(f)
        by_fingerprint[key] = _joined(by_fingerprint[key], f) if key in by_fingerprint else f
    return list(by_fingerprint.values())


def _joined(a: Finding, b: Finding) -> Finding:
    main = a if (a.cost.seconds or 0.0) >= (b.cost.seconds or 0.0) else b
    return main.with_(
        severity=min(a.severity, b.severity), ranks=tuple(sorted({*a.ranks, *b.ranks})), steps=tuple(sorted({*a.steps, *b.steps}))[:50],
        related=tuple(sorted({*a.related, *b.related})),
        evidence=replace(main.evidence, num_events=a.evidence.num_events + b.evidence.num_events),
    )


def same_problem(finding: Finding) -> tuple[str, str]:
    """Equal for the same problem, in whichever process it was found."""
    return finding.code, finding.fingerprint


def with_their_runs(by_process: Sequence[tuple[Process, Sequence[Finding]]]) -> list[Finding]:
    """The findings of all processes; nothing is added where every run has it, or none has a name."""
    named = [(process.name, findings) for process, findings in by_process if process.name]
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


def _rank(finding: Finding) -> tuple[object, ...]:
    cost = finding.cost
    dearest = (-_coarse_share(cost.share), -_coarse_seconds(cost.seconds), -finding.evidence.num_events)
    # Start-up cost is the sum of what the other findings cause, so they come first.
    is_sum = finding.code in ("TT306", "TT307")
    return (finding.severity, is_sum, *dearest, finding.code, str(finding.location))


def _coarse_share(share: float | None) -> int:
    """The share in steps of 10 %, so that timing noise does not reorder findings."""
    return round(10 * (share or 0.0))


def _coarse_seconds(seconds: float | None) -> int:
    """Seconds by powers of four: below 4 s compile time is noise between two runs of one program."""
    return int(math.log(seconds, 4)) if seconds is not None and seconds >= 4 else 0

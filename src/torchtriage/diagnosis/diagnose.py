"""From a recording to ranked findings: run every rule, weigh the cost, merge the ranks, link what belongs together."""

from collections import defaultdict
from dataclasses import replace

from torchtriage.diagnosis import recording_health  # noqa: F401 - importing registers its rules
from torchtriage.diagnosis.named_runs import same_problem, with_their_runs
from torchtriage.diagnosis.places import source_lines
from torchtriage.diagnosis.ripples import without_ripples
from torchtriage.diagnosis.rules import PROCESS_RULES, RUN_RULES
from torchtriage.diagnosis.steady import recompile_share, step_milliseconds
from torchtriage.findings.model import Finding
from torchtriage.findings.severity import severity_for
from torchtriage.recording.events import Tap
from torchtriage.recording.recording import Process, Recording


def diagnose(recording: Recording) -> list[Finding]:
    """Every finding of a run, the worst and dearest first."""
    found = with_their_runs([(process, _of_process(process)) for process in recording.processes if _is_eventful(process)])
    found.extend(f for rule in RUN_RULES for f in rule(recording))
    return sorted(merged(found), key=_rank)


def _is_eventful(process: Process) -> bool:
    """Whether more is known of a process than that it was watched."""
    return bool(process.series) or not all(isinstance(event, Tap) for event in process.events)


def _of_process(process: Process) -> list[Finding]:
    # Importing registers their rules; only here, as a run in which nothing happened need not wait for them.
    from torchtriage.diagnosis import breaks, compile_errors, coverage, learning, recompiles  # noqa: F401

    found = [f for rule in PROCESS_RULES for f in rule(process)]
    return linked([with_source(weighed(f, process), process) for f in without_ripples(found)])


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


def _rank(finding: Finding) -> tuple[object, ...]:
    cost = finding.cost
    dearest = (-(cost.share or 0.0), -(cost.seconds or 0.0), -finding.evidence.num_events)
    return (finding.severity, *dearest, finding.code, str(finding.location))

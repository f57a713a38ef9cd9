"""Diagnoses a recording: from every rule's findings to one ranked list."""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchtriage.diagnosis import recording_health  # noqa: F401 - importing registers its rules
from torchtriage.diagnosis.coverage import unreached  # noqa: F401 - the same
from torchtriage.diagnosis.places import source_lines
from torchtriage.diagnosis.recompiles.fold import fold_library_frames
from torchtriage.diagnosis.rules import PROCESS_RULES, RUN_RULES
from torchtriage.diagnosis.totals import has_learning, is_idle, recompile_share, run_seconds, step_milliseconds
from torchtriage.findings.model import Finding, Location, SampledValue, Severity
from torchtriage.findings.severity import one_time_severity, severity_for
from torchtriage.recording.recording import Process, Recording
from torchtriage.text import row

COMPILE_RULES = ("TT1", "TT2", "TT3")
START_UP = ("TT306", "TT307")       # first compiles: the sum of what other findings cause, and of what must be paid
MAX_NAMED_RUNS = 5      # the others are only counted
LIMIT = "torch._dynamo.config.recompile_limit"
MIN_MONOTONIC = 4       # values in a row; by chance, one sequence in twelve of four different values is in order


def diagnose(recording: Recording) -> list[Finding]:
    """Every finding of a run, the most severe first, and among those the most expensive."""
    by_process = [(process, _findings_of(process)) for process in recording.processes if not is_idle(process)]
    findings = with_their_runs(by_process)
    for rule in RUN_RULES:
        findings.extend(rule(recording))
    return sorted(merged(findings), key=_rank)


def _findings_of(process: Process) -> list[Finding]:
    # Importing registers their rules. The imports are here so that a run without events does not wait for them, nor one
    # without telemetry for the learning rules.
    from torchtriage.diagnosis.coverage import compile_calls, failures, limits, resets, start_up  # noqa: F401
    from torchtriage.diagnosis.effects import fold_effects
    from torchtriage.diagnosis.graph_breaks import finding as breaks  # noqa: F401
    from torchtriage.diagnosis.recompiles.finding import changed_at, recompile_findings

    if has_learning(process):
        from torchtriage.diagnosis.learning import contracts, policy_contracts, replicas  # noqa: F401
        from torchtriage.diagnosis.learning import finding as learning  # noqa: F401
    findings = [f for rule in PROCESS_RULES for f in rule(process)]
    weighted = [weighed(f, process) for f in fold_library_frames(findings)]
    causes = {f.fingerprint: changed_at(group, process) for group, f in recompile_findings(process)}
    found = linked(fold_effects(weighted, process), {key: place for key, place in causes.items() if place is not None})
    return [with_source(f, process) for f in found]


def weighed(finding: Finding, process: Process) -> Finding:
    """The finding with its share of steady state, if known, and the severity that follows from it."""
    share = finding.cost.share
    if finding.code.startswith("TT2"):
        share = recompile_share(process, finding.evidence.compile_ids)
    elif finding.cost.ms_per_step is not None:
        step = step_milliseconds(process)
        share = finding.cost.ms_per_step / step if step and finding.cost.ms_per_step <= step else None
    cost = replace(finding.cost, share=share)
    severity = severity_for(finding.severity, share=share)
    is_one_time = finding.code.startswith(COMPILE_RULES) and finding.code not in START_UP and cost.ms_per_step is None
    if is_one_time:
        severity = min(severity, one_time_severity(cost.seconds, run_seconds(process)))
    return finding.with_(cost=cost, severity=severity)


def with_source(finding: Finding, process: Process) -> Finding:
    """The finding with the source lines around its place, unless its rule selected other lines."""
    if finding.evidence.source:
        return finding
    return finding.with_(evidence=replace(finding.evidence, source=source_lines(process, finding.location)))


def linked(findings: list[Finding], causes: Mapping[str, Location] | None = None) -> list[Finding]:
    """The findings, with each recompile limit and the recompiles that led to it related to each other.

    `causes` has by fingerprint the line at which recompiles are to be cured, where it is not in the compiled function.
    """
    frames: dict[str, list[Finding]] = defaultdict(list)
    for f in findings:
        if _is_limit(f) or f.code.startswith("TT2"):
            for frame in {compile_id.rpartition("/")[0] for compile_id in f.evidence.compile_ids if compile_id}:
                frames[frame].append(f)
    related: dict[str, set[str]] = defaultdict(set)
    for group in frames.values():
        if any(_is_limit(f) for f in group):
            for f in group:
                related[f.fingerprint] |= {
                    other.fingerprint for other in group if other is not f and _places(f) & _places(other)
                }
    together = [f.with_(related=(*f.related, *sorted(related[f.fingerprint]))) for f in findings]
    return [_explained(f, findings, causes or {}) for f in together]


def _is_limit(finding: Finding) -> bool:
    """Whether a finding follows from recompiles up to the limit, at which a call with fullgraph=True raises."""
    return finding.code == "TT301" or (finding.code == "TT308" and "FailOnRecompileLimitHit" in finding.title)


def _places(finding: Finding) -> set[str]:
    """The places of a finding. After torch._dynamo.reset() frame numbers are reused, so they alone are ambiguous."""
    return {str(place) for place in (finding.location, finding.raised_at) if place is not None}


def _explained(finding: Finding, findings: list[Finding], places: Mapping[str, Location]) -> Finding:
    """A recompile limit gets the cause and fix of the recompiles that led to it, as those are to be changed."""
    if not _is_limit(finding):
        return finding.with_(location=places.get(finding.fingerprint, finding.location))
    causes = [f for f in findings if f.fingerprint in finding.related and f.code.startswith("TT2")]
    if not causes:
        return finding
    # A finding into which several frames were folded describes its first frame, which may be another than this one.
    of_this_frame = [f for f in causes if f.raised_at == finding.raised_at]
    # A settled cause, P4, needs no change, so it does not explain a limit if another one is there.
    main = max(of_this_frame or causes, key=lambda f: (f.severity < Severity.P4, f.evidence.num_events))
    # The limit itself, where it was seen to suffice; a value that only grows or falls takes ever new ones.
    is_offered = any(edit.text.startswith(LIMIT) for edit in main.fix.edits)
    raised = () if is_offered or _is_monotonic(main.evidence.values) else finding.fix.edits
    settings = "".join(f"; or {edit.text}: no more variants were seen, and they are used again" for edit in raised)
    fix = replace(main.fix, text=main.fix.text + settings, edits=(*main.fix.edits, *raised))
    return finding.with_(
        cause=f"{main.cause} ({main.code})", fix=fix, owner=main.owner,
        location=places.get(main.fingerprint, finding.location),
        evidence=replace(finding.evidence, values=main.evidence.values),
    )


def _is_monotonic(values: Sequence[SampledValue]) -> bool:
    numbers = [value.number for value in values if value.number is not None]
    if len(numbers) < MIN_MONOTONIC:
        return False
    steps = [after - before for before, after in itertools.pairwise(numbers)]
    return all(step > 0 for step in steps) or all(step < 0 for step in steps)


def merged(findings: list[Finding]) -> list[Finding]:
    """One finding per problem, over all processes. Processes run in parallel, so the largest cost counts."""
    by_fingerprint: dict[tuple[str, str], Finding] = {}
    for f in findings:
        key = same_problem(f)
        by_fingerprint[key] = _joined(by_fingerprint[key], f) if key in by_fingerprint else f
    return list(by_fingerprint.values())


def _joined(a: Finding, b: Finding) -> Finding:
    main = a if (a.cost.seconds or 0.0) >= (b.cost.seconds or 0.0) else b
    return main.with_(
        severity=min(a.severity, b.severity),
        ranks=tuple(sorted({*a.ranks, *b.ranks})),
        steps=tuple(sorted({*a.steps, *b.steps}))[:50],
        related=tuple(sorted({*a.related, *b.related})),
        evidence=replace(main.evidence, num_events=a.evidence.num_events + b.evidence.num_events),
    )


def same_problem(finding: Finding) -> tuple[str, str]:
    """A key that is equal for the same problem in every process."""
    return finding.code, finding.fingerprint


def with_their_runs(by_process: Sequence[tuple[Process, Sequence[Finding]]]) -> list[Finding]:
    """The findings of all processes. A problem that only some of the named runs have gets a note that names them."""
    named = [(process.name, findings) for process, findings in by_process if process.name]
    runs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, findings in named:
        for problem in {same_problem(f) for f in findings}:
            runs[problem].append(name)
    noted = []
    for _, findings in by_process:
        for f in findings:
            names = runs[same_problem(f)]
            if 0 < len(names) < len(named):
                note = f"only in {row(names, MAX_NAMED_RUNS)} of {len(named)} runs"
                f = f.with_(evidence=replace(f.evidence, notes=(*f.evidence.notes, note)))
            noted.append(f)
    return noted


PPO_FAMILY, FIRST_PPO_CONTRACT = "TT6", "TT615"


def _rank(finding: Finding) -> tuple[object, ...]:
    cost = finding.cost
    most_expensive_first = (-_coarse_share(cost.share), -_coarse_seconds(cost.seconds), -finding.evidence.num_events)
    # Start-up cost is the sum of what the other findings cause, so they come first.
    # A contract of PPO is exact, and the limits that an update passes often follow from it.
    is_symptom = finding.code.startswith(PPO_FAMILY) and finding.code < FIRST_PPO_CONTRACT
    return (
        finding.severity, finding.code in START_UP, finding.fix.is_optional, is_symptom, *most_expensive_first,
        finding.code,
        str(finding.location),
    )


def _coarse_share(share: float | None) -> int:
    """The share in steps of 10 %, so that timing noise does not reorder findings."""
    return round(10 * (share or 0.0))


def _coarse_seconds(seconds: float | None) -> int:
    """Seconds by powers of four: below 4 s compile time is noise between two runs of one program."""
    return int(math.log(seconds, 4)) if seconds is not None and seconds >= 4 else 0

"""Judge a check by a recording: proven, refuted, or open with the reason."""

import enum
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchtriage.findings.model import Check, CheckKind, Finding, OwnerKind
from torchtriage.recording.events import GraphBreak
from torchtriage.text import counted, original_function, row, times
from torchtriage.tickets.checks.matching import base_name, same_base, same_file
from torchtriage.tickets.model import Ticket
from torchtriage.tickets.runs.call_graph import Project, disabling_decorator
from torchtriage.tickets.runs.from_finding import MAX_LISTED
from torchtriage.tickets.runs.observations import CompiledFrame, Observations, names_in
from torchtriage.tickets.runs.seen_section import Sighting
from torchtriage.tickets.runs.source_checks import fact_for

NOT_PROVABLE = "neither a recording nor the source can show this"
IN_SOURCE = "in the source "        # how the reason for a box begins that the source, not the run, leaves open


class State(enum.Enum):
    PROVEN = "proven"
    REFUTED = "refuted"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckProof:
    """The result of one check."""

    state: State
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One ticket and one recording.

    `sighting` is the ticket's note about earlier runs; `ticketed` are the fingerprints that have a ticket.
    """

    ticket: Ticket
    observations: Observations
    sighting: Sighting
    project: Project
    ticketed: frozenset[str] = frozenset()

    @property
    def fingerprints(self) -> list[str]:
        """The fingerprint of the ticket, and those of the findings that confirmed it."""
        return [mark for mark in (self.ticket.fingerprint, *self.sighting.confirmed) if mark]

    @property
    def covering(self) -> list[CompiledFrame]:
        """The compiled functions that contain the ticket's place: its own function, or one that inlined it."""
        functions = [(file, name) for file in self.ticket.files for name in names_in(self.ticket.function)]
        for frame in self.sighting.frames:
            path, _, name = frame.rpartition("::")
            functions.append((path, name))
        frames = {id(frame): frame for file, name in functions for frame in self.observations.at(file, name)}
        return [frame for frame in frames.values() if frame.was_compiled]

    @property
    def family(self) -> str:
        """TT1 for a graph break, TT2 for a recompile; TT for a ticket that does not come from a run."""
        code = re.match(r"TT\d", self.ticket.report_section)
        return code[0] if code else "TT"

    @property
    def unlogged(self) -> str:
        """Why a log without any graph break proves nothing about graph breaks; empty for other recordings."""
        if self.observations.recording.origin == "log" and not self.observations.breaks:
            return "the log contains no graph breaks at all, so they may not have been logged"
        return ""

    @property
    def successors(self) -> list[Finding]:
        """New findings of the same family in the same function: possibly this finding, after an edit."""
        return [finding for finding in self.observations.findings if self._may_succeed(finding)]

    def _may_succeed(self, finding: Finding) -> bool:
        if finding.fingerprint in self.ticketed or not finding.code.startswith(self.family):
            return False
        place = finding.location
        is_in_file = any(same_file(place.path, file) for file in self.ticket.files)
        names = names_in(self.ticket.function)
        return is_in_file and any(_same_function(place.function or "", name) for name in names)


def judge(check: Check, case: Case) -> CheckProof:
    """Whether the recording proves or refutes a check; for a check of the source, whether the source does."""
    rule = _RULES.get(check.kind)
    if rule is None:
        proof = judge_source(check.subject, case.ticket, case.project)
        is_left = proof.state is not State.PROVEN and proof.reason != NOT_PROVABLE
        return replace(proof, reason=f"{IN_SOURCE}{proof.reason}") if is_left else proof
    proof = rule(check, case)
    if proof.state is not State.PROVEN:
        return proof
    # A proof needs a complete recording that is at least as long as the one that showed the finding.
    objection = case.observations.gap or too_short(case)
    return _open(objection) if objection else proof


def judge_source(text: str, ticket: Ticket, project: Project) -> CheckProof:
    """Whether the source proves or refutes a line of the checklist."""
    fact = fact_for(text, ticket, project)
    if fact is None:
        return _open(NOT_PROVABLE)
    states = {True: State.PROVEN, False: State.REFUTED, None: State.OPEN}
    return CheckProof(state=states[fact.holds], reason=fact.reason)


def too_short(case: Case) -> str:
    """Why this run is too short to prove an absence; empty if it is long enough."""
    steps = [p.num_steps for p in case.observations.recording.processes if p.num_steps is not None]
    before = case.sighting.run.num_steps if case.sighting.run else None
    if before and steps and max(steps) < before:
        return f"this run has {counted(max(steps), 'step')}, the one that showed the finding had {before:,}"
    return ""


def possible_successor(finding: Finding) -> str:
    line = finding.location.line
    return f"{finding.code} is new at line {line} of the same function and may be this finding after an edit"


def _open(reason: str) -> CheckProof:
    return CheckProof(state=State.OPEN, reason=reason)


def _refuted(reason: str) -> CheckProof:
    return CheckProof(state=State.REFUTED, reason=reason)


def _proven(reason: str) -> CheckProof:
    return CheckProof(state=State.PROVEN, reason=reason)


def _absence(case: Case, name: str, frames: Sequence[CompiledFrame], counterexample: str, result: str) -> CheckProof:
    """Proven if the function was compiled without a counterexample; `result` ends the reason."""
    if counterexample:
        return _refuted(counterexample)
    if any(mark in case.observations.fingerprints for mark in case.fingerprints):
        return _refuted("the finding still occurs")
    frames = [frame for frame in frames if frame.was_compiled]
    if not frames:
        return _open(f"{name or 'the function'} was not compiled in this recording")
    if case.successors:
        return _open(possible_successor(case.successors[0]))
    return _proven(f"{frames[0].qualname} was compiled {_num_compiles(frames)}, {result}")


def _num_compiles(frames: Sequence[CompiledFrame]) -> str:
    return times(sum(frame.num_compiles for frame in frames))


def _no_break(check: Check, case: Case) -> CheckProof:
    if check.place is None:
        return _open(NOT_PROVABLE)
    if case.unlogged:
        return _open(case.unlogged)
    path, line = check.place.path, check.place.line
    files = [file for file in case.ticket.files if same_base(file, path)] or [path]
    breaks = [
        event for event in case.observations.breaks
        if event.line == line and any(same_file(event.path, file) for file in files)
    ]
    counterexample = f"{counted(len(breaks), 'graph break')} at {path}:{line}" if breaks else ""
    return _absence(case, case.ticket.function, case.covering, counterexample, "without a graph break there")


def _not_eager(check: Check, case: Case) -> CheckProof:
    frames = case.observations.named(check.subject, case.ticket.files)
    eager = next((each for each in case.observations.eager if _same_function(each.function, check.subject)), None)
    counterexample = f"{eager} runs eager" if eager else ""
    return _absence(case, check.subject, frames, counterexample, "and no break sent it to eager")


def _no_resume(check: Check, case: Case) -> CheckProof:
    name = original_function(check.subject)
    frames = case.observations.named(name, case.ticket.files)
    resume_functions = [each.frame.function for each in frames if each.frame.is_resume]
    if check.subject in resume_functions:
        return _refuted(f"{check.subject} was compiled")
    if resume_functions and not case.ticket.fingerprint:
        return _open(f"{resume_functions[0]} was compiled: possibly the same break at another line")
    return _absence(case, name, [each for each in frames if not each.frame.is_resume], "", "and not resumed there")


def _few_recompiles(check: Check, case: Case) -> CheckProof:
    frames = case.observations.named(check.subject, case.ticket.files)
    most = max((len(frame.frame.recompiles) for frame in frames), default=0)
    if most > 1:
        return _refuted(counted(most, "recompile"))
    if any(frame.was_compiled for frame in frames):
        return _proven(f"{check.subject} was compiled {_num_compiles(frames)}, with {counted(most, 'recompile')}")
    return _open(f"{check.subject} was not compiled in this recording")


def _no_code(check: Check, case: Case) -> CheckProof:
    counterexample = ""
    for finding in case.observations.findings:
        places = [place for place in (finding.location, finding.raised_at) if place]
        if finding.code == check.code and any(_same_function(p.function or "", check.subject) for p in places):
            counterexample = f"{finding.code} occurs at line {finding.location.line}"
            break
    frames = case.observations.named(check.subject, case.ticket.files)
    return _absence(case, check.subject, frames, counterexample, f"without a {check.code}")


def _no_limit(check: Check, case: Case) -> CheckProof:
    name = check.subject
    frames = case.observations.named(name, case.ticket.files)
    counterexample = f"{name} reached its recompile limit" if any(frame.frame.limits for frame in frames) else ""
    return _absence(case, name, frames, counterexample, "and did not reach its recompile limit")


def _is_compiled(check: Check, case: Case) -> CheckProof:
    frames = case.observations.named(check.subject, case.ticket.files)
    if any(frame.was_compiled for frame in frames):
        return _proven(f"{check.subject} was compiled {_num_compiles(frames)}")
    return _open(f"{check.subject} is not among the compiled frames")


def _no_failure(check: Check, case: Case) -> CheckProof:
    frames = case.observations.named(check.subject, case.ticket.files)
    failures = [end.fail_type for frame in frames for end in frame.frame.ends if end.fail_type]
    counterexample = f"a compile of {check.subject} failed with {failures[0]}" if failures else ""
    return _absence(case, check.subject, frames, counterexample, "without a failure")


def _no_suppression(check: Check, case: Case) -> CheckProof:
    settings = [end.suppress_errors for end in case.observations.ends if end.suppress_errors is not None]
    if any(settings):
        return _refuted("suppress_errors is still set")
    if not settings:
        return _open("this source does not show suppress_errors")
    return _proven(f"it was off in {counted(len(settings), 'compile')}")


def _not_compiled(check: Check, case: Case) -> CheckProof:
    """Proven if no compiled frame is the function or can inline it: it is disabled, or not reachable by name."""
    names, files = names_in(case.ticket.function), case.ticket.files
    if not names or not files:
        return _open("the ticket does not name a function and its file")
    if not case.observations.frames:
        return _open("nothing was compiled in this recording")
    reasons = []
    for name in names:
        proof = _is_kept_out(name, case)
        if proof.state is not State.PROVEN:
            return proof
        reasons.append(proof.reason)
    return _proven("; ".join(reasons))


def _is_kept_out(name: str, case: Case) -> CheckProof:
    """Whether one function is kept out of compiled code."""
    frames, last = case.observations.frames, name.rpartition(".")[2]
    if any(frame.is_called(name) and _is_in_ticket(frame.path, case) for frame in frames):
        return _refuted(f"{name} was compiled")
    definitions = [node for file in case.ticket.files for node in case.project.definitions(base_name(file), last)]
    if not definitions:
        return _open(f"no {base_name(case.ticket.files[0])} below {case.project.root} defines {name}")
    if all(disabling_decorator(node, tree) for node, tree in definitions):
        num_frames = counted(len(frames), "compiled frame")
        return _proven(f"{name} is decorated with torch.compiler.disable and is not among the {num_frames}")
    inlined_at = _break_inside(last, case)
    if inlined_at:
        return _open(f"{name} is in the stack of the graph break at {base_name(inlined_at.path)}:{inlined_at.line}")
    foreign = next((frame for frame in frames if frame.owner.kind is not OwnerKind.YOU), None)
    if foreign:
        return _open(f"{foreign.qualname} of {foreign.owner} was compiled, and the functions it inlines are unknown")
    for path, function in sorted({(Path(frame.path), frame.name) for frame in frames}):
        chain = case.project.chain((path, function), last)
        if chain is None:
            return _open(f"the source of {function} is not at {path}, so the functions it inlines are unknown")
        if chain:
            return _open(f"compiled code may inline it: {' -> '.join(chain)}")
    compiled = row(sorted({frame.qualname for frame in frames}), MAX_LISTED)
    return _proven(f"no compiled function is {name} or reaches it by name: {compiled}")


def _break_inside(function: str, case: Case) -> GraphBreak | None:
    """A graph break with this function of the ticket's files in its stack."""
    for event in case.observations.breaks:
        if any(entry.function == function and _is_in_ticket(entry.path, case) for entry in event.stack):
            return event
    return None


def _is_in_ticket(path: str, case: Case) -> bool:
    """Whether a path may be one of the ticket's files, which may have been written on another machine."""
    return any(same_base(path, file) for file in case.ticket.files)


def _same_function(one: str, other: str) -> bool:
    return bool(one) and (one == other or one.rpartition(".")[2] == other or other.rpartition(".")[2] == one)


# No single recording shows the other kinds: they compare two recordings, or need a person's judgement.
_RULES: dict[CheckKind, Callable[[Check, Case], CheckProof]] = {
    CheckKind.NO_GRAPH_BREAK: _no_break,
    CheckKind.NOT_EAGER: _not_eager,
    CheckKind.REST_NOT_EAGER: _not_eager,
    CheckKind.NO_RESUME_FUNCTION: _no_resume,
    CheckKind.FEW_RECOMPILES: _few_recompiles,
    CheckKind.NO_FINDING: _no_code,
    CheckKind.BELOW_RECOMPILE_LIMIT: _no_limit,
    CheckKind.IS_COMPILED: _is_compiled,
    CheckKind.NO_FAILED_COMPILE: _no_failure,
    CheckKind.ERRORS_NOT_SUPPRESSED: _no_suppression,
    CheckKind.NOT_IN_COMPILED_CODE: _not_compiled,
}

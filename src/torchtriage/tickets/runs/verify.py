"""Judges a check by a recording: proven, refuted, or left with the reason why."""

import enum
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchtriage.findings.model import Check, CheckKind, Finding, OwnerKind
from torchtriage.text import original_function, times
from torchtriage.tickets.checks.matching import base_name
from torchtriage.tickets.model import Ticket
from torchtriage.tickets.runs.call_graph import Project, is_disabled
from torchtriage.tickets.runs.from_finding import some
from torchtriage.tickets.runs.observed import Observed, SeenFrame, names_in, same_base, same_file
from torchtriage.tickets.runs.seen_section import Seen

NOT_SHOWN = "no recording can show this"


class State(enum.Enum):
    PROVEN = "proven"
    REFUTED = "refuted"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    state: State
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One ticket, one recording, and what the ticket knows of earlier ones; `known` are the fingerprints that have a ticket already."""

    ticket: Ticket
    observed: Observed
    seen: Seen
    project: Project
    known: frozenset[str] = frozenset()

    @property
    def covering(self) -> list[SeenFrame]:
        """The compiled functions that hold the ticket's place: its own function, or the one it was inlined in."""
        own = [(file, name) for file in self.ticket.files for name in names_in(self.ticket.function)]
        earlier = [(path, name) for path, _, name in (frame.rpartition("::") for frame in self.seen.frames)]
        found = {id(frame): frame for file, name in (*own, *earlier) for frame in self.observed.at(file, name)}
        return [frame for frame in found.values() if frame.was_compiled]

    @property
    def family(self) -> str:
        """TT1 for a graph break, TT2 for a recompile; TT for a ticket that no run made."""
        code = re.match(r"TT\d", self.ticket.report_section)
        return code[0] if code else "TT"

    @property
    def unlogged(self) -> str:
        """Why a log that shows no graph break proves nothing about them."""
        is_blind = self.observed.recording.origin == "log" and not self.observed.breaks
        return "the log shows no graph break at all, so perhaps they were not logged" if is_blind else ""

    @property
    def successors(self) -> list[Finding]:
        """New findings of the same family in the same function: perhaps this one, after an edit."""
        return [
            f for f in self.observed.findings
            if f.fingerprint not in self.known and f.code.startswith(self.family)
            and any(same_file(f.location.path, file) for file in self.ticket.files)
            and any(_same_function(f.location.function or "", name) for name in names_in(self.ticket.function))
        ]


def judge(check: Check, case: Case) -> Proof:
    """What the recording says about one check."""
    rule = _RULES.get(check.kind)
    if rule is None:
        return _open(NOT_SHOWN)
    proof = rule(check, case)
    return _weighed(proof, case) if proof.state is State.PROVEN else proof


def _weighed(proof: Proof, case: Case) -> Proof:
    """A proof stands only on a whole recording that is at least as long as the one that showed the finding."""
    if case.observed.hole:
        return _open(case.observed.hole)
    return _open(too_short(case)) if too_short(case) else proof


def too_short(case: Case) -> str:
    """Why this run is too short to prove an absence; empty if it is not."""
    steps = [p.num_steps for p in case.observed.recording.processes if p.num_steps is not None]
    before = case.seen.run.num_steps if case.seen.run else None
    if before and steps and max(steps) < before:
        return f"this run has {max(steps)} steps, the one that showed it had {before}"
    return ""


def perhaps(successor: Finding) -> str:
    return f"{successor.code} is new at line {successor.location.line} of the same function and may be this one, changed"


def _open(reason: str) -> Proof:
    return Proof(state=State.OPEN, reason=reason)


def _refuted(reason: str) -> Proof:
    return Proof(state=State.REFUTED, reason=reason)


def _proven(reason: str) -> Proof:
    return Proof(state=State.PROVEN, reason=reason)


def _absence(case: Case, name: str, frames: Sequence[SeenFrame], still: str, what: str) -> Proof:
    """Proven if the function was compiled and nothing of the kind came up; `still` says what did."""
    if still:
        return _refuted(still)
    if case.ticket.fingerprint and case.ticket.fingerprint in case.observed.fingerprints:
        return _refuted("the finding is still there")
    frames = [frame for frame in frames if frame.was_compiled]
    if not frames:
        return _open(f"{name or 'the function'} was not compiled in this recording")
    if case.successors:
        return _open(perhaps(case.successors[0]))
    return _proven(f"{frames[0].qualname} was compiled {times(sum(f.num_compiles for f in frames))}, {what}")


def _no_break(check: Check, case: Case) -> Proof:
    if check.place is None:
        return _open(NOT_SHOWN)
    path, line = check.place.path, check.place.line
    files = [file for file in case.ticket.files if same_base(file, path)] or [path]
    there = [b for b in case.observed.breaks if b.line == line and any(same_file(b.path, file) for file in files)]
    still = f"{len(there)} graph breaks at {path}:{line}" if there else ""
    if case.unlogged:
        return _open(case.unlogged)
    return _absence(case, case.ticket.function, case.covering, still, "without a graph break there")


def _not_eager(check: Check, case: Case) -> Proof:
    frames = case.observed.named(check.subject, case.ticket.files)
    still = next((f"{frame} runs eager" for frame in case.observed.eager if _same_function(frame.function, check.subject)), "")
    return _absence(case, check.subject, frames, still, "and no break sent it to eager")


def _no_resume(check: Check, case: Case) -> Proof:
    name = original_function(check.subject)
    frames = case.observed.named(name, case.ticket.files)
    resumed = [f.frame.function for f in frames if f.frame.is_resume]
    if check.subject in resumed:
        return _refuted(f"{check.subject} was compiled")
    if resumed and not case.ticket.fingerprint:
        return _open(f"{resumed[0]} was compiled: perhaps the same break at another line")
    return _absence(case, name, [f for f in frames if not f.frame.is_resume], "", "and not resumed there")


def _few_recompiles(check: Check, case: Case) -> Proof:
    frames = case.observed.named(check.subject, case.ticket.files)
    most = max((len(frame.frame.recompiles) for frame in frames), default=0)
    if most <= 1 and any(frame.was_compiled for frame in frames):
        return _proven(f"{check.subject} was compiled {times(sum(f.num_compiles for f in frames))}, {most} of them recompiles")
    return _refuted(f"{most} recompiles") if most > 1 else _open(f"{check.subject} was not compiled in this recording")


def _no_code(check: Check, case: Case) -> Proof:
    found = [
        f for f in case.observed.findings
        if f.code == check.code and any(
            place and _same_function(place.function or "", check.subject) for place in (f.location, f.raised_at))
    ]
    still = f"{found[0].code} is there, at line {found[0].location.line}" if found else ""
    return _absence(case, check.subject, case.observed.named(check.subject, case.ticket.files), still, f"without a {check.code}")


def _no_limit(check: Check, case: Case) -> Proof:
    name = check.subject
    frames = case.observed.named(name, case.ticket.files)
    still = f"{name} hit its limit" if any(frame.frame.limits for frame in frames) else ""
    return _absence(case, name, frames, still, "and did not reach its limit")


def _is_compiled(check: Check, case: Case) -> Proof:
    frames = case.observed.named(check.subject, case.ticket.files)
    if any(frame.was_compiled for frame in frames):
        return _proven(f"{check.subject} was compiled {times(sum(f.num_compiles for f in frames))}")
    return _open(f"{check.subject} is not among the frames that were compiled")


def _no_failure(check: Check, case: Case) -> Proof:
    frames = case.observed.named(check.subject, case.ticket.files)
    failed = [end.fail_type for frame in frames for end in frame.frame.ends if end.fail_type]
    still = f"a compile of {check.subject} failed with {failed[0]}" if failed else ""
    return _absence(case, check.subject, frames, still, "without a failure")


def _no_suppression(check: Check, case: Case) -> Proof:
    told = [end.suppress_errors for end in case.observed.ends if end.suppress_errors is not None]
    if any(told):
        return _refuted("suppress_errors is still set")
    return _proven(f"it was off at each of {len(told)} compiles") if told else _open("this source does not tell")


def _not_compiled(check: Check, case: Case) -> Proof:
    """Not among the compiled frames, and either disabled or not reachable from them by name: so not inlined either."""
    names, files = names_in(case.ticket.function), case.ticket.files
    if not names or not files:
        return _open("the ticket does not say which function of which file")
    if not case.observed.frames:
        return _open("nothing was compiled in this recording")
    reasons = []
    for name in names:
        proof = _is_kept_out(name, case)
        if proof.state is not State.PROVEN:
            return proof
        reasons.append(proof.reason)
    return _proven("; ".join(reasons))


def _is_kept_out(name: str, case: Case) -> Proof:
    frames, last = case.observed.frames, name.rpartition(".")[2]
    if any(f.is_called(name) and _is_in(f.path, case) for f in frames):
        return _refuted(f"{name} was compiled")
    definitions = [node for file in case.ticket.files for node in case.project.definitions(base_name(file), last)]
    if not definitions:
        return _open(f"no {base_name(case.ticket.files[0])} below {case.project.root} defines {name}")
    if all(is_disabled(node) for node in definitions):
        return _proven(f"{name} carries torch.compiler.disable and is not among the {len(frames)} compiled frames")
    inlined = next((b for b in case.observed.breaks if any(e.function == last and _is_in(e.path, case) for e in b.stack)), None)
    if inlined:
        return _open(f"{name} is in the stack of the graph break at {base_name(inlined.path)}:{inlined.line}")
    foreign = next((f for f in frames if f.owner.kind is not OwnerKind.YOU), None)
    if foreign:
        return _open(f"{foreign.qualname} of {foreign.owner} was compiled, and what it inlines cannot be told")
    for path, function in sorted({(Path(f.path), f.name) for f in frames}):
        chain = case.project.chain((path, function), last)
        if chain is None:
            return _open(f"the source of {function} is not at {path}, so what it inlines cannot be told")
        if chain:
            return _open(f"compiled code may inline it: {' -> '.join(chain)}")
    return _proven(f"none of what was compiled is {name}, or leads to it by name: {some(sorted({f.qualname for f in frames}))}")


def _is_in(path: str, case: Case) -> bool:
    """Whether a path may be one of the ticket's files, which may have been written on another machine."""
    return any(same_base(path, file) for file in case.ticket.files)


def _same_function(one: str, other: str) -> bool:
    return bool(one) and (one == other or one.rpartition(".")[2] == other or other.rpartition(".")[2] == one)


# No recording shows the other kinds: they compare two recordings, or a person judges them.
_RULES: dict[CheckKind, Callable[[Check, Case], Proof]] = {
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

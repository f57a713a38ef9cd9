"""What a new run says about the tickets there are: brings them up to date, ticks what it proves, proposes closing and reopening."""

from dataclasses import dataclass, replace

from torchtriage.findings.checks import check_in
from torchtriage.tickets.files.edit import set_box, set_field
from torchtriage.tickets.model import ENDED, Status, TicketFile
from torchtriage.tickets.runs.seen_section import Run, Seen, read_seen, with_seen
from torchtriage.tickets.runs.verify import Case, State, judge, perhaps, too_short

# The other ends are decisions of a person that hold while the finding is there.
CURED = frozenset({Status.CLOSED, Status.FIXED, Status.ALREADY_FIXED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A ticket after a run: its new file, the boxes that were ticked or left with the reasons, and what is proposed, if anything."""

    file: TicketFile
    ticked: tuple[tuple[str, str], ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    proposed: Status | None = None
    reason: str = ""


def updated(file: TicketFile, case: Case, run: Run, seen: Seen | None, today: str) -> Update:
    """`seen` is what the run shows of the ticket's finding, None if it does not show it."""
    for newer in (case.seen.run, case.seen.gone):
        if newer and run.start and newer.start > run.start:
            return Update(file=file, reason=f"{run.name} is older than {newer.name}, which was held against this ticket before")
    before = replace(seen, proofs=case.seen.proofs) if seen else case.seen
    status = file.ticket.status.lower()
    if status in ENDED:
        came_back = seen is not None and status in CURED
        proposed = Status.OPEN if came_back else None
        new = with_seen(file, before) if seen else file
        return Update(file=new, proposed=proposed, reason=f"it came back in {run.name}" if came_back else "")
    # A box asks for the next run, not for the one that made the ticket.
    new, ticked, left = (file, (), ()) if case.seen.run == run else _with_ticks(file, case)
    proposed, reason = (None, "") if seen else _closing(case, run)
    if proposed:
        before = replace(before, gone=run)
    if seen or ticked or proposed:
        proofs = dict.fromkeys([*before.proofs, *(f'{run.name} ticked "{text}": {why}' for text, why in ticked)])
        new = with_seen(new, replace(before, proofs=tuple(proofs)))
    if ticked:
        new = set_field(new, "updated", today)
    return Update(file=new, ticked=ticked, left=left, proposed=proposed, reason=reason)


def applied(update: Update, case: Case, today: str) -> TicketFile:
    """The ticket with the proposed status; what a reopened one had ticked and the run refutes is open again."""
    if update.proposed is None:
        return update.file
    file = set_field(set_field(update.file, "status", update.proposed), "updated", today)
    if update.proposed is Status.OPEN:
        seen = read_seen(file)
        for number, box in enumerate(file.ticket.verification):
            if box.is_ticked and judge(check_in(box.text), case).state is State.REFUTED:
                file = set_box(file, number, is_ticked=False)
                seen = replace(seen, proofs=tuple(proof for proof in seen.proofs if f'"{box.text}"' not in proof))
        file = with_seen(file, seen)
    return file


Judged = tuple[tuple[str, str], ...]    # the text of a box and why


def _with_ticks(file: TicketFile, case: Case) -> tuple[TicketFile, Judged, Judged]:
    ticked, left = [], []
    for number, box in enumerate(file.ticket.verification):
        if box.is_ticked:
            continue
        proof = judge(check_in(box.text), case)
        if proof.state is State.PROVEN:
            file = set_box(file, number, is_ticked=True)
            ticked.append((box.text, proof.reason))
        else:
            left.append((box.text, proof.reason))
    return file, tuple(ticked), tuple(left)


def _closing(case: Case, run: Run) -> tuple[Status | None, str]:
    """Whether the run shows that the finding is gone; the reason if it cannot."""
    mark = case.ticket.fingerprint
    if not mark:
        return None, ""
    if mark in case.observed.fingerprints:
        return None, "it still occurs, and a comment in the source accepts it"
    frames, successors = case.covering, case.successors
    if case.observed.hole or too_short(case):
        return None, f"not seen, but {case.observed.hole or too_short(case)}"
    if not frames:
        return None, f"not seen, but {case.ticket.function or 'its place'} was not compiled in {run.name}"
    if case.family == "TT1" and case.unlogged:
        return None, f"not seen, but {case.unlogged}"
    if successors:
        return None, f"not seen, but {perhaps(successors[0])}"
    return Status.CLOSED, f"not in {run.name}, where {frames[0].qualname} was compiled"

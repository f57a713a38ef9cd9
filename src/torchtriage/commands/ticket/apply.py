"""Apply findings to the tickets: confirm those that exist, create the others, tick boxes, propose a new status."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from torchtriage.commands.base import complain, say, write_text
from torchtriage.commands.ticket.shared import one_of, today
from torchtriage.config import SEVERITIES, Config
from torchtriage.errors import TriageError
from torchtriage.findings.selection import is_wanted
from torchtriage.text import counted, path_from_here, printable

if TYPE_CHECKING:
    from torchtriage.findings.model import Finding
    from torchtriage.tickets.files.read import TicketFile
    from torchtriage.tickets.files.store import Store
    from torchtriage.tickets.runs.confirm import TicketMatch
    from torchtriage.tickets.runs.from_source import LintedSource
    from torchtriage.tickets.runs.update import NewRun, TicketUpdate


class FindingSource(NamedTuple):
    """What findings come from: a run or the source, by name, and the folders that paths are relative to."""

    name: str
    roots: Sequence[str]


def confirm_tickets(
    store: "Store", findings: "Sequence[Finding]", evidence: FindingSource, args: argparse.Namespace, config: Config,
) -> "tuple[list[Finding], int]":
    """(the selected findings that need a new ticket, the number of doubtful matches that were not taken)."""
    from torchtriage.tickets.runs.confirm import match_in
    from torchtriage.tickets.runs.update import tickets_by_fingerprint

    least = args.min_severity and one_of(args.min_severity, SEVERITIES, "--min-severity")
    ids = tickets_by_fingerprint(store.every)
    new, num_doubtful = [], 0
    for finding in findings:
        if finding.fingerprint in ids or not _becomes_ticket(finding, config, least):
            continue
        match = match_in(store.files, finding, evidence.roots)
        is_doubtful = match is not None and not match.is_sure
        if match is None or (is_doubtful and args.no_match):
            new.append(finding)
        elif is_doubtful and not args.apply:
            num_doubtful += 1
            write_text(_match_line("match?", match, finding))
        else:
            _take(store, match, finding, evidence)
    return new, num_doubtful


def _take(store: "Store", match: "TicketMatch", finding: "Finding", evidence: FindingSource) -> None:
    """Add a finding to the ticket that it confirms; a ticket that cannot be edited is reported."""
    from torchtriage.tickets.runs.update import confirmed_by

    try:
        store.save(confirmed_by(match.file, finding, evidence.name, evidence.roots))
    except TriageError as error:
        complain(error)
        return
    write_text(_match_line("confirmed", match, finding))


def _match_line(verb: str, match: "TicketMatch", finding: "Finding") -> str:
    place = f"{path_from_here(finding.location.path)}:{finding.location.line}"
    return printable(f"{verb:<10}{match.file.ticket.id}  {finding.code} at {place}: {match.reason}") + "\n"


def judge_by_source(store: "Store", file: "TicketFile", source: "LintedSource", args: argparse.Namespace) -> None:
    try:
        update = source.update(file)
        if update.file.text != file.text:
            store.save(update.file)
    except TriageError as error:
        complain(error)
        return
    write_text("".join(f"{printable(line)}\n" for line in _update_lines(file.ticket.id, update, args)))


def _becomes_ticket(finding: "Finding", config: Config, least: str | None) -> bool:
    """Whether a finding is selected; one about the recording itself (TT9xx) only if --select names it."""
    if finding.code.startswith("TT9") and not config.select:
        return False
    return is_wanted(finding, config) and (least is None or finding.severity.name <= least)


def create_tickets(
    store: "Store", run: "NewRun | LintedSource", findings: "list[Finding]", args: argparse.Namespace,
    ids: dict[str, str], domain: str = "",
) -> None:
    """Create a ticket per finding; `domain` replaces the one that follows from the path of the file."""
    from torchtriage.tickets.files.edit import set_field
    from torchtriage.tickets.naming import highest_batch

    batch = args.batch if args.batch is not None else highest_batch(store.ids) + 1
    for draft in run.tickets(findings, batch, store.ids, ids):
        if domain:
            draft = set_field(draft, "domain", domain)
        write_text(created_line(store.add(draft.ticket, draft.text)))
    say(args, f"{counted(len(findings), 'ticket')} created" if findings else "no new findings")


def created_line(file: "TicketFile") -> str:
    return printable(f"created   {file.ticket.id}  {file.ticket.severity}  {file.path}") + "\n"


def update_ticket(
    store: "Store", file: "TicketFile", run: "NewRun", ticketed: frozenset[str], args: argparse.Namespace,
) -> bool:
    """Update one ticket and print the changes; True if a new status is proposed."""
    from torchtriage.tickets.runs.update import apply_proposal

    try:
        case, update = run.update(file, ticketed)
        new = apply_proposal(update, case, today()) if args.apply else update.file
        if new.text != file.text:
            store.save(new)
    except TriageError as error:    # one file that cannot be edited must not prevent the others from being updated
        complain(error)
        return False
    lines = _update_lines(file.ticket.id, update, args)
    if new.text != file.text and not lines:
        lines.append(f"updated   {file.ticket.id}  seen again in {run.run.name}")
    write_text("".join(f"{printable(line)}\n" for line in lines))
    return update.proposed is not None


def _update_lines(ticket_id: str, update: "TicketUpdate", args: argparse.Namespace) -> list[str]:
    """One line per ticked box, box left open, and proposal."""
    from torchtriage.tickets.model import Status
    from torchtriage.tickets.runs.verify import IN_SOURCE, NOT_PROVABLE

    verbs = {Status.CLOSED: ("closed", "close?"), Status.OPEN: ("reopened", "reopen?")}
    lines = [f"ticked    {ticket_id}  {text}: {reason}" for text, reason in update.ticked]
    for text, reason in update.left:
        if args.verbose or not reason.startswith((NOT_PROVABLE, IN_SOURCE)):
            lines.append(f"left      {ticket_id}  {text}: {reason}")
    if update.proposed:
        done, question = verbs[update.proposed]
        lines.append(f"{done if args.apply else question:<10}{ticket_id}  {update.reason}")
    elif update.reason:
        lines.append(f"left      {ticket_id}  {update.reason}")
    return lines

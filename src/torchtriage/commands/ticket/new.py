"""The actions of `ticket` that create tickets: from a recording, by hand, or from other files."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from torchtriage.commands.base import complain, say, write_text
from torchtriage.commands.ticket.shared import one_of, root, today
from torchtriage.config import SEVERITIES, Config
from torchtriage.errors import CommandError, TriageError
from torchtriage.findings.selection import check_rules_exist, is_wanted
from torchtriage.text import counted, path_from_here, printable

if TYPE_CHECKING:
    from torchtriage.findings.model import Category, Finding
    from torchtriage.tickets.files.read import TicketFile
    from torchtriage.tickets.files.store import Store
    from torchtriage.tickets.runs.update import NewRun, TicketUpdate

DEFAULT_AGENT = "codereview"      # the agent of a ticket that a person writes
_ONLY_BY_HAND = ("title", "severity", "file", "lines", "function", "category", "agent", "domain", "summary")


def add_new_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", nargs="?", metavar="RECORDING|TRACE|LOG|-", help=(
        "a run: one ticket per new finding, and updates of the existing tickets"
    ))
    parser.add_argument("--apply", action="store_true", help="also close and reopen tickets as the run proposes")
    parser.add_argument("--select", metavar="CODES", help="only findings with these codes or prefixes, e.g. TT1,TT301")
    parser.add_argument("--ignore", metavar="CODES", help="no findings with these codes or prefixes")
    parser.add_argument("--min-severity", metavar="P0..P4", help="only findings at least this severe")
    parser.add_argument("-v", "--verbose", action="store_true", help=(
        "list every box that was not ticked, with the reason"
    ))
    parser.add_argument("--title", metavar="TEXT", help="create one ticket by hand")
    parser.add_argument("--summary", metavar="TEXT", help="by hand: a one-line summary")
    parser.add_argument("--severity", metavar="P0..P4", help="by hand: the severity (default: P3)")
    parser.add_argument("--file", action="append", metavar="PATH", help="by hand: an affected file; repeatable")
    parser.add_argument("--lines", metavar="N-M", help="by hand: the lines")
    parser.add_argument("--function", metavar="NAME", help="by hand: the function or class")
    parser.add_argument("--category", action="append", metavar="NAME", help=(
        "by hand: one of the twelve categories, or its first words; repeatable"
    ))
    parser.add_argument("--agent", metavar="NAME", help=(
        f"by hand: who found it, e.g. pytorch, drl (default: {DEFAULT_AGENT})"
    ))
    parser.add_argument("--domain", metavar="NAME", help="by hand: the part of the project")
    parser.add_argument("--batch", metavar="N", type=int, help=(
        "the batch (default: the newest batch by hand, a new one from a run)"
    ))


def new_tickets(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Create tickets from the findings of a run, or one by hand.

    torchtriage ticket new train.triage                one ticket per finding; a finding with a ticket updates it
    torchtriage ticket new --title "..." --file x.py   an empty form to fill in

    A run also ticks the verification boxes it proves, and proposes to close tickets whose finding is gone and to
    reopen those whose finding came back.
    """
    if (args.source is None) == (args.title is None):
        raise CommandError("give either a recording, trace or log, or --title for a ticket by hand")
    if args.batch is not None and args.batch < 0:
        raise CommandError(f"--batch must be at least 0, got {args.batch}")
    if args.source is None:
        return _by_hand(store, args)
    for name in _ONLY_BY_HAND:
        if getattr(args, name) is not None:
            raise CommandError(f"--{name} is only for a ticket by hand; leave out {args.source} or --{name}")
    return _from_run(store, args, config)


def _by_hand(store: "Store", args: argparse.Namespace) -> int:
    from torchtriage.tickets.model import Ticket
    from torchtriage.tickets.naming import highest_batch, next_id

    agent = args.agent or DEFAULT_AGENT
    batch = args.batch if args.batch is not None else highest_batch(store.ids) or 1
    ticket = Ticket(
        id=next_id(batch, agent, store.ids), title=args.title,
        severity=one_of(args.severity or "P3", SEVERITIES, "--severity"), batch=str(batch), agent=agent,
        domain=args.domain or "", created=today(), updated=today(), files=tuple(args.file or ()),
        lines=args.lines or "", function=args.function or "", summary=args.summary or "",
        categories=frozenset(_category(word) for word in args.category or ()),
    )
    write_text(_created_line(store.add(ticket)))
    return 0


def _category(word: str) -> "Category":
    """The category that a word or its beginning names."""
    from torchtriage.findings.model import Category
    from torchtriage.tickets.files.read import category_of

    category = category_of(word)
    if category:
        return category
    matches = [each for each in Category if each.value.casefold().startswith(word.casefold())]
    return matches[0] if len(matches) == 1 else Category(one_of(word, Category, "--category"))


def _from_run(store: "Store", args: argparse.Namespace, config: Config) -> int:
    from torchtriage.commands.report import read_source
    from torchtriage.tickets.runs.update import NewRun

    check_rules_exist(config)
    least = args.min_severity and one_of(args.min_severity, SEVERITIES, "--min-severity")
    name = "stdin" if args.source == "-" else path_from_here(os.path.abspath(args.source))
    run = NewRun(read_source(args.source), name=name, root=root(), today=today())
    ids = {file.ticket.fingerprint: file.ticket.id for file in store.every if file.ticket.fingerprint}
    num_proposed = sum(_update(store, file, run, frozenset(ids), args) for file in list(store.files))
    new = [f for f in run.findings if f.fingerprint not in ids and _becomes_ticket(f, config, least)]
    _create(store, run, new, args, ids)
    if num_proposed and not args.apply:
        changes = counted(num_proposed, "change")
        say(args, f"{changes} proposed; apply with: torchtriage ticket new {args.source} --apply")
    return 0


def _becomes_ticket(finding: "Finding", config: Config, least: str | None) -> bool:
    """Whether a finding is selected; one about the recording itself (TT9xx) only if --select names it."""
    if finding.code.startswith("TT9") and not config.select:
        return False
    return is_wanted(finding, config) and (least is None or finding.severity.name <= least)


def _create(
    store: "Store", run: "NewRun", findings: "list[Finding]", args: argparse.Namespace, ids: dict[str, str],
) -> None:
    from torchtriage.tickets.naming import highest_batch

    batch = args.batch if args.batch is not None else highest_batch(store.ids) + 1
    for draft in run.tickets(findings, batch, store.ids, ids):
        write_text(_created_line(store.add(draft.ticket, draft.text)))
    say(args, f"{counted(len(findings), 'ticket')} created" if findings else "no new findings")


def _created_line(file: "TicketFile") -> str:
    return printable(f"created   {file.ticket.id}  {file.ticket.severity}  {file.path}") + "\n"


def _update(
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
    from torchtriage.tickets.runs.verify import NOT_PROVABLE

    verbs = {Status.CLOSED: ("closed", "close?"), Status.OPEN: ("reopened", "reopen?")}
    lines = [f"ticked    {ticket_id}  {text}: {reason}" for text, reason in update.ticked]
    for text, reason in update.left:
        if args.verbose or reason != NOT_PROVABLE:
            lines.append(f"left      {ticket_id}  {text}: {reason}")
    if update.proposed:
        done, question = verbs[update.proposed]
        lines.append(f"{done if args.apply else question:<10}{ticket_id}  {update.reason}")
    elif update.reason:
        lines.append(f"left      {ticket_id}  {update.reason}")
    return lines


def add_import_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help=(
        "ticket files, or batch reports: one ticket per finding of a report"
    ))


def import_tickets(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Import ticket files and batch reports unchanged, with a ticket per finding; nothing is overwritten."""
    from torchtriage.tickets.batches.imports import import_file

    num_skipped = 0
    for name in args.files:
        for result in import_file(store, Path(name), today()):
            if isinstance(result, str):
                num_skipped += 1
                complain(result)
            elif isinstance(result, Path):
                write_text(printable(f"kept      {result}") + "\n")
            else:
                line = f"imported  {result.ticket.id}  {result.ticket.severity}  {result.path}"
                write_text(printable(line) + "\n")
    return 2 if num_skipped else 0

"""The actions of `ticket` that make tickets: from a recording, by hand, or from files that come from elsewhere."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchtriage.commands.base import say, write_out
from torchtriage.commands.ticket_words import near, one_of, root, today
from torchtriage.config import SEVERITIES, Config
from torchtriage.errors import CommandError, TriageError
from torchtriage.findings.selection import check_rules_exist, is_wanted
from torchtriage.text import counted, printable

if TYPE_CHECKING:
    from torchtriage.findings.model import Category, Finding
    from torchtriage.tickets.files.store import Store
    from torchtriage.tickets.model import TicketFile
    from torchtriage.tickets.runs.from_run import NewRun

BY_HAND = "codereview"      # the agent of a ticket that a person writes
_ONLY_BY_HAND = ("title", "severity", "file", "lines", "function", "category", "agent", "domain", "summary")


def add_new_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", nargs="?", metavar="RECORDING|TRACE|LOG|-", help="a run: one ticket a finding, and news of the old ones")
    parser.add_argument("--apply", action="store_true", help="also close and reopen what the run says should be")
    parser.add_argument("--select", metavar="CODES", help="only findings with these codes or prefixes, e.g. TT1,TT301")
    parser.add_argument("--ignore", metavar="CODES", help="not findings with these codes or prefixes")
    parser.add_argument("--min-severity", metavar="P0..P4", help="only findings at least this severe")
    parser.add_argument("-v", "--verbose", action="store_true", help="name every box that was left, with the reason")
    parser.add_argument("--title", metavar="TEXT", help="make one ticket by hand")
    parser.add_argument("--summary", metavar="TEXT", help="by hand: what it is about in one line")
    parser.add_argument("--severity", metavar="P0..P4", help="by hand: P3 if not given")
    parser.add_argument("--file", action="append", metavar="PATH", help="by hand: a file it is in; repeatable")
    parser.add_argument("--lines", metavar="N-M", help="by hand: the lines")
    parser.add_argument("--function", metavar="NAME", help="by hand: the function or class")
    parser.add_argument("--category", action="append", metavar="NAME", help="by hand: one of the twelve, or its first words; repeatable")
    parser.add_argument("--agent", metavar="NAME", help=f"by hand: who found it, e.g. pytorch, drl ({BY_HAND} if not given)")
    parser.add_argument("--domain", metavar="NAME", help="by hand: the part of the project")
    parser.add_argument("--batch", metavar="N", type=int, help="the batch (default: the newest by hand, a new one from a run)")


def new_tickets(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Make tickets of a run's findings, or one by hand.

    torchtriage ticket new train.triage                one ticket a finding; findings with a ticket update it
    torchtriage ticket new --title "..." --file x.py   an empty form to fill in

    A run also ticks the verification boxes it proves, and proposes to close what is gone and reopen what came back.
    """
    if (args.source is None) == (args.title is None):
        raise CommandError("give either a recording, trace or log, or --title for a ticket by hand")
    if args.batch is not None and args.batch < 0:
        raise CommandError(f"--batch must be a number from 0, got {args.batch}")
    if args.source is None:
        return _by_hand(store, args)
    given = [name for name in _ONLY_BY_HAND if getattr(args, name) is not None]
    if given:
        raise CommandError(f"--{given[0]} is for a ticket by hand; leave out {args.source}, or --{given[0]}")
    return _from_run(store, args, config)


def _by_hand(store: "Store", args: argparse.Namespace) -> int:
    from torchtriage.tickets.model import Ticket
    from torchtriage.tickets.naming import highest_batch, next_id

    agent = args.agent or BY_HAND
    batch = args.batch if args.batch is not None else highest_batch(store.ids) or 1
    ticket = Ticket(
        id=next_id(batch, agent, store.ids), title=args.title, severity=one_of(args.severity or "P3", SEVERITIES, "--severity"),
        batch=str(batch), agent=agent, domain=args.domain or "", created=today(), updated=today(), files=tuple(args.file or ()),
        lines=args.lines or "", function=args.function or "", summary=args.summary or "",
        categories=frozenset(_category(word) for word in args.category or ()),
    )
    write_out(f"{_created(store.add(ticket))}\n")
    return 0


def _category(word: str) -> "Category":
    from torchtriage.findings.model import Category
    from torchtriage.tickets.files.read import category_of

    fitting = [category for category in Category if category.value.casefold().startswith(word.casefold())]
    return category_of(word) or (fitting[0] if len(fitting) == 1 else Category(one_of(word, Category, "--category")))


def _from_run(store: "Store", args: argparse.Namespace, config: Config) -> int:
    from torchtriage.commands.report import read_source
    from torchtriage.tickets.runs.from_run import NewRun

    check_rules_exist(config)
    least = args.min_severity and one_of(args.min_severity, SEVERITIES, "--min-severity")
    name = "stdin" if args.source == "-" else str(near(Path(os.path.abspath(args.source))))
    run = NewRun(read_source(args.source), name=name, root=root(), today=today())
    ids = {file.ticket.fingerprint: file.ticket.id for file in store.every if file.ticket.fingerprint}
    proposed = sum(_update(store, file, run, frozenset(ids), args) for file in list(store.files))
    new = [f for f in run.findings if f.fingerprint not in ids and _is_wanted(f, config, least)]
    _create(store, run, new, args, ids)
    if proposed and not args.apply:
        say(args, f"{proposed} proposed; do it with: torchtriage ticket new {args.source} --apply")
    return 0


def _is_wanted(finding: "Finding", config: Config, least: str | None) -> bool:
    """What a recording says of itself (TT9xx) is no fault of the program; it becomes a ticket only if it is selected."""
    if finding.code.startswith("TT9") and not config.select:
        return False
    return is_wanted(finding, config) and (least is None or finding.severity.name <= least)


def _create(store: "Store", run: "NewRun", findings: "list[Finding]", args: argparse.Namespace, ids: dict[str, str]) -> None:
    from torchtriage.tickets.naming import highest_batch

    batch = args.batch if args.batch is not None else highest_batch(store.ids) + 1
    for draft in run.tickets(findings, batch, store.ids, ids):
        write_out(f"{_created(store.add(draft.ticket, draft.text))}\n")
    say(args, f"{counted(len(findings), 'ticket')} created" if findings else "no finding is without a ticket")


def _created(file: "TicketFile") -> str:
    return printable(f"created   {file.ticket.id}  {file.ticket.severity}  {file.path}")


def _update(store: "Store", file: "TicketFile", run: "NewRun", known: frozenset[str], args: argparse.Namespace) -> bool:
    """Bring one ticket up to date and say what happened; True if something is proposed."""
    from torchtriage.tickets.model import Status
    from torchtriage.tickets.runs.update import applied
    from torchtriage.tickets.runs.verify import NOT_SHOWN

    try:
        case, update = run.update(file, known)
        new = applied(update, case, today()) if args.apply else update.file
        if new.text != file.text:
            store.save(new)
    except TriageError as error:    # one file that cannot be edited must not keep the others from being so
        print(f"torchtriage: {error}", file=sys.stderr)
        return False
    words = {Status.CLOSED: ("closed", "close?"), Status.OPEN: ("reopened", "reopen?")}
    lines = [f"ticked    {file.ticket.id}  {text}: {reason}" for text, reason in update.ticked]
    lines += [f"left      {file.ticket.id}  {text}: {reason}" for text, reason in update.left if args.verbose or reason != NOT_SHOWN]
    if update.proposed:
        done, question = words[update.proposed]
        lines.append(f"{done if args.apply else question:<10}{file.ticket.id}  {update.reason}")
    elif update.reason:
        lines.append(f"left      {file.ticket.id}  {update.reason}")
    if new.text != file.text and not lines:
        lines.append(f"updated   {file.ticket.id}  seen again in {run.run.name}")
    write_out("".join(f"{printable(line)}\n" for line in lines))
    return update.proposed is not None


def add_import_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="ticket files, or batch reports: one ticket for each of their findings")


def import_tickets(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Take in ticket files from elsewhere, byte for byte, and the findings of batch reports; nothing is overwritten."""
    from torchtriage.tickets.batches.imports import taken_in

    num_left = 0
    for name in args.files:
        for result in taken_in(store, Path(name), today()):
            if isinstance(result, str):
                num_left += 1
                print(f"torchtriage: {result}", file=sys.stderr)
            else:
                write_out(f"{printable(f'imported  {result.ticket.id}  {result.ticket.severity}  {result.path}')}\n")
    return 2 if num_left else 0

"""The actions of `ticket` that create tickets: from a recording, by hand, or from other files."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from torchtriage.commands.base import complain, say, write_text
from torchtriage.commands.ticket.apply import (
    FindingSource,
    confirm_tickets,
    create_tickets,
    created_line,
    judge_by_source,
    update_ticket,
)
from torchtriage.commands.ticket.shared import one_of, root, today
from torchtriage.config import SEVERITIES, Config
from torchtriage.errors import CommandError
from torchtriage.findings.selection import check_rules_exist
from torchtriage.text import counted, path_from_here, printable

if TYPE_CHECKING:
    from torchtriage.findings.model import Category
    from torchtriage.tickets.files.store import Store

DEFAULT_AGENT = "codereview"      # the agent of a ticket that a person writes
_ONLY_BY_HAND = ("title", "severity", "file", "lines", "function", "category", "agent", "domain", "summary")


def add_new_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", nargs="?", metavar="RECORDING|TRACE|LOG|-", help=(
        "a run: one ticket per new finding, and updates of the existing tickets"
    ))
    parser.add_argument("--lint", nargs="+", metavar="PATH", help=(
        "the source instead of a run: one ticket per new finding of lint; boxes that the source proves are ticked"
    ))
    parser.add_argument("--apply", action="store_true", help=(
        "also close and reopen tickets as the run proposes, and take the doubtful matches"
    ))
    parser.add_argument("--no-match", action="store_true", help="a ticket for each finding with a doubtful match")
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
    torchtriage ticket new --lint src tests            the same for what lint finds in the source
    torchtriage ticket new --title "..." --file x.py   an empty form to fill in

    A run also ticks the verification boxes it proves, and proposes to close tickets whose finding is gone and to
    reopen those whose finding came back. A finding of the same file, function and cause as a ticket that a person
    wrote confirms that ticket; a doubtful match is proposed.
    """
    if sum(source is not None for source in (args.source, args.lint, args.title)) != 1:
        raise CommandError(
            "give either a recording, trace or log, or --lint with paths, or --title for a ticket by hand"
        )
    if args.batch is not None and args.batch < 0:
        raise CommandError(f"--batch must be at least 0, got {args.batch}")
    if args.title is not None:
        return _by_hand(store, args)
    for name in _ONLY_BY_HAND:
        if getattr(args, name) is not None:
            source = args.source or "--lint"
            raise CommandError(f"--{name} is only for a ticket by hand; leave out {source} or --{name}")
    return _from_source(store, args, config) if args.lint else _from_run(store, args, config)


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
    write_text(created_line(store.add(ticket)))
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
    from torchtriage.tickets.runs.update import NewRun, tickets_by_fingerprint

    check_rules_exist(config)
    name = "stdin" if args.source == "-" else path_from_here(os.path.abspath(args.source))
    run = NewRun(read_source(args.source), name=name, root=root(), today=today())
    new, num_doubtful = confirm_tickets(store, run.findings, FindingSource(run.run.name, run.roots), args, config)
    ids = tickets_by_fingerprint(store.every)
    num_proposed = sum(update_ticket(store, file, run, frozenset(ids), args) for file in list(store.files))
    create_tickets(store, run, new, args, ids)
    _say_proposed(args, num_proposed + num_doubtful, args.source)
    return 0


def _from_source(store: "Store", args: argparse.Namespace, config: Config) -> int:
    from torchtriage.lint.cache import LintCache
    from torchtriage.lint.check import lint, report_of
    from torchtriage.tickets.runs.from_source import LintedSource
    from torchtriage.tickets.runs.update import tickets_by_fingerprint

    check_rules_exist(config)
    paths, folder = [Path(path) for path in args.lint], os.getcwd()
    result = lint(paths, [str(root())], LintCache(root()))
    report = report_of(
        result, result.findings, working_folder=folder, per_file_ignores=dict(config.per_file_ignores),
    )
    for unread in result.unread:
        complain(f"{unread.path}: {unread.reason}")
    source = LintedSource(report.findings, paths=[path.resolve() for path in paths], root=root(), today=today())
    new, num_doubtful = confirm_tickets(store, source.findings, FindingSource(source.name, source.roots), args, config)
    for file in list(store.files):
        judge_by_source(store, file, source, args)
    create_tickets(store, source, new, args, tickets_by_fingerprint(store.every))
    _say_proposed(args, num_doubtful, f"--lint {' '.join(args.lint)}")
    return 0


def _say_proposed(args: argparse.Namespace, num_proposed: int, source: str) -> None:
    if num_proposed and not args.apply:
        say(args, f"{counted(num_proposed, 'change')} proposed; apply with: torchtriage ticket new {source} --apply")


def add_import_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help=(
        "ticket files, or batch reports: one ticket per finding of a report"
    ))


def import_tickets(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Import ticket files and batch reports unchanged, with a ticket per finding; nothing is overwritten."""
    from torchtriage.tickets.batches.imports import import_file

    num_skipped = 0
    for name in args.files:
        results = list(import_file(store, Path(name), today()))
        if not results:
            say(args, f"{name}: every finding has its ticket, nothing was imported")
        for result in results:
            if isinstance(result, str):
                num_skipped += 1
                complain(result)
            elif isinstance(result, Path):
                write_text(printable(f"kept      {result}") + "\n")
            else:
                line = f"imported  {result.ticket.id}  {result.ticket.severity}  {result.path}"
                write_text(printable(line) + "\n")
    return 2 if num_skipped else 0

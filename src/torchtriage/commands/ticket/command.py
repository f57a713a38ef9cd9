"""The `ticket` command: findings kept as Markdown files."""

import argparse
import dataclasses
import datetime
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torchtriage.commands.base import complain, say, write_json, write_text
from torchtriage.commands.parser import HelpFormatter
from torchtriage.commands.ticket.new import add_import_flags, add_new_flags, import_tickets, new_tickets
from torchtriage.commands.ticket.shared import DEFAULT_FOLDER, one_of, root, ticket_folder, today
from torchtriage.config import SEVERITIES, Config
from torchtriage.errors import CommandError, TriageError
from torchtriage.text import counted, file_name, printable, shortened

if TYPE_CHECKING:
    from torchtriage.tickets.batches.parse import BatchFile, BatchReport
    from torchtriage.tickets.files.read import TicketFile
    from torchtriage.tickets.files.store import Store
    from torchtriage.tickets.model import Problem

MAX_TITLE = 70


class TicketCommand:
    """Keep findings as tickets (Markdown files in docs/findings): create them from a run, track them, check them."""

    name = "ticket"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(
            dest="action", metavar="ACTION", required=True, help="the action; each has its own --help",
        )
        for name, (add_flags, action) in ACTIONS.items():
            text = inspect.cleandoc(action.__doc__ or "")
            sub = actions.add_parser(
                name, help=text.split("\n")[0], description=text,
                formatter_class=HelpFormatter,
            )
            add_flags(sub)
            sub.add_argument("--folder", metavar="DIR", help=(
                f"the folder of the tickets (default: tickets in [tool.torchtriage], otherwise {DEFAULT_FOLDER})"
            ))
            sub.add_argument("-q", "--quiet", action="store_true", help="only results and errors")

    def run(self, args: argparse.Namespace, config: Config) -> int:
        from torchtriage.tickets.files.store import open_store

        store = open_store(ticket_folder(args, config))
        if args.action != "check":
            for problem in store.problems():
                complain(problem)
        _, action = ACTIONS[args.action]
        return action(store, args, config)


def _list_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", metavar="WORD", help="only tickets with these, e.g. open,in-review")
    parser.add_argument("--severity", metavar="P0..P4", help="only tickets with these, e.g. P0,P1")
    _format_flag(parser)


def list_tickets(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """List the tickets: ID, severity, status, place, title."""
    from torchtriage.tickets.model import Status

    statuses = {one_of(word, Status, "--status") for word in _words(args.status)}
    severities = {one_of(word, SEVERITIES, "--severity") for word in _words(args.severity)}
    files = []
    for file in sorted(store.files, key=lambda file: (file.ticket.severity, file.ticket.id)):
        has_status = not statuses or file.ticket.status in statuses
        has_severity = not severities or file.ticket.severity in severities
        if has_status and has_severity:
            files.append(file)
    if _is_json(args, config):
        write_json([_as_dict(file) for file in files])
        return 0
    for line in _table_lines(files):
        write_text(f"{line}\n")
    say(args, f"{len(files)} of {counted(len(store.files), 'ticket')} in {store.folder}")
    return 0


def _words(flag: str | None) -> list[str]:
    """The words of a flag with a comma-separated list."""
    return [word.strip() for word in (flag or "").split(",") if word.strip()]


def _table_lines(files: "list[TicketFile]") -> list[str]:
    """One line per ticket, in aligned columns."""
    rows = []
    for ticket in (file.ticket for file in files):
        name = file_name(ticket.files[0]) if ticket.files else "-"
        place = f"{name}:{ticket.lines}" if ticket.lines else name
        title = shortened(ticket.title, MAX_TITLE)
        rows.append((ticket.id or "-", ticket.severity or "-", ticket.status or "-", place, title))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    lines = []
    for *cells, title in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append(printable("  ".join([*padded, title]).rstrip()))
    return lines


def _show_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a ticket, e.g. B7-PT-07")
    _format_flag(parser)


def show_ticket(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Show one ticket."""
    file = store.find(args.id)
    say(args, str(file.path))
    for problem in file.problems:
        complain(problem)
    if _is_json(args, config):
        write_json(_as_dict(file))
    else:
        write_text(file.text)
    return 0


def _as_dict(file: "TicketFile") -> dict[str, object]:
    ticket = dataclasses.asdict(file.ticket)
    return {**ticket, "categories": sorted(file.ticket.categories), "path": str(file.path)}


def _set_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID", help="tickets, e.g. B7-PT-07 B7-PT-08")
    parser.add_argument("--status", metavar="WORD", help=(
        "open, investigating, fix-in-progress, in-review, closed, wont-fix, ..."
    ))
    parser.add_argument("--severity", metavar="P0..P4", help=(
        "P0 blocking, P1 high, P2 before the next experiments, P3 debt, P4 minor"
    ))
    parser.add_argument("--assignee", metavar="NAME", help="who works on it; an empty name removes the assignee")


def set_tickets(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Change the status, severity or assignee of tickets; apart from Updated, nothing else in their files changes."""
    from torchtriage.tickets.files.edit import set_field
    from torchtriage.tickets.model import Status

    changes: dict[str, str] = {}
    if args.status is not None:
        changes["status"] = one_of(args.status, Status, "--status")
    if args.severity is not None:
        changes["severity"] = one_of(args.severity, SEVERITIES, "--severity")
    if args.assignee is not None:
        changes["assignee"] = args.assignee.strip()
    if not changes:
        raise CommandError("nothing to set; give --status, --severity or --assignee")
    for file in [store.find(each) for each in args.ids]:    # every ID is looked up before any file is written
        new = file
        for name, value in changes.items():
            if getattr(file.ticket, name) != value:
                new = set_field(new, name, value)
        if new is file:
            say(args, f"{file.ticket.id}: already set, nothing changed")
            continue
        store.save(set_field(new, "updated", today()))
        say(args, f"{file.ticket.id}: {', '.join(f'{name} {value}' for name, value in changes.items())}")
    return 0


def _review_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a ticket, e.g. B7-PT-07")
    parser.add_argument("--reviewer", metavar="NAME", required=True, help="who reviewed it")
    parser.add_argument("--verdict", metavar="WORD", required=True, help="ENDORSE, REFINE, NEUTRAL or OBJECT")
    parser.add_argument("--evaluation", metavar="TEXT", required=True, help="the reason, in Markdown")
    parser.add_argument("--role", metavar="NAME", help="the role in the heading (default: the reviewer)")


def review_ticket(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Add a cross-review to a ticket."""
    from torchtriage.tickets.files.edit import add_review, set_field
    from torchtriage.tickets.model import Review, Verdict

    verdict = one_of(args.verdict, Verdict, "--verdict")
    file = store.find(args.id)
    review = Review(
        role=args.role or args.reviewer, verdict=verdict, reviewer=args.reviewer, date=today(),
        evaluation=args.evaluation,
    )
    store.save(set_field(add_review(file, review), "updated", today()))
    say(args, f"{file.ticket.id}: {verdict} by {args.reviewer}")
    return 0


def _check_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reports", nargs="*", metavar="REPORT", help=(
        "batch reports to check too (default: those in the folder)"
    ))
    _format_flag(parser)


def check_tickets(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Find errors in the tickets and in the batch reports about them; exit code 1 if there are any."""
    from torchtriage.tickets.checks.check import NOTES, check

    reports = _reports(store, args.reports)
    problems = [*store.unreadable, *check(store.every, reports, root(), datetime.date.today())]
    if _is_json(args, config):
        fields = [{"path": p.path, "line": p.line, "kind": p.kind, "message": p.message} for p in problems]
        write_json(fields)
    else:
        write_text("".join(f"{printable(f'{problem} [{problem.kind}]')}\n" for problem in problems))
    num_errors = sum(problem.kind not in NOTES for problem in problems)
    checked = f"{counted(len(store.every), 'ticket')} and {counted(len(reports), 'report')}"
    say(args, f"{counted(num_errors, 'problem')} in {checked}")
    return int(num_errors > 0)


def _reports(store: "Store", names: list[str]) -> "list[BatchFile | Problem]":
    """The named batch reports; without names, those in the folder of the tickets."""
    from torchtriage.tickets.batches.parse import parse_batch_file
    from torchtriage.tickets.checks.check import read_report

    if not names:
        files = [parse_batch_file(text, path) for path, text in store.others.items()]
        return [file for file in files if file.report.is_batch_report]
    paths = [Path(name) for name in names]
    for path in paths:
        if not path.exists():
            raise CommandError(f"no report at {path}")
    return [read_report(path) for path in paths]


def _report_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", metavar="N", help="the batch to report on (default: the newest)")
    parser.add_argument("-o", "--output", metavar="FILE", help=(
        "where to write the report; text that people wrote there is kept (default: stdout)"
    ))


def report_batch(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Write the report of a batch; every count and table is derived from its tickets."""
    from torchtriage.tickets.batches.report import render_batch
    from torchtriage.tickets.files.store import read_text, replace_text, write_new
    from torchtriage.tickets.naming import highest_batch

    batch = args.batch or str(highest_batch(file.ticket.id for file in store.files) or "")
    if not batch:
        raise CommandError(
            f"no ticket of any batch in {store.folder}; create some with: torchtriage ticket new RECORDING"
        )
    target = Path(args.output) if args.output else None
    existing = read_text(target) if target and target.exists() else None
    try:
        text = render_batch(batch, store.files, existing, _imported_report(store, batch))
    except TriageError as error:
        raise CommandError(f"{target}: {error}" if existing is not None else str(error)) from error
    if target is None:
        write_text(text)
        return 0
    if existing is None:
        write_new(target, text.encode())
    else:
        replace_text(target, existing, text)
    say(args, f"wrote {target}")
    return 0


def _imported_report(store: "Store", batch: str) -> "BatchReport":
    """The report that tickets of this batch were imported from; an empty one if there is none."""
    from torchtriage.tickets.batches.parse import BatchReport, parse_batch
    from torchtriage.tickets.batches.report import is_derived
    from torchtriage.tickets.naming import batch_in_id, batch_name

    for text in store.others.values():
        report = parse_batch(text)
        if not is_derived(text) and any(batch_in_id(row.id) == batch_name(batch) for row in report.findings):
            return report
    return BatchReport()


def _format_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), help="text or json (default: text)")


def _is_json(args: argparse.Namespace, config: Config) -> bool:
    return (args.format or config.format) == "json"


AddFlags = Callable[[argparse.ArgumentParser], None]
Action = Callable[["Store", argparse.Namespace, Config], int]

# The docstring of an action is its help text.
ACTIONS: dict[str, tuple[AddFlags, Action]] = {
    "new": (add_new_flags, new_tickets),
    "list": (_list_flags, list_tickets),
    "show": (_show_flags, show_ticket),
    "set": (_set_flags, set_tickets),
    "review": (_review_flags, review_ticket),
    "import": (add_import_flags, import_tickets),
    "check": (_check_flags, check_tickets),
    "report": (_report_flags, report_batch),
}

"""The `ticket` command: findings kept as Markdown files."""

import argparse
import dataclasses
import datetime
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torchtriage.commands.base import say, write_out
from torchtriage.commands.ticket_new import add_import_flags, add_new_flags, import_tickets, new_tickets
from torchtriage.commands.ticket_words import near, one_of, root, today
from torchtriage.config import SEVERITIES, Config
from torchtriage.errors import CommandError, TriageError
from torchtriage.text import counted, printable

if TYPE_CHECKING:
    from torchtriage.tickets.files.store import Store
    from torchtriage.tickets.model import Problem, TicketFile

DEFAULT_FOLDER = "docs/findings"
MAX_TITLE = 70


class TicketCommand:
    """Keep findings as tickets, Markdown files in docs/findings: make them from a run, follow them to their end, check them."""

    name = "ticket"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, help="what to do; each has its own --help")
        flags = {
            "new": add_new_flags, "list": _list_flags, "show": _show_flags, "set": _set_flags, "review": _review_flags,
            "import": add_import_flags, "check": _check_flags, "report": _report_flags,
        }
        for name, add_flags in flags.items():
            text = inspect.cleandoc(_actions()[name].__doc__ or "")
            sub = actions.add_parser(
                name, help=text.split("\n")[0], description=text, formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            add_flags(sub)
            where = f"where the tickets are (default: tickets in [tool.torchtriage], {DEFAULT_FOLDER})"
            sub.add_argument("--folder", metavar="DIR", help=where)
            sub.add_argument("-q", "--quiet", action="store_true", help="only results and errors")

    def run(self, args: argparse.Namespace, config: Config) -> int:
        from torchtriage.tickets.files.store import open_store

        store = open_store(folder_of(args, config))
        if args.action != "check":
            for problem in store.problems():
                print(f"torchtriage: {problem}", file=sys.stderr)
        return _actions()[args.action](store, args, config)


Action = Callable[["Store", argparse.Namespace, Config], int]


def _actions() -> dict[str, Action]:
    return {
        "new": new_tickets, "list": list_tickets, "show": show_ticket, "set": set_tickets, "review": review_ticket,
        "import": import_tickets, "check": check_tickets, "report": report_batch,
    }


def folder_of(args: argparse.Namespace, config: Config) -> Path:
    return near(Path(args.folder or config.tickets or root() / DEFAULT_FOLDER))


def _list_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", metavar="WORD", help="only these, e.g. open,in-review")
    parser.add_argument("--severity", metavar="P0..P4", help="only these, e.g. P0,P1")
    _format_flag(parser)


def list_tickets(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """List the tickets: ID, severity, status, place, title."""
    from torchtriage.tickets.model import Status

    statuses = {one_of(word.strip(), Status, "--status") for word in (args.status or "").split(",") if word.strip()}
    severities = {one_of(word.strip(), SEVERITIES, "--severity") for word in (args.severity or "").split(",") if word.strip()}
    files = [
        file for file in sorted(store.files, key=lambda file: (file.ticket.severity, file.ticket.id))
        if (not statuses or file.ticket.status in statuses) and (not severities or file.ticket.severity in severities)
    ]
    if _is_json(args, config):
        write_out(json.dumps([as_dict(file) for file in files], indent=1) + "\n")
        return 0
    rows = [(t.id or "-", t.severity or "-", t.status or "-", _place(file), _cut(t.title)) for file in files for t in [file.ticket]]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    for *cells, title in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        write_out(printable("  ".join([*padded, title]).rstrip()) + "\n")
    say(args, f"{len(files)} of {len(store.files)} tickets in {store.folder}")
    return 0


def _place(file: "TicketFile") -> str:
    ticket = file.ticket
    name = ticket.files[0].replace("\\", "/").rsplit("/", 1)[-1] if ticket.files else "-"
    return f"{name}:{ticket.lines}" if ticket.lines else name


def _cut(title: str) -> str:
    return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 3] + "..."


def _show_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a ticket, e.g. B7-PT-07")
    _format_flag(parser)


def show_ticket(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Show one ticket."""
    file = store.find(args.id)
    say(args, str(file.path))
    for problem in file.problems:
        print(f"torchtriage: {problem}", file=sys.stderr)
    write_out(json.dumps(as_dict(file), indent=1) + "\n" if _is_json(args, config) else file.text)
    return 0


def as_dict(file: "TicketFile") -> dict[str, object]:
    ticket = dataclasses.asdict(file.ticket)
    return {**ticket, "categories": sorted(file.ticket.categories), "path": str(file.path)}


def _set_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID", help="tickets, e.g. B7-PT-07 B7-PT-08")
    parser.add_argument("--status", metavar="WORD", help="open, investigating, fix-in-progress, in-review, closed, wont-fix, ...")
    parser.add_argument("--severity", metavar="P0..P4", help="P0 blocking, P1 high, P2 before the next experiments, P3 debt, P4 minor")
    parser.add_argument("--assignee", metavar="NAME", help="who works on it; an empty name takes it off")


def set_tickets(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Change the status, severity or assignee of tickets; nothing else in their files changes but Updated."""
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
    for file in [store.find(each) for each in args.ids]:    # all are found before any is written
        new = file
        for name, value in changes.items():
            if getattr(file.ticket, name) != value:
                new = set_field(new, name, value)
        if new is file:
            say(args, f"{file.ticket.id} is so already")
            continue
        store.save(set_field(new, "updated", today()))
        say(args, f"{file.ticket.id}: {', '.join(f'{name} {value}' for name, value in changes.items())}")
    return 0


def _review_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a ticket, e.g. B7-PT-07")
    parser.add_argument("--reviewer", metavar="NAME", required=True, help="who reviewed it")
    parser.add_argument("--verdict", metavar="WORD", required=True, help="ENDORSE, REFINE, NEUTRAL or OBJECT")
    parser.add_argument("--evaluation", metavar="TEXT", required=True, help="why, in Markdown")
    parser.add_argument("--role", metavar="NAME", help="the role in the heading (default: the reviewer)")


def review_ticket(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Add a cross-review to a ticket."""
    from torchtriage.tickets.files.edit import add_review, set_field
    from torchtriage.tickets.model import Review, Verdict

    verdict = one_of(args.verdict, Verdict, "--verdict")
    file = store.find(args.id)
    review = Review(role=args.role or args.reviewer, verdict=verdict, reviewer=args.reviewer, date=today(), evaluation=args.evaluation)
    store.save(set_field(add_review(file, review), "updated", today()))
    say(args, f"{file.ticket.id}: {verdict} by {args.reviewer}")
    return 0


def _check_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reports", nargs="*", metavar="REPORT", help="batch reports to check as well (default: those in the folder)")
    _format_flag(parser)


def check_tickets(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Find what is wrong in the tickets and in the batch reports about them; exit code 1 if anything is."""
    from torchtriage.tickets.batches.parse import parse_batch
    from torchtriage.tickets.checks.check import NOTES, check_paths
    from torchtriage.tickets.files.store import read_text

    reports = [Path(name) for name in args.reports]
    if not reports:
        parsed = ((path, parse_batch(read_text(path))) for path in store.others)
        reports = [path for path, report in parsed if report.findings or report.severity_rows]
    missing = [path for path in reports if not path.exists()]
    if missing:
        raise CommandError(f"no report at {missing[0]}")
    problems = [*store.unreadable, *check_paths(store.every, reports, root(), datetime.date.today())]
    if _is_json(args, config):
        write_out(json.dumps([{"path": p.path, "line": p.line, "kind": p.kind, "message": p.message} for p in problems], indent=1) + "\n")
    else:
        write_out("".join(f"{_problem_line(problem)}\n" for problem in problems))
    wrong = [problem for problem in problems if problem.kind not in NOTES]
    say(args, f"{counted(len(wrong), 'problem')} in {counted(len(store.every), 'ticket')} and {counted(len(reports), 'report')}")
    return int(bool(wrong))


def _problem_line(problem: "Problem") -> str:
    return printable(f"{problem} [{problem.kind}]")


def _report_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", metavar="N", help="the batch to report on (default: the newest)")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write it; what people wrote there is kept (default: stdout)")


def report_batch(store: "Store", args: argparse.Namespace, config: Config) -> int:
    """Write the report of a batch: every count and table follows from its tickets."""
    from torchtriage.tickets.batches.report import render_batch
    from torchtriage.tickets.files.store import read_text, replace_text, write_new
    from torchtriage.tickets.naming import highest_batch

    batch = args.batch or str(highest_batch(file.ticket.id for file in store.files) or "")
    if not batch:
        raise CommandError(f"no ticket of any batch in {store.folder}; make some with: torchtriage ticket new RECORDING")
    target = Path(args.output) if args.output else None
    existing = read_text(target) if target and target.exists() else None
    try:
        text = render_batch(batch, store.files, existing)
    except TriageError as error:
        raise CommandError(f"{target}: {error}" if existing is not None else str(error)) from error
    if target is None:
        write_out(text)
        return 0
    if existing is None:
        write_new(target, text.encode())
    else:
        replace_text(target, existing, text)
    say(args, f"wrote {target}")
    return 0


def _format_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), help="text or json (default: text)")


def _is_json(args: argparse.Namespace, config: Config) -> bool:
    return (args.format or config.format) == "json"


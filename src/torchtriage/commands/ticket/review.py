"""The `review` command."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchtriage.commands.base import complain, say, write_text
from torchtriage.commands.ticket.apply import (
    FindingSource,
    confirm_tickets,
    create_tickets,
    judge_by_source,
    update_ticket,
)
from torchtriage.commands.ticket.shared import root, ticket_folder, today
from torchtriage.config import Config
from torchtriage.errors import CommandError, TriageError
from torchtriage.findings.selection import check_rules_exist
from torchtriage.text import counted, path_from_here, printable

if TYPE_CHECKING:
    from torchtriage.findings.model import Finding
    from torchtriage.lint.result import LintResult
    from torchtriage.recording.recording import Recording
    from torchtriage.review.joined import SeenFinding
    from torchtriage.tickets.batches.source_facts import SourceFacts
    from torchtriage.tickets.files.store import Store
    from torchtriage.tickets.runs.update import NewRun

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmbt]?)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


class ReviewCommand:
    """Write what a reviewer writes: a batch report about source and runs, and one ticket per finding.

    torchtriage review src tests --batch 7 --domain trainer/telemetry
    torchtriage review src --recording train.triage --parameters 100M

    Findings come from lint and from the recordings together. A finding that has a ticket updates it; text that people
    wrote in the report and in the tickets is kept, and the same review changes nothing the second time.
    """

    name = "review"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("paths", nargs="*", metavar="PATH", help=(
            "Python files, or folders that contain them (default: the working folder)"
        ))
        parser.add_argument("--recording", action="append", metavar="RECORDING", help=(
            "a run of this source; repeatable"
        ))
        parser.add_argument("--batch", type=int, metavar="N", help="the batch of new tickets (default: a new one)")
        parser.add_argument("--domain", metavar="NAME", help="the part of the project, for new tickets")
        parser.add_argument("--parameters", metavar="N", help=(
            "the number of parameters to estimate memory for, e.g. 100M (default: memory per parameter)"
        ))
        parser.add_argument("-o", "--output", metavar="FILE", help=(
            "the batch report (default: batch-N-review.md in the folder of the tickets)"
        ))
        parser.add_argument("--folder", metavar="DIR", help="the folder of the tickets, as for torchtriage ticket")
        parser.add_argument("--select", metavar="CODES", help="only findings with these codes or prefixes")
        parser.add_argument("--ignore", metavar="CODES", help="no findings with these codes or prefixes")
        parser.add_argument("--min-severity", metavar="P0..P4", help="only findings at least this severe")
        parser.add_argument("--apply", action="store_true", help=(
            "also close and reopen tickets as a run proposes, and take the doubtful matches"
        ))
        parser.add_argument("--no-match", action="store_true", help="a ticket for each finding with a doubtful match")
        parser.add_argument("-q", "--quiet", action="store_true", help="only results and errors")
        parser.add_argument("-v", "--verbose", action="store_true", help=(
            "list every box that was not ticked, with the reason"
        ))

    def run(self, args: argparse.Namespace, config: Config) -> int:
        from torchtriage.tickets.files.store import open_store
        from torchtriage.tickets.naming import highest_batch

        if args.batch is not None and args.batch < 0:
            raise CommandError(f"--batch must be at least 0, got {args.batch}")
        args.domain = args.domain or ""
        num_parameters = parameters_in(args.parameters) if args.parameters else None
        check_rules_exist(config)
        store = open_store(ticket_folder(args, config))
        for problem in store.problems():
            complain(problem)
        recordings = _recordings(args.recording or ())
        paths = [Path(path) for path in args.paths or ["."]]
        findings, result = _linted(paths, config)
        if args.batch is None:
            args.batch = _batch_of(store, findings) or highest_batch(store.ids) + 1
        num_proposed, marks = _apply(store, findings, recordings, paths, args, config)
        facts = _facts(paths, result, num_parameters, args, list(recordings))
        _write_report(store, replace(facts, elsewhere=_elsewhere(store, marks, args.batch)), args)
        if num_proposed and not args.apply:
            say(args, f"{counted(num_proposed, 'change')} proposed; the same command with --apply makes them")
        return 0


def parameters_in(text: str) -> int:
    """The number in `100M`, `1.5B` or `125000`."""
    match = _SIZE.fullmatch(text.strip().replace(",", "").replace("_", ""))
    number = float(match[1]) * _FACTORS[match[2].lower()] if match else 0
    if number < 1:
        raise CommandError(f"--parameters must be a number such as 100M, 1.5B or 125000, got {text!r}")
    return int(number)


def _recordings(names: Sequence[str]) -> "dict[str, Recording]":
    """Each recording by its name as tickets write it, the oldest first."""
    from torchtriage.commands.report import read_source
    from torchtriage.tickets.runs.seen_section import run_of

    found = {path_from_here(os.path.abspath(name)): read_source(name) for name in names}
    return dict(sorted(found.items(), key=lambda item: run_of(item[1], item[0]).start))


def _linted(paths: Sequence[Path], config: Config) -> "tuple[list[Finding], LintResult]":
    from torchtriage.lint.cache import LintCache
    from torchtriage.lint.check import lint, report_of

    result = lint(paths, [str(root())], LintCache(root()))
    report = report_of(
        result, result.findings, working_folder=os.getcwd(), per_file_ignores=dict(config.per_file_ignores),
    )
    for unread in result.unread:
        complain(f"{unread.path}: {unread.reason}")
    return list(report.findings), result


def _batch_of(store: "Store", findings: "Sequence[Finding]") -> int | None:
    """The batch that a review of the same source made before: that of the ticket of any of its findings."""
    from torchtriage.tickets.naming import batch_in
    from torchtriage.tickets.runs.update import tickets_by_fingerprint

    ids = tickets_by_fingerprint(store.every)
    batches = [batch_in(ids[f.fingerprint]) for f in findings if f.fingerprint in ids]
    return max((batch for batch in batches if batch is not None), default=None)


def _apply(
    store: "Store", findings: "list[Finding]", recordings: "Mapping[str, Recording]", paths: Sequence[Path],
    args: argparse.Namespace, config: Config,
) -> tuple[int, frozenset[str]]:
    """Bring the tickets up to date; (the number of proposals, the fingerprints of all findings)."""
    from torchtriage.review.joined import join
    from torchtriage.tickets.runs.from_source import LintedSource
    from torchtriage.tickets.runs.update import NewRun, tickets_by_fingerprint

    num_proposed, both = 0, []
    marks = {finding.fingerprint for finding in findings}
    for name, recording in recordings.items():
        run = NewRun(recording, name=name, root=root(), today=today())
        marks |= {finding.fingerprint for finding in run.findings}
        seen, findings = join(findings, run.findings, recording, name)
        both += seen
        num_proposed += _apply_run(store, run, seen, args, config)
    source = LintedSource(findings, paths=[path.resolve() for path in paths], root=root(), today=today())
    for pair in both:       # the next review may have the source alone
        _link(store, pair.run, pair.source, FindingSource(source.name, source.roots))
    new, num_doubtful = confirm_tickets(store, findings, FindingSource(source.name, source.roots), args, config)
    for file in list(store.files):
        judge_by_source(store, file, source, args)
    create_tickets(store, source, new, args, tickets_by_fingerprint(store.every), args.domain)
    return num_proposed + num_doubtful, frozenset(marks)


def _apply_run(
    store: "Store", run: "NewRun", seen: "Sequence[SeenFinding]", args: argparse.Namespace, config: Config,
) -> int:
    """Tickets of the findings of one run; where the source shows one too, with the evidence of both."""
    from torchtriage.tickets.runs.update import tickets_by_fingerprint

    evidence = FindingSource(run.run.name, run.roots)
    for pair in seen:
        _link(store, pair.source, pair.run, evidence)
    joined = {pair.run.fingerprint: pair.run for pair in seen}
    findings = [joined.get(finding.fingerprint, finding) for finding in run.findings]
    new, num_doubtful = confirm_tickets(store, findings, evidence, args, config)
    ids = tickets_by_fingerprint(store.every)
    num_proposed = sum(update_ticket(store, file, run, frozenset(ids), args) for file in list(store.files))
    create_tickets(store, run, new, args, ids, args.domain)
    return num_proposed + num_doubtful


def _link(store: "Store", known: "Finding", other: "Finding", evidence: FindingSource) -> None:
    """Add a second finding about the hazard of a ticket to it, so that it never gets a separate ticket."""
    from torchtriage.tickets.runs.update import confirmed_by, tickets_by_fingerprint

    ids = tickets_by_fingerprint(store.every)
    if known.fingerprint not in ids or other.fingerprint in ids:
        return
    try:
        file = store.find(ids[known.fingerprint])
        store.save(confirmed_by(file, other, evidence.name, evidence.roots))
    except TriageError as error:
        complain(error)
        return
    write_text(printable(f"confirmed {file.ticket.id}  {other.code} by {evidence.name}") + "\n")


def _elsewhere(store: "Store", marks: frozenset[str], batch: int) -> tuple[str, ...]:
    """The tickets of other batches about findings of this review."""
    from torchtriage.tickets.naming import batch_of
    from torchtriage.tickets.runs.update import tickets_by_fingerprint

    ids = {ticket_id for mark, ticket_id in tickets_by_fingerprint(store.every).items() if mark in marks}
    others = (f.ticket for f in store.files if f.ticket.id in ids and batch_of(f.ticket) != str(batch))
    return tuple(sorted(ticket.id for ticket in others))


def _facts(
    paths: Sequence[Path], result: "LintResult", num_parameters: int | None, args: argparse.Namespace,
    recordings: Sequence[str],
) -> "SourceFacts":
    from torchtriage.review.facts import source_facts

    facts = source_facts(
        paths, [str(root())], unread=result.unread, num_parameters=num_parameters, domain=args.domain,
    )
    counts = result.facts
    return replace(
        facts, recordings=tuple(recordings), num_compile_calls=int(counts["num_compile_sites"]),
        num_reached=int(counts["num_reached"]),
    )


def _write_report(store: "Store", facts: "SourceFacts", args: argparse.Namespace) -> None:
    from torchtriage.tickets.batches.report import render_batch
    from torchtriage.tickets.files.store import read_text, replace_text, write_new

    target = Path(args.output) if args.output else store.folder / f"batch-{args.batch}-review.md"
    existing = read_text(target) if target.exists() else None
    try:
        text = render_batch(str(args.batch), store.files, existing, facts=facts)
    except TriageError as error:
        raise CommandError(f"{target}: {error}") from error
    if existing is None:
        write_new(target, text.encode())
    elif existing != text:
        replace_text(target, existing, text)
    verb = "unchanged" if existing == text else "wrote"
    write_text(printable(f"{verb:<10}{path_from_here(target)}") + "\n")

"""The `fix` command."""

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchtriage.commands.base import (
    add_baseline_flags,
    add_shared_flags,
    exit_code_of,
    harmless_json,
    select_findings,
    write_file,
    write_out,
)
from torchtriage.commands.report import read_source
from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.findings.model import EditLabel
from torchtriage.text import harmless_text

if TYPE_CHECKING:
    from torchtriage.findings.edits.proposal import FixReport
    from torchtriage.findings.report import Report
    from torchtriage.recording.recording import Recording

APPLIED = (EditLabel.SAFE, EditLabel.SETTING)      # without --label: what can be applied unread


class FixCommand:
    """Propose edits for the findings of a recording, each as a diff with a label, and make them with --apply.

    torchtriage fix train.triage                     the diff of each finding
    torchtriage fix train.triage -o cure.patch       the safe edits and the settings as one patch
    torchtriage fix train.triage --apply             the same, written into the files

    safe: cannot change a number. setting: a line of configuration. review: to be read before it is applied.
    """

    name = "fix"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("source", metavar="RECORDING", help="a .triage folder of this machine")
        parser.add_argument("--apply", action="store_true", help=(
            "write the first edit of each finding into its file; nothing is written if a file has uncommitted changes"
        ))
        parser.add_argument("--label", metavar="LABELS", help=(
            "edits to apply or to write as a patch, of safe, setting and review (default: safe,setting)"
        ))
        add_baseline_flags(parser)
        add_shared_flags(parser)

    def run(self, args: argparse.Namespace, config: Config) -> int:
        from torchtriage.diagnosis.report import build_report
        from torchtriage.remedies.tree import require_libcst

        require_libcst()
        labels = labels_of(args.label)
        check_format(config)
        recording = read_source(args.source)
        report = select_findings(build_report(recording), config, args)
        fixes = propose(report, recording, labels, args)
        if args.output and not args.apply:
            write_file(Path(args.output), fixes.together.diff, args)
        show_fixes(fixes, config, args, f"torchtriage fix {shlex.quote(args.source)}{_flags(args)} --apply")
        return exit_code_of(report, config, args)


def labels_of(text: str | None) -> tuple[EditLabel, ...]:
    """The labels that --label names; exit 2 for one that does not exist."""
    if text is None:
        return APPLIED
    try:
        return tuple(EditLabel(word.strip()) for word in text.split(",") if word.strip())
    except ValueError:
        raise CommandError(f"--label {text}: use safe, setting and review, separated by commas") from None


def check_format(config: Config) -> None:
    if config.format not in (None, "text", "json"):
        raise CommandError(f"fix has no format {config.format!r}; use text or json, or -o FILE.patch for a patch")


def propose(
    report: "Report", recording: "Recording", labels: Sequence[EditLabel], args: argparse.Namespace,
) -> "FixReport":
    """The proposals for a report; with --apply the chosen edits are written."""
    from torchtriage.findings.edits.proposal import FixReport
    from torchtriage.remedies.proposals import combined, proposals
    from torchtriage.remedies.workspace import Workspace, check_writable, project_root, write

    workspace = Workspace(project_root(Path.cwd()), recording)
    found = proposals(report.findings, workspace)
    choices = [(p.finding, edit) for p in found if (edit := p.first(labels)) is not None]
    together, files = combined(choices, workspace)
    fixes = FixReport(proposals=found, together=together, labels=labels)
    if not args.apply or not files:
        return fixes
    check_writable(list(files), force=args.force)
    write(files)
    return replace(fixes, written=[os.path.abspath(path) for path in files])


def show_fixes(fixes: "FixReport", config: Config, args: argparse.Namespace, next_command: str) -> None:
    from torchtriage.reporters.fixes import data, text

    if config.format == "json":
        write_out(harmless_json(data.render(fixes)))
        return
    write_out(harmless_text(text.render(fixes, verbose=args.verbose, next_command=next_command)))


def _flags(args: argparse.Namespace) -> str:
    flags = ""
    for name in ("label", "select", "ignore"):
        value = getattr(args, name, None)
        if value:
            flags += f" --{name} {shlex.quote(value)}"
    return flags

"""The `lint` command."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from torchtriage.commands.base import (
    add_baseline_flags,
    add_redact_flag,
    add_shared_flags,
    exit_code_of,
    say,
    select_findings,
    show,
)
from torchtriage.config import Config, project_folder
from torchtriage.findings.model import Finding
from torchtriage.recording.recording import Recording
from torchtriage.text import counted


class LintCommand:
    """Show what in the source will hurt: breaks, recompiles and costs of compiled code, before anything runs."""

    name = "lint"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("paths", nargs="*", metavar="PATH", help=(
            "Python files, or folders that contain them (default: the working folder)"
        ))
        parser.add_argument("--recording", metavar="RECORDING", help=(
            "a run of this source: each finding says whether the run saw it, and with which cost"
        ))
        parser.add_argument("--fix", action="store_true", help=(
            "make the edits that cannot change a number, such as a guard around a message, then show what is left; "
            "nothing is written if a file has uncommitted changes"
        ))
        parser.add_argument("--no-cache", action="store_true", help="read the source again, even if nothing changed")
        add_redact_flag(parser)
        add_baseline_flags(parser)
        add_shared_flags(parser)

    def run(self, args: argparse.Namespace, config: Config) -> int:
        from torchtriage.lint.cache import LintCache
        from torchtriage.lint.check import lint, report_of

        folder = os.getcwd()
        recording = _recording(args.recording) if args.recording else None
        roots = [folder] if recording is None else [*_roots(recording), folder]
        cache = None if args.no_cache else LintCache(project_folder(Path(folder)) or Path(folder))
        paths = [Path(path) for path in args.paths or ["."]]
        result = lint(paths, roots, cache)
        if args.fix and _fix(result.findings, folder, config, args):
            result = lint(paths, roots, cache)
        findings = result.findings if recording is None else _joined(result.findings, recording, args)
        full = report_of(
            result, findings, working_folder=folder, per_file_ignores=dict(config.per_file_ignores),
        )
        report = select_findings(full, config, args)
        show(report, config, args, path=args.output)
        return exit_code_of(report, config, args)


def _fix(findings: Sequence[Finding], folder: str, config: Config, args: argparse.Namespace) -> bool:
    """Make the safe edits of the findings that would be shown; False if there are none."""
    from torchtriage.findings.report import Report
    from torchtriage.remedies.source_edits import make_safe_edits
    from torchtriage.remedies.tree import require_libcst

    require_libcst()
    shown = select_findings(Report(findings=findings), config, args).findings
    made, paths = make_safe_edits(shown, folder, force=args.force)
    for edit in made.edits:
        say(args, edit.text)
    say(args, f"{counted(len(made.edits), 'safe edit')} made in {counted(len(paths), 'file')}")
    return bool(paths)


def _recording(source: str) -> Recording:
    from torchtriage.commands.report import read_source

    return read_source(source)


def _roots(recording: Recording) -> list[str]:
    return [root for process in recording.processes for root in process.program.your_roots]


def _joined(findings: Sequence[Finding], recording: Recording, args: argparse.Namespace) -> list[Finding]:
    from torchtriage.diagnosis.diagnose import diagnose
    from torchtriage.lint.run_evidence import with_run
    from torchtriage.recording.events import CompileStart
    from torchtriage.text import original_function

    observed = diagnose(recording)
    compiled = {(event.path, original_function(event.function)) for event in recording.of(CompileStart)}
    joined = with_run(findings, observed, compiled)
    shown = {finding.fingerprint for finding in joined}
    num_others = sum(finding.fingerprint not in shown for finding in observed)
    if num_others:
        say(args, f"{counted(num_others, 'finding')} of the run cannot be seen in this source; "
                  f"torchtriage report {args.recording} shows all of the run")
    return joined

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
    check_gate,
    exit_code_of,
    harmless_json,
    say,
    select_findings,
    write_file,
    write_out,
)
from torchtriage.commands.report import read_source
from torchtriage.commands.shapes import parse_number
from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.findings.model import EditLabel
from torchtriage.text import counted, harmless_text

if TYPE_CHECKING:
    from torchtriage.findings.edits.proposal import FixReport
    from torchtriage.findings.edits.trials import TrialReport
    from torchtriage.findings.report import Report
    from torchtriage.recording.recording import Recording

BUDGET = "30m"
FORMATS = ("text", "json", "sarif")
APPLIED = (EditLabel.SAFE, EditLabel.SETTING)      # without --label: what can be applied unread


class FixCommand:
    """Propose edits for the findings of a recording, each as a diff with a label, and make them with --apply.

    torchtriage fix train.triage                     the diff of each finding
    torchtriage fix train.triage -o cure.patch       the safe edits and the settings as one patch
    torchtriage fix train.triage --apply             the same, written into the files
    torchtriage fix --verify train.py --epochs 1     run it, try each edit in a copy, keep what is proven
    torchtriage fix train.triage --verify train.py   the same; the proofs are kept in the recording, for its reports

    safe: cannot change a number. setting: a line of configuration. review: to be read before it is applied.
    """

    name = "fix"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("source", metavar="RECORDING", nargs="?", help="a .triage folder of this machine")
        parser.add_argument("--verify", metavar="script.py args...", nargs=argparse.REMAINDER, help=(
            "run this script instead, try each edit in a copy of the working folder, and leave those that are verified "
            "as a patch; everything after it belongs to the script, or what is after -- if that is there"
        ))
        parser.add_argument("--budget", metavar="TIME", help=(
            f"with --verify: how long it may take, such as 5m or 1h (default: {BUDGET})"
        ))
        parser.add_argument("--steps", metavar="N", help="with --verify: end every run after this many optimizer steps")
        parser.add_argument("--apply", action="store_true", help=(
            "write the first edit of each finding into its file; nothing is written if a file has uncommitted changes"
        ))
        parser.add_argument("--label", metavar="LABELS", help=(
            "edits to apply or to write as a patch, of safe, setting and review (default: safe,setting; with --verify "
            "all of them are tried)"
        ))
        add_baseline_flags(parser)
        add_shared_flags(parser)

    def run(self, args: argparse.Namespace, config: Config) -> int:
        from torchtriage.diagnosis.report import build_report
        from torchtriage.remedies.tree import require_libcst

        require_libcst()
        check_format(config)
        if args.verify is not None:
            return verified_fix(args, config)
        check_recording(args)
        labels = labels_of(args.label)
        recording = read_source(args.source)
        report = select_findings(build_report(recording), config, args)
        fixes = propose(report, recording, labels, args)
        if args.output and not args.apply:
            write_file(Path(args.output), fixes.together.diff, args)
        show_fixes(report, fixes, config, args, f"torchtriage fix {shlex.quote(args.source)}{_flags(args)} --apply")
        return exit_code_of(report, config, args)


def check_recording(args: argparse.Namespace) -> None:
    if args.source is None:
        raise CommandError(
            "no recording; make one with: torchtriage run train.py, or try: torchtriage fix --verify train.py")
    if args.source.endswith(".py") and Path(args.source).is_file():
        raise CommandError(f"{args.source} is a script, not a recording; try: torchtriage fix --verify {args.source}")
    for name in ("budget", "steps"):
        if getattr(args, name) is not None:
            raise CommandError(f"--{name} is for trials; add --verify SCRIPT behind it")


def verified_fix(args: argparse.Namespace, config: Config) -> int:
    """`fix --verify`: the trials of a script, the patch of what is verified, the report."""
    from torchtriage.findings.report import Report
    from torchtriage.proof.budget import parse_duration
    from torchtriage.proof.sides import check_script
    from torchtriage.proof.verify import work_folder
    from torchtriage.remedies.trials import EditExperiment, patch_name

    check_trial_flags(args)
    check_script(args.verify[0])
    patch = Path(args.output or patch_name(args.verify[0]))
    if os.path.lexists(patch) and not args.force:
        raise CommandError(f"{patch} exists; overwrite it with --force, or name another file with -o")
    check_gate(config, args)
    with work_folder() as work:
        experiment = EditExperiment(
            script=args.verify[0], arguments=args.verify[1:], work=work, budget=parse_duration(args.budget or BUDGET),
            labels=labels_of(args.label, tuple(EditLabel)), say=lambda text: say(args, text),
            steps=parse_number(args.steps, "--steps", 0) or None,
            wanted=lambda report: select_findings(report, config, args),
        )
        was_interrupted = False
        try:
            experiment.run()
        except KeyboardInterrupt:
            experiment.interrupted()
            was_interrupted = True
        result = experiment.result()
    if result.patch:
        write_file(patch, result.patch, args)
    if args.source is not None:
        _keep_proofs(Path(args.source), result, args)
    show_trials(result, config, str(patch) if result.patch else "")
    if was_interrupted:
        return 130
    cured = {trial.finding.fingerprint for trial in result.kept}
    report = experiment.report or Report(findings=())
    left = [finding for finding in report.findings if finding.fingerprint not in cured]
    return exit_code_of(replace(report, findings=left), config, args)


def _keep_proofs(recording: Path, result: "TrialReport", args: argparse.Namespace) -> None:
    """The proofs of those findings that the recording has too, which it shows from now on."""
    from torchtriage.diagnosis.report import build_report
    from torchtriage.remedies.proof_file import keep_proofs

    present = {finding.fingerprint for finding in build_report(read_source(str(recording))).findings}
    found = [trial for trial in result.kept if trial.finding.fingerprint in present]
    if found:
        keep_proofs(recording, found)
        say(args, f"{counted(len(found), 'proof')} kept in {recording}; see: torchtriage report {recording}")
    num_missing = len(result.kept) - len(found)
    if num_missing:
        say(args, f"{counted(num_missing, 'cured finding')} not in {recording}: it is of another run of the program")


def check_trial_flags(args: argparse.Namespace) -> None:
    from torchtriage.recording.reader import is_recording

    if not args.verify:
        raise CommandError("--verify needs a script: torchtriage fix --verify train.py")
    if args.source is not None and not is_recording(Path(args.source)):
        raise CommandError(f"{args.source} is not a .triage folder; the proofs of --verify are kept in one")
    if args.apply:
        raise CommandError("--verify leaves a patch; apply it with git apply, not with --apply")
    if args.format == "sarif":
        raise CommandError("--verify has no format 'sarif'; use text or json")


def show_trials(result: "TrialReport", config: Config, patch: str) -> None:
    from torchtriage.reporters.fixes import trials

    if config.format == "json":
        write_out(harmless_json(trials.as_json(result, patch)))
    else:
        write_out(harmless_text(trials.as_text(result, patch)))


def labels_of(text: str | None, default: tuple[EditLabel, ...] = APPLIED) -> tuple[EditLabel, ...]:
    """The labels that --label names; exit 2 for one that does not exist."""
    if text is None:
        return default
    try:
        return tuple(EditLabel(word.strip()) for word in text.split(",") if word.strip())
    except ValueError:
        raise CommandError(f"--label {text}: use safe, setting and review, separated by commas") from None


def check_format(config: Config) -> None:
    if config.format not in (None, *FORMATS):
        raise CommandError(
            f"fix has no format {config.format!r}; use {', '.join(FORMATS)}, or -o FILE.patch for a patch")


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


def show_fixes(
    report: "Report", fixes: "FixReport", config: Config, args: argparse.Namespace, next_command: str,
) -> None:
    from torchtriage.reporters.fixes import code_scanning, data, text

    if config.format == "sarif":
        write_out(harmless_json(code_scanning.render(report, fixes)))
        return
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

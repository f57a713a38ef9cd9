"""The `run` command."""

import argparse
import contextlib
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchtriage.commands.base import (
    add_baseline_flags,
    add_redact_flag,
    add_shared_flags,
    check_gate,
    complain,
    exit_code_of,
    is_drawn,
    say,
    select_findings,
    show,
)
from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.launch import environment, supervise
from torchtriage.launch.folders import free_folder, remove_recording
from torchtriage.text import path_from_here

if TYPE_CHECKING:
    from torchtriage.commands.status import StatusLine
    from torchtriage.findings.report import Report
    from torchtriage.recording.store import Writer


NON_FINITE = ("TT401", "TT402", "TT403")


class RunCommand:
    """Run a program under observation and report on torch.compile and on the learning.

    torchtriage run train.py --epochs 3        a script, as python would run it
    torchtriage run -m package.train           a module
    torchtriage run -- torchrun train.py       any command; every Python process that it starts joins the recording
    """

    name = "run"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-m", dest="module", action="store_true", help="run a module instead of a script")
        parser.add_argument("--measure", action="store_true", help=(
            "time compiled pieces and the gaps at graph breaks (costs about 1 us per piece)"
        ))
        parser.add_argument("--no-telemetry", dest="telemetry", action="store_false", default=None, help=(
            "do not record gradients, weights and the loss"
        ))
        add_html_flag(parser)
        add_redact_flag(parser)
        add_baseline_flags(parser)
        add_shared_flags(parser)
        parser.add_argument("command", nargs=argparse.REMAINDER, metavar="script.py args... | -- command args...")

    def run(self, args: argparse.Namespace, config: Config) -> int:
        check_gate(config, args)
        command = self._command(args)
        folder = free_folder(args.output or default_name(args.command), replace=args.force, flag="-o")
        check_page_is_free(folder, args)
        return observe_and_report(command, folder, args, config)

    def _command(self, args: argparse.Namespace) -> list[str]:
        if not args.command:
            raise CommandError("nothing to run; try: torchtriage run train.py, run -m package, or run -- command args")
        if args.plain_command:
            if shutil.which(args.command[0]) is None:
                raise CommandError(f"cannot start {args.command[0]}: no such command")
            return list(args.command)
        if not args.module:
            script = Path(args.command[0])
            if not script.exists():
                raise CommandError(
                    f"no script at {script}; for a command that is not a Python script use: "
                    f"torchtriage run -- {script} ..."
                )
            if not os.access(script, os.R_OK):
                raise CommandError(f"cannot read {script}: permission denied")
        return supervise.python_command(args.command, args.module)


def default_name(command: list[str]) -> str:
    stem = Path(command[0]).stem if command else "run"
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}.triage"


def add_html_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", action="store_true", help="also write an HTML report, NAME.html beside NAME.triage")


def check_page_is_free(folder: Path, args: argparse.Namespace) -> None:
    """Reject --html before a run if the page exists and --force is not given."""
    page = page_of(folder)
    if args.html and os.path.lexists(page) and not args.force:
        raise CommandError(f"{page} exists; overwrite it with --force, or name another recording with -o")


def observe_and_report(
    command: list[str],
    folder: Path,
    args: argparse.Namespace,
    config: Config,
    status: bool = True,
    not_begun: int | None = None,
) -> int:
    """Run the command to its end, then diagnose its recording; the command's own failure decides the exit code.

    `not_begun`: the exit status of a command that has already reported why it could not start. Its recording is
    removed, as there is nothing to report.
    """
    run_id = environment.unique_run_id()
    launcher = _launcher_file(folder, run_id, command)
    if launcher is None:
        return _run(command, os.environ, None)
    say(args, f"recording into {path_from_here(folder)}")
    env = supervise.observed_environment(os.environ, str(folder), run_id, config.measure, config.telemetry)
    code = _run(command, env, _status_line(folder, args) if status else None)
    _note_end(launcher, code)
    if code == not_begun:
        with contextlib.suppress(OSError):
            remove_recording(folder)
        return code
    if code:
        say(args, f"the program ended with status {code}")
    if not folder.is_dir():
        print(
            f"torchtriage: no report: {folder} was deleted or moved while the program ran; "
            "record again, or read the moved folder with: torchtriage report FOLDER",
            file=sys.stderr,
        )
        return code or 2
    try:
        finding_code = report_folder(folder, args, config)
    except Exception as error:
        if not code:
            raise
        complain(f"no report: {error}")
        return code     # the program's own failure matters more than the missing report
    return code or finding_code


def _run(command: list[str], env: Mapping[str, str], status: "StatusLine | None") -> int:
    try:
        return supervise.run_to_end(command, env, status)
    except OSError as error:
        raise CommandError(f"cannot start {command[0]}: {error.strerror}") from error
    finally:
        if status is not None:
            status.clear()


def _note_end(launcher: "Writer", code: int) -> None:
    from torchtriage.launch import launcher_file

    try:
        launcher_file.end(launcher, code)
    except (OSError, sqlite3.Error) as error:
        complain(f"cannot write how the run ended: {error}")


def report_folder(folder: Path, args: argparse.Namespace, config: Config) -> int:
    from torchtriage.diagnosis.report import build_report
    from torchtriage.recording.reader import read_recording

    drawn = args.html or is_drawn(config, None)
    full = build_report(read_recording(folder), with_events=config.format == "json", with_history=drawn)
    report = select_findings(full, config, args)
    show(report, config, args, next_command=_next_command(report, path_from_here(folder)))
    if args.html:
        args.force = True       # check_page_is_free was called before the run
        show(report, replace(config, format="html"), args, path=path_from_here(page_of(folder)))
    return exit_code_of(report, config, args)


def _next_command(report: "Report", folder: str) -> str:
    """After a NaN or Inf the next question is which operation made it."""
    if any(finding.code in NON_FINITE for finding in report.findings):
        return f"torchtriage replay {folder}"
    return f"torchtriage report {folder} -v"


def page_of(folder: Path) -> Path:
    """The path of the page that --html writes for a recording."""
    return folder.with_suffix(".html")


def _launcher_file(folder: Path, run_id: str, command: list[str]) -> "Writer | None":
    """The launcher's own file in a new folder; None, with a message on stderr, if the folder cannot be written."""
    from torchtriage.launch import launcher_file

    try:
        return launcher_file.begin(folder, run_id, command)
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        complain(f"cannot write {folder}: {reason}; the program runs unobserved")
        return None


def _status_line(folder: Path, args: argparse.Namespace) -> "StatusLine | None":
    if args.quiet or not sys.stderr.isatty():
        return None
    from torchtriage.commands.status import StatusLine

    return StatusLine(folder)


"""What the commands share: flags, settings, choosing and writing findings, exit codes."""

import argparse
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from torchtriage.config import COLOURS, FORMATS, Config, check_codes, check_threshold, current_config
from torchtriage.errors import CommandError
from torchtriage.findings import catalogue
from torchtriage.findings.baseline import read_baseline, write_baseline
from torchtriage.findings.model import Finding, Severity
from torchtriage.findings.report import Report

_EXTENSIONS = {".json": "json", ".txt": "text"}


class Command(Protocol):
    """One command: its docstring is its help text."""

    name: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace, config: Config) -> int: ...


def add_shared_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("shared flags")
    group.add_argument("-o", "--output", metavar="PATH", help="where to write (a recording for run and demo, a file for the others)")
    group.add_argument("-f", "--force", action="store_true", help="overwrite what is there")
    group.add_argument("-q", "--quiet", action="store_true", help="only findings and errors")
    group.add_argument("-v", "--verbose", action="store_true", help="every finding, with its notes")
    group.add_argument("--format", choices=FORMATS, help="text or json (default: by the extension of --output, else text)")
    group.add_argument("--select", metavar="CODES", help="only these codes or prefixes, e.g. TT1,TT301")
    group.add_argument("--ignore", metavar="CODES", help="not these codes or prefixes")
    group.add_argument("--fail-on", metavar="P0..P4|never", help="exit 1 if a finding is at least this severe (default: never)")
    group.add_argument("--color", choices=COLOURS, help="colour of the text report (default: auto)")


def add_baseline_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--baseline", metavar="FILE", help="findings in this file are known: they are counted and never fail")
    parser.add_argument("--update-baseline", action="store_true", help="accept today's findings into the baseline file")


def settings(args: argparse.Namespace) -> Config:
    """The file and the environment, with the flags of this call on top."""
    config = current_config()
    changes: dict[str, object] = {}
    for name in ("format", "color", "baseline"):
        if getattr(args, name, None) is not None:
            changes[name] = getattr(args, name)
    for name in ("select", "ignore"):
        if getattr(args, name, None) is not None:
            changes[name] = check_codes(getattr(args, name), f"--{name}")
    if getattr(args, "fail_on", None) is not None:
        changes["fail_on"] = check_threshold(args.fail_on, "--fail-on")
    if getattr(args, "measure", False):
        changes["measure"] = True
    return replace(config, **changes)  # type: ignore[arg-type]  # the names are those of Config's fields


def chosen(report: Report, config: Config, args: argparse.Namespace) -> Report:
    """The report without what --select, --ignore and the baseline take away."""
    check_known(config)
    wanted = [f for f in report.findings if is_selected(f, config)]
    hidden = len(report.findings) - len(wanted)
    if getattr(args, "update_baseline", False):
        if config.baseline is None:
            raise CommandError("--update-baseline needs to know the file; add --baseline FILE")
        if config.select:
            raise CommandError("--update-baseline accepts every finding and cannot go with --select; use --ignore for what you never want")
        number = write_baseline(Path(config.baseline), wanted)
        say(args, f"{number} findings accepted in {config.baseline}")
    known = read_baseline(Path(config.baseline)) if config.baseline else set()
    new = [f for f in wanted if f.fingerprint not in known]
    return replace(report, findings=new, num_known=len(wanted) - len(new), num_hidden=hidden)


def check_known(config: Config) -> None:
    """A code that matches no rule would make a gate pass for ever."""
    for item in (*config.select, *config.ignore):
        if not any(code.startswith(item) for code in catalogue.codes()):
            raise CommandError(f"no rule begins with {item!r}; list the rules with: torchtriage explain")


def is_selected(finding: Finding, config: Config) -> bool:
    if config.select and not finding.code.startswith(config.select):
        return False
    return not (config.ignore and finding.code.startswith(config.ignore))


def show(report: Report, config: Config, args: argparse.Namespace, *, path: str | None = None, next_command: str = "") -> None:
    """Write the report to its file, or to stdout."""
    format_ = config.format or (_EXTENSIONS.get(Path(path).suffix, "text") if path else "text")
    colour = not path and wants_colour(config)
    text = rendered(report, format_, colour=colour, verbose=args.verbose, next_command=next_command)
    if path is None:
        write_out(text)
        return
    target = Path(path)
    if target.exists() and not args.force:
        raise CommandError(f"{target} exists; overwrite it with --force, or name another file")
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {target}: {error.strerror}") from error
    say(args, f"wrote {target}")


def write_out(text: str) -> None:
    """Write to stdout; a reader that leaves early, as `head` does, is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # python flushes once more at exit, and would complain


def rendered(report: Report, format_: str, *, colour: bool, verbose: bool, next_command: str) -> str:
    if format_ == "json":
        from torchtriage.reporters import json

        return json.render(report)
    from torchtriage.reporters import terminal

    width = shutil.get_terminal_size((100, 40)).columns
    return terminal.render(report, width=min(width, 160), colour=colour, verbose=verbose, next_command=next_command)


def wants_colour(config: Config) -> bool:
    if config.color != "auto":
        return config.color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def exit_code(report: Report, config: Config) -> int:
    """1 if a finding is at or above the threshold."""
    if config.fail_on == "never":
        return 0
    threshold = Severity[config.fail_on]
    return int(any(f.severity <= threshold for f in report.findings))


def say(args: argparse.Namespace, text: str) -> None:
    """Progress and news go to stderr; stdout is for findings."""
    if not args.quiet:
        print(f"torchtriage: {text}", file=sys.stderr, flush=True)

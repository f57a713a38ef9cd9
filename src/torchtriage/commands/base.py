"""Parts that all commands share: flags, settings, the selection of findings, exit codes."""

import argparse
import importlib
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from torchtriage.config import COLOURS, FORMATS, Config, check_codes, check_threshold, current_config
from torchtriage.errors import CommandError
from torchtriage.files import replace_file
from torchtriage.findings.report import Report
from torchtriage.findings.selection import (
    check_rules_exist,
    failing,
    is_wanted,
    read_baseline,
    selected,
    write_baseline,
)
from torchtriage.text import counted, harmless_text, row

# The longest matching extension wins: x.trace.json is a Chrome trace, x.json is not.
_EXTENSIONS = {
    ".trace.json": "chrome",
    ".json": "json",
    ".txt": "text",
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".sarif": "sarif",
    ".sarif.json": "sarif",
}
_DRAWN = ("html", "chrome")     # formats with a timeline
_JSON = ("json", "sarif", "chrome")


class Command(Protocol):
    """One command; its docstring is its help text."""

    name: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace, config: Config) -> int: ...


def add_shared_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("shared flags")
    group.add_argument("-o", "--output", metavar="PATH", help=(
        "output path (a recording for run, shapes, train and demo, a file for the other commands)"
    ))
    group.add_argument("-f", "--force", action="store_true", help="overwrite existing output")
    group.add_argument("-q", "--quiet", action="store_true", help="print only findings and errors")
    group.add_argument("-v", "--verbose", action="store_true", help="print every finding, with its notes")
    group.add_argument("--format", choices=FORMATS, metavar="FORMAT", help=(
        f"format of the report: {row(FORMATS)} (default: text; report -o FILE uses the extension: "
        ".html .md .sarif .json .trace.json .txt)"
    ))
    group.add_argument("--select", metavar="CODES", help="report only these codes or prefixes, e.g. TT1,TT301")
    group.add_argument("--ignore", metavar="CODES", help="do not report these codes or prefixes")
    group.add_argument("--fail-on", metavar="P0..P4|never", help=(
        "exit with status 1 if a finding is at least this severe (default: never)"
    ))
    group.add_argument("--color", choices=COLOURS, help="colour the text report (default: auto)")


def add_baseline_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--baseline", metavar="FILE", help=(
        "findings in this file are known: they are counted and never fail"
    ))
    parser.add_argument("--update-baseline", action="store_true", help=(
        "accept the current findings into the baseline file"
    ))


def add_redact_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--redact", action="store_true", help=(
        "make a report that can be shared: no source, values, paths or environment"
    ))


def settings(args: argparse.Namespace) -> Config:
    """The configuration file and the environment, overridden by the flags of this call."""
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
    if getattr(args, "telemetry", None) is False:
        changes["telemetry"] = False
    return replace(config, **changes)  # type: ignore[arg-type]  # the names are those of Config's fields


def check_gate(config: Config, args: argparse.Namespace) -> None:
    """Reject settings before a run that could not be applied after it."""
    check_rules_exist(config)
    if not getattr(args, "update_baseline", False):
        if config.baseline is not None:
            read_baseline(Path(config.baseline))
    elif config.baseline is None:
        raise CommandError("--update-baseline needs a file to write; add --baseline FILE")
    elif config.select:
        raise CommandError(
            "--update-baseline accepts every finding and cannot be combined with --select; "
            "use --ignore for rules that you never want"
        )


def select_findings(report: Report, config: Config, args: argparse.Namespace) -> Report:
    """The report without the findings that --select, --ignore and the baseline remove."""
    check_gate(config, args)
    if getattr(args, "update_baseline", False):
        number = write_baseline(Path(config.baseline or ""), [f for f in report.findings if is_wanted(f, config)])
        say(args, f"{counted(number, 'finding')} accepted in {config.baseline}")
    return selected(report, config)


def format_of(config: Config, path: str | None) -> str:
    """The format that --format names, else that of the file's extension, else text."""
    if config.format or not path:
        return config.format or "text"
    extensions = [extension for extension in _EXTENSIONS if path.lower().endswith(extension)]
    return _EXTENSIONS[max(extensions, key=len)] if extensions else "text"


def is_drawn(config: Config, path: str | None) -> bool:
    return format_of(config, path) in _DRAWN


def show(
    report: Report, config: Config, args: argparse.Namespace, *, path: str | None = None, next_command: str = "",
) -> None:
    """Write the report to its file, or to stdout."""
    if getattr(args, "redact", False):
        from torchtriage.findings.redaction import redacted

        report = redacted(report)
        next_command = ""       # it names the recording
    colour = not path and wants_colour(config)
    text = rendered(report, format_of(config, path), colour=colour, verbose=args.verbose, next_command=next_command)
    if path is None:
        write_out(harmless_json(text) if format_of(config, path) in _JSON else text)
    else:
        write_file(Path(path), text, args)


def write_file(target: Path, text: str, args: argparse.Namespace) -> None:
    if os.path.lexists(target) and not args.force:
        raise CommandError(f"{target} exists; overwrite it with --force, or name another file")
    try:
        data = text.encode("utf-8", "backslashreplace")
        if target.exists() and not target.is_file():
            target.write_bytes(data)    # /dev/stdout or a pipe, which cannot be replaced
        else:
            replace_file(target, data)
    except OSError as error:
        raise CommandError(f"cannot write {target}: {error.strerror}") from error
    say(args, f"wrote {target}")


def write_out(text: str) -> None:
    """Write to stdout; a reader that closes the pipe early, as `head` does, is not an error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Python flushes stdout again at exit, which would raise a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise CommandError(f"cannot write to stdout: {error.strerror}") from error


def write_text(text: str) -> None:
    """Write text of a file to stdout, without anything that a terminal or a CI runner would act on."""
    write_out(harmless_text(text))


def write_json(value: object) -> None:
    write_out(harmless_json(json.dumps(value, indent=1)) + "\n")


def harmless_json(text: str) -> str:
    """JSON that a CI runner does not act on; it is the same data."""
    return text.replace("##[", "#\\u0023[").replace("##vso[", "#\\u0023vso[")


def rendered(report: Report, format_: str, *, colour: bool, verbose: bool, next_command: str) -> str:
    if format_ != "text":
        return str(importlib.import_module(f"torchtriage.reporters.{format_}").render(report))
    from torchtriage.reporters import terminal

    width = shutil.get_terminal_size((100, 40)).columns
    return terminal.render(report, width=min(width, 160), colour=colour, verbose=verbose, next_command=next_command)


def wants_colour(config: Config) -> bool:
    if config.color != "auto":
        return config.color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def exit_code_of(report: Report, config: Config, args: argparse.Namespace) -> int:
    """1, with the reason on stderr, if a finding is at or above the threshold; else 0."""
    findings = failing(report, config)
    if findings:
        say(args, f"failed: {counted(len(findings), 'finding')} at {config.fail_on} or worse")
    return int(bool(findings))


def say(args: argparse.Namespace, text: str) -> None:
    """Print a message to stderr; stdout is for findings."""
    if not args.quiet:
        complain(text)


def complain(text: object) -> None:
    """Print an error or a message to stderr; it may quote a file."""
    print(harmless_text(f"torchtriage: {text}"), file=sys.stderr, flush=True)

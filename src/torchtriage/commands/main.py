"""The command line: `torchtriage COMMAND`."""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterable, Sequence

from torchtriage import __version__
from torchtriage.commands.base import Command, complain, settings
from torchtriage.commands.parser import HelpFormatter, Parser
from torchtriage.errors import CommandError, TriageError
from torchtriage.text import harmless_text

# The module of each command and its class, in the order of --help. Only the command that runs is imported: most of the
# time of a `report` is that of its imports.
COMMANDS = {
    "run": ("torchtriage.commands.run", "RunCommand"),
    "report": ("torchtriage.commands.report", "ReportCommand"),
    "replay": ("torchtriage.commands.change.replay", "ReplayCommand"),
    "lint": ("torchtriage.commands.lint", "LintCommand"),
    "review": ("torchtriage.commands.ticket.review", "ReviewCommand"),
    "explain": ("torchtriage.commands.explain", "ExplainCommand"),
    "fix": ("torchtriage.commands.change.fix", "FixCommand"),
    "verify": ("torchtriage.commands.change.verify", "VerifyCommand"),
    "shapes": ("torchtriage.commands.shapes", "ShapesCommand"),
    "ticket": ("torchtriage.commands.ticket.command", "TicketCommand"),
    "train": ("torchtriage.commands.train", "TrainCommand"),
    "mcp": ("torchtriage.commands.mcp", "McpCommand"),
    "demo": ("torchtriage.commands.demo", "DemoCommand"),
}


def command_named(name: str) -> Command:
    module, class_name = COMMANDS[name]
    command: Command = getattr(importlib.import_module(module), class_name)()
    return command


def build_parser(names: Iterable[str] = tuple(COMMANDS)) -> Parser:
    """The parser of these commands; those of all others are not needed to parse the words of one."""
    parser = Parser(
        prog="torchtriage",
        description=(
            "Triage for PyTorch training: shows what torch.compile does to your program, whether the learning is "
            "healthy, what it costs and what to change."
        ),
        epilog="start with: torchtriage demo, then: torchtriage run train.py",
    )
    parser.add_argument("--version", action="version", version=f"torchtriage {__version__}")
    for command in map(command_named, names):
        text = inspect.cleandoc(type(command).__doc__ or "")
        subparser = parser.add_command(
            command.name,
            help=text.split("\n")[0],
            description=text,
            formatter_class=HelpFormatter,
        )
        command.add_arguments(subparser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    _open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    words, plain_command = _split_plain_command(words)
    words, script_arguments = _split_script_arguments(_flags_before_script(words))
    args = build_parser(_needed(words)).parse_args(words)
    args.script_arguments = script_arguments
    args.plain_command = plain_command is not None
    if plain_command is not None:
        args.command = plain_command
    try:
        return command_named(args.name).run(args, settings(args))
    except CommandError as error:
        complain(error)
        return error.exit_code
    except TriageError as error:
        complain(error)
        return 2
    except Exception as error:  # Python would exit with status 1, which means findings
        sys.stderr.write(harmless_text(traceback.format_exc()))
        complain(f"internal error, {type(error).__name__}: {error}; please report it with the lines above")
        return 2


def _open_closed_streams() -> None:
    """Discard what is written to a stream that the caller closed.

    Its descriptor is taken, so that no file becomes stdout: SQLite would open it read-only for all child processes. A
    child process still finds it closed, as descriptors of os.open are not inherited.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)      # takes the lowest number that is free
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:          # print() would write what is for stderr to stdout
            setattr(sys, name, open(os.devnull, "w"))   # noqa: SIM115 - open to the end


def _split_plain_command(words: list[str]) -> tuple[list[str], list[str] | None]:
    """`run FLAGS -- CMD ARGS`: everything after -- is the command, unless a script precedes it."""
    if not words or words[0] != "run" or "--" not in words:
        return words, None
    at = words.index("--")
    before = build_parser(["run"]).parse_args(words[:at])
    return (words, None) if before.command else (words[:at], words[at + 1:])


def _split_script_arguments(words: list[str]) -> tuple[list[str], list[str]]:
    """`verify FLAGS A B -- ARGS`: everything after -- belongs to the scripts, also what looks like a flag of ours."""
    if not words or words[0] != "verify" or "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1:]


def _flags_before_script(words: list[str]) -> list[str]:
    """`fix --verify SCRIPT FLAGS -- ARGS` as `fix FLAGS --verify SCRIPT ARGS`: as for `verify`, -- ends our flags."""
    if words[:1] != ["fix"] or "--verify" not in words or "--" not in words[words.index("--verify") + 2:]:
        return words
    at = words.index("--verify")
    end = words.index("--", at + 2)
    return [*words[:at], *words[at + 2:end], *words[at:at + 2], *words[end + 1:]]


def _needed(words: Sequence[str]) -> Sequence[str]:
    """The command that is called, or all of them for --help and for a name that is none of them."""
    return words[:1] if words and words[0] in COMMANDS else tuple(COMMANDS)

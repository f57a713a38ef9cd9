"""The command line: `torchtriage COMMAND`."""

import argparse
import inspect
import os
import sys
import traceback
from collections.abc import Sequence

from torchtriage import __version__
from torchtriage.commands.base import Command, complain, settings
from torchtriage.commands.demo import DemoCommand
from torchtriage.commands.explain import ExplainCommand
from torchtriage.commands.parser import Parser
from torchtriage.commands.report import ReportCommand
from torchtriage.commands.run import RunCommand
from torchtriage.commands.shapes import ShapesCommand
from torchtriage.commands.ticket.command import TicketCommand
from torchtriage.commands.train import TrainCommand
from torchtriage.errors import CommandError, TriageError
from torchtriage.text import harmless_text

COMMANDS: tuple[Command, ...] = (
    RunCommand(),
    ReportCommand(),
    ExplainCommand(),
    ShapesCommand(),
    TicketCommand(),
    TrainCommand(),
    DemoCommand(),
)


def build_parser() -> Parser:
    parser = Parser(
        prog="torchtriage",
        description=(
            "Triage for PyTorch training: shows what torch.compile does to your program, what it costs "
            "and what to change."
        ),
        epilog="start with: torchtriage demo, then: torchtriage run train.py",
    )
    parser.add_argument("--version", action="version", version=f"torchtriage {__version__}")
    for command in COMMANDS:
        text = inspect.cleandoc(type(command).__doc__ or "")
        subparser = parser.add_command(
            command.name,
            help=text.split("\n")[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(subparser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    if sys.stderr is None:      # closed by the caller; print() would write to stdout instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open to the end
    words = list(sys.argv[1:] if argv is None else argv)
    words, plain_command = _split_plain_command(words)
    args = build_parser().parse_args(words)
    args.plain_command = plain_command is not None
    if plain_command is not None:
        args.command = plain_command
    command = next(c for c in COMMANDS if c.name == args.name)
    try:
        return command.run(args, settings(args))
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


def _split_plain_command(words: list[str]) -> tuple[list[str], list[str] | None]:
    """`run FLAGS -- CMD ARGS`: everything after -- is the command, unless a script precedes it."""
    if not words or words[0] != "run" or "--" not in words:
        return words, None
    at = words.index("--")
    before = build_parser().parse_args(words[:at])
    return (words, None) if before.command else (words[:at], words[at + 1:])

"""The form of the command line: help as wide as the terminal, the nearest flag or command for a mistyped one."""

import argparse
import difflib
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any


class Parser(argparse.ArgumentParser):
    """The parser of the full command line; `add_command` creates the parsers of the commands."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self._commands = self.add_subparsers(
            dest="name", metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser,
        )

    def add_command(self, name: str, **named: Any) -> argparse.ArgumentParser:
        return self._commands.add_parser(name, **named)

    def parse_args(self, words: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        args, rest = self.parse_known_args(words, namespace)
        if rest:
            suggestion = _suggestion(rest, _flags(self._commands.choices[args.name]))
            self.error(f"unrecognized arguments: {' '.join(rest)}{suggestion}")
        return args

    def error(self, message: str) -> Any:
        """Exit with status 2."""
        before, is_command, word = message.partition("argument COMMAND: invalid choice: ")
        if is_command and not before:
            message += _suggestion([word.split("'")[1]], self._commands.choices)
        super().error(message)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fills the paragraphs of a description, and keeps the lines of its examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            paragraph if paragraph.startswith("torchtriage ") else textwrap.fill(paragraph, width)
            for paragraph in text.split("\n\n")
        )


def _flags(parser: argparse.ArgumentParser) -> set[str]:
    """The flags of a parser and of its subparsers."""
    flags = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                flags |= _flags(subparser)
    return flags


def _suggestion(words: Iterable[str], names: Iterable[str]) -> str:
    """`; did you mean --format?`, or an empty text if no name is close."""
    names = list(names)
    matches: list[str] = []
    for word in words:
        matches += difflib.get_close_matches(word.partition("=")[0], names, n=1)
    return f"; did you mean {' and '.join(dict.fromkeys(matches))}?" if matches else ""

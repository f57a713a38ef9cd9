"""argparse that names the flag, or the command, that a mistyped one was meant to be."""

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any


class Parser(argparse.ArgumentParser):
    """The parser of the whole command line; those of the commands are made by `add_command`."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self._commands = self.add_subparsers(dest="name", metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser)

    def add_command(self, name: str, **named: Any) -> argparse.ArgumentParser:
        return self._commands.add_parser(name, **named)

    def parse_args(self, words: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        args, rest = self.parse_known_args(words, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{_meant(rest, _flags(self._commands.choices[args.name]))}")
        return args

    def error(self, message: str) -> Any:
        """Exits with status 2."""
        before, is_command, word = message.partition("argument COMMAND: invalid choice: ")
        if is_command and not before:
            message += _meant([word.split("'")[1]], self._commands.choices)
        super().error(message)


def _flags(parser: argparse.ArgumentParser) -> set[str]:
    """Its own, and those of the parsers below it."""
    below = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {*parser._option_string_actions, *(flag for choices in below for each in choices.values() for flag in _flags(each))}


def _meant(words: Iterable[str], known: Iterable[str]) -> str:
    names = list(known)
    near = [match for word in words for match in difflib.get_close_matches(word.partition("=")[0], names, n=1)]
    return f"; did you mean {' and '.join(dict.fromkeys(near))}?" if near else ""

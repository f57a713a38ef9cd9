"""Helpers of `review`, also used by the actions of `ticket`: valid words, today's date, paths."""

import argparse
import datetime
import difflib
from collections.abc import Iterable
from pathlib import Path

from torchtriage.config import Config, project_folder
from torchtriage.errors import CommandError
from torchtriage.text import path_from_here, row

DEFAULT_FOLDER = "docs/findings"


def root() -> Path:
    """The folder that paths in tickets are relative to: the project's, otherwise the working folder."""
    return project_folder(Path.cwd()) or Path.cwd()


def one_of(word: str, valid: Iterable[str], flag: str) -> str:
    """The valid word that matches, ignoring case; raises CommandError with the nearest one if none does."""
    by_key = {each.casefold(): str(each) for each in valid}
    if word.casefold() in by_key:
        return by_key[word.casefold()]
    near = difflib.get_close_matches(word.casefold(), by_key, n=1)
    hint = f"did you mean {by_key[near[0]]!r}?" if near else f"valid: {row(by_key.values())}"
    raise CommandError(f"{flag} cannot be {word!r}; {hint}")


def today() -> str:
    return datetime.date.today().isoformat()


def ticket_folder(args: argparse.Namespace, config: Config) -> Path:
    """The folder of the tickets: --folder, else the configuration, else the default below the project."""
    return Path(path_from_here(args.folder or config.tickets or root() / DEFAULT_FOLDER))

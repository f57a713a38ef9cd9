"""What the actions of `ticket` share: words from a list, dates, and where the project is."""

import datetime
import difflib
from collections.abc import Iterable
from pathlib import Path

from torchtriage.config import project_folder
from torchtriage.errors import CommandError


def root() -> Path:
    """The folder that paths in tickets are relative to: the project's, else the working folder."""
    return project_folder(Path.cwd()) or Path.cwd()


def near(path: Path) -> Path:
    """Relative to the working folder if it is below."""
    return path.relative_to(Path.cwd()) if path.is_absolute() and path.is_relative_to(Path.cwd()) else path


def one_of(word: str, valid: Iterable[str], flag: str) -> str:
    """The valid word that was meant, in any case; an error with the nearest one if there is none."""
    by_key = {each.casefold(): str(each) for each in valid}
    if word.casefold() in by_key:
        return by_key[word.casefold()]
    close = difflib.get_close_matches(word.casefold(), by_key, n=1)
    hint = f"did you mean {by_key[close[0]]!r}?" if close else f"valid: {', '.join(by_key.values())}"
    raise CommandError(f"{flag} cannot be {word!r}; {hint}")


def today() -> str:
    return datetime.date.today().isoformat()

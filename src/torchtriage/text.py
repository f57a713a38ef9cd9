"""The text form of durations, counts, lists, paths, function names.

Every folder uses these functions, so one value reads the same in every report, ticket and message.
"""

import functools
import math
import os
import re
from collections.abc import Iterable, Sequence

# (a unit is used below this many seconds, seconds per unit, name)
_TIME_UNITS = (
    (1e-3, 1e-6, "us"),
    (1.0, 1e-3, "ms"),
    (600.0, 1.0, "s"),
    (7200.0, 60.0, "min"),
    (math.inf, 3600.0, "h"),
)
# Control characters, line separators, marks that change the direction of text, and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# A CI runner acts on `::error::` at the start of a line, whatever invisible characters precede it, and on `##[error]`
# anywhere in it.
_LINE_COMMAND = re.compile("^([\\s\u00ad\u200b-\u200f\u2060-\u2064\ufeff]*):(?=:)")
_INSTALLED = re.compile(r"(?:^|/)(?:site|dist)-packages/")
_STANDARD_LIBRARY = re.compile(r"(?:^|/)lib/python3\.\d+/")
CELL = "cell "      # how the path of a notebook cell begins: `cell In[3]`
_DRIVE = re.compile(r"[A-Za-z]:/")
_RESUME_FUNCTION = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")


@functools.cache
def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern of a table, compiled when it is first tried: most commands need few of these tables."""
    return re.compile(text, flags)


def duration(seconds: float) -> str:
    """A time in three significant digits, in the unit that suits it.

    0.000012 s is "12.0 us", 0.347 s is "347 ms", 1.24 s is "1.24 s", 61.23 s is "61.2 s", 754 s is "12.6 min",
    9000 s is "2.50 h". Minutes begin at 600 s and hours at 7200 s. Zero is "0 s"; NaN and infinity are "unknown".
    """
    if seconds == 0:
        return "0 s"
    return duration_in(time_unit(seconds), seconds)


def time_unit(seconds: float) -> tuple[float, str]:
    """(seconds per unit, name) of the unit in which `duration` writes this time."""
    size = abs(seconds)
    for below, unit_seconds, name in _TIME_UNITS:
        # A time just below the limit rounds up to it: 0.9999 s is "1.00 s", not "1000 ms".
        if size < below and float(f"{size:.2e}") < below:
            return unit_seconds, name
    return 1.0, "s"


def duration_in(unit: tuple[float, str], seconds: float, *, with_unit: bool = True) -> str:
    """A time in a given unit of `time_unit`, so that both ends of an interval have the same one."""
    if not math.isfinite(seconds):
        return "unknown"
    unit_seconds, name = unit
    value = seconds / unit_seconds
    size = abs(value)
    if size < 9.995:
        digits = 2
    elif size < 99.95:
        digits = 1
    else:
        digits = 0
    number = f"{value:,.{digits}f}"
    return f"{number} {name}" if with_unit else number


def counted(number: float | None, noun: str, plural: str = "") -> str:
    """A count with its noun: "0 steps", "1 step", "12,000 steps"; None counts as 0, `plural` is for irregular nouns."""
    number = number or 0
    if number != 1:
        noun = plural or f"{noun}s"
    return f"{number:,} {noun}"


def times(number: int) -> str:
    """How often: "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def factor(ratio: float) -> str:
    """A ratio of speeds or sizes: "1.40x", "3.1x", "3,784x"."""
    if ratio < 2:
        return f"{ratio:.2f}x"
    return f"{ratio:.1f}x" if ratio < 10 else f"{ratio:,.0f}x"


def duration_flag(seconds: float) -> str:
    """A time as a command-line flag takes it, rounded up: "90s", "12m"."""
    return f"{math.ceil(seconds)}s" if seconds < 120 else f"{math.ceil(seconds / 60)}m"


def listed(items: Iterable[object], most: int | None = None) -> str:
    """A list as part of a sentence: "a", "a and b", "a, b and c"; cut after `most` items, "a, b and 3 more"."""
    texts = [str(item) for item in items]
    if most is not None and len(texts) > most:
        return row(texts, most)
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def row(items: Iterable[object], most: int | None = None) -> str:
    """A list of values: "1, 2, 3"; cut after `most` items, "1, 2 and 3 more"."""
    texts = [str(item) for item in items]
    if most is None or len(texts) <= most:
        return ", ".join(texts)
    return ", ".join(texts[:most]) + and_more(len(texts) - most)


def ranges(numbers: Iterable[int], most: int) -> str:
    """Rising numbers, three or more in a row as a range: "1 to 7, 9, 12"; cut after `most` items, "... and 4 more"."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    items: list[list[int]] = []
    for group in groups:
        items += [group] if len(group) > 2 else [[number] for number in group]
    texts = [str(item[0]) if len(item) == 1 else f"{item[0]} to {item[-1]}" for item in items[:most]]
    return ", ".join(texts) + and_more(sum(map(len, items[most:])))


def numbered(noun: str, numbers: Sequence[int], most: int) -> str:
    """Numbers with their noun: "step 3", "steps 1 to 7, 9"."""
    return f"{noun}{'s' if len(numbers) > 1 else ''} {ranges(numbers, most)}"


def and_more(number: int) -> str:
    """The end of a list that was cut short, " and 3 more"; empty if nothing was left out."""
    return f" and {number:,} more" if number > 0 else ""


def shortened(text: str, limit: int) -> str:
    """A text of at most `limit` characters: cut at the end of a word, with "..." behind it."""
    if len(text) <= limit:
        return text
    kept = text[: limit - 3]
    if not text[limit - 3].isspace():
        kept = kept.rpartition(" ")[0] if " " in kept[limit // 2:] else kept
    return f"{kept.rstrip()}..."


def printable(text: str) -> str:
    """Text of the program, with every character that a terminal would act on replaced by its escape, `\\x1b`."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def harmless(line: str) -> str:
    """One line of output: printable, and not a workflow command of a CI runner, whose first character is escaped."""
    return _LINE_COMMAND.sub(r"\1\\x3a", printable(line)).replace("##[", r"#\x23[").replace("##vso[", r"#\x23vso[")


def harmless_text(text: str) -> str:
    """A text from a file in harmless lines; tabs are kept, and every line ends with a plain newline."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(harmless, line.split("\t"))) for line in lines)


def short_path(path: str, roots: Sequence[str] = ()) -> str:
    """A path below site-packages, the first root that contains it, or the standard library; else unchanged.

    A virtual environment is often inside the project, so site-packages comes first. Slashes are forward slashes.
    """
    installed = installed_path(path)
    if installed is not None:
        return installed
    inside = path_below(path, roots)
    if inside is not None:
        return inside
    standard = _STANDARD_LIBRARY.split(_slashes(path))
    return standard[-1] if len(standard) > 1 else path


def installed_path(path: str) -> str | None:
    """A path below site-packages or dist-packages, with forward slashes; None for a path that is not in one."""
    parts = _INSTALLED.split(_slashes(path))
    return parts[-1] if len(parts) > 1 else None


def path_below(path: str, roots: Sequence[str]) -> str | None:
    """A path below the first root that contains it, with forward slashes; None if none of them does."""
    path = _slashes(path)
    for root in roots:
        folder = _slashes(root).rstrip("/")
        if root and path.startswith(f"{folder}/"):
            return path[len(folder) + 1:]
    return None


def project_path(path: str, root: str) -> str | None:
    """A path below the root, with forward slashes; None for a path that is not a file of the project there."""
    path = path_below(path, (root,)) or _slashes(path)
    is_elsewhere = path.startswith(("/", "<", "../", CELL)) or _DRIVE.match(path)
    if not path or is_elsewhere or _INSTALLED.search(path) or _STANDARD_LIBRARY.search(path):
        return None
    return path


def path_from_here(path: str | os.PathLike[str]) -> str:
    """A path relative to the working folder if it is below it, else unchanged."""
    text = os.fspath(path)
    inside = os.path.relpath(text)
    return text if inside.startswith(os.pardir) else inside


def file_name(path: str) -> str:
    """The last part of a path, whichever slashes it has."""
    return _slashes(path).rstrip("/").rsplit("/", 1)[-1]


def short_place(path: str, line: int | None) -> str:
    """`train.py:12`, or the file alone if the line is unknown."""
    return f"{file_name(path)}:{line}" if line else file_name(path)


def resume_of(function: str) -> tuple[str, int] | None:
    """`torch_dynamo_resume_in_f_at_12` -> ("f", 12); None for a function that is not a resume function."""
    match = _RESUME_FUNCTION.match(function)
    return (match[1], int(match[2])) if match else None


def original_function(function: str) -> str:
    """The name in the source: `torch_dynamo_resume_in_f_at_12` is a part of `f`."""
    resume = resume_of(function)
    return resume[0] if resume else function


def _slashes(path: str) -> str:
    return path.replace("\\", "/")

"""Fingerprints, which identify a problem across runs, across machines, after edits elsewhere in the file.

A fingerprint therefore depends on no line number and no value.
"""

import hashlib
import re

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|(?<!\w)-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_STRING_OR_COMMENT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|#.*""")
_SPACE = re.compile(r"\s+")
_CELL = re.compile(r"^(cell In)\[\d+\]$")      # a cell gets a new number each time it is run


def without_comment(source: str) -> str:
    """A source line up to its comment; a # inside a string does not begin a comment."""
    return _STRING_OR_COMMENT.sub(lambda match: "" if match[0].startswith("#") else match[0], source).rstrip()


def normalised_line(source: str) -> str:
    """A source line without its indentation, inner spacing and comment."""
    return _SPACE.sub(" ", without_comment(source)).strip()


def normalised_reason(reason: str) -> str:
    """A reason without the values in it."""
    return _SPACE.sub(" ", _NUMBER.sub("N", reason)).strip()


def portable_path(path: str, roots: tuple[str, ...] = ()) -> str:
    """A path below site-packages, or below the innermost root that contains it, with forward slashes."""
    path = path.replace("\\", "/")
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in path:
            return path.rsplit(marker, 1)[1]
    folders = [root.replace("\\", "/").rstrip("/") for root in roots if root]
    for folder in sorted(folders, key=len, reverse=True):
        if path.startswith(folder + "/"):
            return path[len(folder) + 1:]
    return path.rsplit("/", 1)[-1]


def fingerprint(code: str, path: str, function: str, source: str, reason: str) -> str:
    """Sixteen hex digits for code + path + function + normalised source line + normalised reason."""
    key = "\n".join((code, _CELL.sub(r"\1", path), function, normalised_line(source), normalised_reason(reason)))
    return hashlib.sha256(key.encode(errors="backslashreplace")).hexdigest()[:16]

"""Finds text whose UTF-8 bytes were read as Windows-1252, and what it was before."""

import re

# Only the first bytes of accented letters, punctuation, arrows and emoji: other pairs also occur in sound text, as `É»` does.
_HIGH = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x80, 0xC0))
_GARBLED = re.compile(f"[ÂÃ][{re.escape(_HIGH)}]|[âï][{re.escape(_HIGH)}]{{2}}|ð[{re.escape(_HIGH)}]{{3}}")
_BETWEEN_WORDS = re.compile(r"[ \t|`*]+")     # not the no-break space, which is half of a garbled one


def garbled_word(line: str) -> tuple[str, str] | None:
    """(the first garbled word of a line, what it probably was)."""
    for word in () if line.isascii() else _BETWEEN_WORDS.split(line):
        was = _GARBLED.sub(lambda found: _decoded(found[0]), word)
        if was != word:
            return word, was
    return None


def _decoded(text: str) -> str:
    raw = b"".join(bytes([ord(char)]) if ord(char) < 0x100 else char.encode("cp1252") for char in text)
    return raw.decode("utf-8", "ignore") or text

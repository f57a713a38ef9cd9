"""A program before and after a change, and whether the change is right."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Pair:
    """`kind` says what the change does: `cure`, `rounding`, `draws`, or the way in which it is wrong."""

    name: str
    kind: str
    before: str
    after: str
    is_right: bool


def edited(source: str, *edits: tuple[str, str]) -> str:
    """The source with each `old` replaced by `new`; `old` occurs exactly once."""
    for old, new in edits:
        if source.count(old) != 1:
            raise ValueError(f"{old!r} occurs {source.count(old)} times, not once")
        source = source.replace(old, new)
    return source

"""A program before and after a change, and whether the change is right."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Edits = Sequence[tuple[str, str]]
Changes = Sequence[tuple[str, str, Edits]]      # name, kind, edits beside the cure


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


def pairs_of(families: Sequence[tuple[str, str, tuple[str, str], Changes, Changes]]) -> Iterator[Pair]:
    """Of each family (name, program, cure, right changes, wrong changes)."""
    for family, before, cure, right, wrong in families:
        cured = edited(before, cure)
        for changes, is_right in ((right, True), (wrong, False)):
            for name, kind, edits in changes:
                yield Pair(
                    name=f"{family}: {name}", kind=kind, before=before, after=edited(cured, *edits), is_right=is_right)

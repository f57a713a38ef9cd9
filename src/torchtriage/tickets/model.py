"""A ticket: a finding kept as a Markdown file, with its status and its reviews."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchtriage.findings.model import Category, Severity


class Status(enum.StrEnum):
    OPEN = "open"
    INVESTIGATING = "investigating"
    FIX_IN_PROGRESS = "fix-in-progress"
    IN_REVIEW = "in-review"
    CLOSED = "closed"
    WONT_FIX = "wont-fix"
    FIXED = "fixed"
    ALREADY_FIXED = "already-fixed"
    INVALID = "invalid"
    NOT_A_BUG = "not-a-bug"


ENDED = frozenset({Status.CLOSED, Status.WONT_FIX, Status.FIXED, Status.ALREADY_FIXED, Status.INVALID, Status.NOT_A_BUG})


class Verdict(enum.StrEnum):
    ENDORSE = "ENDORSE"
    REFINE = "REFINE"
    NEUTRAL = "NEUTRAL"
    OBJECT = "OBJECT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One line of the verification checklist."""

    text: str
    is_ticked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """`kind` is related, duplicate, blocks or blocked-by; the other ticket need not have a file."""

    ticket_id: str
    kind: str = "related"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One cross-review; `verdict` is the word as it was written, known or not."""

    role: str
    verdict: str
    reviewer: str = ""
    date: str = ""
    evaluation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a ticket says. Words that should come from a list (severity, status) are kept as written; `check` judges them."""

    id: str
    title: str
    severity: str = Severity.P3.name
    status: str = Status.OPEN
    batch: str = ""
    agent: str = ""
    domain: str = ""
    assignee: str = ""
    created: str = ""
    updated: str = ""
    files: tuple[str, ...] = ()
    lines: str = ""
    function: str = ""
    summary: str = ""
    categories: frozenset[Category] = frozenset()
    wrong: str = ""
    impact: str = ""
    fix: str = ""
    verification: tuple[Box, ...] = ()
    related: tuple[Relation, ...] = ()
    reviews: tuple[Review, ...] = ()
    report_file: str = ""
    report_section: str = ""
    fingerprint: str = ""       # ties it to a finding; in the file it is a hidden comment

    def with_(self, **changes: object) -> "Ticket":
        return replace(self, **changes)  # type: ignore[arg-type]  # dataclasses.replace cannot be typed by field


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that could not be read, or that `check` found wrong; `line` is None where it concerns the whole file."""

    path: str
    line: int | None
    kind: str                   # a short slug, such as count-mismatch
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}" if self.line else f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketFile:
    """A ticket, the very text it was read from, and what could not be read in it."""

    path: Path
    text: str
    ticket: Ticket
    problems: Sequence[Problem] = field(default_factory=tuple)

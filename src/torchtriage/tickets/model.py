"""The data model of a ticket, which is a finding kept as a Markdown file."""

import enum
from dataclasses import dataclass, replace

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


ENDED = frozenset({
    Status.CLOSED, Status.WONT_FIX, Status.FIXED, Status.ALREADY_FIXED, Status.INVALID, Status.NOT_A_BUG,
})


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
    """`kind` is related, duplicate, blocks or blocked-by; the other ticket may have no file."""

    ticket_id: str
    kind: str = "related"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One cross-review; `verdict` is the word in the file, valid or not."""

    role: str
    verdict: str
    reviewer: str = ""
    date: str = ""
    evaluation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The content of a ticket.

    `severity` and `status` are the words in the file, valid or not; `check` validates them.
    """

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
    fingerprint: str = ""       # identifies its finding; in the file it is a hidden comment

    def with_(self, **changes: object) -> "Ticket":
        return replace(self, **changes)  # type: ignore[arg-type]  # dataclasses.replace cannot be typed by field


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something malformed in a file, or an error found by `check`; `line` is None if it concerns the entire file."""

    path: str
    line: int | None
    kind: str                   # a short slug, such as count-mismatch
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}" if self.line else f"{self.path}: {self.message}"

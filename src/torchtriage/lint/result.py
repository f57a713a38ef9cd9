"""The findings of one call of lint, before any is filtered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtriage.findings.model import Finding
from torchtriage.findings.selection import Comments
from torchtriage.lint.project import UnreadFile


@dataclass(frozen=True, slots=True, kw_only=True)
class LintResult:
    """The findings of every rule, the suppression comments, counts, and the files that were not read."""

    findings: Sequence[Finding]
    comments: Comments
    facts: Mapping[str, Any]
    unread: Sequence[UnreadFile]

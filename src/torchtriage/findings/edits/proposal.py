"""Edits proposed for findings: one diff per option, or the reason why there is none."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torchtriage.findings.model import Edit, EditLabel, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedEdit:
    """An edit that fits the files as they are, with its unified diff."""

    edit: Edit
    diff: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A finding with the edits that are possible; if there is none, the reason."""

    finding: Finding
    edits: tuple[ProposedEdit, ...] = ()
    reason: str = ""

    def first(self, labels: Collection[EditLabel]) -> Edit | None:
        """The first edit with one of these labels."""
        return next((proposed.edit for proposed in self.edits if proposed.edit.label in labels), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """The edits of several findings made together; `left_out` are findings whose edit meets another one, and why."""

    edits: tuple[Edit, ...] = ()
    diff: str = ""
    left_out: Sequence[tuple[Finding, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FixReport:
    """The proposals of a recording, and what becomes of the files if the chosen ones are made together."""

    proposals: Sequence[Proposal] = ()
    together: Combination = Combination()
    labels: Sequence[EditLabel] = ()        # of the edits that are made together
    written: Sequence[str] = ()             # files that were changed

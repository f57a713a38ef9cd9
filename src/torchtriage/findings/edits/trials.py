"""What was proven of the proposed edits of a program: each alone, then those that hold together."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.findings.edits.proposal import ProposedEdit
from torchtriage.findings.model import Finding
from torchtriage.findings.proof.verdict import Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class EditTrial:
    """One edit of a finding with its proof."""

    finding: Finding
    proposed: ProposedEdit
    proof: Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """The trials of a program in the order in which they were made.

    `kept` are the trials whose edits the patch holds; `together` is their common proof, None for a single edit.
    """

    trials: Sequence[EditTrial] = ()
    kept: Sequence[EditTrial] = ()
    together: Proof | None = None
    dropped: Sequence[EditTrial] = ()       # verified alone, and not together with the others
    patch: str = ""
    without: Sequence[tuple[Finding, str]] = ()     # findings without an edit, and why
    untried: Sequence[Finding] = ()         # the budget, or Ctrl-C, ended before their edits were tried
    ended_by: str = ""                      # "budget", "Ctrl-C"; empty if everything was tried
    seconds: float = 0.0

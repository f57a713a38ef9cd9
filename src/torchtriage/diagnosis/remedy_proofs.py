"""Adds the proofs of `torchtriage fix RECORDING --verify` to the findings that they are about.

The file of the proofs may come from another machine, so nothing of it is shown that was not checked: a proof needs a
finding with its fingerprint that still has the edit.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torchtriage.findings.model import AgreeingNumbers, EditLabel, Finding, RemedyProof
from torchtriage.findings.tap_state import REMEDY_PROOFS, TapState, TapStatus
from torchtriage.recording.recording import Recording
from torchtriage.recording.validation import WrongTypeError, checked

PROOFS_SCHEMA = 1
_VERSION = re.compile(r"\d[\w.+]{0,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProof:
    """One proof as the file has it."""

    fingerprint: str
    label: str
    text: str
    numbers: str
    num_steps: int = 0
    seconds_before: float | None = None
    seconds_after: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    torch: str = ""


def stored_proofs(recording: Recording) -> tuple[tuple[StoredProof, ...], list[TapState]]:
    """(the proofs in a recording, the problem if they cannot be read)."""
    problem, data = recording.folder.proofs_problem, recording.folder.proofs
    if data is None and not problem:
        return (), []
    if not problem and (not isinstance(data, dict) or data.get("schema") != PROOFS_SCHEMA):
        problem = f"cannot read proofs.json: it is not of schema {PROOFS_SCHEMA}"
    if not problem:
        try:
            proofs: tuple[StoredProof, ...] = checked(data.get("proofs"), tuple[StoredProof, ...])
            return proofs, []
        except WrongTypeError as error:
            problem = f"cannot read proofs.json: {error}"
    return (), [TapState(name=REMEDY_PROOFS, status=TapStatus.ABSENT, detail=problem)]


def with_proofs(findings: Iterable[Finding], proofs: Iterable[StoredProof]) -> list[Finding]:
    """The findings; one with an edit that was verified carries its proof."""
    by_fingerprint: dict[str, StoredProof] = {}
    for proof in proofs:
        by_fingerprint.setdefault(proof.fingerprint, proof)
    return [_with_proof(finding, by_fingerprint.get(finding.fingerprint)) for finding in findings]


def _with_proof(finding: Finding, stored: StoredProof | None) -> Finding:
    if stored is None or stored.numbers not in set(AgreeingNumbers):
        return finding
    if (stored.label, stored.text) not in {(str(edit.label), edit.text) for edit in finding.fix.edits}:
        return finding
    times = (stored.seconds_before, stored.seconds_after, stored.ratio_low, stored.ratio_high)
    is_timed = all(value is not None and value > 0 for value in times)
    before, after, low, high = times if is_timed else (None, None, None, None)
    return finding.with_(proof=RemedyProof(
        label=EditLabel(stored.label), text=stored.text, numbers=AgreeingNumbers(stored.numbers),
        num_steps=max(0, stored.num_steps),
        seconds_before=before, seconds_after=after, ratio_low=low, ratio_high=high,
        torch=stored.torch if _VERSION.fullmatch(stored.torch) else ""))

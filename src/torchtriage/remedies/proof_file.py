"""Keeps the proofs of verified edits in a recording, where reports find them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from torchtriage.diagnosis.remedy_proofs import PROOFS_SCHEMA, StoredProof, stored_proofs
from torchtriage.errors import TriageError
from torchtriage.files import replace_file
from torchtriage.findings.edits.trials import EditTrial
from torchtriage.recording.reader import PROOFS_FILE, read_recording


def keep_proofs(folder: Path, kept: Sequence[EditTrial]) -> None:
    """Write the proofs of these trials into a recording; a proof of the same finding that it has is replaced."""
    proofs = {proof.fingerprint: proof for proof in stored_proofs(read_recording(folder))[0]}
    proofs |= {trial.finding.fingerprint: stored_proof(trial) for trial in kept}
    content = {"schema": PROOFS_SCHEMA, "proofs": [asdict(proof) for proof in proofs.values()]}
    try:
        replace_file(folder / PROOFS_FILE, (json.dumps(content, indent=1) + "\n").encode())
    except OSError as error:
        raise TriageError(f"cannot write {folder / PROOFS_FILE}: {error.strerror}") from error


def stored_proof(trial: EditTrial) -> StoredProof:
    proof, edit = trial.proof, trial.proposed.edit
    ratio = proof.time.ratio
    return StoredProof(
        fingerprint=trial.finding.fingerprint, label=str(edit.label), text=edit.text, numbers=str(proof.numbers.state),
        num_steps=proof.numbers.num_steps, seconds_before=proof.time.before_seconds,
        seconds_after=proof.time.after_seconds, ratio_low=ratio.low if ratio is not None else None,
        ratio_high=ratio.high if ratio is not None else None, torch=proof.after.torch,
    )

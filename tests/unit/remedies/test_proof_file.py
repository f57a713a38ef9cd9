"""The proofs of kept edits are written into a recording, beside those of other findings that it has."""

import json
from pathlib import Path

import pytest

from tests.unit.samples import a_finding
from torchtriage.diagnosis.remedy_proofs import stored_proofs
from torchtriage.errors import TriageError
from torchtriage.findings.edits.proposal import ProposedEdit
from torchtriage.findings.edits.trials import EditTrial
from torchtriage.findings.model import Edit, EditLabel
from torchtriage.findings.proof.verdict import (
    NumbersChange,
    NumbersState,
    Proof,
    ProofTime,
    ProofVerdict,
    SideFacts,
)
from torchtriage.findings.shape_study import Interval
from torchtriage.recording.events import Recompile
from torchtriage.recording.reader import PROOFS_FILE, read_recording
from torchtriage.recording.store import Writer
from torchtriage.remedies.proof_file import keep_proofs


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    folder = tmp_path / "train.triage"
    folder.mkdir()
    writer = Writer(folder / "box-1.sqlite")
    writer.put([Recompile()], facts={})
    writer.close()
    return folder


def trial(fingerprint: str, text: str = "`x.detach()`", num_steps: int = 8) -> EditTrial:
    time = ProofTime(before_seconds=0.03, after_seconds=0.02, ratio=Interval(middle=0.66, low=0.6, high=0.7))
    proof = Proof(
        verdict=ProofVerdict.VERIFIED, before=SideFacts(label="a"), after=SideFacts(label="b", torch="2.13.0"),
        numbers=NumbersChange(state=NumbersState.ROUNDING, num_steps=num_steps), time=time)
    edit = Edit(label=EditLabel.REVIEW, text=text, changes=())
    return EditTrial(finding=a_finding(fingerprint=fingerprint), proposed=ProposedEdit(edit=edit, diff=""), proof=proof)


def test_a_proof_is_read_as_it_was_kept(recording: Path) -> None:
    keep_proofs(recording, [trial("a")])
    (proof,), unread = stored_proofs(read_recording(recording))
    assert unread == []
    assert (proof.fingerprint, proof.label, proof.text, proof.numbers, proof.num_steps, proof.torch) == (
        "a", "review", "`x.detach()`", "rounding", 8, "2.13.0")
    assert (proof.seconds_before, proof.seconds_after, proof.ratio_low, proof.ratio_high) == (0.03, 0.02, 0.6, 0.7)


def test_a_newer_proof_replaces_that_of_the_same_finding_only(recording: Path) -> None:
    keep_proofs(recording, [trial("a"), trial("b")])
    keep_proofs(recording, [trial("b", num_steps=20)])
    proofs, _ = stored_proofs(read_recording(recording))
    assert [(proof.fingerprint, proof.num_steps) for proof in proofs] == [("a", 8), ("b", 20)]


@pytest.mark.parametrize("content", ["[", "{}", json.dumps({"schema": 1, "proofs": [3]})])
def test_a_damaged_file_is_replaced(recording: Path, content: str) -> None:
    (recording / PROOFS_FILE).write_text(content)
    assert stored_proofs(read_recording(recording))[1]
    keep_proofs(recording, [trial("a")])
    assert [proof.fingerprint for proof in stored_proofs(read_recording(recording))[0]] == ["a"]


def test_a_folder_in_its_place_is_an_error_that_names_it(recording: Path) -> None:
    (recording / PROOFS_FILE).mkdir()
    with pytest.raises(TriageError, match=r"cannot write .*proofs\.json"):
        keep_proofs(recording, [trial("a")])

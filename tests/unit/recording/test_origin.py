"""The result of a replay is read with the process that it belongs to."""

from pathlib import Path

import pytest

from tests.unit.recording.test_reader import write
from torchtriage.recording.facts import to_dict
from torchtriage.recording.origins.origin import ORIGIN_FILE, Operand, Origin, OriginOperation, OriginState, write_origin
from torchtriage.recording.reader import read_recording

OPERATION = OriginOperation(
    name="aten.log", path="/home/me/train.py", line=9, operands=(Operand(dtype="float32", minimum=0.0, maximum=0.0),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "out.triage", "box-1.sqlite", pid=1, rank=0)
    write(tmp_path / "out.triage", "box-2.sqlite", pid=2, rank=1)
    return tmp_path / "out.triage"


def test_an_origin_belongs_to_one_process(folder: Path) -> None:
    origin = Origin(state=OriginState.OPERATION, operation=OPERATION, step=4, pid=2)
    write_origin(folder, to_dict(origin))
    first, second = read_recording(folder).processes
    assert first.learning.non_finite_origin is None
    assert second.learning.non_finite_origin == origin


def test_a_later_replay_replaces_the_earlier_one(folder: Path) -> None:
    for step in (4, 5):
        write_origin(folder, to_dict(Origin(state=OriginState.CLEAN, step=step, pid=1)))
    origin = read_recording(folder).processes[0].learning.non_finite_origin
    assert origin is not None
    assert origin.step == 5


@pytest.mark.parametrize("content", ["", "[]", "{", '{"pid": 1, "state": 5}', '{"pid": 1}'])
def test_a_damaged_origin_is_left_out_and_reported(folder: Path, content: str) -> None:
    (folder / ORIGIN_FILE).write_text(content)
    process = read_recording(folder).processes[0]
    assert process.learning.non_finite_origin is None
    assert [damage.name for damage in process.damage] in ([ORIGIN_FILE], ["non_finite_origin"])

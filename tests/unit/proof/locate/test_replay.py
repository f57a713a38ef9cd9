"""Which steps of a recording are replayed, and when it cannot be."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.diagnosis.learning.samples import NAN, a_training, of_series
from tests.unit.samples import a_process, a_recording
from torchtriage.errors import CommandError
from torchtriage.proof.budget import TimeLimit
from torchtriage.proof.locate.replay import Replay, recorded_fault


def first_loss(**fields: Any) -> dict[str, Any]:
    return {"non_finite_loss": {"step": 251, "last_finite": 250, "num_weights": 4, **fields}}


def test_the_window_begins_with_the_last_finite_loss() -> None:
    fault = recorded_fault(a_recording(a_process(**first_loss())), None)
    assert (fault.first_step, fault.step) == (250, 251)


def test_a_first_loss_that_is_bad_is_followed_from_the_start() -> None:
    fault = recorded_fault(a_recording(a_process(**first_loss(step=1, last_finite=None))), None)
    assert (fault.first_step, fault.step) == (1, 1)


def test_without_a_tested_loss_the_window_begins_with_the_look_before() -> None:
    training = of_series({"loss": [(20, 1.0), (30, 1.0)], "weight_nan/fc": [(20, 0), (40, 3)]})
    fault = recorded_fault(a_recording(training), None)
    assert (fault.first_step, fault.step) == (20, 40)


def test_the_earliest_fault_of_several_processes_is_replayed() -> None:
    late, early = a_process(pid=1, **first_loss()), a_process(pid=2, **first_loss(step=9, last_finite=8))
    assert recorded_fault(a_recording(late, early), None).process.program.pid == 2


def test_the_first_step_can_be_given() -> None:
    recording = a_recording(a_process(**first_loss()))
    assert recorded_fault(recording, 3).first_step == 3
    with pytest.raises(CommandError, match="--from 300 is after step 251"):
        recorded_fault(recording, 300)


def test_a_finite_training_has_nothing_to_replay() -> None:
    with pytest.raises(CommandError, match="has no NaN or Inf"):
        recorded_fault(a_recording(a_training(loss=[1.0, 0.5])), None)


@pytest.mark.parametrize(("argv", "words"), [
    ((), "does not say which command"), (("python", "train.py", "--token=***"), "has a secret"),
])
def test_a_command_that_is_not_known_is_not_run(argv: tuple[str, ...], words: str, tmp_path: Path) -> None:
    recording = a_recording(a_training(loss=[1.0, NAN]), argv=list(argv))
    replay = Replay(recording=recording, work=tmp_path, limit=TimeLimit(seconds=1), say=lambda _: None)
    with pytest.raises(CommandError, match=words):
        replay.find(recorded_fault(recording, None))

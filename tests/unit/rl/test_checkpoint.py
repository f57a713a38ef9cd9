"""A checkpoint is written completely or not at all, the previous one is kept, and another config is refused."""

import errno
import os
from pathlib import Path

import pytest
import torch

from torchtriage.errors import CommandError
from torchtriage.rl import checkpoint
from torchtriage.rl.config import TrainConfig

CONFIG = TrainConfig(total_steps=100)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_two_checkpoints_are_kept_and_the_newest_is_loaded(tmp_path: Path) -> None:
    last = None
    for update in (1, 2, 30):
        last = checkpoint.save(
            tmp_path / "a", update, CONFIG, {"x": torch.tensor([update]), "rng": {"n": 1 << 100}, "raw": b"12"}, last
        )
    assert names(tmp_path / "a") == ["update-00000002.pt", "update-00000030.pt"]
    state, path, notes = checkpoint.load(tmp_path / "a", CONFIG)
    assert (int(state["x"]), state["rng"]["n"], state["raw"], path.name, notes) == (
        30,
        1 << 100,
        b"12",
        "update-00000030.pt",
        [],
    )


def test_the_first_checkpoint_replaces_those_of_another_training(tmp_path: Path) -> None:
    for update in (391, 390):
        checkpoint.save(tmp_path, update, CONFIG, {})
    checkpoint.save(tmp_path, 5, CONFIG, {"mine": True})
    assert names(tmp_path) == ["update-00000005.pt"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_full_disk_leaves_the_earlier_checkpoint_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    checkpoint.save(tmp_path, 1, CONFIG, {"x": 1})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, full)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save(tmp_path, 2, CONFIG, {"x": 2})
    assert names(tmp_path) == ["update-00000001.pt"]
    assert checkpoint.load(tmp_path, CONFIG)[0] == {"x": 1}


def test_a_damaged_checkpoint_is_replaced_by_the_previous_one_with_a_note(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 2, CONFIG, {"x": 2}, checkpoint.save(tmp_path, 1, CONFIG, {"x": 1}))
    path.write_bytes(path.read_bytes()[:-100])
    state, used, notes = checkpoint.load(tmp_path, CONFIG)
    assert (state, used.name) == ({"x": 1}, "update-00000001.pt")
    assert "update-00000002.pt cannot be read" in notes[0]


def test_a_folder_without_a_readable_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no checkpoint in .*; make one with: torchtriage train --checkpoint"):
        checkpoint.load(tmp_path, CONFIG)
    (tmp_path / "update-00000001.pt").write_bytes(b"nothing")
    with pytest.raises(CommandError, match="can be read: "):
        checkpoint.load(tmp_path, CONFIG)


def test_a_checkpoint_of_another_config_is_refused_with_the_differences(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, TrainConfig(lr=0.1, envs=4), {})
    with pytest.raises(
        CommandError,
        match=r"another config; differences \(saved -> now\): envs: 4 -> 8, lr: 0.1 -> 0.2; give the saved",
    ):
        checkpoint.load(tmp_path, TrainConfig(lr=0.2))


def test_settings_that_may_change_are_accepted_with_a_note(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, CONFIG, {})
    _, _, notes = checkpoint.load(tmp_path, TrainConfig(total_steps=200, resume=str(tmp_path), checkpoint="x"))
    assert notes == ["different from the checkpoint: total-steps: 100 -> 200"]


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    torch.save({"version": 99}, tmp_path / "update-00000001.pt")
    with pytest.raises(CommandError, match="it is of version 99, this torchtriage reads version 2; resume it with"):
        checkpoint.load(tmp_path, CONFIG)


def test_loading_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    torch.save({"version": 2, "config": {}, "state": Trap()}, tmp_path / "update-00000001.pt")
    with pytest.raises(CommandError, match="can be read"):
        checkpoint.load(tmp_path, CONFIG)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(("content", "problem"), [
    ({"version": 2, "state": {}}, "it has no config"),
    ({"version": 2, "config": {}}, "it has no state"),
    ({"version": 2, "config": [], "state": {}}, "it has no config"),
    ({"version": 2, "config": {}, "state": torch.ones(2)}, "it has no state"),
    ({"version": 2, "config": {"lr": torch.ones(2)}, "state": {}}, "lr of its config is not a setting"),
    ({}, "it is not a checkpoint of torchtriage"),
    ([1], "it is not a checkpoint of torchtriage"),
])
def test_a_checkpoint_without_its_parts_is_replaced_by_the_previous_one(
    tmp_path: Path, content: object, problem: str,
) -> None:
    checkpoint.save(tmp_path, 1, CONFIG, {"x": 1})
    torch.save(content, tmp_path / "update-00000002.pt")
    state, used, notes = checkpoint.load(tmp_path, CONFIG)
    assert (state, used.name) == ({"x": 1}, "update-00000001.pt")
    assert notes == [f"{tmp_path / 'update-00000002.pt'} cannot be read ({problem})"]


def test_a_pipe_in_place_of_a_checkpoint_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "update-00000001.pt")
    with pytest.raises(CommandError, match="it is not a regular file"):
        checkpoint.load(tmp_path, CONFIG)

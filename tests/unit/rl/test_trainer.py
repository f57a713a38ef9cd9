"""A resumed training equals an uninterrupted one; a training that cannot continue says why."""

import dataclasses
import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from torchtriage.errors import CommandError, TriageError
from torchtriage.rl.compile.choice import CompileChoice
from torchtriage.rl.config import TrainConfig, resolved
from torchtriage.rl.engine import Engine
from torchtriage.rl.policy.policy import CompiledAct
from torchtriage.rl.trainer import Trainer, setting_at

pytest.importorskip("gymnasium")

SMALL: dict[str, Any] = {
    "compile": "no",
    "envs": 4,
    "steps": 16,
    "batch": 32,
    "epochs": 2,
    "hidden": (16,),
    "total_steps": 4 * 16 * 5,
    "eval_episodes": 0,
}
MLP = resolved(SMALL)
NORMALISED = resolved(SMALL, {"normalize_observation": True, "normalize_reward": True, "normalize_value": True})
LSTM = resolved({"env": "CartPoleNoVel-v1"}, SMALL, {"lstm_size": 8})
CONTINUOUS = resolved({"env": "Pendulum-v1"}, SMALL)


def stopped_at(config: TrainConfig, update: int, folder: Path) -> Trainer:
    """A trainer that stopped after update `update` and left a checkpoint."""
    trainer = Trainer(config, beside=str(folder / "run"))
    trainer.should_stop = lambda: trainer.tally.num_updates >= update
    trainer.train()
    return trainer


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        (
            torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) if isinstance(a, torch.Tensor) else a == b
        )  # NaN: no momentum is set
        for a, b in ((one[key], other[key]) for key in one)
    )


@pytest.mark.parametrize("config", [MLP, NORMALISED, LSTM, CONTINUOUS], ids=["mlp", "normalised", "lstm", "continuous"])
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(
    config: TrainConfig, tmp_path: Path
) -> None:
    whole = Trainer(config)
    expected = whole.train()
    stopped_at(config, 2, tmp_path)
    resumed = Trainer(dataclasses.replace(config, resume=str(tmp_path / "run.checkpoint")))
    found = resumed.train()
    assert same(whole.policy.state_dict(), resumed.policy.state_dict())
    assert same(whole.engine.update.state_dict(), resumed.engine.update.state_dict())
    assert same(whole.normalizer.state_dict(), resumed.normalizer.state_dict())
    assert (found.last_returns, found.num_steps, found.num_episodes) == (
        expected.last_returns,
        expected.num_steps,
        expected.num_episodes,
    )


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a training that was stopped."""
    folder = tmp_path_factory.mktemp("stopped")
    stopped_at(MLP, 2, folder)
    [path] = (folder / "run.checkpoint").iterdir()
    return path


def resumes_from(stopped: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> Trainer:
    """A trainer that resumes from the checkpoint after a change of its state."""
    saved = torch.load(stopped, weights_only=True)
    change(saved["state"])
    torch.save(saved, folder / stopped.name)
    return Trainer(dataclasses.replace(MLP, resume=str(folder)))


@pytest.mark.parametrize("how", ["pickled", "played", "state"])
def test_the_state_of_environments_in_a_checkpoint_runs_no_code(stopped: Path, tmp_path: Path, how: str) -> None:
    payload = pickle.dumps(Trap(tmp_path / "sprung"))
    tensor = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    for data in (tensor, payload, [payload] * 4, [["object", "posix.mkdir", [["x", payload]]]] * 4):
        planted = {"stepping": "SerialVectorEnv", "how": how, "data": data}
        trainer = resumes_from(stopped, tmp_path, lambda state, p=planted: state["environments"].update(vector=p))
        with pytest.warns(UserWarning, match="the run continues with new episodes of CartPole-v1"):
            trainer._begin()
        assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("value", [None, {}, 7, torch.ones(3)], ids=["none", "empty", "number", "tensor"])
def test_a_damaged_part_of_a_state_is_refused_with_what_to_do(stopped: Path, tmp_path: Path, value: object) -> None:
    parts = ("policy", "update", "environments", "generator", "torch_rng", "state_NS", "keep_N", "tally", "watch")
    for part in parts:
        trainer = resumes_from(stopped, tmp_path, lambda state, name=part: state.update({name: value}))
        with pytest.raises(CommandError, match=r"cannot resume from .*update-00000002.pt: its state does not fit"):
            trainer._begin()


def test_the_weights_depend_on_the_seed_alone() -> None:
    first, second, other = (Trainer(dataclasses.replace(MLP, seed=seed)) for seed in (1, 1, 2))
    for trainer in (first, second, other):
        trainer.train()
    assert same(first.policy.state_dict(), second.policy.state_dict())
    assert not same(first.policy.state_dict(), other.policy.state_dict())


def test_telemetry_does_not_change_the_weights() -> None:
    runs = [Trainer(dataclasses.replace(MLP, telemetry_level=level)) for level in ("OFF", "DEBUG")]
    for trainer in runs:
        trainer.train()
    assert same(runs[0].policy.state_dict(), runs[1].policy.state_dict())


def test_checkpoints_are_written_at_the_interval_and_at_the_end(tmp_path: Path) -> None:
    Trainer(dataclasses.replace(MLP, checkpoint=str(tmp_path), checkpoint_every=2)).train()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["update-00000004.pt", "update-00000005.pt"]


def test_a_folder_with_checkpoints_of_another_training_is_refused(tmp_path: Path) -> None:
    config = dataclasses.replace(MLP, checkpoint=str(tmp_path))
    Trainer(config).train()
    with pytest.raises(
        CommandError, match="has checkpoints of an earlier training; continue that training with --resume"
    ):
        Trainer(config).train()
    longer = dataclasses.replace(config, resume=str(tmp_path), total_steps=MLP.total_steps + MLP.rollout_size)
    Trainer(longer).train()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["update-00000005.pt", "update-00000006.pt"]


def test_without_a_checkpoint_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Trainer(MLP).train()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_does_not_stop_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    said: list[str] = []
    results = Trainer(dataclasses.replace(MLP, checkpoint=str(tmp_path), checkpoint_every=4), say=said.append).train()
    assert results.is_complete
    assert next(line for line in said if "No space left" in line).startswith(
        "no checkpoint at update 4, the training continues"
    )


def test_three_updates_without_a_finite_loss_end_the_run(tmp_path: Path) -> None:
    trainer = Trainer(MLP)
    facts: dict[str, Any] = {}
    trainer.watch.facts.put = lambda **given: facts.update(given)  # type: ignore[method-assign]
    with torch.no_grad():
        trainer.policy.value_head.weight.fill_(float("nan"))
    with pytest.raises(TriageError, match="was not finite in every minibatch of the last 3 updates"):
        trainer.train()
    assert facts["train"]["results"]["num_updates"] == 3
    assert facts["train"]["results"]["is_complete"] is False


def test_the_results_split_the_time_and_evaluate() -> None:
    results = Trainer(dataclasses.replace(MLP, eval_episodes=6)).train()
    assert len(results.eval_returns) == 6
    assert {"environment", "policy", "update", "telemetry"} <= results.seconds_by.keys()
    assert sum(results.seconds_by.values()) <= results.seconds
    assert (results.num_steps, results.num_updates, results.is_complete, results.compiled) == (320, 5, True, False)


def test_auto_decides_after_two_updates_with_a_reason() -> None:
    said: list[str] = []
    results = Trainer(dataclasses.replace(MLP, compile="auto"), say=said.append).train()
    assert said == [f"not compiling: {results.compile_reason}"]
    assert "3 updates left" in results.compile_reason


@pytest.mark.parametrize(
    ("config", "setting", "compiles_act"),
    [
        (MLP, "yes", True),
        (MLP, "auto", False),
        (LSTM, "yes", True),
        (LSTM, "auto", True),
        (MLP, "no", False),
        (LSTM, "no", False),
    ],
)
def test_compile_yes_compiles_everything_and_auto_only_what_is_faster(
    config: TrainConfig, setting: str, compiles_act: bool
) -> None:
    engine = Engine(dataclasses.replace(config, compile=setting))
    if setting == "auto":
        engine.choose(CompileChoice(compiles=True, reason="it pays"))
    assert isinstance(engine.act, CompiledAct) is compiles_act
    assert (engine.update.compiled is not None) is (setting != "no")


def test_a_kl_target_ends_an_update_early() -> None:
    trainer = Trainer(dataclasses.replace(MLP, target_kl=1e-9, epochs=5))
    read = trainer.engine.update.read
    updates: list[dict[str, float]] = []

    def read_and_keep() -> dict[str, float]:
        updates.append(read())
        return updates[-1]

    trainer.engine.update.read = read_and_keep  # type: ignore[method-assign]
    trainer.train()
    assert updates
    for metrics in updates:
        assert metrics["ppo/early_stopped"] == 1.0
        assert metrics["ppo/minibatches"] < 5 * MLP.num_minibatches


def test_a_scheduled_setting_decreases_to_zero_or_stays_constant() -> None:
    assert [setting_at(2.0, "linear", progress) for progress in (0.0, 0.25, 1.0, 1.5)] == [2.0, 1.5, 0.0, 0.0]
    assert setting_at(2.0, "constant", 0.9) == 2.0

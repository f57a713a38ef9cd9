"""`torchtriage train` as a user runs it: short trainings of CartPole in separate processes."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.programs import TORCHTRIAGE, command, environment
from torchtriage.recording.events import TrainingEvent
from torchtriage.recording.reader import read_recording

pytest.importorskip("gymnasium")
SHORT = ["train", "--no-compile", "--total-steps", "2000", "--epochs", "4", "--eval-episodes", "4"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    folder = tmp_path_factory.mktemp("trained")
    return folder, command(
        folder, *SHORT, "-o", "a", "--html", "--jsonl", "a.jsonl", "--checkpoint", "kept", "--profile"
    )


def test_a_training_prints_results_and_findings_and_leaves_a_recording(
    trained: tuple[Path, "subprocess.CompletedProcess[str]"],
) -> None:
    folder, done = trained
    assert done.returncode == 0, done.stderr
    assert "torchtriage: not compiling: --compile no" in done.stderr
    assert "CartPole-v1, seed 0: 2,048 steps, 8 updates" in done.stderr
    assert "evaluation" in done.stderr
    assert "0 graph breaks" in done.stdout
    (process,) = read_recording(folder / "a.triage").processes
    results = process.facts["train"]["results"]
    assert (results["num_steps"], len(results["eval_returns"]), results["is_complete"]) == (2048, 4, True)
    drawn = {
        "rollout/ep_rew_mean",
        "time/fps",
        "ppo/kl",
        "ppo/entropy",
        "grad_norm",
        "grad_health",
        "update_ratio/actor",
    }
    assert drawn <= set(process.series)
    assert {"ppo_update_completed", "batch_completed", "analytics_snapshot"} <= {
        event.name for event in process.of(TrainingEvent)
    }
    assert process.facts["num_steps"] == 8


def test_everything_requested_is_beside_the_recording(trained: tuple[Path, "subprocess.CompletedProcess[str]"]) -> None:
    folder, _ = trained
    assert "rollout/ep_rew_mean" in (folder / "a.html").read_text()
    assert list((folder / "a.profile").glob("*.pt.trace.json.gz"))
    assert [path.name for path in (folder / "kept").iterdir()] == ["update-00000008.pt"]
    rows = [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()]
    update = next(row for row in rows if row.get("event") == "ppo_update_completed")
    assert {"train/approx_kl", "train/entropy_loss", "rollout/ep_rew_mean"} <= update["values"]["metrics"].keys()
    assert any("ppo/kl" in row for row in rows)


def test_seeds_are_summarized_compared_and_drawn_as_curves(
    trained: tuple[Path, "subprocess.CompletedProcess[str]"],
) -> None:
    folder, _ = trained
    done = command(folder, *SHORT, "-o", "b", "--html", "--seeds", "2", "--jobs", "2", "--compare-with", "a.triage")
    assert done.returncode == 0, done.stderr
    assert "evaluation over 2 seeds: mean" in done.stderr
    assert "compared with a.triage:" in done.stderr
    page = (folder / "b.html").read_text()
    assert "seed 0" in page
    assert "seed 1" in page
    assert [p.facts["train"]["results"]["seed"] for p in read_recording(folder / "b.triage").processes] in (
        [0, 1],
        [1, 0],
    )


def test_an_unknown_environment_is_reported_with_the_nearest_names(tmp_path: Path) -> None:
    done = command(tmp_path, *SHORT, "--env", "CartPol-v1", "-o", "a")
    assert done.returncode == 2
    assert "CartPole-v1" in done.stderr
    assert (done.stdout, list(tmp_path.iterdir())) == ("", [])       # nothing ran, so there is nothing to report
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_ctrl_c_finishes_the_update_and_leaves_a_checkpoint_and_a_recording(tmp_path: Path) -> None:
    words = [*TORCHTRIAGE, "train", "--no-compile", "--total-steps", "1e8", "-o", "a"]
    child = subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stderr is not None
    wait_for("not compiling", child)
    time.sleep(1)
    signal_group(child)
    _, err = child.communicate(timeout=600)
    assert child.returncode == 130, err
    assert "continue with the same flags and: --resume " in err
    assert list((tmp_path / "a.checkpoint").glob("update-*.pt"))
    (process,) = read_recording(tmp_path / "a.triage").processes
    done = process.facts["train"]["results"]
    assert done["is_complete"] is False
    longer = str(done["num_steps"] + 256)
    resumed = command(tmp_path, "train", "--no-compile", "--total-steps", longer, "--resume", "a.checkpoint", "-o", "b")
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed from" in resumed.stderr
    assert "total-steps: 100000000 -> " in resumed.stderr


def wait_for(text: str, child: "subprocess.Popen[str]") -> None:
    assert child.stderr is not None
    for line in child.stderr:
        if text in line:
            return
    raise AssertionError("the training ended first")


def signal_group(child: "subprocess.Popen[str]") -> None:
    """Send the signal to every process of the group, as a terminal does."""
    os.killpg(child.pid, signal.SIGINT)

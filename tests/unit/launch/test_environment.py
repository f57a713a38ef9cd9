"""Processes find their recording through the environment, of which no secret is recorded."""

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.launch.environment import FOLDER, RUN_FILE, RUN_ID, claim, join_folder, new_run_id
from torchtriage.launch.privacy import allowed_environment, redacted

ALLOWED = [
    "TORCH_LOGS", "TORCH_TRACE", "TORCHDYNAMO_DISABLE", "TORCHINDUCTOR_CACHE_DIR", "OMP_NUM_THREADS", "RANK",
    "CUDA_VISIBLE_DEVICES",
]
prefixes = st.sampled_from(["", "TORCH", "TORCH_", "TORCHINDUCTOR_", "OMP_", "AOT_", "MKL_", "RANK_", "KMP_"])
secrets = st.sampled_from(
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "AUTH", "PASSWD", "PWD", "CREDENTIALS", "CREDS", "Key", "ApiKey"]
)
words = st.text("ABCXYZ_019", max_size=6)


@given(prefixes, words, secrets, words)
def test_a_variable_that_looks_like_a_secret_is_not_recorded(prefix: str, before: str, secret: str, after: str) -> None:
    assert allowed_environment({prefix + before + secret + after: "hunter2"}) == {}


@given(st.text())
def test_a_variable_that_is_not_on_the_list_is_not_recorded(name: str) -> None:
    listed = (
        "TORCH", "AOT", "FUNCTORCH", "OMP", "MKL", "KMP", "RANK", "WORLD", "LOCAL", "GROUP", "NODE", "CUDA", "PYTHON",
    )
    if not name.startswith(listed):
        assert allowed_environment({name: "x"}) == {}


def test_variables_that_affect_compiling_are_recorded_in_order() -> None:
    environ = dict.fromkeys(reversed(ALLOWED), "1")
    assert allowed_environment(environ) == environ
    assert list(allowed_environment(environ)) == sorted(ALLOWED)


@pytest.mark.parametrize("name", [
    "HOME", "PATH", "USER", "AWS_ACCESS_KEY_ID", "WANDB_API_KEY", "HF_TOKEN", "RANK_TABLE", "PYTHONPATH", "torch_logs",
    "MY_TORCH_LOGS",
    "DATABASE_URL", "SSH_AUTH_SOCK",
])
def test_other_variables_are_not_recorded(name: str) -> None:
    assert allowed_environment({name: "x"}) == {}


def test_our_own_variables_are_not_facts_of_the_program() -> None:
    assert allowed_environment({FOLDER: "x", RUN_ID: "y", "TORCHTRIAGE_MEASURE": "1"}) == {}


@pytest.mark.parametrize("environ", [
    {"TORCHELASTIC_RUN_ID": "job7"}, {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"}, {"PBS_JOBID": "4.server"},
    {"LSB_JOBID": "9"},
])
def test_the_ranks_of_a_job_share_an_id_without_communication(environ: dict[str, str]) -> None:
    assert new_run_id(environ) == new_run_id(dict(environ))


def test_two_steps_of_one_job_are_two_runs() -> None:
    assert new_run_id(
        {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"}
    ) != new_run_id({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "4"})


@pytest.mark.parametrize("environ", [{}, {"TORCHELASTIC_RUN_ID": "none"}, {"SLURM_JOB_ID": ""}])
def test_without_a_scheduler_every_run_has_a_new_id(environ: dict[str, str]) -> None:
    first = new_run_id(environ)
    time.sleep(0.001)
    assert first != new_run_id(environ)


def test_the_first_process_makes_the_folder_and_sets_the_run_id(tmp_path: Path) -> None:
    environ = {FOLDER: str(tmp_path / "out.triage")}
    assert join_folder(environ) == str(tmp_path / "out.triage")
    assert (tmp_path / "out.triage" / RUN_FILE).read_text() == environ[RUN_ID]


def test_a_relative_folder_stays_the_same_for_a_child_that_changes_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {FOLDER: "out.triage"}
    join_folder(environ)
    assert environ[FOLDER] == str(tmp_path / "out.triage")


def test_a_process_with_the_same_run_id_joins(tmp_path: Path) -> None:
    environ = {FOLDER: str(tmp_path / "out.triage")}
    join_folder(environ)
    assert join_folder(dict(environ)) == str(tmp_path / "out.triage")
    assert os.listdir(tmp_path) == ["out.triage"]


def test_ranks_that_a_scheduler_started_join_one_folder(tmp_path: Path) -> None:
    environs = [{FOLDER: str(tmp_path / "out.triage"), "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0"} for _ in range(8)]
    threads = [threading.Thread(target=join_folder, args=(environ,)) for environ in environs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["out.triage"]
    assert len({environ[RUN_ID] for environ in environs}) == 1


def test_a_rank_waits_for_another_that_is_writing_the_id(tmp_path: Path) -> None:
    folder = tmp_path / "out.triage"
    folder.mkdir()
    (folder / RUN_FILE).touch()
    writer = threading.Timer(0.05, (folder / RUN_FILE).write_text, ["mine"])
    writer.start()
    assert claim(str(folder), "mine")
    writer.join()


def test_a_folder_of_another_run_makes_the_next_name_be_used(
    tmp_path: Path, stderr: pytest.CaptureFixture[str],
) -> None:
    folders = [join_folder({FOLDER: str(tmp_path / "out.triage"), "SLURM_JOB_ID": job}) for job in ("1", "2", "3")]
    assert folders == [str(tmp_path / name) for name in ("out.triage", "out-2.triage", "out-3.triage")]
    assert (tmp_path / "out.triage" / RUN_FILE).read_text() == "slurm_job_id-1-"
    assert "out.triage holds an earlier run; recording into" in stderr.readouterr().err


def test_a_folder_with_a_recording_but_no_id_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "out.triage"
    folder.mkdir()
    (folder / "box-1.sqlite").touch()
    assert join_folder({FOLDER: str(folder)}) == str(tmp_path / "out-2.triage")
    assert os.listdir(folder) == ["box-1.sqlite"]


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "out.triage").mkdir()
    assert join_folder({FOLDER: str(tmp_path / "out.triage")}) == str(tmp_path / "out.triage")


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path, stderr: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    environ = {FOLDER: str(tmp_path / "file" / "out.triage")}
    assert join_folder(environ) is None
    assert environ == {}
    captured = stderr.readouterr()
    assert captured.out == ""
    problem = f"cannot write {tmp_path}/file/out.triage: Not a directory"
    assert captured.err == f"torchtriage: {problem}; the program runs unobserved\n"


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path, stderr: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.triage").touch()
    assert join_folder({FOLDER: str(tmp_path / "out.triage")}) is None
    assert "the program runs unobserved" in stderr.readouterr().err


def test_a_command_line_is_recorded_without_its_secrets() -> None:
    words = ["train.py", "--lr", "3", "--api-key", "abc", "--hub_token=xyz", "--name", "run-key", "-v"]
    assert redacted(words) == [
        "train.py", "--lr", "3", "--api-key", "***", "--hub_token=***", "--name", "run-key", "-v",
    ]

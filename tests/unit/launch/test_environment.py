"""Processes find their recording through the environment."""

import os
import threading
import time
from pathlib import Path

import pytest

from torchtriage.launch.environment import FOLDER, RUN_FILE, RUN_ID, claim, join_folder, new_run_id


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


def test_a_folder_with_other_files_is_never_joined(tmp_path: Path, stderr: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    environ = {FOLDER: str(tmp_path / "thesis")}
    assert join_folder(environ) is None
    assert os.listdir(tmp_path / "thesis") == ["chapter1.tex"]
    assert environ == {}
    said = stderr.readouterr().err
    assert "it is a folder with other files, such as chapter1.tex; set TORCHTRIAGE to the name of a new folder" in said
    assert said.endswith("; the program runs unobserved\n")


@pytest.mark.parametrize("name", [".", "./", "..", "/", "1", "0", "true", "ON", "~", "~/run", " "])
def test_a_word_that_is_no_new_folder_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert join_folder({FOLDER: name}) is None
    assert list(tmp_path.rglob("*")) == [tmp_path / "here"]
    assert "set TORCHTRIAGE to the name of a new folder, such as run.triage" in stderr.readouterr().err


def test_a_child_that_works_in_the_recording_joins_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {FOLDER: str(tmp_path / "out.triage")}
    join_folder(environ)
    monkeypatch.chdir(tmp_path / "out.triage")
    assert join_folder(dict(environ)) == str(tmp_path / "out.triage")


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "large"])
def test_an_id_that_is_not_a_small_file_belongs_to_another_run(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "out.triage"
    folder.mkdir()
    path = folder / RUN_FILE
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        (tmp_path / "secret").write_text("slurm_job_id-1-")
        path.symlink_to(tmp_path / "secret")
    else:
        path.write_bytes(b"x" * 100_000)
    assert join_folder({FOLDER: str(folder), "SLURM_JOB_ID": "1"}) == str(tmp_path / "out-2.triage")


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
    problem = f"cannot record into {tmp_path}/file/out.triage: Not a directory"
    assert captured.err == f"torchtriage: {problem}; the program runs unobserved\n"


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path, stderr: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.triage").touch()
    assert join_folder({FOLDER: str(tmp_path / "out.triage")}) is None
    assert "the program runs unobserved" in stderr.readouterr().err

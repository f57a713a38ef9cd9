"""The scalars that other loggers wrote, read as series."""

import json
import math
from io import BytesIO
from pathlib import Path

import pytest

from tests.event_files import event_record, framed
from torchtriage.capture.readers.event_file import Scalar, is_event_file, scalars
from torchtriage.capture.readers.scalar_log import is_scalar_log, read_scalar_logs, scalar_logs
from torchtriage.capture.readers.scalar_names import series_name
from torchtriage.commands.report import read_source
from torchtriage.errors import CommandError, TriageError
from torchtriage.recording.series import EPISODE_RETURN_MEAN, GRAD_NORM, LEARNING_RATE, LOSS, PPO_CLIP_FRACTION, PPO_KL


def points(path: Path, name: str) -> list[tuple[float, float]]:
    (process,) = read_source(str(path)).processes
    series = process.series[name]
    return list(zip(series.steps, series.values, strict=True))


def test_the_scalars_of_an_event_file_are_read_with_their_steps() -> None:
    file = BytesIO(event_record(300, {"losses/approx_kl": 0.5, "a": 2.0}) + event_record(7, {"b": 1.5}, as_tensor=True))
    assert list(scalars(file)) == [
        Scalar("losses/approx_kl", 300, 0.5), Scalar("a", 300, 2.0), Scalar("b", 7, 1.5),
    ]


def test_an_event_file_is_read_up_to_a_damaged_record() -> None:
    content = event_record(1, {"a": 1.0}) + b"damaged record" + event_record(2, {"a": 2.0})
    assert [scalar.step for scalar in scalars(BytesIO(content))] == [1]


def test_an_event_that_ends_within_a_field_has_no_scalar() -> None:
    assert list(scalars(BytesIO(framed(b"\x2a\xff")))) == []


def test_an_event_file_is_known_by_the_checksum_of_its_first_length() -> None:
    assert is_event_file(event_record(1, {"a": 1.0}))
    assert not is_event_file(b"\x18" + bytes(30))


@pytest.mark.parametrize(("foreign", "own"), [
    ("train/approx_kl", PPO_KL), ("losses/approx_kl", PPO_KL), ("losses/clipfrac", PPO_CLIP_FRACTION),
    ("charts/episodic_return", EPISODE_RETURN_MEAN), ("train/grad_norm", GRAD_NORM), ("Loss/train", LOSS),
    ("train/policy/approxkl_avg", PPO_KL), ("train/kl_approx", PPO_KL), ("train/lr", LEARNING_RATE),
    ("grad_norm/layer.weight", "grad_norm/layer.weight"), ("ppo/ratio_max", "ppo/ratio_max"),
])
def test_a_known_name_is_its_series(foreign: str, own: str) -> None:
    assert series_name(foreign) == own


@pytest.mark.parametrize("foreign", [
    "objective/kl", "losses/value_loss", "eval/loss", "train/entropy_loss", "accuracy",     # another meaning, or none
])
def test_a_name_with_another_meaning_is_left_out(foreign: str) -> None:
    assert series_name(foreign) is None


def test_a_table_has_the_steps_of_its_column(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("train/approx_kl,time/total_timesteps\n,2048\n0.02,4096\nnan,6144\n")
    (first, second) = points(path, PPO_KL)
    assert first == (4096, 0.02)
    assert second[0] == 6144
    assert math.isnan(second[1])


def test_lines_of_json_are_read_with_their_inner_values_and_without_a_cut_off_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 5, "loss": 1.5, "tag": "x"}\n{"step": 6, "metrics": {"loss": "inf"}}\n{"step": 7, "lo')
    assert points(path, LOSS) == [(5, 1.5), (6, math.inf)]


def test_the_history_of_transformers_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": [{"step": 10, "loss": 2.0}, {"step": 20, "eval_loss": 1.0}]}))
    assert points(path, LOSS) == [(10, 2.0)]


def test_the_same_series_under_a_second_name_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    rows = [{"step": 10, "loss": 2.0}, {"step": 20, "loss": 1.0}, {"step": 20, "train_loss": 1.5}]
    path.write_text(json.dumps({"log_history": rows}))
    assert points(path, LOSS) == [(10, 2.0), (20, 1.0)]


def test_rows_without_steps_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("loss,x\n3.0,1\n2.0,1\n")
    assert points(path, LOSS) == [(1, 3.0), (2, 2.0)]


def test_each_folder_of_event_files_is_a_process(tmp_path: Path) -> None:
    for name, step in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.out.tfevents.1").write_bytes(event_record(step, {"loss": 1.0}))
    (tmp_path / "b" / "events.out.tfevents.2").write_bytes(event_record(9, {"loss": 0.5}))
    recording = read_source(str(tmp_path))
    assert [(process.name, list(process.series[LOSS].steps)) for process in recording.processes] == [
        ("a", [1]), ("b", [2, 9])]


def test_the_tables_of_a_folder_are_found(tmp_path: Path) -> None:
    version, checkpoint = tmp_path / "version_0", tmp_path / "checkpoint-10"
    version.mkdir()
    checkpoint.mkdir()
    (version / "metrics.csv").write_text("epoch,step,train_loss\n0,9,2.0\n")
    (version / "prices.csv").write_text("step,loss\n1,5.0\n")
    for folder in (tmp_path, checkpoint):
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": [{"step": 10, "loss": 2.0}]}))
    assert [path.relative_to(tmp_path) for path in scalar_logs(tmp_path)] == [
        Path("trainer_state.json"), Path("version_0/metrics.csv")]


@pytest.mark.parametrize("name", ["progress.csv", "log.jsonl"])
def test_an_empty_table_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("\n")
    with pytest.raises(TriageError, match="it has no scalar at all"):
        read_source(str(tmp_path / name))


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(event_record(1, {"loss": 1.0}))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "events.out.tfevents.1").symlink_to(tmp_path / "elsewhere")
    assert scalar_logs(tmp_path / "logs") == []


def test_a_log_without_a_known_name_is_refused_with_the_names_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("epoch,accuracy\n1,0.5\n")
    with pytest.raises(TriageError, match=r"it has epoch, accuracy; they know names such as loss"):
        read_scalar_logs([path])


def test_another_text_is_not_taken_for_a_log_of_scalars(tmp_path: Path) -> None:
    assert not is_scalar_log(tmp_path / "x.json", b'{"model_type": "llama"}')
    assert not is_scalar_log(tmp_path / "x.csv", b"\0\1,\2")
    (tmp_path / "x.txt").write_text("loss,step\n")
    with pytest.raises(CommandError, match="not a recording"):
        read_source(str(tmp_path / "x.txt"))


def test_a_long_series_is_thinned_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchtriage.capture.readers.scalar_log.MAX_POINTS", 8)
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n" + "".join(f"{step},{step}\n" for step in range(100)))
    steps = [step for step, _ in points(path, LOSS)]
    assert len(steps) <= 8
    assert (steps[0], steps[-1] >= 80) == (0, True)

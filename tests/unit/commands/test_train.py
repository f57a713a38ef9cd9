"""The sources of the settings of `train`, and the settings that it rejects before anything starts."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from torchtriage.commands.main import build_parser, main
from torchtriage.commands.train import settings
from torchtriage.recording.store import Writer
from torchtriage.rl.config import TrainConfig, resolved


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def config(*words: str) -> TrainConfig:
    return settings(build_parser().parse_args(["train", *words]))


def test_without_flags_the_defaults_apply() -> None:
    assert config() == TrainConfig()


def test_flags_override_the_file_and_the_file_overrides_the_project(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.torchtriage.train]\nlr = 0.1\nepochs = 3\nenvs = 2\n')
    (project / "a.toml").write_text("lr = 0.2\nepochs = 4\n")
    train = config("--config", "a.toml", "--lr", "0.3")
    assert (train.lr, train.epochs, train.envs) == (0.3, 4, 2)


def test_the_preset_is_that_of_the_final_environment(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.torchtriage.train]\nenv = "Acrobot-v1"\n')
    assert config() == resolved({"env": "Acrobot-v1"})
    assert config("--env", "Pendulum-v1", "--no-lstm", "--total-steps", "1e3") == resolved(
        {"env": "Pendulum-v1", "total_steps": 1000}
    )


def test_the_settings_of_a_training_do_not_disturb_the_others(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "pyproject.toml").write_text("[tool.torchtriage]\ncolor = 'never'\n[tool.torchtriage.train]\nlr = 0.1\n")
    assert main(["explain", "TT203"]) == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "auto"),
        (("--compile",), "yes"),
        (("--no-compile",), "no"),
        (("--compile", "no"), "no"),
        (("--compile", "auto"), "auto"),
    ],
)
def test_compile_has_three_values_and_two_short_forms(words: tuple[str, ...], expected: str) -> None:
    assert config(*words).compile == expected


def test_lists_levels_and_switches_are_read() -> None:
    train = config("--hidden", "32,16", "--telemetry-level", "debug", "--lstm", "--no-critic-lstm", "--seeds", "3")
    assert (train.hidden, train.telemetry_level, train.lstm, train.critic_lstm, train.seeds) == (
        (32, 16),
        "DEBUG",
        True,
        False,
        3,
    )


@pytest.mark.parametrize(
    ("words", "pyproject", "text"),
    [
        (
            (),
            "[tool.torchtriage.train]\nlearning-rat = 1\n",
            "unknown key 'learning-rat' in [tool.torchtriage.train] of",
        ),
        ((), "[tool.torchtriage.train]\ngama = 1\n", "did you mean 'gamma'?"),
        ((), "[tool.torchtriage]\ntrain = 3\n", "must be a table"),
        (("--lr", "fast"), "", "--lr must be a number, got 'fast'"),
        (("--gamma", "2"), "", "gamma must be from 0 to 1, got 2.0"),
        (("--config", "missing.toml"), "", "cannot read the settings in missing.toml"),
        (
            ("--resume", "nothing"),
            "",
            "no checkpoint in nothing; make one with: torchtriage train --checkpoint nothing",
        ),
        (
            ("--compare-with", "none.triage"),
            "",
            "no recording at none.triage; make one with: torchtriage train -o none.triage",
        ),
    ],
)
def test_an_invalid_setting_is_exit_2_before_anything_starts(
    words: tuple[str, ...], pyproject: str, text: str, project: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    (project / "pyproject.toml").write_text(pyproject)
    assert main(["train", *words]) == 2
    assert text in capsys.readouterr().err
    assert [path.name for path in project.iterdir()] == ["pyproject.toml"]


def test_a_recording_without_results_cannot_be_compared_with(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "a.triage").mkdir()
    Writer(project / "a.triage" / "host-1.sqlite").close()
    assert main(["train", "--compare-with", "a.triage"]) == 2
    assert "a.triage contains no results of a training" in capsys.readouterr().err


def test_missing_gymnasium_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == "gymnasium" else real(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    assert main(["train"]) == 2
    assert (
        "gymnasium, which is not installed; install it with: pip install 'torchtriage[rl]'" in capsys.readouterr().err
    )

"""Settings of a training: presets, files and flags, and the errors for invalid ones."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.errors import CommandError
from torchtriage.rl.config import FIELDS, FLAGS, PRESETS, TrainConfig, checked, differences, from_file, parsed, resolved


def test_the_defaults_are_those_of_rl_zoo_for_cartpole() -> None:
    config = resolved()
    assert config == resolved({"env": "CartPole-v1"}) == TrainConfig()
    assert (config.envs, config.steps, config.batch, config.epochs, config.gamma, config.gae_lambda) == (
        8,
        32,
        256,
        20,
        0.98,
        0.8,
    )
    assert (config.lr, config.lr_schedule, config.clip, config.clip_schedule, config.entropy) == (
        1e-3,
        "linear",
        0.2,
        "linear",
        0.0,
    )


def test_every_setting_has_a_help_text() -> None:
    assert [name for name, one in FIELDS.items() if len(one.metadata["help"]) < 10] == []


@pytest.mark.parametrize("env", PRESETS)
def test_a_flag_overrides_the_preset_of_an_environment(env: str) -> None:
    config = resolved({"env": env})
    assert all(getattr(config, name) == value for name, value in PRESETS[env].items())
    assert resolved({"env": env, "epochs": 3, "lr": 0.5}, {"lr": 0.25}) == dataclasses.replace(
        config, epochs=3, lr=0.25
    )


def test_an_unknown_environment_gets_the_defaults() -> None:
    assert resolved({"env": "Mine-v3"}) == TrainConfig(env="Mine-v3")


def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("gama = 0.9\n")
    with pytest.raises(CommandError, match=r"unknown key 'gama' in .*a\.toml; did you mean 'gamma'\?"):
        from_file(tmp_path / "a.toml")


def test_keys_of_a_file_are_flag_names(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        'env = "Acrobot-v1"\ntotal-steps = 1e4\nhidden = [32, 16]\nlstm = true\ntelemetry-level = "debug"\n'
    )
    assert from_file(tmp_path / "a.toml") == {
        "env": "Acrobot-v1",
        "total_steps": 10_000,
        "hidden": (32, 16),
        "lstm": True,
        "telemetry_level": "DEBUG",
    }


def test_a_missing_file_and_invalid_toml_are_refused(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text("lr = = 3")
    (tmp_path / "c.toml").write_text("lr = " + "[" * 90_000)
    for name in ("a.toml", "b.toml", "c.toml"):
        with pytest.raises(CommandError, match="cannot read the settings"):
            from_file(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("total_steps", "many", "a whole number"),
        ("total_steps", 1.5, "a whole number"),
        ("total_steps", True, "a whole number"),
        ("total_steps", "inf", "a whole number"),
        ("lr", "fast", "a number"),
        ("lr", False, "a number"),
        ("lstm", "yes", "true or false"),
        ("hidden", "64,x", "a list of whole numbers"),
        ("hidden", 64, "a list of whole numbers"),
        ("env", 3, "a text"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(name: str, value: object, kind: str) -> None:
    with pytest.raises(CommandError, match=f"here must be {kind}, got"):
        parsed(name, value, "here")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"envs": 0}, "envs must be at least 1, got 0"),
        ({"gamma": 1.5}, "gamma must be from 0 to 1, got 1.5"),
        ({"lr": float("nan")}, "lr must be at least 0, got nan"),
        ({"lr": float("inf")}, "lr must be at least 0, got inf"),
        ({"compile": "maybe"}, "compile must be one of auto, yes, no, got 'maybe'"),
        ({"hidden": (64, 0)}, "hidden must be at least 1, got 0"),
        ({"gae_lambda": -0.1}, "gae-lambda must be from 0 to 1"),
        ({"telemetry_level": "LOUD"}, "telemetry-level must be one of"),
    ],
)
def test_a_value_out_of_range_is_refused(fields: dict[str, object], text: str) -> None:
    with pytest.raises(CommandError, match=text):
        TrainConfig(**fields)  # type: ignore[arg-type]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "lr": st.floats(0, 1),
            "envs": st.integers(1, 64),
            "hidden": st.lists(st.integers(1, 99), max_size=3).map(tuple),
            "lstm": st.booleans(),
            "env": st.text(),
            "compile": st.sampled_from(["auto", "yes", "no"]),
            "total_steps": st.integers(1, 10**9),
        },
    )
)
def test_a_config_survives_json(fields: dict[str, object]) -> None:
    config = TrainConfig(**fields)  # type: ignore[arg-type]
    assert TrainConfig.from_json(config.to_json()) == config


def test_the_json_has_only_settings_that_differ_from_the_defaults() -> None:
    assert TrainConfig(lr=0.5, total_steps=7).to_json() == '{"total-steps": 7, "lr": 0.5}'


def test_settings_that_may_differ_from_a_checkpoint_are_listed_separately() -> None:
    saved = dataclasses.asdict(TrainConfig(total_steps=100, lr=0.1))
    fixed, free = differences(saved, TrainConfig(total_steps=200, lr=0.2))
    assert fixed == ["lr: 0.1 -> 0.2"]
    assert free == ["total-steps: 100 -> 200"]
    assert differences({**saved, "hidden": [64, 64]}, TrainConfig(total_steps=100, lr=0.1)) == ([], [])


def test_with_an_lstm_minibatches_have_complete_sequences() -> None:
    assert TrainConfig(envs=8, steps=32, batch=100).num_minibatches == 3
    assert TrainConfig(envs=8, steps=32, batch=100, lstm=True).num_minibatches == 3  # 3 of 8 sequences at a time
    assert TrainConfig(envs=8, steps=32, batch=8, lstm=True).num_minibatches == 8
    assert TrainConfig(envs=8, steps=32, total_steps=257).num_updates == 2


def test_keys_of_a_table_are_flag_names() -> None:
    assert checked({key: getattr(TrainConfig(), name) for key, name in FLAGS.items()}, "t") == dataclasses.asdict(
        TrainConfig()
    )

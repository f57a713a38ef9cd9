"""The settings of a training with their help texts, including presets per environment.

This module does not import torch, so that `torchtriage train --help` starts at once.
"""

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchtriage.config import unknown_key
from torchtriage.errors import CommandError

COMPILE = ("auto", "yes", "no")
STEPPINGS = ("auto", "serial", "vector")
SCHEDULES = ("constant", "linear")
ACTIVATIONS = ("tanh", "relu")
CHECKPOINTS = "update-*.pt"  # files in a folder of checkpoints
LEVELS = ("OFF", "MINIMAL", "NORMAL", "DEBUG")


def setting(
    default: Any,
    text: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    free: bool = False,
) -> Any:
    """A field with its help text; `free` settings may change when a run resumes from a checkpoint."""
    return field(
        default=default, metadata={"help": text, "least": least, "most": most, "choices": choices, "free": free}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """The settings of one training.

    The defaults are those of RL Zoo for CartPole-v1. Every name is a flag, with `-` for `_`.
    """

    env: str = setting(
        "CartPole-v1", "the environment: an id of gymnasium, CartPoleNoVel-v1 (no velocities), or growth"
    )
    lstm: bool = setting(False, "use a recurrent policy: one LSTM layer before the heads")
    lstm_size: int = setting(64, "units of the LSTM", least=1)
    critic_lstm: bool = setting(True, "give the critic its own LSTM")
    hidden: tuple[int, ...] = setting(
        (64, 64), "units of each hidden layer, for the policy and for the critic, as in 64,64", least=1
    )
    activation: str = setting("tanh", "activation between the hidden layers", choices=ACTIVATIONS)
    orthogonal: bool = setting(True, "use orthogonal initial weights instead of torch's defaults")

    envs: int = setting(8, "number of parallel environments", least=1)
    stepping: str = setting(
        "auto", "step environments serially, all at once, or whichever is faster", choices=STEPPINGS
    )
    steps: int = setting(32, "steps per environment between two updates", least=1)
    total_steps: int = setting(100_000, "total number of environment steps", least=1, free=True)
    batch: int = setting(256, "samples per minibatch; with an LSTM, complete sequences with that many samples", least=1)
    epochs: int = setting(20, "passes over the samples of a rollout", least=1)
    gamma: float = setting(0.98, "discount of later rewards", least=0, most=1)
    gae_lambda: float = setting(0.8, "weight of longer returns in the advantages", least=0, most=1)
    lr: float = setting(1e-3, "learning rate of Adam at the start", least=0)
    lr_schedule: str = setting("linear", "learning rate schedule: linear to 0, or constant", choices=SCHEDULES)
    clip: float = setting(0.2, "initial clipping range of the probability ratio around 1", least=0)
    clip_schedule: str = setting("linear", "clipping range schedule: linear to 0, or constant", choices=SCHEDULES)
    clip_value: float = setting(0.0, "clipping range of the value around its old value; 0: no clipping", least=0)
    entropy: float = setting(0.0, "weight of the entropy in the loss", least=0)
    value_coef: float = setting(0.5, "weight of the critic's loss", least=0)
    max_grad_norm: float = setting(0.5, "gradients are clipped to this norm", least=0)
    target_kl: float = setting(0.0, "stop an update early once KL exceeds 1.5 times this; 0: never", least=0)
    normalize_advantage: bool = setting(True, "normalize the advantages of each minibatch to mean 0 and variance 1")
    normalize_observation: bool = setting(
        False, "normalize observations to mean 0 and variance 1 by running statistics"
    )
    normalize_reward: bool = setting(False, "divide rewards by the standard deviation of the discounted return")
    normalize_value: bool = setting(False, "divide the critic's targets by their standard deviation")

    seed: int = setting(0, "seed of weights, actions, shuffling and environments", least=0)
    seeds: int = setting(1, "train with seed, seed + 1, ... and summarize all runs", least=1, free=True)
    jobs: int = setting(1, "number of seeds that run at the same time", least=1, free=True)
    compile: str = setting(
        "auto", "compile the policy step and the update; auto: only what pays off", choices=COMPILE, free=True
    )
    threads: int = setting(
        1, "torch threads; small networks are fastest with 1; 0: torch's default", least=0, free=True
    )
    eval_episodes: int = setting(20, "number of evaluation episodes at the end; 0: no evaluation", least=0, free=True)
    eval_deterministic: bool = setting(True, "evaluate with the most likely action instead of a sampled one", free=True)

    telemetry_level: str = setting("NORMAL", "how much of the learning is recorded", choices=LEVELS, free=True)
    profile: bool = setting(
        False, "profile five updates with torch.profiler, into NAME.profile beside NAME.triage", free=True
    )
    jsonl: str = setting("", "also write the recorded learning events to this file, one JSON line per event", free=True)
    checkpoint: str = setting(
        "", "folder of checkpoints; without it an interrupted run leaves one in NAME.checkpoint", free=True
    )
    checkpoint_every: int = setting(50, "updates between two checkpoints", least=1, free=True)
    resume: str = setting("", "continue from the newest checkpoint in this folder", free=True)

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            _check_range(one, getattr(self, one.name))

    @property
    def rollout_size(self) -> int:
        return self.envs * self.steps

    @property
    def num_updates(self) -> int:
        """The number of complete rollouts that reach total_steps."""
        return math.ceil(self.total_steps / self.rollout_size)

    @property
    def num_minibatches(self) -> int:
        """Minibatches per epoch; with an LSTM a minibatch holds complete sequences."""
        if self.lstm:
            return math.ceil(self.envs / max(1, self.batch // self.steps))
        return math.ceil(self.rollout_size / self.batch)

    def changed(self) -> dict[str, Any]:
        """The settings that differ from the defaults, by flag name."""
        return {key: getattr(self, name) for key, name in FLAGS.items() if getattr(self, name) != DEFAULTS[name]}

    def to_json(self) -> str:
        return json.dumps(self.changed())

    @staticmethod
    def from_json(text: str) -> "TrainConfig":
        return TrainConfig(**checked(json.loads(text), "the config"))


FIELDS = {one.name: one for one in dataclasses.fields(TrainConfig)}
FLAGS = {name.replace("_", "-"): name for name in FIELDS}  # flag without --, which is also the key in a file: field
DEFAULTS: dict[str, Any] = {name: one.default for name, one in FIELDS.items()}

# By environment. Sources: RL Zoo's ppo.yml and ppo_lstm.yml, CleanRL's ppo.py.
PRESETS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {},  # RL Zoo's are the defaults
    # RL Zoo's settings, except for the first four. With its gamma of 0.98 some seeds end at 200 to 290 steps, beyond
    # the discount's horizon. Without the KL target some policies reach all 500 steps and lose them again: every
    # advantage is then noise, which normalization scales up.
    "CartPoleNoVel-v1": {
        "epochs": 10,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "target_kl": 0.02,
        "lstm": True,
        "lstm_size": 64,
        "critic_lstm": True,
        "hidden": (64,),
        "activation": "relu",
        "orthogonal": False,
        "normalize_observation": True,
        "normalize_reward": True,
    },
    "Acrobot-v1": {
        "envs": 16,
        "steps": 256,
        "total_steps": 1_000_000,
        "batch": 64,
        "epochs": 4,
        "gamma": 0.99,
        "gae_lambda": 0.94,
        "lr": 3e-4,
        "lr_schedule": "constant",
        "clip_schedule": "constant",
        "normalize_observation": True,
        "normalize_reward": True,
    },
    "LunarLander-v3": {
        "envs": 16,
        "steps": 1024,
        "total_steps": 1_000_000,
        "batch": 64,
        "epochs": 4,
        "gamma": 0.999,
        "gae_lambda": 0.98,
        "lr": 3e-4,
        "lr_schedule": "constant",
        "clip_schedule": "constant",
        "entropy": 0.01,
    },
    "MountainCar-v0": {  # CleanRL's: a negative control, which never reaches the flag
        "envs": 4,
        "steps": 128,
        "total_steps": 500_000,
        "batch": 128,
        "epochs": 4,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "lr": 2.5e-4,
        "clip_schedule": "constant",
        "clip_value": 0.2,
        "entropy": 0.01,
    },
    "Pendulum-v1": {  # RL Zoo's also has state-dependent exploration, which is not here
        "envs": 4,
        "steps": 1024,
        "total_steps": 100_000,
        "batch": 64,
        "epochs": 10,
        "gamma": 0.9,
        "gae_lambda": 0.95,
        "lr_schedule": "constant",
        "clip_schedule": "constant",
    },
    "growth": {  # the best of six settings tried on seed 0; a rollout is an episode of 40 steps
        "envs": 16,
        "steps": 40,
        "total_steps": 96_000,
        "batch": 160,
        "epochs": 10,
        "gamma": 0.995,
        "gae_lambda": 0.95,
        "lr": 2e-3,
        "clip_schedule": "constant",
        "entropy": 0.003,
        "normalize_observation": True,
        "normalize_reward": True,
    },
}


def resolved(*layers: Mapping[str, Any]) -> TrainConfig:
    """The defaults, overridden by the environment's preset, then by each layer in order (a file, then flags)."""
    settings: dict[str, Any] = {}
    for layer in layers:
        settings.update(layer)
    preset = PRESETS.get(str(settings.get("env", DEFAULTS["env"])), {})
    return TrainConfig(**{**preset, **settings})


def from_file(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, by field name."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read the settings in {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"cannot read the settings in {path}, which should be TOML: {error}") from error
    return checked(table, str(path))


def checked(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings by field name, each of the right type; an unknown key is refused with the nearest valid one."""
    values = {}
    for key, value in table.items():
        if key not in FLAGS:
            raise unknown_key(key, FLAGS, where)
        values[FLAGS[key]] = parsed(FLAGS[key], value, f"{key} in {where}")
    return values


def parsed(name: str, value: Any, where: str) -> Any:
    """A value of a file or a flag as the type of its field: 1e6 is an integer, "64,64" equals [64, 64]."""
    default = DEFAULTS[name]
    try:
        if isinstance(default, bool):
            if isinstance(value, bool):
                return value
        elif isinstance(default, int):
            number = float(value)
            if number.is_integer() and not isinstance(value, bool):
                return int(number)
        elif isinstance(default, float):
            if not isinstance(value, bool):
                return float(value)
        elif isinstance(default, tuple):
            items = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else list(value)
            return tuple(int(item) for item in items)
        elif isinstance(value, str):
            return value.upper() if name == "telemetry_level" else value
    except (TypeError, ValueError, OverflowError):
        pass
    kind = {bool: "true or false", int: "a whole number", float: "a number", tuple: "a list of whole numbers"}.get(
        type(default), "a text"
    )
    raise CommandError(f"{where} must be {kind}, got {value!r}")


def _check_range(one: "dataclasses.Field[Any]", value: Any) -> None:
    least, most, choices = (one.metadata[key] for key in ("least", "most", "choices"))
    key = one.name.replace("_", "-")
    if choices and value not in choices:
        raise CommandError(f"{key} must be one of {', '.join(choices)}, got {value!r}")
    for number in value if isinstance(value, tuple) else (value,):
        low, high = least is not None and not number >= least, most is not None and not number <= most
        if low or high or (isinstance(number, float) and not math.isfinite(number)):
            if most is not None:
                allowed = f"from {least:g} to {most:g}"
            else:
                allowed = f"at least {least:g}" if least is not None else "finite"
            raise CommandError(f"{key} must be {allowed}, got {number}")


def differences(saved: Mapping[str, Any], now: TrainConfig) -> tuple[list[str], list[str]]:
    """(changed fields that must not change, changed fields that may), each as `field: saved -> now`."""
    fixed: list[str] = []
    free: list[str] = []
    for name, one in FIELDS.items():
        was, is_now = saved.get(name, one.default), getattr(now, name)
        was = tuple(was) if isinstance(was, list) else was
        if was != is_now:
            (free if one.metadata["free"] else fixed).append(f"{name.replace('_', '-')}: {was} -> {is_now}")
    return fixed, free
